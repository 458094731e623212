"""List which rows of a step chose which expert."""

import numpy as np
import numpy.typing as npt


class Choice:
    """The experts that a route gave to the slots of each row; a pair is one slot of one row.

    Attributes:
        n_used: slots of a row.
        active: experts that have pairs, the busiest first.
        counts: how many pairs each of those has.
        starts: where each one's pairs begin in `pairs`.
        pairs: pair numbers, row * n_used + slot, by expert and then by row.
    """

    def __init__(self, n_experts: int, n_used: int) -> None:
        self.n_used = n_used
        self._n_experts = n_experts
        self.set(np.zeros((0, n_used), np.int64))

    def set(self, ids: npt.NDArray[np.int64]) -> None:
        """Take the ids `(rows, n_used)` of a step."""
        flat = ids.reshape(-1)
        counts = np.bincount(flat, minlength=self._n_experts)
        starts = np.cumsum(counts) - counts
        self.pairs = np.argsort(flat, kind="stable").astype(np.int64)
        self.active = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        self.counts, self.starts = counts[self.active], starts[self.active]
