"""Make the models of `families/` and `readers.py`: python make_models.py FOLDER [NAME...].

Runs in a process of its own, because transformers warns in ways that are not ours. Each model goes
to FOLDER/NAME as save_pretrained writes it; its tokens and logits beside it, in NAME.npz.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from families import N_VOCAB, ROWS, SIZES, Row
from make_readers import make_reader
from readers import READERS

N_TOKENS = 200


def main() -> None:
    """Make those that are named, or all."""
    folder, names = Path(sys.argv[1]), sys.argv[2:] or [*ROWS, *READERS]
    torch.set_num_threads(1)
    for name in names:
        torch.manual_seed(3)
        if name in READERS:
            make_reader(READERS[name], folder / name)
            continue
        model = made(ROWS[name])
        tokens = torch.randint(0, N_VOCAB, (N_TOKENS,))
        with torch.no_grad():
            logits = model(tokens[None], use_cache=False).logits[0]
        model.save_pretrained(folder / name)
        np.savez(folder / f"{name}.npz", tokens=tokens.numpy(), logits=logits.numpy())


def made(row: Row) -> Any:
    """Return a model whose every weight is random, and none what it is by default."""
    name, _, config_name = row.name.partition("|")
    config = getattr(transformers, f"{config_name or name}Config")(**SIZES | row.config)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    classes = (getattr(transformers, name + end, None) for end in ("ForCausalLM", "LMHeadModel"))
    model = next(filter(None, classes))(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1:
                parameter.add_(0.3 * noise)
                # Gemma 4 scales no scores: its trained norms do.
                if row.arch == "gemma4" and name.endswith("q_norm.weight"):
                    parameter.mul_(len(parameter) ** -0.5)
            else:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
        for name, buffer in model.named_buffers():
            if name.endswith(("expert_bias", "layer_scalar", "correction_bias")):
                buffer.add_(0.3 * torch.randn_like(buffer))
    return model


main()
