"""Compile programs for the C executor and run steps on it; knows no op, only flat instructions."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import (
    CancelledError,
    ResourceError,
    UnsupportedModelError,
)
from edgeinfer.kernels.backend import (
    KV_TYPES,
    Cancel,
    Footprint,
    Limits,
    Progress,
    check_limits,
)
from edgeinfer.kernels.native import isa, packed
from edgeinfer.kernels.native.executable import NativeExecutable
from edgeinfer.kernels.native.guard import Guard
from edgeinfer.kernels.native.instructions import (
    ONES,
    Acts,
    Buffer,
    Instruction,
    Kind,
    Rotation,
    Routing,
)
from edgeinfer.kernels.native.lower import lower
from edgeinfer.kernels.native.place import place
from edgeinfer.program.program import Program
from edgeinfer.program.states import Conv, Delta, Recurrent, Ssm
from edgeinfer.program.values import Rows
from edgeinfer.quant.decode import decode
from edgeinfer.quant.imatrix import Sums
from edgeinfer.quant.packed import MatrixToPack, PackedMatrix
from edgeinfer.quant.tensor import Tensor

ROWS = {Rows.TOKENS: 0, Rows.WANTED: 1, Rows.SEQUENCES: 2}  # EI_ROWS_* of csrc/edgeinfer.h
SCORES = ("softmax", "sigmoid", "softmax_topk", "sqrt_softplus")  # EI_SCORE_* of it
POLL_S = 0.05  # between two reports of progress


class NativeBackend:
    """The backend of the compiled kernels."""

    name = "native"
    is_bit_exact = True

    def why_unavailable(self) -> str | None:
        """Return why the kernels cannot run here, or None."""
        return isa.why_unavailable()

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
        isa_name: str | None = None,
    ) -> NativeExecutable:
        """Lay the weights out in X, those that are not packed, and plan the step's memory.

        `isa_name` forces one of `isa.levels()`, for tests. Raises UnsupportedModelError for an op
        or a format the kernels lack, InvalidParameterError for another level,
        ResourceError if memory does not suffice, CancelledError within milliseconds of
        `cancel.set()`.
        """
        build = _Build(
            program, tensors, limits, isa.chosen(isa_name), packed or {}, observed=observe or {}
        )
        try:
            return build.finish(progress, cancel)
        except BaseException:
            build.lib.ei_exec_free(build.exec)
            raise

    def measure(self, program: Program, tensors: Mapping[str, Tensor], limits: Limits) -> Footprint:
        """Build everything but its contents, and tell what those would take."""
        build = _Build(program, tensors, limits, isa.chosen(), {}, reads_data=False)
        try:
            return build.measure()
        finally:
            build.lib.ei_exec_free(build.exec)

    def layout(self, formats: Iterable[str]) -> str | None:
        """Name the X layout of these formats."""
        return packed.layout(formats)

    def matrices(self, program: Program, tensors: Mapping[str, Tensor]) -> list[MatrixToPack]:
        """List the matrices that `compile` would lay out in X."""
        return packed.matrices(program, tensors)


BACKEND = NativeBackend()


def _state_shape(state: Recurrent) -> tuple[int, int, int]:
    """Return heads, rows and columns: lanes are channels, or the elements of a head's output."""
    match state:
        case Conv():
            return 1, state.n_past, state.n_channels
        case Ssm():
            return state.n_heads, state.state_dim, state.head_dim
        case Delta():
            return state.n_heads, state.key_dim, state.value_dim


class _Build:
    """Hand the parts of a lowered program to the C executor, each once."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        limits: Limits,
        level: str,
        ready: Mapping[str, PackedMatrix],
        *,
        reads_data: bool = True,
        observed: Mapping[str, Sums] | None = None,
    ) -> None:
        from edgeinfer.kernels.native._native import ffi, lib

        check_limits(program, limits)
        self.ffi, self.lib = ffi, lib
        self.program, self.tensors, self.limits = program, tensors, limits
        self.ready = ready
        self._observed = observed or {}
        self._reads_data = reads_data
        views = [*(t.data for t in tensors.values()), *(m.data for m in ready.values())]
        self._guard = Guard(views if reads_data else ())
        self.formats = packed.format_names()
        n_threads = limits.n_threads or lib.ei_default_threads()
        counts = (n_threads, limits.n_threads_batch or n_threads)
        self.exec = lib.ei_exec_new(level.encode(), *counts, limits.n_batch, limits.n_pages)
        if self.exec == ffi.NULL:
            raise ResourceError(f"native backend: no memory for {max(counts)} threads")
        self.keep: list[object] = []  # memory the executable points into
        self._weights: dict[tuple[str, bool], int] = {}
        self._to_lay_out = 0  # bytes
        self._vectors: dict[tuple[str, int], int] = {}
        self._ropes: dict[Rotation, int] = {}
        self._kvs: dict[int, int] = {}
        self._states: dict[Recurrent, int] = {}
        self._routings: dict[int, int] = {}

    def finish(self, progress: Progress | None, cancel: Cancel | None) -> NativeExecutable:
        """Build, lay the weights out and return what runs."""
        logits = self._add_parts()
        self._lay_out(logits.number, progress, cancel)
        self._guard.check()
        parts = (self.ffi, self.lib, self.exec, self.keep, self._guard, self.limits)
        sizes = (self.program.n_vocab, self.program.n_out, self.program.n_hidden)
        whole = self.program.takes_whole_sequences
        return NativeExecutable(*parts, *sizes, whole_sequences=whole)

    def measure(self) -> Footprint:
        """Build, and return the bytes that laying out would take."""
        self._add_parts()
        sizes = [self.ffi.new("size_t *") for _ in range(3)]
        status = self.lib.ei_exec_measure(self.exec, *sizes)
        assert status == self.lib.EI_OK
        weights, state, work = (int(size[0]) for size in sizes)
        tables = {name for name, is_table in self._weights if is_table}
        return Footprint(
            weights_bytes=weights,
            weights_are_mapped=False,
            table_bytes=sum(self.tensors[name].n_bytes for name in tables),
            page_bytes=state // self.limits.n_pages,
            work_bytes=work,
        )

    def _add_parts(self) -> Buffer:
        """Hand every part over; return the buffer of the logits."""
        lowered = lower(self.program, self.tensors, self.limits.activations, self._observed)
        buffers, acts = place(lowered)
        for buffer in buffers:
            self._added(self.lib.ei_exec_add_value(self.exec, buffer.width, 0))
        for item in acts:
            self._add_acts(item)
        kv_type = KV_TYPES.index(self.limits.kv_type)  # the order of EI_KV_* of csrc/kernels.h
        places = self.program.kv_places
        for kv in sorted(self.program.kvs, key=lambda kv: places[kv.id] != kv.id):
            home = self._kvs.get(places[kv.id], -1)  # its own is not there yet
            args = (kv_type, kv.n_kv_heads, kv.key_dim, kv.value_dim, home)
            self._kvs[kv.id] = self._added(self.lib.ei_exec_add_kv(self.exec, *args))
        for state in self.program.recurrent:
            self._states[state] = self._added(
                self.lib.ei_exec_add_state(self.exec, *_state_shape(state))
            )
        self.lib.ei_exec_set_snapshots(self.exec, self.limits.n_snapshots)
        for n_added, instruction in enumerate(lowered.instructions, 1):
            self._added(self.lib.ei_exec_add_op(self.exec, self._op(instruction)))
            if lowered.hidden is not None and n_added == lowered.n_body:
                self.lib.ei_exec_set_hidden(self.exec, lowered.hidden.number)
        return lowered.logits

    def _added(self, number: int) -> int:
        if number < 0:
            raise ResourceError("native backend: no memory to build the program")
        return number

    def _add_acts(self, item: Acts) -> None:
        flags = (
            ROWS[item.rows],
            item.slots,
            int(item.integers) * (1 + item.fine),
            int(item.floats),
        )
        self._added(self.lib.ei_exec_add_acts(self.exec, item.width, *flags))

    def _op(self, instruction: Instruction) -> object:
        op = self.ffi.new("ei_op *")
        op.kind, op.rows = int(instruction.kind), ROWS[instruction.rows]
        op.acts_in = instruction.acts_in.number if instruction.acts_in else -1
        op.acts_out = instruction.acts_out.number if instruction.acts_out else -1
        op.gathered = instruction.gathered.number if instruction.gathered else -1
        op.routing = self._routing(instruction.routing) if instruction.routing else -1
        op.rope = self._rope(instruction.rope) if instruction.rope else -1
        op.sums = -1 if instruction.observed is None else self._sums(instruction.observed)
        op.kv = -1 if instruction.kv is None else self._kvs[instruction.kv]
        op.state = -1 if instruction.state is None else self._states[instruction.state]
        for field, items in (("in", instruction.inputs), ("out", instruction.outputs)):
            numbers = [-1 if item is None else item.number for item in items]
            setattr(op, field, numbers + [-1] * (len(getattr(op, field)) - len(numbers)))
        is_table = packed.is_table(instruction)
        weights = [self._weight(name, is_table) for name in instruction.weights]
        op.weight = weights + [-1] * (3 - len(weights))
        vectors = [self._vector(instruction, i) for i in range(len(instruction.vectors))]
        if instruction.slopes is not None:
            vectors.append(self._constant(self.program.constants[instruction.slopes].values))
        if instruction.temperature is not None:
            vectors.append(self._constant(self._growth(*instruction.temperature)))
        op.vec = vectors + [-1] * (3 - len(vectors))
        op.heads = list(instruction.heads) + [0] * (3 - len(instruction.heads))
        op.dim = list(instruction.dims) + [0] * (3 - len(instruction.dims))
        op.scale, op.alpha = 1.0, 1.0
        for name, number in instruction.scalars.items():
            setattr(op, name, number)
        return op

    def _weight(self, name: str, is_table: bool) -> int:
        if (name, is_table) not in self._weights:
            tensor = self.tensors[name]
            if tensor.format.name not in self.formats:
                raise UnsupportedModelError(
                    f"tensor '{name}': found format {tensor.format.name} "
                    f"(need one of {', '.join(self.formats)})"
                )
            number = self._add_weight(tensor, self.formats.index(tensor.format.name), is_table)
            self._weights[name, is_table] = self._added(number)
            if tensor.is_mapped:
                self.lib.ei_exec_set_mapped(self.exec, number)
        return self._weights[name, is_table]

    def _add_weight(self, tensor: Tensor, format_number: int, is_table: bool) -> int:
        lib, head = self.lib, (self.exec, format_number)
        n_matrices, n_rows, n_columns = shape = packed.shape_of(tensor)
        if not is_table:
            groups = packed.ready(self.ready.get(tensor.name), tensor, format_number)
            if groups is not None:
                self.keep.append(groups)
                return int(lib.ei_exec_add_packed(*head, *shape, groups))
            self._to_lay_out += tensor.data.nbytes
        source = self.ffi.from_buffer("uint8_t[]", tensor.data)
        self.keep.append(source)
        if is_table:
            return int(lib.ei_exec_add_table(*head, n_matrices * n_rows, n_columns, source))
        if n_matrices > 1:
            return int(lib.ei_exec_add_experts(*head, *shape, source))
        return int(lib.ei_exec_add_matrix(*head, n_rows, n_columns, source))

    def _vector(self, instruction: Instruction, i: int) -> int:
        name = instruction.vectors[i]
        if name is None:
            return -1
        if not self._reads_data:
            return self._added(self.lib.ei_exec_add_vector(self.exec, self.ffi.NULL, 1))
        # only the vector of a norm without weight has no tensor to tell its length
        n = 0
        if name == ONES:
            buffer = instruction.inputs[0]
            n = instruction.dims[i] if instruction.dims else buffer.width if buffer else 0
        if (name, n) not in self._vectors:
            values = np.ones(n, np.float32) if name == ONES else decode(self.tensors[name])
            # a convolution's channels are lanes: its taps stand one after another
            values = values.T.ravel() if instruction.kind is Kind.CONV else values.ravel()
            self._vectors[name, n] = self._added(
                self.lib.ei_exec_add_vector(self.exec, self._floats(values), len(values))
            )
        return self._vectors[name, n]

    def _growth(self, beta: float, length: int) -> npt.NDArray[np.float64]:
        """Return a factor for every `length` positions."""
        n = -(-self.limits.n_ctx // length)
        return 1 + beta * np.log1p(np.arange(n))

    def _constant(self, values: npt.NDArray[np.floating[Any]]) -> int:
        add = self.lib.ei_exec_add_vector
        return self._added(add(self.exec, self._floats(values), len(values)))

    def _floats(self, values: npt.NDArray[np.floating[Any]]) -> object:
        source = self.ffi.from_buffer("float[]", np.ascontiguousarray(values, np.float32))
        self.keep.append(source)
        return source

    def _rope(self, rotation: Rotation) -> int:
        if rotation not in self._ropes:
            values = self.program.constants[rotation.constant].values
            self._ropes[rotation] = self._added(
                self.lib.ei_exec_add_rope(
                    self.exec, self._floats(values), len(values), rotation.mscale
                )
            )
        return self._ropes[rotation]

    def _routing(self, routing: Routing) -> int:
        if id(routing) not in self._routings:
            how = self.ffi.new("ei_routing *")
            how.n_experts, how.n_used = routing.n_experts, routing.n_used
            how.groups = how.groups_used = 1
            op = routing.route
            if op is not None:
                how.score, how.norm = SCORES.index(op.score), op.norm
                how.groups, how.groups_used = op.groups, op.groups_used
                how.top2 = op.group_score == "top2"
                how.norm_eps, how.norm_min, how.by = op.norm_eps, op.norm_min, op.by
            self._routings[id(routing)] = self._added(self.lib.ei_exec_add_routing(self.exec, how))
        return self._routings[id(routing)]

    def _sums(self, name: str) -> int:
        sums = self._observed[name]
        arrays = [self.ffi.from_buffer("double[]", a) for a in (sums.squares, sums.counts)]
        self.keep += arrays
        return self._added(self.lib.ei_exec_add_sums(self.exec, *arrays, *sums.squares.shape))

    def _lay_out(self, logits: int, progress: Progress | None, cancel: Cancel | None) -> None:
        done = self.ffi.new("int64_t *")
        total = self._to_lay_out
        ended = threading.Event()

        def report() -> None:
            assert progress is not None
            while not ended.wait(POLL_S):
                progress(int(done[0]), total)
            progress(total, total)

        watcher = threading.Thread(target=report, daemon=True) if progress else None
        if watcher:
            watcher.start()
        try:
            flag = self.ffi.from_buffer("int32_t[]", cancel.cell) if cancel else self.ffi.NULL
            status = self.lib.ei_exec_finish(self.exec, logits, done, flag)
        finally:
            ended.set()
            if watcher:
                watcher.join()
        if status == self.lib.EI_CANCELLED:
            raise CancelledError("loading was cancelled")
        if status != self.lib.EI_OK:
            raise ResourceError(
                f"native backend: no memory for {total} bytes of weights, "
                f"{self.limits.n_pages} KV pages and steps of {self.limits.n_batch} tokens: "
                "ask for a smaller context"
            )
