"""Say what a row of the table of families holds, and the changes to weights several rows use."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgeinfer.convert.config import Config
from edgeinfer.convert.keys import Keys
from edgeinfer.convert.weights import Weights, changed, reordered, reshaped
from edgeinfer.errors import ModelFormatError

Change = Callable[[Weights, Config], Weights]
Split = Callable[[Weights, Config], dict[str, Weights]]

# Names of a text model's weights inside one of several senses.
TEXT_PREFIX = (
    (r"^language_model\.model\.", "model."),
    (r"^model\.language_model\.", "model."),
    (r"^language_model\.lm_head\.", "lm_head."),
)


@dataclass(frozen=True, slots=True)
class Family:
    """How one class of transformers becomes a GGUF architecture.

    Attributes:
        arch: `general.architecture`.
        keys: the metadata of a configuration.
        computed: tensors that come from the configuration.
        renames: regular expressions over the checkpoint's names and what replaces the match, for
            names the `gguf` package's map does not know.
        splits: GGUF names, without layer and suffix, of tensors that become several, by name.
        changes: patterns of GGUF names, without layer and suffix, and what their weights need.
        left_out: a regular expression of the checkpoint's names that no text model needs.
    """

    arch: str
    keys: Callable[[Config], Keys]
    computed: Callable[[Config], dict[str, Weights]] = lambda c: {}
    renames: tuple[tuple[str, str], ...] = ()
    splits: tuple[tuple[str, Split], ...] = ()
    changes: tuple[tuple[str, Change], ...] = ()
    left_out: str = ""


def plus_one(weights: Weights, c: Config) -> Weights:
    """Fold the one that the model adds to a norm's weights into them."""
    return changed(weights, lambda values: values + np.float32(1))


def squeezed(weights: Weights, c: Config) -> Weights:
    """Take a convolution's axis of one channel away."""
    return reshaped(weights, *(n for n in weights.shape if n > 1))


def paired_q(weights: Weights, c: Config) -> Weights:
    """Bring the two halves of each query head into pairs, which GGUF's rotation turns."""
    return _paired(weights, c.n_heads)


def paired_k(weights: Weights, c: Config) -> Weights:
    """Do so with the key heads."""
    return _paired(weights, c.n_kv_heads)


def _paired(weights: Weights, n_heads: int) -> Weights:
    if weights.n_rows % (2 * n_heads):
        raise ModelFormatError(
            f"found {weights.n_rows} rows of queries or keys (need an even number for each of "
            f"{n_heads} heads, as config.json has it)"
        )
    rows = np.arange(weights.n_rows)
    return reordered(weights, rows.reshape(n_heads, 2, -1).swapaxes(1, 2).reshape(-1))


PAIRED: tuple[tuple[str, Change], ...] = (("attn_q", paired_q), ("attn_k", paired_k))
