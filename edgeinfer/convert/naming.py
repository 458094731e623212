"""Give a checkpoint's tensors their GGUF names and shapes: a family's row applied to all of them.

Names come from the `gguf` package's map. A tensor without a name is refused: leaving one out would
change the answers.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from edgeinfer.convert import fp8
from edgeinfer.convert.config import Config
from edgeinfer.convert.family import Family
from edgeinfer.convert.quantized import check_numbers, check_readable
from edgeinfer.convert.safetensors import E4M3, Stored
from edgeinfer.convert.weights import MXFP4_BYTES, Weights, mxfp4, stacked, stored
from edgeinfer.errors import InvalidParameterError, ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote

if TYPE_CHECKING:
    from gguf.tensor_mapping import TensorNameMap

MAX_LISTED = 8
BLOCKS, SCALES = "_blocks", "_scales"
SUFFIXES = (".weight", ".bias", ".scale", "")
BARE = (".ssm_a", ".ssm_d")  # tensors whose names have no suffix
# Buffers that checkpoints carry and the model computes by itself.
BUFFERS = re.compile(r"\.(rotary_emb\.inv_freq|masked_bias|position_ids)$")
# Experts of a layer, and norms of its heads, are one tensor in a file.
_NUMBERED = re.compile(r"\.(experts|norms)\.(\d{1,6})\.")
_LAYER = re.compile(r"^blk\.\d+\.")


def named_weights(tensors: Mapping[str, Stored], family: Family, c: Config) -> dict[str, Weights]:
    """Return all tensors of the file to be, by name; none is read.

    Raises UnsupportedModelError listing tensors that have no place in the architecture, or naming
    a way to quantize that is not read or a weight of integers, ModelFormatError if experts are
    missing or two tensors get one name.
    """
    check_readable(tensors, c)
    names = _name_map(family.arch, c.n_layers)
    found: dict[str, Weights] = dict(family.computed(c))
    unknown = []
    for name, weights in _gathered(tensors, family, c):
        gguf_name = _gguf_name(names, name)
        if gguf_name is None:
            unknown.append(name)
            continue
        check_numbers(name, weights.dtype, c)
        for final, made in _applied(gguf_name, weights, family, c):
            if final in found:
                raise ModelFormatError(f"tensor {quote(name)}: {final} is there already")
            found[final] = made
    if unknown:
        more = f" and {len(unknown) - MAX_LISTED} more" if len(unknown) > MAX_LISTED else ""
        raise UnsupportedModelError(
            f"{c.values.where}: {c.architecture} with tensors that architecture '{family.arch}' "
            f"has no place for: {', '.join(map(quote, unknown[:MAX_LISTED]))}{more}"
        )
    return found


def _name_map(arch: str, n_layers: int) -> "TensorNameMap":
    try:
        from gguf.constants import MODEL_ARCH_NAMES
        from gguf.tensor_mapping import get_tensor_name_map
    except ImportError:
        raise InvalidParameterError(
            "converting needs the package gguf: pip install 'edgeinfer[convert]'"
        ) from None
    by_name = {name: member for member, name in MODEL_ARCH_NAMES.items()}
    return get_tensor_name_map(by_name[arch], n_layers)


def _gguf_name(names: "TensorNameMap", name: str) -> str | None:
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            found: str | None = names.get_name(name.removesuffix(suffix))
            if found is not None:
                # The map knows some names with their suffix; what it makes of them has none.
                bare = found.endswith(BARE) or (name.endswith(".weight") and not suffix)
                return found if bare else found + (suffix or ".weight")
    return None


def _gathered(
    tensors: Mapping[str, Stored], family: Family, c: Config
) -> Iterator[tuple[str, Weights]]:
    """Yield names the map may know with their weights, one for a layer's experts or its norms."""
    numbered: dict[str, dict[int, Weights]] = {}
    for original in tensors:
        if BUFFERS.search(original) or (family.left_out and re.match(family.left_out, original)):
            continue
        if original.endswith(SCALES) and original.removesuffix(SCALES) + BLOCKS in tensors:
            continue
        if fp8.is_scale(original, tensors) or fp8.is_of_activations(original, tensors):
            continue
        name, weights = _unpacked(original, tensors, c)
        for pattern, replacement in family.renames:
            name = re.sub(pattern, replacement, name)
        # A checkpoint of tied embeddings may hold them twice.
        if name == "lm_head.weight" and c.is_tied:
            continue
        number = _NUMBERED.search(name)
        if number is None:
            yield name, weights
        else:
            whole = _NUMBERED.sub(".experts." if number[1] == "experts" else ".", name)
            parts = numbered.setdefault(whole, {})
            if int(number[2]) in parts:
                raise ModelFormatError(f"tensor {quote(original)}: {name} is there already")
            parts[int(number[2])] = weights
    for name, parts in numbered.items():
        shapes = {(part.shape, part.dtype) for part in parts.values()}
        if parts.keys() != set(range(len(parts))) or len(shapes) != 1:
            raise ModelFormatError(
                f"tensor {quote(name)}: found {len(parts)} parts of {len(shapes)} shapes "
                f"(need 0 to {max(parts)}, all alike)"
            )
        yield name, stacked([parts[i] for i in range(len(parts))])


def _unpacked(name: str, tensors: Mapping[str, Stored], c: Config) -> tuple[str, Weights]:
    """Return a tensor and its name; of one kept as codes and scales, both together."""
    if tensors[name].dtype == E4M3:
        return name, fp8.dequantized(tensors[name], tensors, c)
    scales = tensors.get(name.removesuffix(BLOCKS) + SCALES)
    if not name.endswith(BLOCKS) or scales is None:
        return name, stored(tensors[name])
    blocks = tensors[name]
    shape = blocks.shape
    is_sound = len(shape) > 2 and shape[-1] == MXFP4_BYTES and scales.shape == shape[:-1]
    if not is_sound or (blocks.dtype, scales.dtype) != ("U8", "U8"):
        raise ModelFormatError(
            f"tensor {quote(name)}: found {blocks.dtype} {shape} with scales {scales.dtype} "
            f"{scales.shape} (need U8 with {MXFP4_BYTES} bytes a scale)"
        )
    return name.removesuffix(BLOCKS), mxfp4(blocks, scales)


def _applied(
    name: str, weights: Weights, family: Family, c: Config
) -> Iterator[tuple[str, Weights]]:
    """Yield what becomes of a named tensor: itself or its parts, changed."""
    layer = _LAYER.match(name)
    whole = name.removeprefix(layer[0] if layer else "")
    stem = whole.removesuffix(".weight").removesuffix(".bias").removesuffix(".scale")
    suffix = whole[len(stem) :]
    made = {stem: weights}
    for pattern, split in family.splits:
        if fnmatchcase(stem, pattern):
            made = split(weights, c)
    for part_name, part in made.items():
        for pattern, change in family.changes:
            if fnmatchcase(part_name, pattern):
                part = change(part, c)
        yield f"{layer[0] if layer else ''}{part_name}{suffix}", part
