"""Choose who encodes rows: the compiled encoders, or NumPy's where nothing was compiled."""

from collections.abc import Container, Iterable

from edgeinfer.errors import BackendError
from edgeinfer.kernels.native import isa
from edgeinfer.quant import encode as slow
from edgeinfer.quant.roles import output_of
from edgeinfer.quantizing.conversion import Encode


def encoder(formats: Iterable[str], names: Container[str]) -> Encode:
    """Return the function that encodes a piece's rows to any of these formats.

    `names` are those of all tensors of the model: they say which of them makes logits. Raises
    BackendError if that takes the compiled encoders and nothing was compiled.
    """
    reason = isa.why_unavailable()
    if reason is None:
        from edgeinfer.kernels.native.encode import encode

        output = output_of(names)
        return lambda piece, rows: encode(
            piece.format.name,
            rows,
            importance=piece.importance,
            for_logits=piece.tensor.name == output,
        )
    missing = sorted(set(formats) - set(slow.ENCODERS))
    if missing:
        raise BackendError(f"format {missing[0]} cannot be made here: {reason}")
    return lambda piece, rows: slow.encode(piece.format.name, rows, importance=piece.importance)
