"""Tell which row of a table each token of a step looks up."""

import numpy as np

from edgeinfer.kernels.backend import Batch, Ids
from edgeinfer.program.ops import Embed


def looked_up(op: Embed, batch: Batch) -> Ids:
    """Return the rows of the table, int32 (T,): of the tokens, or of what `op.ids` says."""
    match op.ids:
        case "tokens":
            return batch.tokens
        case "pos":
            return batch.positions
        case "row":
            return np.full(len(batch.tokens), op.row, np.int32)
        case "segments":
            return _segments(batch, op.separator)


def _segments(batch: Batch, separator: int) -> Ids:
    """Return 0 up to the first separator of each sequence and with it, 1 behind."""
    found = np.zeros(len(batch.tokens), np.int32)
    for sequence in set(batch.sequences.tolist()):
        rows = np.flatnonzero(batch.sequences == sequence)
        ends = np.flatnonzero(batch.tokens[rows] == separator)
        found[rows[ends[0] + 1 :] if len(ends) else rows[:0]] = 1
    return found
