"""Make the models of `readers.py` with transformers, for make_models.py.

Each model goes to FOLDER/NAME as save_pretrained writes it, with the modules of
sentence-transformers; its tokens, their rows and what it gives beside it, in NAME.npz.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import ports
import torch
import transformers
from readers import N_LONG, N_SHORT, N_VOCAB, SIZES, Reader
from safetensors.torch import save_file

N_SPECIAL = 3  # ids that transformers may take for padding


def make_reader(row: Reader, folder: Path) -> None:
    """Save a model and what it gives for two sequences, each alone."""
    model = made(row)
    model.save_pretrained(folder)
    matrices = [torch.randn(n_out, n_in) * n_in**-0.5 for n_in, n_out in sizes(row)]
    if row.pooling:
        save_modules(row, folder, matrices)
    if row.answers:
        write_answers(folder, row.answers)
    tokens = torch.randint(N_SPECIAL, N_VOCAB, (N_LONG + N_SHORT,))
    tokens[list(row.separators)] = row.config.get("sep_token_id", 0)
    rows, results = [], []
    for part in (tokens[:N_LONG], tokens[N_LONG:]):
        with torch.no_grad():
            output = model(part[None], **types(row, part))
        if not row.pooling:
            results.append(scores(row, output.logits[0]))
            continue
        given = output.last_hidden_state[0]
        for matrix in matrices:  # of a mean, what the mean of all would be
            given = given @ matrix.T
        rows.append(given)
        pooled = {"cls": given[0], "mean": given.mean(dim=0), "last": given[-1]}
        results.append(pooled[row.pooling])
    arrays = {"tokens": tokens, "results": torch.stack(results)}
    if rows:
        arrays["rows"] = torch.cat(rows)
    np.savez(f"{folder}.npz", **{key: array.numpy() for key, array in arrays.items()})


def scores(row: Reader, logits: torch.Tensor) -> torch.Tensor:
    """Return what a file gives: shares, where it is yes and no that it scores; no has 0 if it has
    no logit.
    """
    if row.answers:
        return torch.softmax(logits[-1][list(row.answers)], dim=0)
    if row.arch == "qwen3":
        return torch.softmax(torch.stack([logits[0], torch.tensor(0.0)]), dim=0)
    return logits


def write_answers(folder: Path, answers: tuple[int, int]) -> None:
    """Write the module that names the tokens of yes and no."""
    module = "sentence_transformers.cross_encoder.models"
    listed = [
        {"idx": 0, "path": "", "type": "sentence_transformers.base.models.Transformer"},
        {"idx": 1, "path": "1_LogitScore", "type": f"{module}.LogitScore"},
    ]
    write(folder / "modules.json", listed)
    yes, no = answers
    write(folder / "1_LogitScore/config.json", {"true_token_id": yes, "false_token_id": no})


def made(row: Reader) -> Any:
    """Return a model whose every weight is random, and none what it is by default."""
    if hasattr(ports, row.name):
        model = getattr(ports, row.name)({"vocab_size": N_VOCAB, **row.config})
    else:
        kind = getattr(transformers, row.name)
        config = kind.config_class(**SIZES | row.config)
        config._attn_implementation = "eager"
        model = kind(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1:
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
    return model


def types(row: Reader, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the types of a pair's tokens, as its tokenizer makes them."""
    if not row.separators:
        return {}
    ends = (tokens == row.config["sep_token_id"]).cumsum(0)
    return {"token_type_ids": (ends.roll(1) * (torch.arange(len(tokens)) > 0)).clamp(max=1)[None]}


def sizes(row: Reader) -> list[tuple[int, int]]:
    """Return inputs and outputs of the matrices after pooling."""
    return list(zip((SIZES["hidden_size"], *row.dense), row.dense, strict=False))


def save_modules(row: Reader, folder: Path, matrices: list[torch.Tensor]) -> None:
    """Write the modules as sentence-transformers does."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modules += [("Dense", f"{i + 2}_Dense") for i in range(len(matrices))]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate([*modules, ("Normalize", "9_Normalize")])
    ]
    write(folder / "modules.json", listed)
    mode = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    given = {f"pooling_mode_{mode[kind]}": kind == row.pooling for kind in mode}
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": 64, **given})
    for i, matrix in enumerate(matrices):
        n_out, n_in = matrix.shape
        inner = folder / f"{i + 2}_Dense"
        write(inner / "config.json", {"in_features": n_in, "out_features": n_out, "bias": False})
        save_file({"linear.weight": matrix.contiguous()}, inner / "model.safetensors")


def write(path: Path, value: Any) -> None:
    """Write JSON, in a folder made for it."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
