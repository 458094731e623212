"""Say what a backend is: it compiles a program over weights, then runs ragged steps of tokens.

Knows no format and no arithmetic; finds the backends by name and checks the batches they are given.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import BackendError, InvalidParameterError
from edgeinfer.program.check import check_length
from edgeinfer.program.program import Program
from edgeinfer.quant.imatrix import Sums
from edgeinfer.quant.packed import MatrixToPack, PackedMatrix
from edgeinfer.quant.tensor import Tensor

PAGE_LEN = 64  # positions of one KV page
STEP_LEN = 512  # tokens of a step: more read the weights no faster
MOST = (1 << 31) - 1  # tokens, pages: what C counts with
MOST_THREADS = 512
RANGES = {
    "n_ctx": (1, MOST),
    "n_pages": (1, MOST),
    "n_batch": (1, MOST),
    "n_threads": (0, MOST_THREADS),
    "n_threads_batch": (0, MOST_THREADS),
    "n_snapshots": (1, MOST),
}
ACTIVATIONS = ("auto", "fine")
KV_TYPES = ("f32", "f16", "q8_0", "q4_0")  # most exact first
BACKENDS = ("native", "jit", "reference")  # best first

Ids: TypeAlias = npt.NDArray[np.int32]
PageBytes: TypeAlias = npt.NDArray[np.uint8]
Progress: TypeAlias = Callable[[int, int], None]  # bytes of weights done, bytes of all weights

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bound what an executable must be able to hold.

    n_ctx: longest sequence, in tokens. n_pages: KV pages that may exist at once; each holds
    PAGE_LEN positions of one sequence in every KV layer. n_batch: most tokens in one step.
    n_threads: 0 takes the count from the process's affinity and CPU quota. n_threads_batch: that of
    long steps, more than the few tokens that are bound by memory; 0 is n_threads. kv_type: how keys
    and values are stored, one of KV_TYPES (the reference backend keeps float32 whatever it says).
    activations: "auto", or "fine" for the most exact ones that a backend has, everywhere.
    n_snapshots: recurrent states that may exist at once, where a program has any.
    """

    n_ctx: int
    n_pages: int
    n_batch: int = STEP_LEN
    n_threads: int = 0
    n_threads_batch: int = 0
    kv_type: str = "f16"
    activations: str = "auto"
    n_snapshots: int = 2

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            found = getattr(self, name)
            if not least <= found <= most:
                raise InvalidParameterError(f"{name}: found {found} (need {least} to {most})")
        if self.kv_type not in KV_TYPES:
            known = ", ".join(KV_TYPES)
            raise InvalidParameterError(f"kv_type: found {self.kv_type!r} (need one of {known})")
        if self.activations not in ACTIVATIONS:
            allowed = " or ".join(map(repr, ACTIVATIONS))
            raise InvalidParameterError(f"activations: found {self.activations!r} (need {allowed})")


def step_len(program: Program, n_ctx: int) -> int:
    """Return the most tokens of a step that serves sequences of `n_ctx`: all of one, if it must."""
    return max(STEP_LEN, n_ctx) if program.takes_whole_sequences else STEP_LEN


def _no_ids() -> Ids:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Name one step's tokens, T of them, of S sequences, without padding.

    tokens: int32 (T,). positions: int32 (T,), each token's absolute position in its sequence.
    sequences: int32 (T,), each token's row of `page_tables`; the tokens of one sequence stand
    together with consecutive positions. page_tables: int32 (S, most pages): position p of
    sequence s lives in page `page_tables[s, p // PAGE_LEN]`. wanted: int32 (R,), ascending, the
    rows whose logits are wanted; may be empty. hidden_only: compute no logits of them, see `hidden`
    of an executable.

    For programs with recurrent state, of which a snapshot is written whole and never changed:
    snapshots: int32 (S,), the state of each sequence before the step; one that begins at position
    0 has none, whatever stands there. saved_rows: int32 (M,), ascending, the rows after which the
    state of their sequence is written; each sequence's last row is among them. saved_snapshots:
    int32 (M,), where to: different ones, and none that a sequence of the step begins with.
    """

    tokens: Ids
    positions: Ids
    sequences: Ids
    page_tables: Ids
    wanted: Ids
    snapshots: Ids = field(default_factory=_no_ids)
    saved_rows: Ids = field(default_factory=_no_ids)
    saved_snapshots: Ids = field(default_factory=_no_ids)
    hidden_only: bool = False


class Cancel:
    """A flag one thread sets to stop another's `run`; `cell` is the int32 a kernel polls."""

    __slots__ = ("cell",)

    def __init__(self) -> None:
        self.cell: Ids = np.zeros(1, np.int32)

    def set(self) -> None:
        """Ask the running step to stop."""
        self.cell[0] = 1

    def clear(self) -> None:
        """Take the request back, before the next step."""
        self.cell[0] = 0

    @property
    def is_set(self) -> bool:
        """Tell whether a stop was asked for."""
        return bool(self.cell[0])


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an executable would take, in bytes.

    weights_bytes: matrices, all of which are read for a token; `weights_are_mapped` says that they
    stay in the file, where the system may drop them. table_bytes: what is looked up row by row in
    the file. page_bytes: keys and values of one page, in every layer. work_bytes: the values of a
    step of n_batch tokens with all logits wanted.
    """

    weights_bytes: int
    weights_are_mapped: bool
    table_bytes: int
    page_bytes: int
    work_bytes: int


class Executable(Protocol):
    """A program compiled over one model's weights, with its own KV pages and state."""

    n_vocab: int
    n_out: int  # numbers in a row of the result, as of `Program`
    n_hidden: int  # width of hidden rows; 0 if the program names none
    n_threads: int
    n_threads_batch: int
    weights_bytes: int
    state_bytes: int
    page_bytes: int
    snapshot_bytes: int  # of a sequence's recurrent state; 0 if the program has none
    page_layout: str  # names how pages of a KV type, and snapshots, are laid out; changes with it

    def run(self, batch: Batch, *, cancel: Cancel | None = None) -> npt.NDArray[np.float32]:
        """Run one step and return the logits of the wanted rows, `(R, n_vocab)` float32.

        Of a program that pools, one row a sequence, `(S, n_out)`; see `Program`. None where the
        batch asks for hidden rows only. The array is a view valid until the next run. Raises
        InvalidParameterError before any work if the batch breaks a limit, CancelledError soon after
        `cancel.set()`.
        """
        ...

    def hidden(self) -> npt.NDArray[np.float32]:
        """Return the last run's wanted rows as the head reads them, `(R, n_hidden)` float32.

        The array is a view valid until the next run.
        """
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Make page `target` hold the keys and values that page `source` holds, in every layer."""
        ...

    def read_page(self, page: int, n_positions: int) -> PageBytes:
        """Return the first positions of a page, in every layer, as `page_bytes` bytes of its own.

        What stands behind them, which may be another sequence's, is not among them: zeros are.
        """
        ...

    def write_page(self, page: int, data: PageBytes) -> None:
        """Make a page hold what `read_page` returned, here or where the layout has its name."""
        ...

    def read_snapshot(self, snapshot: int) -> PageBytes:
        """Return a recurrent state as `snapshot_bytes` bytes of its own."""
        ...

    def write_snapshot(self, snapshot: int, data: PageBytes) -> None:
        """Make a snapshot hold what `read_snapshot` returned, by the layout of this name."""
        ...

    def close(self) -> None:
        """Free everything; calling it again does nothing."""
        ...


class Backend(Protocol):
    """A way to run programs.

    `is_bit_exact`: a token's logits do not depend on what else is in its step.
    """

    name: str
    is_bit_exact: bool

    def why_unavailable(self) -> str | None:
        """Return why it cannot run here, or None if it can."""
        ...

    def compile(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        limits: Limits,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        packed: Mapping[str, PackedMatrix] | None = None,
        observe: Mapping[str, Sums] | None = None,
    ) -> Executable:
        """Lay the weights out and make the program runnable.

        Of tensors that are views of mapped files, the pages of what is laid out are given back.
        `packed` holds matrices laid out before, by tensor name; they are used where they lie.
        Every step adds to `observe`, by tensor name, the squares of what those matrices multiply,
        row by row in float64; the logits stay the same.

        Raises UnsupportedModelError if the backend lacks an op or a format, MissingTensorError if
        the tensors do not answer the program, InvalidParameterError if the limits do not,
        ResourceError if memory does not suffice, CancelledError soon after `cancel.set()`.
        """
        ...

    def measure(self, program: Program, tensors: Mapping[str, Tensor], limits: Limits) -> Footprint:
        """Tell what `compile` would take, by shapes alone; its errors are those of `compile`."""
        ...

    def layout(self, formats: Iterable[str]) -> str | None:
        """Name the layout of matrices of these formats; None if there is none to pack."""
        ...

    def matrices(self, program: Program, tensors: Mapping[str, Tensor]) -> list[MatrixToPack]:
        """List what `compile` would lay out, each ready to be packed."""
        ...


def choose(name: str = "auto") -> Backend:
    """Return the backend of this name; "auto" takes the fastest one that can run here.

    Each backend is the constant BACKEND of `edgeinfer.kernels.<name>.backend`. Raises
    InvalidParameterError for an unknown name, BackendError if the named one cannot run here.
    """
    if name == "auto":
        return _best()
    if name not in BACKENDS:
        known = ", ".join(("auto", *BACKENDS))
        raise InvalidParameterError(f"backend: found {name!r} (need one of {known})")
    backend, reason = _find(name)
    if backend is None:
        raise BackendError(
            f"backend '{name}': cannot run here: {reason}. `edgeinfer doctor` says more"
        )
    return backend


def _best() -> Backend:
    reasons: list[str] = []
    for name in BACKENDS:
        backend, reason = _find(name)
        if backend is not None:
            if reasons:
                log.warning("using the slower backend '%s': %s", name, "; ".join(reasons))
            return backend
        reasons.append(f"{name}: {reason}")
    raise BackendError("no backend can run here: " + "; ".join(reasons))


def _find(name: str) -> tuple[Backend | None, str]:
    module = f"edgeinfer.kernels.{name}"
    if find_spec(module) is None or find_spec(f"{module}.backend") is None:
        return None, "not part of this installation"
    backend: Backend = import_module(f"{module}.backend").BACKEND
    reason = backend.why_unavailable()
    return (None, reason) if reason is not None else (backend, "")


def check_page(
    page: int,
    limits: Limits,
    *,
    n_positions: int = PAGE_LEN,
    data: PageBytes | None = None,
    page_bytes: int = 0,
) -> None:
    """Raise InvalidParameterError unless a page can be read, or `data` written to it."""
    if not 0 <= page < limits.n_pages:
        raise _bad_page("page", page, f"0 to {limits.n_pages - 1}")
    if not 0 <= n_positions <= PAGE_LEN:
        raise _bad_page("positions", n_positions, f"0 to {PAGE_LEN}")
    if data is not None and (data.dtype != np.uint8 or data.shape != (page_bytes,)):
        raise _bad_page("data", f"{data.dtype} {data.shape}", f"uint8 ({page_bytes},)")


def check_limits(program: Program, limits: Limits) -> None:
    """Raise InvalidParameterError unless a program's sequences can be as long as the limits say."""
    check_length(limits.n_ctx, program.n_positions)
    if program.takes_whole_sequences and limits.n_batch < limits.n_ctx:
        raise InvalidParameterError(
            f"n_batch: found {limits.n_batch} (need at least n_ctx={limits.n_ctx}): this "
            "model looks ahead, so a step takes a sequence whole"
        )


def check_batch(
    batch: Batch, limits: Limits, n_vocab: int, *, whole_sequences: bool = False
) -> None:
    """Raise InvalidParameterError, naming the field, unless a batch keeps every rule of `Batch`.

    `whole_sequences`: attention looks ahead, so a step takes its sequences from position 0 on.
    """
    for name, n_dims in (
        ("tokens", 1),
        ("positions", 1),
        ("sequences", 1),
        ("page_tables", 2),
        ("wanted", 1),
    ):
        array = getattr(batch, name)
        if array.dtype != np.int32 or array.ndim != n_dims:
            raise _bad(name, f"{array.dtype}, {array.ndim} axes", f"int32, {n_dims} axes")
    n_tokens = len(batch.tokens)
    if not 1 <= n_tokens <= limits.n_batch:
        raise _bad("tokens", f"{n_tokens} of them", f"1 to n_batch={limits.n_batch}")
    for name in ("positions", "sequences"):
        if len(getattr(batch, name)) != n_tokens:
            raise _bad(name, f"{len(getattr(batch, name))} of them", f"{n_tokens}, one a token")
    _need_range("tokens", batch.tokens, n_vocab)
    _need_range("positions", batch.positions, limits.n_ctx)
    _need_range("sequences", batch.sequences, len(batch.page_tables))
    _need_range("wanted", batch.wanted, n_tokens)
    if (np.diff(batch.wanted) <= 0).any():
        raise _bad("wanted", batch.wanted.tolist(), "ascending rows")
    starts = np.flatnonzero(np.diff(batch.sequences, prepend=np.int32(-1)))
    _check_runs(batch, limits, starts)
    if whole_sequences and batch.positions[starts].any():
        need = "0: this model looks ahead, so a step takes a sequence whole, in one of n_batch"
        raise _bad("positions", f"a start at {batch.positions[starts].max()}", need)


def _check_runs(batch: Batch, limits: Limits, starts: npt.NDArray[np.intp]) -> None:
    order = batch.sequences[starts]
    if len(set(order.tolist())) != len(order):  # np.unique imports numpy.ma: 14 ms
        raise _bad("sequences", order.tolist(), "the tokens of one sequence together")
    steps = np.diff(batch.positions)
    inside = np.ones(len(steps), bool)
    inside[starts[1:] - 1] = False
    if (steps[inside] != 1).any():
        raise _bad("positions", "a gap or a repeat", "consecutive positions in each sequence")
    ends = np.append(starts[1:], len(batch.tokens)) - 1
    for row, last in zip(order, batch.positions[ends], strict=True):
        n_pages = int(last) // PAGE_LEN + 1
        if n_pages > batch.page_tables.shape[1]:
            need = f"{n_pages} pages for position {last}"
            raise _bad("page_tables", f"{batch.page_tables.shape[1]} pages", need)
        _need_range("page_tables", batch.page_tables[row, :n_pages], limits.n_pages)


def _need_range(name: str, array: Ids, end: int) -> None:
    wrong = array[(array < 0) | (array >= end)]
    if len(wrong):
        raise _bad(name, int(wrong[0]), f"0 to {end - 1}")


def _bad_page(name: str, found: object, need: str) -> InvalidParameterError:
    return InvalidParameterError(f"KV page: {name}: found {found} (need {need})")


def _bad(name: str, found: object, need: str) -> InvalidParameterError:
    return InvalidParameterError(f"batch: {name}: found {found} (need {need})")
