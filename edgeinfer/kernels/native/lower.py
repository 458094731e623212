"""Lower a program to the flat ops of the C executor, fusing what stands together.

NOTE: fusions, by what the C ops offer. A norm joins the residual add before it and the quantization
after it. Matmuls of one input run as one op; a lone one takes the residual add with it. Gate and up
become one op that leaves the next matmul's activations. Per-head norms, rotation and the KV append
of one layer become one op. Whatever matches no pattern is lowered alone, so every program of the
supported ops runs. None of this changes a bit of the result.
"""

from collections.abc import Callable, Mapping

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native import precision
from edgeinfer.kernels.native.heads import HeadsPlan, plan_heads
from edgeinfer.kernels.native.instructions import (
    FUNCTIONS,
    Acts,
    Buffer,
    Instruction,
    Kind,
    Lowered,
    Rotation,
)
from edgeinfer.kernels.native.uses import Uses
from edgeinfer.program.op import Op
from edgeinfer.program.ops import (
    Act,
    Add,
    Attention,
    Embed,
    Gated,
    KvStore,
    Linear,
    Mul,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
)
from edgeinfer.program.program import Program
from edgeinfer.program.values import Value, WeightRef
from edgeinfer.quant.tensor import Tensor

BLOCK = 32  # elements that share one activation scale
MATMULS = 3  # matrices one MATMUL op may hold
ATTENTION_ROWS = 32  # query heads of one KV head that one attention item holds
ONES = ""  # the vector of a norm without weight


class Lowering:
    """The instructions so far, and which buffer holds each value."""

    def __init__(self, program: Program, tensors: Mapping[str, Tensor]) -> None:
        self.program = program
        self.tensors = tensors
        self.uses = Uses(program)
        self.is_fine = precision.policy(program)
        self.done: set[int] = set()
        self.out: list[Instruction] = []
        self._buffers: dict[int, Buffer] = {}
        self._acts: dict[int, Acts] = {}
        self.heads: Mapping[int, HeadsPlan] = plan_heads(program, self.uses)
        for plan in self.heads.values():
            self.done |= plan.absorbed
        self._lower: dict[type[Op], Callable[[int, Op], None]] = {
            Embed: self._embed,
            SelectRows: self._gather,
            RmsNorm: self._norm,
            Linear: self._linear,
            Rope: self._rope,
            KvStore: self._kv_store,
            Attention: self._attention,
            Act: self._act,
            Gated: self._gate,
            Add: self._add,
            Mul: self._multiply,
            Scale: self._scale,
        }

    def run(self) -> Lowered:
        """Lower every op in order."""
        for i, op in enumerate(self.program.ops):
            if i in self.done:
                continue
            lower = self._lower.get(type(op))
            if lower is None:
                raise UnsupportedModelError(
                    f"native backend: op '{op.NAME}' is not implemented (need one of "
                    f"{', '.join(sorted(kind.NAME for kind in self._lower))})"
                )
            lower(i, op)
            self.done.add(i)
        return Lowered(self.out, self.buffer(self.program.outputs["logits"]))

    # -- values ------------------------------------------------------------------------------

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer of a value."""
        if value.id not in self._buffers:
            self._buffers[value.id] = Buffer(value.width, value.rows)
        return self._buffers[value.id]

    def acts(self, value: Value) -> Acts:
        """Return a value's activations, made from its buffer now if no op has left them yet."""
        if value.id not in self._acts:
            self._emit(
                Instruction(
                    Kind.NORM,
                    value.rows,
                    inputs=(self.buffer(value),),
                    acts_out=self.new_acts(value),
                )
            )
        return self._acts[value.id]

    def new_acts(self, value: Value) -> Acts:
        """Declare a value's activations, in the forms its matmuls need."""
        acts = Acts(value.width, value.rows)
        for i in self.uses.readers(value):
            op = self.uses.ops[i]
            if isinstance(op, Linear):
                if self.tensors[op.weight.name].format.block_size > 1:
                    acts.integers = True
                    acts.fine = acts.fine or self.is_fine(op.weight.name)
                else:
                    acts.floats = True
        self._acts[value.id] = acts
        return acts

    def _emit(self, instruction: Instruction) -> None:
        self.out.append(instruction)

    # -- ops ---------------------------------------------------------------------------------

    def _embed(self, i: int, op: Op) -> None:
        assert isinstance(op, Embed)
        if op.ids != "tokens":
            raise UnsupportedModelError(f"native backend: embed of {op.ids!r} is not implemented")
        self._emit(
            Instruction(
                Kind.EMBED,
                op.out.rows,
                outputs=(self.buffer(op.out),),
                weights=(op.table.name,),
                scalars={"scale": op.scale},
            )
        )

    def _gather(self, i: int, op: Op) -> None:
        assert isinstance(op, SelectRows)
        inputs, outputs = (self.buffer(op.x),), (self.buffer(op.out),)
        self._emit(Instruction(Kind.GATHER, op.out.rows, inputs=inputs, outputs=outputs))

    def _norm(self, i: int, op: Op) -> None:
        assert isinstance(op, RmsNorm)
        if op.groups > 1:
            self._emit(self._heads_alone(op.x, op.out, op.groups, norm=op))
            return
        taker = self.uses.sole_taker(op.out, Add)
        if taker and self._joins(*taker, op):
            self._branch_norm(taker[0], taker[1], op)
        else:
            self._emit(self._normed(op, Instruction(Kind.NORM, op.x.rows, (self.buffer(op.x),))))

    def _joins(self, i: int, add: Add, norm: RmsNorm) -> bool:
        """Whether add is x + norm(branch), x made already and the branch read by nothing else."""
        return (
            add.b is norm.out
            and add.alpha == 1.0
            and add.a.id in self._buffers
            and self.uses.sole_reader(norm.x) is not None
        )

    def _branch_norm(self, i: int, add: Add, norm: RmsNorm) -> None:
        self.done.add(i)
        joint = Instruction(
            Kind.NORM,
            add.out.rows,
            inputs=(self.buffer(add.a), self.buffer(norm.x)),
            outputs=(self.buffer(add.out),),
            vectors=(norm.weight.name if norm.weight else ONES,),
            scalars={"eps": norm.eps},
        )
        for j in self.uses.readers(add.out):
            after = self.uses.ops[j]
            if isinstance(after, RmsNorm) and after.groups == 1 and after.eps == norm.eps:
                self.done.add(j)
                joint = self._normed(after, joint)
                break
        self._emit(joint)

    def _normed(self, op: RmsNorm, before: Instruction) -> Instruction:
        """Add the norm of the row, and its activations if matmuls read it, to a NORM op."""
        first = before.vectors[0] if before.vectors else None
        sums = before.outputs[0] if before.outputs else None
        before.vectors = (first, op.weight.name if op.weight else ONES)
        before.outputs = (sums, self.buffer(op.out))
        before.scalars["eps"] = op.eps
        if any(isinstance(self.uses.ops[j], Linear) for j in self.uses.readers(op.out)):
            before.acts_out = self.new_acts(op.out)
        return before

    def _linear(self, i: int, op: Op) -> None:
        assert isinstance(op, Linear)
        if op.scale is not None:
            raise UnsupportedModelError(
                f"native backend: {op.weight.name}: a scale tensor is not implemented"
            )
        gated = self._gated_pair(op)
        if gated is not None:
            self._gated(*gated)
            return
        acts = self.acts(op.x)
        group = [(i, op)]
        for j in self.uses.readers(op.x):
            other = self.uses.ops[j]
            if j <= i or j in self.done or not isinstance(other, Linear) or other.scale:
                continue
            if len(group) < MATMULS and self._gated_pair(other) is None:
                group.append((j, other))
        self.done.update(j for j, _ in group)
        add = self._residual(op) if len(group) == 1 else None
        self._emit(
            Instruction(
                Kind.MATMUL,
                op.out.rows,
                inputs=(self.buffer(add.a),) if add else (),
                outputs=tuple(self.buffer(add.out if add else x.out) for _, x in group),
                acts_in=acts,
                weights=tuple(linear.weight.name for _, linear in group),
                vectors=tuple(linear.bias.name if linear.bias else None for _, linear in group),
            )
        )

    def _residual(self, op: Linear) -> Add | None:
        """Take the add of op's result to a value that is there already, if only it reads it."""
        taker = self.uses.sole_taker(op.out, Add)
        if taker is None or taker[1].b is not op.out or taker[1].alpha != 1.0:
            return None
        if taker[1].a.id not in self._buffers:
            return None
        self.done.add(taker[0])
        return taker[1]

    def _gated_pair(self, op: Linear) -> tuple[int, Gated, int, Linear, int, Linear] | None:
        """Find fn(gate x) * (up x) whose only readers are matmuls, with op as gate or up."""
        taker = self.uses.sole_taker(op.out, Gated)
        if taker is None or taker[1].fn not in FUNCTIONS:
            return None
        gate = self.uses.maker(taker[1].g, Linear)
        up = self.uses.maker(taker[1].u, Linear)
        if gate is None or up is None or gate[1].x is not up[1].x:
            return None
        plain = not any((gate[1].bias, up[1].bias, gate[1].scale, up[1].scale))
        out = taker[1].out
        whole = out.width % BLOCK == 0 and gate[1].out.width == out.width
        if plain and whole and self.uses.feeds_only(out, Linear):
            return (*taker, *gate, *up)
        return None

    def _gated(self, i: int, op: Gated, j: int, gate: Linear, k: int, up: Linear) -> None:
        self.done |= {i, j, k}
        acts = self.acts(gate.x)
        self._emit(
            Instruction(
                Kind.GATED,
                op.out.rows,
                acts_in=acts,
                acts_out=self.new_acts(op.out),
                weights=(gate.weight.name, up.weight.name),
                scalars={"fn": FUNCTIONS.index(op.fn)},
            )
        )

    # -- heads and attention -----------------------------------------------------------------

    def _heads_alone(
        self,
        x: Value,
        out: Value,
        heads: int,
        *,
        norm: RmsNorm | None = None,
        rope: Rope | None = None,
    ) -> Instruction:
        scalars: dict[str, float | int] = {"eps": norm.eps if norm else 0.0}
        if rope:
            scalars["interleaved"] = int(rope.pairing == "interleaved")
        weight = norm.weight.name if norm and norm.weight else ONES
        return Instruction(
            Kind.HEADS,
            x.rows,
            inputs=(self.buffer(x),),
            outputs=(self.buffer(out),),
            vectors=(weight if norm else None,),
            rope=Rotation(rope.inv_freq.index, rope.mscale) if rope else None,
            heads=(heads,),
            dims=(x.width // heads,),
            scalars=scalars,
        )

    def _rope(self, i: int, op: Op) -> None:
        assert isinstance(op, Rope)
        if op.axis is not None:
            raise UnsupportedModelError("native backend: rope with several axes is not implemented")
        self._emit(self._heads_alone(op.x, op.out, op.heads, rope=op))

    def _kv_store(self, i: int, op: Op) -> None:
        assert isinstance(op, KvStore)
        kv, plan = self.program.kv(op.kv), self.heads[i]
        if kv.kind != "paged":
            raise UnsupportedModelError("native backend: step-local KV is not implemented")
        q, k = plan.q, plan.k
        rotation = k.rope or (q.rope if q else None)
        scalars: dict[str, float | int] = {"eps": plan.eps}
        if rotation:
            scalars["interleaved"] = int(rotation.pairing == "interleaved")
        self._emit(
            Instruction(
                Kind.HEADS,
                op.k.rows,
                inputs=(
                    self.buffer(q.start) if q else None,
                    self.buffer(k.start),
                    self.buffer(op.v) if op.v else None,
                ),
                outputs=(self.buffer(q.end) if q else None, self.buffer(k.end)),
                vectors=(q.norm_name(ONES) if q else None, k.norm_name(ONES)),
                rope=Rotation(rotation.inv_freq.index, rotation.mscale) if rotation else None,
                kv=op.kv,
                heads=(q.heads if q else 0, kv.n_kv_heads, kv.n_kv_heads),
                dims=(kv.key_dim, kv.key_dim, kv.value_dim),
                scalars=scalars,
            )
        )

    def _attention(self, i: int, op: Op) -> None:
        assert isinstance(op, Attention)
        kv = self.program.kv(op.kv)
        if op.mask != "causal" or op.window_kind != "past" or op.slopes is not None:
            raise UnsupportedModelError(
                f"native backend: attention with mask {op.mask!r}, window {op.window_kind!r} or "
                "slopes is not implemented"
            )
        group = op.heads // kv.n_kv_heads
        whole = group <= ATTENTION_ROWS and group * kv.value_dim % BLOCK == 0
        self._emit(
            Instruction(
                Kind.ATTENTION,
                op.out.rows,
                inputs=(self.buffer(op.q),),
                outputs=(self.buffer(op.out),),
                acts_out=self._attention_acts(op) if whole else None,
                vectors=(op.sinks.name if op.sinks else None,),
                kv=op.kv,
                heads=(op.heads,),
                scalars={"scale": op.scale, "softcap": op.softcap, "window": op.window},
            )
        )

    def _attention_acts(self, op: Attention) -> Acts | None:
        return self.new_acts(op.out) if self.uses.feeds_only(op.out, Linear) else None

    # -- element by element ------------------------------------------------------------------

    def _elementwise(
        self,
        kind: Kind,
        x: Value,
        out: Value,
        other: Value | WeightRef | None = None,
        **scalars: float | int,
    ) -> None:
        second = self.buffer(other) if isinstance(other, Value) else None
        weight = other.name if isinstance(other, WeightRef) else None
        self._emit(
            Instruction(
                kind,
                out.rows,
                inputs=(self.buffer(x), second),
                outputs=(self.buffer(out),),
                vectors=(weight,),
                scalars=scalars,
            )
        )

    def _act(self, i: int, op: Op) -> None:
        assert isinstance(op, Act)
        self._elementwise(Kind.ACT, op.x, op.out, fn=FUNCTIONS.index(op.fn))

    def _gate(self, i: int, op: Op) -> None:
        assert isinstance(op, Gated)
        if op.fn not in FUNCTIONS or op.g.width != op.u.width:
            raise UnsupportedModelError(
                f"native backend: gated by {op.fn}, {op.g.width} to {op.u.width} columns, is not "
                "implemented"
            )
        self._elementwise(Kind.GATE, op.g, op.out, op.u, fn=FUNCTIONS.index(op.fn))

    def _add(self, i: int, op: Op) -> None:
        assert isinstance(op, Add)
        self._elementwise(Kind.ADD, op.a, op.out, op.b, alpha=op.alpha)

    def _multiply(self, i: int, op: Op) -> None:
        assert isinstance(op, Mul)
        if not isinstance(op.b, Value) and op.b.size != op.a.width:
            raise UnsupportedModelError("native backend: mul by a weight of one is not implemented")
        self._elementwise(Kind.MULTIPLY, op.a, op.out, op.b)

    def _scale(self, i: int, op: Op) -> None:
        assert isinstance(op, Scale)
        if op.temp is not None:
            raise UnsupportedModelError("native backend: scale by position is not implemented")
        self._elementwise(Kind.SCALE, op.x, op.out, scale=op.by, softcap=op.cap)


def lower(program: Program, tensors: Mapping[str, Tensor]) -> Lowered:
    """Return the instructions of a program over tensors it was validated against.

    Raises UnsupportedModelError naming an op, or a use of one, the C executor lacks.
    """
    return Lowering(program, tensors).run()
