"""Check what steps and callers ask of snapshots, the recurrent states of sequences.

A snapshot is written whole in one step and never changed, so a step that fails or is cancelled
leaves every sequence its state, and a sequence that goes back to an earlier one finds it as it was.
Only programs with recurrent state have snapshots; the others are not asked about them.
"""

import numpy as np

from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.backend import Batch, Limits, PageBytes


def check_snapshots(batch: Batch, limits: Limits) -> None:
    """Raise InvalidParameterError, naming the field, unless a checked batch says where states go.

    The rules are those of `Batch`.
    """
    n_tokens, rows = len(batch.tokens), batch.saved_rows
    for name, n in (
        ("snapshots", len(batch.page_tables)),
        ("saved_rows", len(rows)),
        ("saved_snapshots", len(rows)),
    ):
        array = getattr(batch, name)
        if array.dtype != np.int32 or array.shape != (n,):
            raise _bad(name, f"{array.dtype} {array.shape}", f"int32 ({n},)")
    if (np.diff(rows) < 0).any() or (len(rows) and not 0 <= rows[0] <= rows[-1] < n_tokens):
        raise _bad("saved_rows", rows.tolist(), f"ascending rows, 0 to {n_tokens - 1}")
    starts = np.flatnonzero(np.diff(batch.sequences, prepend=np.int32(-1)))
    ends = np.append(starts[1:], n_tokens) - 1
    if missing := set(ends.tolist()) - set(rows.tolist()):
        raise _bad("saved_rows", f"no row {min(missing)}", "the last row of each sequence")
    read = batch.snapshots[batch.sequences[starts[batch.positions[starts] > 0]]].tolist()
    saved = batch.saved_snapshots.tolist()
    for name, ids in (("snapshots", read), ("saved_snapshots", saved)):
        if ids and not 0 <= min(ids) <= max(ids) < limits.n_snapshots:
            raise _bad(name, ids, f"0 to {limits.n_snapshots - 1}")
    if len(set(saved)) < len(saved) or set(saved) & set(read):
        raise _bad("saved_snapshots", saved, f"different ones, and none of {read}, which are read")


def check_snapshot(
    snapshot: int, limits: Limits, n_bytes: int, *, data: PageBytes | None = None
) -> None:
    """Raise InvalidParameterError unless a snapshot can be read, or `data` written to it."""
    if n_bytes == 0:
        raise _bad_snapshot("program", "no recurrent state", "one that has some")
    if not 0 <= snapshot < limits.n_snapshots:
        raise _bad_snapshot("id", snapshot, f"0 to {limits.n_snapshots - 1}")
    if data is not None and (data.dtype != np.uint8 or data.shape != (n_bytes,)):
        raise _bad_snapshot("data", f"{data.dtype} {data.shape}", f"uint8 ({n_bytes},)")


def _bad(name: str, found: object, need: str) -> InvalidParameterError:
    return InvalidParameterError(f"batch: {name}: found {found} (need {need})")


def _bad_snapshot(name: str, found: object, need: str) -> InvalidParameterError:
    return InvalidParameterError(f"snapshot: {name}: found {found} (need {need})")
