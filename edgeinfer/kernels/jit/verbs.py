"""Name the vector instructions of kernels: 16 lanes of floats, integers or bytes, and raw memory.

The words are those of csrc/isa/scalar_verbs.h and mean the same. Addresses are integers. LLVM turns
a vector of 16 lanes into what the CPU has. Every float step is one IEEE operation, rounded once.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from edgeinfer.kernels.jit.emit import (
    BYTES,
    F32,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    INTS,
    LANES,
    SHORTS,
    call,
    from_f16,
    in_all,
    load,
    mask,
    nothing,
    real,
    store,
    to_f16,
    vb,
    verb,
    vf,
    vi,
    whole,
    zeros,
)

# -- memory ----------------------------------------------------------------------------------------


@verb(whole, whole)
def load_i64(b: Any, address: Any) -> Any:
    return load(b, address, I64, 8)


@verb(whole, whole)
def load_i32(b: Any, address: Any) -> Any:
    return b.sext(load(b, address, I32, 1), I64)


@verb(whole, whole)
def load_u16(b: Any, address: Any) -> Any:
    return b.zext(load(b, address, I16, 1), I64)


@verb(whole, whole)
def load_u8(b: Any, address: Any) -> Any:
    return b.zext(load(b, address, I8, 1), I64)


@verb(whole, whole)
def load_s8(b: Any, address: Any) -> Any:
    return b.sext(load(b, address, I8, 1), I64)


@verb(nothing, whole, whole)
def store_i8(b: Any, address: Any, x: Any) -> None:
    store(b, address, b.trunc(x, I8), 1)


@verb(nothing, whole, whole)
def copy_i16(b: Any, to: Any, source: Any) -> None:
    store(b, to, load(b, source, I16, 2), 2)


@verb(real, whole)
def load_f32(b: Any, address: Any) -> Any:
    return load(b, address, F32, 1)


@verb(nothing, whole, real)
def store_f32(b: Any, address: Any, x: Any) -> None:
    store(b, address, x, 4)


@verb(whole, whole, whole)
def fetch_add(b: Any, address: Any, x: Any) -> Any:
    """Add to a 64-bit number in memory that other threads add to as well; return what it was."""
    return b.atomic_rmw("add", b.inttoptr(address, I64.as_pointer()), x, "monotonic")


@verb(nothing, whole, whole, whole, whole, whole, whole, whole, whole)
def call_unpack(b: Any, function: Any, *values: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [I64] * len(values))
    b.call(b.inttoptr(function, kind.as_pointer()), values)


# -- one float -------------------------------------------------------------------------------------


@verb(real, real, real, real)
def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x*y + z, one rounding."""
    return call(b, "llvm.fma.f32", F32, x, y, z)


@verb(real, whole)
def f32_from_bits(b: Any, x: Any) -> Any:
    return b.bitcast(b.trunc(x, I32), F32)


@verb(whole, real)
def f32_bits(b: Any, x: Any) -> Any:
    return b.sext(b.bitcast(x, I32), I64)


@verb(real, whole)
def f32_from_int(b: Any, x: Any) -> Any:
    return b.sitofp(x, F32)


@verb(real, whole)
def f32_from_f16(b: Any, bits: Any) -> Any:
    """The f16 of the lowest 16 bits."""
    return b.extract_element(from_f16(b, in_all(b, b.trunc(bits, I16))), I32(0))


# -- 16 floats -------------------------------------------------------------------------------------


@verb(vf, real)
def vf_set(b: Any, x: Any) -> Any:
    return in_all(b, x)


@verb(vf, whole)
def vf_load(b: Any, address: Any) -> Any:
    return load(b, address, FLOATS, 4)


@verb(vf, whole, whole)
def vf_load_n(b: Any, address: Any, n: Any) -> Any:
    """Load n lanes; the others are 0, but their memory is read too."""
    inside = b.icmp_signed("<", mask(range(LANES)), in_all(b, b.trunc(n, I32)))
    return b.select(inside, load(b, address, FLOATS, 4), zeros(FLOATS))


@verb(nothing, whole, vf)
def vf_store(b: Any, address: Any, x: Any) -> None:
    store(b, address, x, 4)


@verb(real, vf, whole)
def vf_lane(b: Any, x: Any, i: Any) -> Any:
    return b.extract_element(x, i)


@verb(vf, vf, vf)
def vf_add(b: Any, x: Any, y: Any) -> Any:
    return b.fadd(x, y)


@verb(vf, vf, vf)
def vf_sub(b: Any, x: Any, y: Any) -> Any:
    return b.fsub(x, y)


@verb(vf, vf, vf)
def vf_mul(b: Any, x: Any, y: Any) -> Any:
    return b.fmul(x, y)


@verb(vf, vf, vf)
def vf_div(b: Any, x: Any, y: Any) -> Any:
    return b.fdiv(x, y)


@verb(vf, vf)
def vf_root(b: Any, x: Any) -> Any:
    """The square root, correctly rounded."""
    return call(b, "llvm.sqrt.v16f32", FLOATS, x)


@verb(vf, vf, vf, vf)
def vf_fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x*y + z, one rounding."""
    return call(b, "llvm.fma.v16f32", FLOATS, x, y, z)


@verb(vf, vf, vf, vf)
def vf_fnma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """z - x*y, one rounding."""
    return call(b, "llvm.fma.v16f32", FLOATS, b.fneg(x), y, z)


@verb(vf, vf, vf)
def vf_max(b: Any, x: Any, y: Any) -> Any:
    """x > y ? x : y; a NaN in either gives y."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@verb(vf, vf, vf)
def vf_min(b: Any, x: Any, y: Any) -> Any:
    """x < y ? x : y; a NaN in either gives y."""
    return b.select(b.fcmp_ordered("<", x, y), x, y)


@verb(vf, vf, vf, vf, vf)
def vf_select_ge(b: Any, x: Any, limit: Any, yes: Any, no: Any) -> Any:
    """x >= limit ? yes : no; no where x is NaN."""
    return b.select(b.fcmp_ordered(">=", x, limit), yes, no)


@verb(vf, vi)
def vf_from_vi(b: Any, x: Any) -> Any:
    return b.sitofp(x, FLOATS)


@verb(vi, vf)
def vf_bits(b: Any, x: Any) -> Any:
    return b.bitcast(x, INTS)


@verb(vf, vi)
def vf_from_bits(b: Any, x: Any) -> Any:
    return b.bitcast(x, FLOATS)


@verb(vf, whole)
def vf_from_f16(b: Any, address: Any) -> Any:
    """16 f16 from memory."""
    return from_f16(b, load(b, address, SHORTS, 2))


@verb(nothing, whole, vf)
def vf_to_f16(b: Any, address: Any, x: Any) -> None:
    """16 f16 to memory, rounded to nearest even; beyond their range: infinite."""
    store(b, address, to_f16(b, x), 2)


def _fold(b: Any, x: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine the lanes by the one tree of the law: (i, i+8), (i, i+4), (i, i+2), (i, i+1)."""
    n = LANES // 2
    while n:
        low = b.shuffle_vector(x, x, mask(range(n)))
        x = combine(low, b.shuffle_vector(x, x, mask(range(n, 2 * n))))
        n //= 2
    return b.extract_element(x, I32(0))


@verb(real, vf)
def vf_sum(b: Any, x: Any) -> Any:
    return _fold(b, x, b.fadd)


@verb(real, vf)
def vf_largest(b: Any, x: Any) -> Any:
    return _fold(b, x, lambda p, q: b.select(b.fcmp_ordered(">", p, q), p, q))


# -- 16 integers -----------------------------------------------------------------------------------


@verb(vi, whole)
def vi_set(b: Any, x: Any) -> Any:
    return in_all(b, b.trunc(x, I32))


@verb(vi)
def vi_count(b: Any) -> Any:
    """0, 1, .. 15."""
    return mask(range(LANES))


@verb(vi, vi, vi)
def vi_sub(b: Any, x: Any, y: Any) -> Any:
    return b.sub(x, y)


@verb(vi, vi, vi)
def vi_add(b: Any, x: Any, y: Any) -> Any:
    return b.add(x, y)


@verb(vi, vi, vi)
def vi_and(b: Any, x: Any, y: Any) -> Any:
    return b.and_(x, y)


@verb(vi, vi, vi)
def vi_or(b: Any, x: Any, y: Any) -> Any:
    return b.or_(x, y)


@verb(vi, vi, whole)
def vi_shl(b: Any, x: Any, n: Any) -> Any:
    return b.shl(x, in_all(b, b.trunc(n, I32)))


@verb(whole, vi)
def vi_max_all(b: Any, x: Any) -> Any:
    made = _fold(b, x, lambda p, q: b.select(b.icmp_signed(">", p, q), p, q))
    return b.sext(made, I64)


@verb(vi, vf)
def vi_from_whole(b: Any, x: Any) -> Any:
    """Floats that are whole numbers below 2^31, as integers."""
    return b.fptosi(x, INTS)


@verb(nothing, whole, vi)
def vi_store_s16(b: Any, address: Any, x: Any) -> None:
    store(b, address, b.trunc(x, SHORTS), 2)


# -- 16 bytes --------------------------------------------------------------------------------------


@verb(vb, whole)
def vb_load(b: Any, address: Any) -> Any:
    return load(b, address, BYTES, 1)


@verb(nothing, whole, vb)
def vb_store(b: Any, address: Any, x: Any) -> None:
    store(b, address, x, 1)


@verb(vb, vb, whole)
def vb_and(b: Any, x: Any, mask: Any) -> Any:
    return b.and_(x, in_all(b, b.trunc(mask, I8)))


@verb(vb, vb, vb)
def vb_or(b: Any, x: Any, y: Any) -> Any:
    return b.or_(x, y)


@verb(vb, vb, whole)
def vb_shr(b: Any, x: Any, n: Any) -> Any:
    return b.lshr(x, in_all(b, b.trunc(n, I8)))


@verb(vb, vb, whole)
def vb_shl(b: Any, x: Any, n: Any) -> Any:
    return b.shl(x, in_all(b, b.trunc(n, I8)))


@verb(vb, vb, whole)
def vb_sub(b: Any, x: Any, n: Any) -> Any:
    return b.sub(x, in_all(b, b.trunc(n, I8)))


@verb(vb, whole, whole)
def vb_from_bits(b: Any, bits: Any, value: Any) -> Any:
    """Lane i: value if bit i of the lowest 16 is set, else 0."""
    each = ir.Constant(SHORTS, [1 << i for i in range(LANES)])
    is_set = b.icmp_unsigned("!=", b.and_(in_all(b, b.trunc(bits, I16)), each), zeros(SHORTS))
    return b.select(is_set, in_all(b, b.trunc(value, I8)), zeros(BYTES))


# -- integer dots ----------------------------------------------------------------------------------


def _neighbours(b: Any, x: Any, y: Any) -> Any:
    """Add neighbouring lanes of both, in halves of 128 bits as the CPUs' instructions do."""
    n = x.type.count
    first = [i + j for h in range(0, n, 4) for j in (0, n) for i in (h, h + 2)]
    even, odd = mask(first), mask([i + 1 for i in first])
    return b.add(b.shuffle_vector(x, y, even), b.shuffle_vector(x, y, odd))


@verb(vi, whole, whole, whole)
def vi_dots(b: Any, codes: Any, stride: Any, q: Any) -> Any:
    """Lane r: the sum of 16 products of the s8 at codes + r*stride with the s16 at q."""
    x = b.sext(load(b, q, SHORTS, 2), INTS)
    even, odd = mask(range(0, LANES, 2)), mask(range(1, LANES, 2))
    quarters = []
    for first in range(0, LANES, 4):
        sums = []
        for row in range(first, first + 4):
            w = load(b, b.add(codes, b.mul(stride, I64(row))), BYTES, 1)
            p = b.mul(b.sext(w, INTS), x)
            sums.append(b.add(b.shuffle_vector(p, p, even), b.shuffle_vector(p, p, odd)))
        both = _neighbours(b, _neighbours(b, *sums[:2]), _neighbours(b, *sums[2:]))
        low = b.shuffle_vector(both, both, mask(range(4)))
        quarters.append(b.add(low, b.shuffle_vector(both, both, mask(range(4, 8)))))
    halves = [b.shuffle_vector(quarters[i], quarters[i + 1], mask(range(8))) for i in (0, 2)]
    return b.shuffle_vector(*halves, mask(range(LANES)))
