"""Write a step's work down as the arrays a backend reads."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace

import numpy as np

from edgeinfer.engine.scheduler import Work
from edgeinfer.kernels.backend import Batch


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Tokens of one sequence that stand together.

    first: the position of the first one. pages: all pages of the sequence. n_rows: how many of the
    last ones' logits are wanted.
    """

    tokens: Ids[int]
    first: int
    pages: Ids[int]
    n_rows: int


def batch_of(work: list[Work]) -> Batch:
    """Return the ragged batch of `work`, in its order.

    Wanted are the last rows of each sequence, as many as `Work.n_rows` says.
    """
    saves: list[tuple[int, int]] = []  # rows and snapshots
    n_rows = 0
    for item in work:
        sequence = item.sequence
        row_of = n_rows - sequence.n_computed - 1  # of the token that makes so many computed
        saves += ((row_of + n, sequence.saves[n]) for n in sorted(sequence.saves))
        n_rows += item.n_tokens + len(item.guesses)
    batch = ragged([_stretch_of(item) for item in work])
    if all(item.sequence.hidden for item in work):
        batch = replace(batch, hidden_only=True)
    if not saves:  # the model has no recurrent state
        return batch
    return replace(
        batch,
        snapshots=np.array([item.sequence.snapshot for item in work], np.int32),
        saved_rows=np.array([at for at, _ in saves], np.int32),
        saved_snapshots=np.array([snapshot for _, snapshot in saves], np.int32),
    )


def ragged(stretches: list[Stretch]) -> Batch:
    """Return the batch of these stretches, each of another sequence, in their order."""
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    wanted: list[int] = []
    for row, stretch in enumerate(stretches):
        tokens += stretch.tokens
        positions += range(stretch.first, stretch.first + len(stretch.tokens))
        rows += [row] * len(stretch.tokens)
        wanted += range(len(tokens) - stretch.n_rows, len(tokens))
    most_pages = max(len(stretch.pages) for stretch in stretches)
    page_tables = np.zeros((len(stretches), most_pages), np.int32)  # the rest is never read
    for row, stretch in enumerate(stretches):
        page_tables[row, : len(stretch.pages)] = stretch.pages
    np.maximum(page_tables, 0, out=page_tables)  # NO_PAGE is not read either
    return Batch(
        tokens=np.array(tokens, np.int32),
        positions=np.array(positions, np.int32),
        sequences=np.array(rows, np.int32),
        page_tables=page_tables,
        wanted=np.array(wanted, np.int32),
    )


def _stretch_of(item: Work) -> Stretch:
    sequence, first = item.sequence, item.sequence.n_computed
    tokens = [*sequence.tokens[first : first + item.n_tokens], *item.guesses]
    return Stretch(tokens, first, sequence.pages, item.n_rows)
