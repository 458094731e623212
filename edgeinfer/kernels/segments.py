"""Tell which of a pair of texts each token of a step belongs to."""

import numpy as np

from edgeinfer.kernels.backend import Batch, Ids


def segments(batch: Batch, separator: int) -> Ids:
    """Return 0 up to the first separator of each sequence and with it, 1 behind; int32 (T,)."""
    found = np.zeros(len(batch.tokens), np.int32)
    for sequence in set(batch.sequences.tolist()):
        rows = np.flatnonzero(batch.sequences == sequence)
        ends = np.flatnonzero(batch.tokens[rows] == separator)
        found[rows[ends[0] + 1 :] if len(ends) else rows[:0]] = 1
    return found
