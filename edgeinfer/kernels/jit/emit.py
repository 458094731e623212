"""Emit LLVM code for numba: vectors of 16 lanes as numba types, and functions that become verbs.

Addresses are integers. Knows no verb; what `verb` wraps works on llvmlite's builder and values.
"""

import inspect
import platform
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, register_model

LANES = 16
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()
FLOATS, INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
SHORTS, BYTES = ir.VectorType(I16, LANES), ir.VectorType(I8, LANES)


class Lanes(types.Type):  # type: ignore[misc]
    """A numba type whose value is one LLVM vector of 16 lanes."""

    def __init__(self, name: str, vector: Any) -> None:
        self.vector = vector
        super().__init__(name=f"edgeinfer.{name}")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        super().__init__(dmm, fe_type, fe_type.vector)


vf, vi, vb = Lanes("vf", FLOATS), Lanes("vi", INTS), Lanes("vb", BYTES)
whole, real, nothing = types.int64, types.float32, types.void

Verb = Callable[..., Any]


def verb(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Verb]:
    """Make a function that emits LLVM code a verb of this result and these arguments."""

    def wrap(emit: Callable[..., Any]) -> Verb:
        def typing(context: Any, *_: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                made = emit(builder, *values)
                return context.get_dummy_value() if result is nothing else made

            return result(*arguments), generate

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = ["context", *(f"a{i}" for i in range(len(arguments)))]
        parameters = [inspect.Parameter(name, kind) for name in names]
        typing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        typing.__name__ = emit.__name__
        made: Verb = intrinsic(typing)
        return made

    return wrap


def load(b: Any, address: Any, kind: Any, align: int) -> Any:
    return b.load(b.inttoptr(address, kind.as_pointer()), align=align)


def store(b: Any, address: Any, value: Any, align: int) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=align)


def zeros(kind: Any) -> Any:
    return ir.Constant(kind, None)


def mask(numbers: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(numbers)), list(numbers))


def in_all(b: Any, x: Any) -> Any:
    """Return a vector whose lanes all are the scalar x."""
    empty = ir.Constant(ir.VectorType(x.type, LANES), ir.Undefined)
    return b.shuffle_vector(b.insert_element(empty, x, I32(0)), empty, mask([0] * LANES))


def call(b: Any, name: str, result: Any, *values: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in values])
    return b.call(get_or_insert_function(b.module, kind, name), values)


def has_f16() -> bool:
    """Whether this CPU converts f16; what LLVM calls instead may not be there to be called."""
    return platform.machine() == "aarch64" or bool(get_host_cpu_features().get("f16c"))


def from_f16(b: Any, bits: Any) -> Any:
    """16 f16 to floats, exactly: the exponent is rebased by one float multiply."""
    if has_f16():
        return b.fpext(b.bitcast(bits, ir.VectorType(ir.HalfType(), LANES)), FLOATS)
    wide = b.zext(bits, INTS)
    sign = b.shl(b.and_(wide, in_all(b, I32(0x8000))), in_all(b, I32(16)))
    rest = b.shl(b.and_(wide, in_all(b, I32(0x7FFF))), in_all(b, I32(13)))
    scaled = b.fmul(b.bitcast(rest, FLOATS), in_all(b, F32(2.0**112)))
    special = b.or_(rest, in_all(b, I32(0x7F800000)))
    is_special = b.icmp_unsigned(">=", rest, in_all(b, I32(0x7C00 << 13)))
    magnitude = b.select(is_special, special, b.bitcast(scaled, INTS))
    return b.bitcast(b.or_(sign, magnitude), FLOATS)


def to_f16(b: Any, x: Any) -> Any:
    """16 floats to f16, to nearest even."""
    if has_f16():
        return b.bitcast(b.fptrunc(x, ir.VectorType(ir.HalfType(), LANES)), SHORTS)
    bits = b.bitcast(x, INTS)
    sign = b.and_(b.lshr(bits, in_all(b, I32(16))), in_all(b, I32(0x8000)))
    rest = b.and_(bits, in_all(b, I32(0x7FFFFFFF)))
    # adding 0.5 aligns the last place of a subnormal with the float's, so the FPU rounds
    aligned = b.fadd(b.bitcast(rest, FLOATS), in_all(b, F32(0.5)))
    small = b.sub(b.bitcast(aligned, INTS), in_all(b, I32(0x3F000000)))
    odd = b.and_(b.lshr(rest, in_all(b, I32(13))), in_all(b, I32(1)))
    rounded = b.add(b.sub(rest, in_all(b, I32(0x38000000 - 0xFFF))), odd)
    usual = b.lshr(rounded, in_all(b, I32(13)))
    half = b.select(b.icmp_unsigned("<", rest, in_all(b, I32(0x38800000))), small, usual)
    too_large = b.icmp_unsigned(">=", rest, in_all(b, I32(0x477FF000)))
    half = b.select(too_large, in_all(b, I32(0x7C00)), half)
    is_nan = b.icmp_unsigned(">", rest, in_all(b, I32(0x7F800000)))
    half = b.select(is_nan, in_all(b, I32(0x7E00)), half)
    return b.trunc(b.or_(half, sign), SHORTS)
