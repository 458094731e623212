"""Choose who encodes rows: the compiled encoders, or NumPy's where nothing was compiled."""

from collections.abc import Iterable

from edgeinfer.errors import BackendError
from edgeinfer.kernels.native import isa
from edgeinfer.quant import encode as slow
from edgeinfer.quantizing.conversion import Encode


def encoder(formats: Iterable[str]) -> Encode:
    """Return the function that encodes a piece's rows to any of these formats.

    Raises BackendError if that takes the compiled encoders and nothing was compiled.
    """
    reason = isa.why_unavailable()
    if reason is None:
        from edgeinfer.kernels.native.encode import encode

        return lambda piece, rows: encode(piece.format.name, rows, importance=piece.importance)
    missing = sorted(set(formats) - set(slow.ENCODERS))
    if missing:
        raise BackendError(f"format {missing[0]} cannot be made here: {reason}")
    return lambda piece, rows: slow.encode(piece.format.name, rows, importance=piece.importance)
