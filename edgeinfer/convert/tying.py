"""Find whether embeddings are the output matrix, by the configuration and by the weights.

As transformers does since version 5: an output matrix that differs from the embeddings was trained,
whatever the configuration, or the class where that is silent, says.
"""

import logging
import re
from collections.abc import Mapping

import numpy as np

from edgeinfer.convert.config import TIED, Config
from edgeinfer.convert.safetensors import Stored

OUTPUT = re.compile(r"(^|\.)lm_head\.weight$")
EMBEDDINGS = re.compile(r"(^|\.)(embed_tokens|wte|embeddings)\.weight$")
READ_BYTES = 8 << 20

log = logging.getLogger(__name__)


def as_stored(c: Config, tensors: Mapping[str, Stored]) -> Config:
    """Return the configuration, untied where a checkpoint has two different matrices."""
    output, embeddings = _found(OUTPUT, tensors), _found(EMBEDDINGS, tensors)
    if not c.is_tied or output is None or embeddings is None or _are_equal(output, embeddings):
        return c
    log.warning(
        "%s: %s differs from %s, so both are kept, though the configuration ties them",
        c.values.where,
        output.name,
        embeddings.name,
    )
    return c.changed(**{TIED: False})


def _found(pattern: re.Pattern[str], tensors: Mapping[str, Stored]) -> Stored | None:
    return next((tensor for name, tensor in tensors.items() if pattern.search(name)), None)


def _are_equal(one: Stored, other: Stored) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    n_bytes = one.n_bytes
    spans = ((at, min(READ_BYTES, n_bytes - at)) for at in range(0, n_bytes, READ_BYTES))
    return all(np.array_equal(one.read(*span), other.read(*span)) for span in spans)
