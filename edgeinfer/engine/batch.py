"""Write a step's work down as the arrays a backend reads."""

import numpy as np

from edgeinfer.engine.scheduler import Work
from edgeinfer.kernels.backend import Batch


def batch_of(work: list[Work]) -> Batch:
    """Return the ragged batch of `work`, in its order.

    Wanted are all rows of a sequence that asks for all, and the last row of one that catches up
    and has tokens to come.
    """
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    wanted: list[int] = []
    for row, item in enumerate(work):
        sequence, first = item.sequence, item.sequence.n_computed
        if sequence.all_rows:
            wanted += range(len(tokens), len(tokens) + item.n_tokens)
        elif item.catches_up and sequence.max_tokens > 0:
            wanted.append(len(tokens) + item.n_tokens - 1)
        tokens += sequence.tokens[first : first + item.n_tokens]
        positions += range(first, first + item.n_tokens)
        rows += [row] * item.n_tokens
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
    )
