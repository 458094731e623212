"""Hold a model's forward pass as data: ops in order, their constants, state and outputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgeinfer.program.check import check_length, check_structure, check_tensors
from edgeinfer.program.op import Op
from edgeinfer.program.ops import Attention, Embed
from edgeinfer.program.printing import print_program
from edgeinfer.program.states import Kv, Recurrent, State
from edgeinfer.program.values import ConstantRef, Value, WeightRef
from edgeinfer.quant.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A small vector the builder computed: a frequency table, an axis table, ALiBi slopes."""

    name: str
    values: np.ndarray  # (n,) float32, read-only


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One model's step, from token ids to its outputs.

    `outputs` names the results: `logits` `[R, n_vocab]`. `n_ctx` is the longest sequence the
    program serves (it chose the RoPE table), `n_ctx_train` the length the model was trained for.
    Construction raises ModelFormatError where the ops do not fit together, InvalidParameterError
    where `n_ctx` exceeds the positions that a table has rows for.
    """

    arch: str
    ops: tuple[Op, ...]
    constants: tuple[Constant, ...]
    states: tuple[State, ...]
    outputs: Mapping[str, Value]
    n_vocab: int
    n_embd: int
    n_layers: int
    n_ctx: int
    n_ctx_train: int
    n_axes: int = 1  # rows of the positions: 1, or 3 to 4 for M-RoPE
    kvs: tuple[Kv, ...] = field(init=False)

    def __post_init__(self) -> None:
        kvs = tuple(state for state in self.states if isinstance(state, Kv))
        object.__setattr__(self, "kvs", kvs)
        check_structure(self.ops, self.states, self.outputs, [c.values for c in self.constants])
        check_length(self.n_ctx, self.n_positions)

    def kv(self, id: int) -> Kv:
        """Return the KV an op's `kv` attribute names."""
        return next(kv for kv in self.kvs if kv.id == id)

    @property
    def recurrent(self) -> tuple[Recurrent, ...]:
        """The states of constant size, in the order of their declaration."""
        return tuple(state for state in self.states if not isinstance(state, Kv))

    @property
    def snapshot_bytes(self) -> int:
        """What all recurrent states of one sequence take, in float32."""
        return 4 * sum(state.n_floats for state in self.recurrent)

    def state_of(self, kind: type[Recurrent], id: int) -> Recurrent:
        """Return the recurrent state an op names."""
        return next(s for s in self.recurrent if isinstance(s, kind) and s.id == id)

    def constant(self, ref: ConstantRef) -> np.ndarray:
        """Return a constant's float32 vector."""
        return self.constants[ref.index].values

    def weights(self) -> dict[str, WeightRef]:
        """Map the names of all tensors the program reads to one reference each, in first use."""
        found: dict[str, WeightRef] = {}
        for op in self.ops:
            for ref in op.weights():
                found.setdefault(ref.name, ref)
        return found

    def attentions(self) -> Iterator[Attention]:
        """Yield the attention ops in order."""
        return (op for op in self.ops if isinstance(op, Attention))

    @property
    def takes_whole_sequences(self) -> bool:
        """Whether every step must hold its sequences from their first token to their last."""
        ahead = any(op.reach[1] != 0 for op in self.attentions())
        return ahead or any(kv.kind == "step" for kv in self.kvs)

    @property
    def n_positions(self) -> int | None:
        """Rows of the shortest table of positions, beyond which nothing runs; None without one."""
        tables = (op.table for op in self.ops if isinstance(op, Embed) and op.ids == "pos")
        return min((table.shape[0] for table in tables), default=None)

    @property
    def window(self) -> int:
        """The longest window of the layers' keys and values; 0 if a layer keeps everything."""
        windows = [kv.window for kv in self.kvs]
        return max(windows, default=0) if all(windows) else 0

    def validate(self, tensors: Mapping[str, Tensor], *, where: str = "model") -> None:
        """Check every tensor the program names against the file, before a weight is read.

        Raises MissingTensorError listing all missing and misshapen ones, and those whose format an
        op cannot use, at once. `where` names the file in the message.
        """
        check_tensors(self.ops, tensors, where=where, arch=self.arch)

    def print(self) -> str:
        """Return the program as text, one op a line; stable for one program."""
        return print_program(self)
