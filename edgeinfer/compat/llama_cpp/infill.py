"""Lay a text with a gap out for models that were trained to fill it."""

from collections.abc import Sequence

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.model import Model

_KEYS = {
    "prefix": ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"),
    "suffix": ("tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"),
    "middle": ("tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"),
}
_SPELLINGS = {
    "prefix": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "▁<PRE>"),
    "suffix": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "▁<SUF>"),
    "middle": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "▁<MID>"),
}


def infill_ids(
    model: Model, prompt: str | Sequence[int], suffix: str, *, suffix_first: bool
) -> list[int]:
    """Return the ids that ask for what stands between `prompt` and `suffix`.

    Raises UnsupportedModelError for a model that has no tokens for it.
    """
    marks = {part: _mark(model, part) for part in _KEYS}
    before = (
        list(prompt)
        if not isinstance(prompt, str)
        else model.tokenize(prompt, add_special=False, parse_special=True)
    )
    after = model.tokenize(suffix, add_special=False)
    parts = [[marks["prefix"], *before], [marks["suffix"], *after]]
    if suffix_first:
        parts.reverse()
    bos_id = model.tokenizer.bos_id
    head = [bos_id] if model.tokenizer.add_bos and bos_id is not None else []
    return [*head, *parts[0], *parts[1], marks["middle"]]


def _mark(model: Model, part: str) -> int:
    for key in _KEYS[part]:
        if key in model.metadata:
            return model.metadata.integer(key, least=0, most=model.n_vocab - 1)
    for spelling in _SPELLINGS[part]:
        ids = model.tokenize(spelling, add_special=False, parse_special=True)
        if len(ids) == 1:
            return ids[0]
    raise UnsupportedModelError(
        f"{model.path.name}: suffix: the model has no token that marks a {part}; leave suffix out, "
        "or use a model trained to fill gaps"
    )
