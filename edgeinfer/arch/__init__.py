"""Turn a file's metadata into a program: one module for each `general.architecture`.

The module's name is the architecture's, with "-" written "_"; `UNDERSCORED` has those that
have a "_" of their own. What several share is in `shared/`.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

from edgeinfer.arch.shared.pooling import TYPE
from edgeinfer.arch.shared.relatives import nearest
from edgeinfer.arch.shared.unused import check_all_used
from edgeinfer.errors import InvalidParameterError, UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.program import POOLINGS, Pooling, Program
from edgeinfer.quant.tensor import Tensor

MODEL = "model"
MAX_CTX = (1 << 31) - 1
UNDERSCORED = ("ernie4_5", "nemotron_h", "nemotron_h_moe")  # the others' names have "-"


def supported() -> tuple[str, ...]:
    """List the architectures there is a module for, sorted."""
    names = (found.name for found in iter_modules(__path__) if not found.ispkg)
    return tuple(sorted(n if n in UNDERSCORED else n.replace("_", "-") for n in names))


def build_program(
    metadata: Metadata,
    tensors: Mapping[str, Tensor],
    *,
    n_ctx: int,
    pooling: Pooling | None = None,
) -> Program:
    """Build the program of a model, for sequences of up to `n_ctx` tokens.

    `pooling` replaces what the file says of itself: a model that writes text can be read for
    embeddings, an encoder for the rows of its tokens.

    Reads shapes and a few RoPE vectors, no matrix; every tensor is checked before it returns.
    Raises UnsupportedModelError for an unknown architecture, ModelFormatError for a
    hyper-parameter out of range, MissingTensorError listing all tensors missing or misshapen.
    """
    if not 1 <= n_ctx <= MAX_CTX:
        raise InvalidParameterError(f"n_ctx: found {n_ctx} (need 1 to {MAX_CTX})")
    kind = metadata.text("general.type", MODEL)
    if kind != MODEL:
        raise UnsupportedModelError(
            f"{metadata.where}: key 'general.type': found {kind[:64]!r} (need {MODEL!r}): the "
            "file holds something else; an adapter has to be merged into its model"
        )
    if metadata.arch not in supported():
        raise UnsupportedModelError(
            f"{metadata.where}: architecture {metadata.arch[:64]!r} (need one of "
            f"{', '.join(supported())}): this version of edgeinfer cannot run this kind of model"
            + nearest(metadata, tensors, supported(), partial(_build, tensors=tensors, n_ctx=n_ctx))
        )
    if pooling is not None:
        if pooling not in POOLINGS:
            known = ", ".join(POOLINGS)
            raise InvalidParameterError(f"pooling: found {pooling!r} (need one of {known})")
        metadata = metadata.replaced(TYPE, POOLINGS.index(pooling))
    program = _build(metadata.arch, metadata, tensors=tensors, n_ctx=n_ctx)
    program.validate(tensors, where=metadata.where)
    check_all_used(program, tensors, where=metadata.where)
    return program


def _build(name: str, metadata: Metadata, *, tensors: Mapping[str, Tensor], n_ctx: int) -> Program:
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    program: Program = module.build(metadata, tensors, n_ctx=n_ctx)
    return program
