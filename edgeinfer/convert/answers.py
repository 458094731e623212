"""Make a head of the words that a reranker answers with: of its output's rows, those of yes and no.

Such a model is one that writes text, and its folder says by a module of sentence-transformers, or
on its card, that it ranks. In goes the folder and its class's row, out comes another row.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeinfer.arch.shared.pooling import YES_OR_NO
from edgeinfer.convert.config import Config
from edgeinfer.convert.family import Family
from edgeinfer.convert.keys import Keys, labelled_scores, text, texts
from edgeinfer.convert.sentence import folder_of
from edgeinfer.convert.strict_json import Object, read_object, read_objects
from edgeinfer.convert.weights import Weights, reordered
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display

HEAD = "cls.output"
MODULES = ("LogitScore", "CausalScoreHead")  # of sentence-transformers' modules.json
CARD = "README.md"
MOST_CARD_BYTES = 1 << 20
RANKS = re.compile(rb"^pipeline_tag: *text-ranking *$", re.MULTILINE)
ARCH = "qwen3"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# What these models were trained to be asked; `{query}` and `{document}` are filled in.
TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    f"<|im_start|>user\n<Instruct>: {INSTRUCTION}\n<Query>: {{query}}\n<Document>: {{document}}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def asking_keys() -> Keys:
    """Return the keys of a question that a text answers with yes or no."""
    return [
        *labelled_scores("last", YES_OR_NO),
        text("tokenizer.chat_template.rerank", TEMPLATE),
        texts("tokenizer.chat_templates", ["rerank"]),
    ]


def _answers(folder: Path, family: Family, c: Config) -> tuple[int, int] | None:
    """Return the ids of yes and no, or None for a folder that does not say that it ranks."""
    if family.arch != ARCH or not c.architecture.endswith("ForCausalLM"):
        return None
    if (folder / "modules.json").is_file():
        listed = folder / "modules.json"
        for module in read_objects(listed):
            if str(module.get("type")).rpartition(".")[2] in MODULES:
                path = folder_of(module, folder, display(listed)) / "config.json"
                return _ids(read_object(path), "true_token_id", "false_token_id", display(path))
    if _ranks_by_card(folder / CARD):
        path = folder / "tokenizer.json"
        model = read_object(path).get("model")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        found = vocabulary if isinstance(vocabulary, dict) else {}
        return _ids(found, "yes", "no", f"{display(path)}: vocab")
    return None


def answering(folder: Path, family: Family, c: Config) -> Family:
    """Return the row of a class, changed for a folder that says that it ranks.

    A head of two rows of the output takes its place. Raises ModelFormatError where the folder does
    not say which.
    """
    ids = _answers(folder, family, c)
    if ids is None:
        return family
    rows = np.array(ids)
    is_tied = c.is_tied

    def split(weights: Weights, c: Config) -> dict[str, Weights]:
        if max(ids) >= weights.n_rows:
            raise ModelFormatError(
                f"{c.values.where}: tokens of yes and no: found {ids} (need below {weights.n_rows})"
            )
        kept = {"token_embd": weights} if is_tied else {}
        return kept | {HEAD: reordered(weights, rows)}

    source = "token_embd" if is_tied else "output"
    return replace(
        family,
        keys=lambda c: [*family.keys(c), *asking_keys()],
        splits=(*family.splits, (source, split)),
    )


def score_head(weights: Weights, c: Config) -> dict[str, Weights]:
    """Make a head of scores; of one that gives the logit of a yes, one of yes and no.

    No has a row of zeros, so that the share of yes is the logit's: other readers of such files know
    two answers alone.
    """
    if weights.n_rows != 1:
        return {HEAD: weights}

    def take(rows: npt.NDArray[np.intp]) -> npt.NDArray[np.generic]:
        found = weights.take(np.zeros_like(rows)).copy()
        found[rows > 0] = 0
        return found

    return {HEAD: replace(weights, shape=(2, weights.n_columns), take=take)}


def _ids(found: Object, yes: str, no: str, where: str) -> tuple[int, int]:
    ids = (found.get(yes), found.get(no))
    for name, token_id in zip((yes, no), ids, strict=True):
        if type(token_id) is not int or token_id < 0:
            raise ModelFormatError(f"{where}: {name}: found {quote(str(token_id))} (need an id)")
    return int(ids[0] or 0), int(ids[1] or 0)


def _ranks_by_card(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        card = file.read(MOST_CARD_BYTES).replace(b"\r\n", b"\n")
    head, end, _ = card.removeprefix(b"---\n").partition(b"\n---\n")
    return card.startswith(b"---\n") and bool(end) and RANKS.search(head) is not None
