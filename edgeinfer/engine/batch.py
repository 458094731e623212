"""Write a step's work down as the arrays a backend reads."""

import numpy as np

from edgeinfer.engine.scheduler import Work
from edgeinfer.kernels.backend import Batch


def batch_of(work: list[Work]) -> Batch:
    """Return the ragged batch of `work`, in its order.

    Wanted are the last rows of each sequence, as many as `Work.n_rows` says.
    """
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    wanted: list[int] = []
    saves: list[tuple[int, int]] = []  # rows and snapshots
    for row, item in enumerate(work):
        sequence, first = item.sequence, item.sequence.n_computed
        tokens += sequence.tokens[first : first + item.n_tokens]
        tokens += item.guesses
        n_tokens = item.n_tokens + len(item.guesses)
        row_of = len(positions) - first - 1  # of the token that makes so many computed, less those
        saves += ((row_of + n, item.sequence.saves[n]) for n in sorted(item.sequence.saves))
        positions += range(first, first + n_tokens)
        rows += [row] * n_tokens
        wanted += range(len(tokens) - item.n_rows, len(tokens))
    most_pages = max(len(item.sequence.pages) for item in work)
    page_tables = np.zeros((len(work), most_pages), np.int32)  # the rest of a row is never read
    for row, item in enumerate(work):
        page_tables[row, : len(item.sequence.pages)] = item.sequence.pages
    np.maximum(page_tables, 0, out=page_tables)  # NO_PAGE is not read either
    return Batch(
        tokens=np.array(tokens, np.int32),
        positions=np.array(positions, np.int32),
        sequences=np.array(rows, np.int32),
        page_tables=page_tables,
        wanted=np.array(wanted, np.int32),
        snapshots=np.array([item.sequence.snapshot for item in work], np.int32),
        saved_rows=np.array([at for at, _ in saves], np.int32),
        saved_snapshots=np.array([snapshot for _, snapshot in saves], np.int32),
    )
