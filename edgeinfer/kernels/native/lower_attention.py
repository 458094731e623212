"""Lower what works on heads: norms and rotations per head, the KV append, attention."""

from edgeinfer.errors import UnsupportedModelError
from edgeinfer.kernels.native.instructions import (
    BLOCK,
    Acts,
    Instruction,
    Kind,
    Rotation,
)
from edgeinfer.kernels.native.lowering import Lowering, norm_vector
from edgeinfer.program.ops import Attention, KvStore, Linear, RmsNorm, Rope

UNLIMITED = (1 << 31) - 1  # EI_UNLIMITED of csrc/edgeinfer.h
ATTENTION_ROWS = 48  # query heads of one KV head that one attention item holds


def rope(lowering: Lowering, i: int, op: Rope, norm: RmsNorm | None = None) -> None:
    """Lower a rotation that no KV append takes with it, and the norm before it if it is given."""
    if op.axis is not None:
        raise UnsupportedModelError("native backend: rope with several axes is not implemented")
    lowering.emit(
        Instruction(
            Kind.HEADS,
            op.x.rows,
            inputs=(lowering.buffer(norm.x if norm else op.x),),
            outputs=(lowering.buffer(op.out),),
            vectors=(norm_vector(norm),),
            rope=_rotation(op),
            heads=(op.heads,),
            dims=(op.x.width // op.heads,),
            scalars={
                "eps": norm.eps if norm else 0.0,
                "interleaved": int(op.pairing == "interleaved"),
            },
        )
    )


def kv_store(lowering: Lowering, i: int, op: KvStore) -> None:
    """Lower a KV append with the norms and rotations that lead to it."""
    kv, plan = lowering.program.kv(op.kv), lowering.heads[i]
    q, k = plan.q, plan.k
    rotation = k.rope or (q.rope if q else None)
    scalars: dict[str, float | int] = {"eps": plan.eps}
    if rotation:
        scalars["interleaved"] = int(rotation.pairing == "interleaved")
    lowering.emit(
        Instruction(
            Kind.HEADS,
            op.k.rows,
            inputs=(
                lowering.buffer(q.start) if q else None,
                lowering.buffer(k.start),
                lowering.buffer(op.v) if op.v else None,
            ),
            outputs=(lowering.buffer(q.end) if q else None, lowering.buffer(k.end)),
            vectors=(norm_vector(q.norm if q else None), norm_vector(k.norm)),
            rope=_rotation(rotation),
            kv=op.kv,
            heads=(q.heads if q else 0, kv.n_kv_heads, kv.n_kv_heads),
            dims=(kv.key_dim, kv.key_dim, kv.value_dim),
            scalars=scalars,
        )
    )


def attention(lowering: Lowering, i: int, op: Attention) -> None:
    """Lower attention; it leaves activations where whole blocks of them come from one item."""
    kv = lowering.program.kv(op.kv)
    behind, ahead = (UNLIMITED if reach is None else reach for reach in op.reach)
    group = op.heads // kv.n_kv_heads
    whole = group <= ATTENTION_ROWS and group * kv.value_dim % BLOCK == 0
    lowering.emit(
        Instruction(
            Kind.ATTENTION,
            op.out.rows,
            inputs=(lowering.buffer(op.q),),
            outputs=(lowering.buffer(op.out),),
            acts_out=_acts_of(lowering, op) if whole else None,
            vectors=(op.sinks.name if op.sinks else None,),
            kv=op.kv,
            heads=(op.heads,),
            slopes=op.slopes.index if op.slopes else None,
            scalars={
                "scale": op.scale,
                "softcap": op.softcap,
                "behind": min(behind, UNLIMITED),
                "ahead": min(ahead, UNLIMITED),
            },
        )
    )


def _acts_of(lowering: Lowering, op: Attention) -> Acts | None:
    return lowering.new_acts(op.out) if lowering.uses.feeds_only(op.out, Linear) else None


def _rotation(rope: Rope | None) -> Rotation | None:
    return Rotation(rope.inv_freq.index, rope.mscale) if rope else None
