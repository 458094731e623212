"""Hold a model's forward pass as data: ops in order, their constants, state and outputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from edgeinfer.errors import ModelFormatError
from edgeinfer.program.check import check_length, check_structure, check_tensors
from edgeinfer.program.kv_places import kv_places
from edgeinfer.program.op import Op
from edgeinfer.program.ops import Attention, Conv1d, Embed, Pool
from edgeinfer.program.printing import print_program
from edgeinfer.program.states import Kv, Recurrent, State
from edgeinfer.program.values import ConstantRef, Value, WeightRef
from edgeinfer.quant.tensor import Tensor

Pooling = Literal["none", "mean", "cls", "last", "rank"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)  # as GGUF numbers them
_RESULTS: dict[Pooling | None, str] = {None: "logits", "rank": "scores"}  # "embedding" else


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A small vector the builder computed: a frequency table, an axis table, ALiBi slopes."""

    name: str
    values: np.ndarray  # (n,) float32, read-only


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One model's step, from token ids to its result.

    `outputs` names the result. A model that writes text gives `logits` `[R, n_vocab]`, a row for
    each wanted token; its `pooling` is None; `hidden` `[R, n_hidden]` are the rows that its head
    makes them of, and all before that leads to them. One that only reads says by `pooling` what it
    gives:

    - none: `embedding` `[R, n_out]`, a row for each wanted token;
    - mean, cls, last: `embedding` of each sequence, from all its tokens, the first, or the last;
    - rank: `scores` of each sequence, `n_out` of them.

    Nothing is normalized. Where the result has a row for each sequence, want the last token of each
    sequence and no other: rows come in the order in which the sequences stand in the step. Some
    models need a sequence whole in one step, see `takes_whole_sequences`; of others, which pool the
    last token, sequences may come in parts, and a cached beginning may be left out.

    `n_ctx` is the longest sequence the program serves (it chose the RoPE table), `n_ctx_train` the
    length the model was trained for. Construction raises ModelFormatError where the ops do not fit
    together, InvalidParameterError where `n_ctx` exceeds the positions that a table has rows for.
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
    pooling: Pooling | None = None
    left_out: frozenset[str] = frozenset()  # tensors a file may have that the model does not use
    kvs: tuple[Kv, ...] = field(init=False)

    def __post_init__(self) -> None:
        kvs = tuple(state for state in self.states if isinstance(state, Kv))
        object.__setattr__(self, "kvs", kvs)
        check_structure(self.ops, self.states, self.outputs, [c.values for c in self.constants])
        check_length(self.n_ctx, self.n_positions)
        name = _RESULTS.get(self.pooling, "embedding")
        if list(self.outputs)[-1:] != [name] or self.outputs.keys() - {name, "hidden"}:
            raise ModelFormatError(f"program: outputs {list(self.outputs)} (need '{name}')")

    @property
    def result(self) -> Value:
        """The output that a step returns."""
        return list(self.outputs.values())[-1]

    @property
    def n_out(self) -> int:
        """Numbers in a row of the result: n_vocab, the size of an embedding, or of scores."""
        return self.result.width

    def kv(self, id: int) -> Kv:
        """Return the KV an op's `kv` attribute names."""
        return next(kv for kv in self.kvs if kv.id == id)

    @property
    def n_hidden(self) -> int:
        """Width of the hidden rows; 0 where the program names none."""
        return self.outputs["hidden"].width if "hidden" in self.outputs else 0

    @property
    def kv_places(self) -> Mapping[int, int]:
        """In whose memory each KV lies, by id; see `program.kv_places`."""
        return kv_places(self.ops, self.kvs)

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
    def looks_ahead(self) -> bool:
        """Whether tokens see any that come after them."""
        ahead = any(op.reach[1] != 0 for op in self.attentions())
        return ahead or any(isinstance(op, Conv1d) and op.mask == "centered" for op in self.ops)

    @property
    def takes_whole_sequences(self) -> bool:
        """Whether every step must hold its sequences from their first token to their last."""
        pools = any(isinstance(op, Pool) for op in self.ops)
        counts = any(isinstance(op, Embed) and op.ids == "segments" for op in self.ops)
        return self.looks_ahead or pools or counts or any(kv.kind == "step" for kv in self.kvs)

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
