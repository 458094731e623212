"""Write a program op by op: each method appends one op and returns its result.

Gives values their ids, sizes weights from what reads them, gathers constants and state. Knows the
names and shapes of the file's tensors, so that an optional one is used exactly when it is there.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from edgeinfer.program import ops
from edgeinfer.program.ops_mixing import ConvMask, HeadMap, Mask, Pairing, WindowKind
from edgeinfer.program.ops_routing import ONE_GROUP, Groups, Score
from edgeinfer.program.ops_rowwise import EmbedIds, PoolKind
from edgeinfer.program.program import Constant, Pooling, Program
from edgeinfer.program.rope import RopeTable
from edgeinfer.program.states import Conv, Delta, Kv, KvKind, Recurrent, Ssm
from edgeinfer.program.values import ConstantRef, Rows, Use, Value, WeightRef
from edgeinfer.quant.tensor import Tensor


class Sizes(Protocol):
    """The sizes a finished program carries; an architecture's hyper-parameters have them."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def n_embd(self) -> int: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_ctx_train(self) -> int: ...


class Builder:
    """A program being written. Names are GGUF's, without ".weight"."""

    def __init__(self, arch: str, tensors: Mapping[str, Tensor]) -> None:
        self.arch = arch
        self.tensors = tensors
        self._ops: list[ops.Op] = []
        self._n_values = 0
        self._constants: dict[tuple[str, bytes], tuple[ConstantRef, Constant]] = {}
        self._kvs: list[Kv] = []
        self._recurrent: list[Recurrent] = []
        self._outputs: dict[str, Value] = {}
        self._pooling: Pooling | None = None
        self._left_out: set[str] = set()

    def has(self, name: str) -> bool:
        """Tell whether the file has the tensor `name` (with its suffix)."""
        return name in self.tensors

    def n_rows(self, name: str) -> int:
        """Return the rows of a matrix that the file has; of a vector, which is one, 1."""
        shape = self.tensors[name].shape
        return shape[0] if len(shape) > 1 else 1

    def optional(self, name: str, shape: tuple[int, ...]) -> WeightRef | None:
        """Return a vector weight if the file has it."""
        return WeightRef(name, shape, Use.VECTOR) if self.has(name) else None

    def leave_out(self, *names: str) -> None:
        """Name tensors that the file may have and the model itself does not use."""
        self._left_out.update(names)

    def value(self, width: int, rows: Rows, *, is_ids: bool = False) -> Value:
        """Make a new value."""
        made = Value(self._n_values, width, rows, is_ids)
        self._n_values += 1
        return made

    def constant(self, name: str, values: np.ndarray) -> ConstantRef:
        """Keep a vector as float32; equal vectors of one name are kept once."""
        stored = np.asarray(values, np.float32)
        stored.flags.writeable = False
        key = (name, stored.tobytes())
        if key not in self._constants:
            ref = ConstantRef(len(self._constants), len(stored))
            self._constants[key] = (ref, Constant(name, stored))
        return self._constants[key][0]

    def kv(
        self,
        n_kv_heads: int,
        key_dim: int,
        value_dim: int,
        *,
        window: int = 0,
        v_is_prefix: bool = False,
        kind: KvKind = "paged",
    ) -> int:
        """Declare a KV and return its id."""
        id = len(self._kvs)
        self._kvs.append(Kv(id, n_kv_heads, key_dim, value_dim, window, v_is_prefix, kind))
        return id

    def _emit(self, op: ops.Op) -> None:
        self._ops.append(op)

    def embed(
        self,
        name: str,
        n_rows: int,
        width: int,
        *,
        ids: EmbedIds = "tokens",
        row: int = 0,
        separator: int = 0,
        scale: float = 1.0,
    ) -> Value:
        """Look tokens up in a table, or their positions or segments, or one row for all."""
        out = self.value(width, Rows.TOKENS)
        table = WeightRef(f"{name}.weight", (n_rows, width), Use.TABLE)
        self._emit(ops.Embed(table, out, ids, row, scale, separator))
        return out

    def rms_norm(
        self,
        x: Value,
        name: str | WeightRef | None,
        eps: float,
        *,
        groups: int = 1,
        own: bool = False,
    ) -> Value:
        """Normalize each of `groups` groups, by a weight they share or each by its own."""
        weight = None if isinstance(name, str) else name
        if isinstance(name, str):
            n = x.width // max(groups, 1)
            shape = (groups, n) if own else (n,)
            # Files of falcon-h1 leave the suffix of some away.
            full_name = name if self.has(name) else f"{name}.weight"
            weight = WeightRef(full_name, shape, Use.VECTOR)
        out = self.value(x.width, x.rows)
        self._emit(ops.RmsNorm(x, weight, out, eps, groups))
        return out

    def l2_norm(self, x: Value, eps: float, *, groups: int) -> Value:
        """Give each of `groups` groups the length 1."""
        out = self.value(x.width, x.rows)
        self._emit(ops.L2Norm(x, out, eps, groups))
        return out

    def layer_norm(self, x: Value, name: str, eps: float, *, groups: int = 1) -> Value:
        """Normalize each group without its mean; weight and, if the file has it, bias of all."""
        shape = (x.width,) if groups == 1 else (groups, x.width // groups)
        weight = WeightRef(f"{name}.weight", shape, Use.VECTOR)
        out = self.value(x.width, x.rows)
        self._emit(ops.LayerNorm(x, weight, self.optional(f"{name}.bias", shape), out, eps, groups))
        return out

    def linear(self, x: Value, name: str, width: int, *, scaled: bool = True) -> Value:
        """Multiply by `name.weight`; use `name.bias` and `name.scale` if the file has them.

        `scaled`: such a scale is the matrix's.
        """
        weight = WeightRef(f"{name}.weight", (width, x.width), Use.MATRIX)
        bias = self.optional(f"{name}.bias", (width,))
        scale = self.optional(f"{name}.scale", (1,)) if scaled else None
        out = self.value(width, x.rows)
        self._emit(ops.Linear(x, weight, out, bias, scale))
        return out

    def head_linear(self, x: Value, name: str, width: int, heads: int) -> Value:
        """Multiply each head by a matrix of its own, to `width` elements of each."""
        weight = WeightRef(f"{name}.weight", (heads, width, x.width // heads), Use.MATRIX)
        out = self.value(heads * width, x.rows)
        self._emit(ops.HeadLinear(x, weight, out))
        return out

    def rope(self, x: Value, table: RopeTable, heads: int, *, pairing: Pairing) -> Value:
        """Rotate each head by its token's position."""
        inv_freq = self.constant(table.name, table.inv_freq)
        out = self.value(x.width, x.rows)
        self._emit(ops.Rope(x, inv_freq, out, heads, pairing, table.mscale))
        return out

    def split(self, x: Value, *sizes: int, groups: int = 1) -> tuple[Value, ...]:
        """Cut x into pieces."""
        outs = tuple(self.value(size * groups, x.rows) for size in sizes)
        self._emit(ops.Split(x, outs, sizes, groups))
        return outs

    def concat(self, *xs: Value, groups: int = 1, repeat: tuple[bool, ...] = ()) -> Value:
        """Join the groups of several values; those to `repeat` are one group, for every one."""
        repeat = repeat or (False,) * len(xs)
        widths = (
            x.width * groups if again else x.width for x, again in zip(xs, repeat, strict=True)
        )
        out = self.value(sum(widths), xs[0].rows)
        self._emit(ops.Concat(xs, out, repeat, groups))
        return out

    def kv_store(self, k: Value, v: Value | None, kv: int) -> None:
        """Append keys to a KV, and values where they are no prefix of the keys."""
        self._emit(ops.KvStore(k, v, kv))

    def attention(
        self,
        q: Value,
        kv: int,
        heads: int,
        *,
        scale: float,
        softcap: float = 0.0,
        mask: Mask = "causal",
        window_kind: WindowKind = "past",
        sinks: WeightRef | None = None,
        slopes: ConstantRef | None = None,
    ) -> Value:
        """Attend to a KV, within the window it was declared with."""
        state = self._kvs[kv]
        out = self.value(heads * state.value_dim, q.rows)
        see = (mask, state.window, window_kind)
        self._emit(ops.Attention(q, out, kv, heads, scale, softcap, *see, sinks, slopes))
        return out

    def conv1d(self, x: Value, name: str, n_taps: int, *, mask: ConvMask = "causal") -> Value:
        """Convolve each channel over its past, or both sides; use `name.bias` if it is there."""
        id = self._next_id(Conv)
        if mask == "causal":
            self._recurrent.append(Conv(id, x.width, n_taps - 1))
        weight = WeightRef(f"{name}.weight", (x.width, n_taps), Use.VECTOR)
        bias = self.optional(f"{name}.bias", (x.width,))
        out = self.value(x.width, x.rows)
        self._emit(ops.Conv1d(x, weight, bias, out, id, mask))
        return out

    def delta_net(
        self,
        q: Value,
        k: Value,
        v: Value,
        g: Value,
        beta: Value,
        *,
        k_heads: int,
        v_heads: int,
        map: HeadMap,
    ) -> Value:
        """Apply the gated delta rule, heads of v tiled over those of k or grouped."""
        id = self._next_id(Delta)
        self._recurrent.append(Delta(id, v_heads, k.width // k_heads, v.width // v_heads))
        out = self.value(v.width, v.rows)
        self._emit(ops.DeltaNet(q, k, v, g, beta, out, id, k_heads, v_heads, map))
        return out

    def ssm_scan(
        self, x: Value, b: Value, c: Value, dt: Value, layer: str, *, heads: int, groups: int
    ) -> Value:
        """Apply the recurrence of Mamba-2 with a layer's `ssm_a`, `ssm_d` and `ssm_dt.bias`."""
        id, state = self._next_id(Ssm), b.width // groups
        self._recurrent.append(Ssm(id, heads, x.width // heads, state))
        a, d = (WeightRef(f"{layer}.ssm_{name}", (heads, 1), Use.VECTOR) for name in ("a", "d"))
        dt_bias = WeightRef(f"{layer}.ssm_dt.bias", (heads,), Use.VECTOR)
        out = self.value(x.width, x.rows)
        self._emit(ops.SsmScan(x, b, c, dt, a, d, dt_bias, out, id, heads, groups, state))
        return out

    def _next_id(self, kind: type[Recurrent]) -> int:
        return sum(isinstance(state, kind) for state in self._recurrent)

    def rows(self, x: Value) -> Value:
        """Keep the wanted rows."""
        out = self.value(x.width, Rows.WANTED)
        self._emit(ops.SelectRows(x, out))
        return out

    def pool(self, x: Value, kind: PoolKind) -> Value:
        """Make one row of each sequence's."""
        out = self.value(x.width, Rows.SEQUENCES)
        self._emit(ops.Pool(x, out, kind))
        return out

    def softmax(self, x: Value) -> Value:
        """Turn each row into shares of 1."""
        out = self.value(x.width, x.rows)
        self._emit(ops.Softmax(x, out))
        return out

    def act(self, x: Value, fn: ops.Fn) -> Value:
        """Apply an activation."""
        out = self.value(x.width, x.rows)
        self._emit(ops.Act(x, out, fn))
        return out

    def gated(self, g: Value, u: Value, fn: ops.GatedFn) -> Value:
        """Multiply u by the activation of g."""
        out = self.value(u.width, u.rows)
        self._emit(ops.Gated(g, u, out, fn))
        return out

    def add(self, a: Value, b: Value | WeightRef, *, alpha: float = 1.0) -> Value:
        """Add alpha * b to a."""
        out = self.value(a.width, a.rows)
        self._emit(ops.Add(a, b, out, alpha))
        return out

    def mul(self, a: Value, b: Value | WeightRef) -> Value:
        """Multiply element by element."""
        out = self.value(a.width, a.rows)
        self._emit(ops.Mul(a, b, out))
        return out

    def scale(
        self,
        x: Value,
        *,
        by: float = 1.0,
        cap: float = 0.0,
        temp: tuple[float, int] | None = None,
    ) -> Value:
        """Multiply by a number, and one that grows with the position, then cap softly."""
        out = self.value(x.width, x.rows)
        self._emit(ops.Scale(x, out, by, cap, temp))
        return out

    def route(
        self,
        logits: Value,
        n_used: int,
        *,
        score: Score,
        norm: bool,
        norm_eps: float = 0.0,
        by: float = 1.0,
        bias: WeightRef | None = None,
        groups: Groups = ONE_GROUP,
    ) -> tuple[Value, Value]:
        """Choose experts; return their ids and weights."""
        ids = self.value(n_used, logits.rows, is_ids=True)
        w = self.value(n_used, logits.rows)
        self._emit(
            ops.Route(
                logits,
                ids,
                w,
                bias,
                score=score,
                norm=norm,
                norm_eps=norm_eps,
                by=by,
                groups=groups.n,
                groups_used=groups.n_used,
                group_score=groups.score,
            )
        )
        return ids, w

    def expert_linear(self, x: Value, ids: Value, name: str, shape: tuple[int, int, int]) -> Value:
        """Multiply by the chosen experts' matrices; shape is (experts, out, in)."""
        weight = WeightRef(f"{name}.weight", shape, Use.MATRIX)
        bias = self.optional(f"{name}.bias", shape[:2])
        scale = self.optional(f"{name}.scale", shape[:1])
        out = self.value(ids.width * shape[1], x.rows)
        self._emit(ops.ExpertLinear(x, ids, weight, out, bias, scale))
        return out

    def combine(self, y: Value, w: Value) -> Value:
        """Sum the experts' answers by their weights."""
        out = self.value(y.width // w.width, y.rows)
        self._emit(ops.Combine(y, w, out))
        return out

    def output(self, name: str, value: Value, *, pooling: Pooling | None = None) -> None:
        """Name the result of the program, and what it is of; see `Program`."""
        self._outputs[name] = value
        self._pooling = pooling

    def finish(self, sizes: Sizes) -> Program:
        """Return the program; its construction checks that the ops fit together."""
        return Program(
            arch=self.arch,
            ops=tuple(self._ops),
            constants=tuple(constant for _, constant in self._constants.values()),
            states=(*self._kvs, *self._recurrent),
            outputs=dict(self._outputs),
            n_vocab=sizes.n_vocab,
            n_embd=sizes.n_embd,
            n_layers=sizes.n_layers,
            n_ctx=sizes.n_ctx,
            n_ctx_train=sizes.n_ctx_train,
            pooling=self._pooling,
            left_out=frozenset(self._left_out),
        )
