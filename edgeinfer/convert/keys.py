"""Make the metadata that every architecture has, from a configuration.

A key that begins with a dot is the architecture's own, as the loader's Metadata has it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgeinfer.convert.config import FULL, SLIDING, Config
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.metadata import REQUIRED
from edgeinfer.loader.strings import StringArray
from edgeinfer.program.program import POOLINGS, Pooling
from edgeinfer.writer.entries import Entry

Keys = list[Entry]
POOLING = ".pooling_type"
MOST = float(np.finfo(np.float32).max)
LEAST = float(np.finfo(np.float32).tiny)


def u32(key: str, value: int) -> Entry:
    """Return a count. Raises ModelFormatError for one that 32 bits cannot hold."""
    _expect_within(key, [value], 0, (1 << 32) - 1)
    return Entry(key, "u32", value)


def f32(key: str, value: float) -> Entry:
    """Return a number. Raises ModelFormatError for one that is too large, or would become 0."""
    _expect_within(key, [value], -MOST, MOST)
    if value and abs(value) < LEAST:
        raise ModelFormatError(f"key {quote(key)}: found {value} (need 0, or {LEAST:g} and more)")
    return Entry(key, "f32", value)


def flag(key: str, value: bool) -> Entry:
    """Return a flag."""
    return Entry(key, "bool", value)


def text(key: str, value: str) -> Entry:
    """Return a text. Raises ModelFormatError for half a surrogate pair, which is none."""
    _expect_encodable(key, [key, value])
    return Entry(key, "str", value)


def flags(key: str, values: Sequence[bool]) -> Entry:
    """Return a flag for each layer."""
    return Entry(key, f"bool[{len(values)}]", np.array(values, np.uint8))


def counts(key: str, values: Sequence[int]) -> Entry:
    """Return a count for each layer or token. Raises ModelFormatError as `u32` does."""
    _expect_within(key, values, -(1 << 31), (1 << 31) - 1)
    return Entry(key, f"i32[{len(values)}]", np.array(values, np.int32))


def numbers(key: str, values: Sequence[float]) -> Entry:
    """Return a number for each token. Raises ModelFormatError as `f32` does."""
    _expect_within(key, values, -MOST, MOST)
    return Entry(key, f"f32[{len(values)}]", np.array(values, np.float32))


def _expect_within(key: str, values: Sequence[float], least: float, most: float) -> None:
    found = next((value for value in values if not least <= value <= most), None)
    if found is not None:
        raise ModelFormatError(f"key {quote(key)}: found {found} (need {least:g} to {most:g})")


def raw_bytes(key: str, values: npt.NDArray[np.uint8]) -> Entry:
    """Return bytes of a form of their own."""
    return Entry(key, f"u8[{len(values)}]", values)


def texts(key: str, values: Sequence[str | bytes]) -> Entry:
    """Return an array of texts. Raises ModelFormatError as `text` does."""
    _expect_encodable(key, values)
    return Entry(key, f"str[{len(values)}]", StringArray.from_strings(values))


def _expect_encodable(key: str, values: Sequence[str | bytes]) -> None:
    for value in values:
        try:
            value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError:
            raise ModelFormatError(
                f"key {quote(key)}: found {quote(str(value))} (need Unicode)"
            ) from None


def base_keys(
    c: Config, *, eps: str = "rms_norm_eps", n_ff: int | None = None, layer_norm: bool = False
) -> Keys:
    """Return the keys of a transformer.

    `eps` is the configuration's name for what norms add; `layer_norm`: they take the mean away.
    """
    norm = "layer_norm" if layer_norm else "layer_norm_rms"
    v = c.values
    if n_ff is None:
        n_ff = v.integer("intermediate_size", least=1)
    return [
        u32(".block_count", c.n_layers),
        u32(".context_length", v.integer("max_position_embeddings", least=1)),
        u32(".embedding_length", v.integer("hidden_size", least=1)),
        u32(".feed_forward_length", n_ff),
        u32(".attention.head_count", c.n_heads),
        u32(".attention.head_count_kv", c.n_kv_heads),
        u32(".attention.key_length", c.head_dim),
        u32(".attention.value_length", c.head_dim),
        u32(".vocab_size", v.integer("vocab_size", least=1)),
        f32(f".attention.{norm}_epsilon", v.number(eps, above=0.0)),
    ]


def pooling_key(pooling: Pooling) -> Entry:
    """Return what a model that reads says of itself."""
    return u32(POOLING, POOLINGS.index(pooling))


def score_keys(c: Config, pooling: Pooling) -> Keys:
    """Return the keys of a model that gives scores of each sequence, from what is pooled."""
    named = c.raw.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    found = [named.get(str(i)) for i in range(len(named))] if isinstance(named, dict) else []
    labels = [label for label in found if isinstance(label, str)]
    if not labels or len(labels) < len(found):
        raise c.error("id2label", f"{quote(str(named))} (need a label for each of 0, 1, ...)")
    return labelled_scores(pooling, labels)


def labelled_scores(pooling: Pooling, labels: Sequence[str]) -> Keys:
    """Return the same for scores of these names."""
    return [
        pooling_key("rank"),
        u32(".classifier.pooling_type", POOLINGS.index(pooling)),
        texts(".classifier.output_labels", labels),
    ]


def gives_scores(keys: Keys) -> bool:
    """Tell whether these are keys of a model that gives scores."""
    return any(key.key == POOLING and key.value == POOLINGS.index("rank") for key in keys)


def expert_keys(c: Config, *, n_ff: int, n_used: str = "num_experts_per_tok") -> Keys:
    """Return the keys of a mixture of experts; `n_used` names how many each token gets."""
    # transformers renames the one to the other when it saves some models.
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    name = next((name for name in names if name in c.values), names[0])
    n_experts = c.values.integer(name, least=1)
    return [
        u32(".expert_count", n_experts),
        u32(".expert_used_count", c.values.integer(n_used, least=1, most=n_experts)),
        u32(".expert_feed_forward_length", n_ff),
    ]


def every(c: Config, period: int) -> list[str]:
    """Return layer types of which each `period`-th is global."""
    return [SLIDING if (i + 1) % period else FULL for i in range(c.n_layers)]


def window_keys(c: Config, windowed: Sequence[bool], *, default: int = REQUIRED) -> Keys:
    """Return the keys of a window that some layers have."""
    return [
        u32(".attention.sliding_window", c.values.integer("sliding_window", default, least=1)),
        flags(".attention.sliding_window_pattern", windowed),
    ]


def attending_keys(c: Config, keys: Keys, kinds: Sequence[str]) -> Keys:
    """Return the keys of a transformer with KV heads in those layers alone that attend."""
    name = ".attention.head_count_kv"
    kv_heads = counts(name, [c.n_kv_heads if kind == FULL else 0 for kind in kinds])
    return [kv_heads if key.key == name else key for key in keys]
