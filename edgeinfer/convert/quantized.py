"""Tell checkpoints whose weights are quantized in a way that is not read here, naming the way."""

from collections.abc import Mapping

from edgeinfer.convert.config import Config
from edgeinfer.convert.safetensors import E4M3, Stored
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.cursor import quote

KEY = "quantization_config"
READ_WHOLE = ("mxfp4",)  # bytes of these methods go into a file as they are
FLOATS = ("F64", "F32", "F16", "BF16", E4M3)


def check_readable(tensors: Mapping[str, Stored], c: Config) -> None:
    """Raise UnsupportedModelError for matrices of integers where the configuration has a method.

    A method over plain floats is one to be applied when transformers loads them, as bitsandbytes
    is, or was undone: the floats are the weights, and converted as such.
    """
    how = c.raw.get(KEY)
    if how is None:
        return
    method = str(c.section(how, KEY).text("quant_method", "none"))
    packed = [t for t in tensors.values() if t.dtype not in FLOATS and len(t.shape) > 1]
    if not packed or method in READ_WHOLE:
        return
    raise UnsupportedModelError(
        f"{c.values.where}: key '{KEY}.quant_method': found {quote(method)}, and tensor "
        f"{quote(packed[0].name)} of {packed[0].dtype} (need weights of 16 or 32 bits, FP8 or "
        "MXFP4): convert the model it was made from, then `edgeinfer quantize` makes it smaller"
    )


def check_numbers(name: str, dtype: str, c: Config) -> None:
    """Raise UnsupportedModelError for a weight of integers, whatever the configuration says.

    Integers are codes, whose numbers need scales: a checkpoint that lost its `quantization_config`
    would else be converted to weights of up to 127, or 2**31.
    """
    if dtype not in FLOATS and dtype != "MXFP4":
        raise UnsupportedModelError(
            f"{c.values.where}: tensor {quote(name)}: found {dtype}, integers without scales "
            f"(need one of {', '.join(FLOATS)}): convert the model it was quantized from"
        )
