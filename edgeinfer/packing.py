"""Join a model file with its pack: find the one that matches, write it, compare it in full.

Between the loader, which keeps pack files, and the backends, which know what is in them.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgeinfer.arch import build_program
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.kernels.backend import Backend
from edgeinfer.loader import packs
from edgeinfer.loader.fingerprint import fingerprint
from edgeinfer.loader.gguf import GgufFile
from edgeinfer.loader.mapped import display, release
from edgeinfer.loader.pack_file import Pack, map_pack
from edgeinfer.quant.packed import Bytes, MatrixToPack

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


def path_of_pack(file: GgufFile, backend: Backend) -> Path | None:
    """Return where the pack of a model is, or would be; None if the backend packs nothing."""
    layout = layout_of(file, backend)
    if layout is None:
        return None
    return packs.pack_path(fingerprint(file.parts, with_times=True), layout)


def layout_of(file: GgufFile, backend: Backend) -> str | None:
    """Name the layout this backend would keep the model's matrices in."""
    return backend.layout({tensor.format.name for tensor in file.tensors.values()})


def find(file: GgufFile, backend: Backend) -> Pack | None:
    """Map the pack of a model, or return None if there is none that matches.

    A damaged pack is told in the log and not used.
    """
    if not packs.packs_folder().is_dir():
        return None
    layout = layout_of(file, backend)
    if layout is None:
        return None
    mark = fingerprint(file.parts, with_times=True)
    path = packs.pack_path(mark, layout)
    try:
        header, matrices = map_pack(path)
        if header.fingerprint != mark or header.layout != layout:
            raise ModelFormatError(f"{display(path)}: the pack of another model under this name")
    except FileNotFoundError:
        return None
    except (OSError, ModelFormatError) as error:
        log.warning("%s; loading without it. `edgeinfer pack` writes it again", error)
        return None
    packs.note_use(path)
    return matrices


def matrices_of(file: GgufFile, backend: Backend) -> list[MatrixToPack]:
    """List what a pack of this model holds; the file's pages are given back behind it."""
    # The rotation is all that depends on the context, and it is no matrix.
    n_ctx = file.metadata.integer(".context_length", least=1)
    program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
    matrices = backend.matrices(program, file.tensors)
    return [_releasing(matrix, file.tensors[matrix.key.name].data) for matrix in matrices]


def _releasing(matrix: MatrixToPack, source: Bytes) -> MatrixToPack:
    def pieces() -> Iterator[Bytes]:
        yield from matrix.pieces()
        release(source)

    return replace(matrix, pieces=pieces)


def write(
    file: GgufFile,
    backend: Backend,
    *,
    most_bytes: int | None = None,
    progress: Progress | None = None,
    on_wait: Callable[[], None] = lambda: None,
) -> Path:
    """Write the pack of a model unless it is there; return its path.

    Raises UnsupportedModelError if the backend packs nothing, ResourceError if the cap on all
    packs or the disk does not allow it.
    """
    layout = layout_of(file, backend)
    if layout is None:
        raise UnsupportedModelError(
            f"backend '{backend.name}': lays nothing out that could be packed (need 'native')"
        )
    return packs.write_pack(
        matrices_of(file, backend),
        fingerprint=fingerprint(file.parts, with_times=True),
        layout=layout,
        source=str(file.path.absolute()),
        most_bytes=packs.max_bytes() if most_bytes is None else most_bytes,
        progress=progress,
        on_wait=on_wait,
    )


def compare(file: GgufFile, backend: Backend, progress: Progress | None = None) -> None:
    """Compare every byte of a model's pack with what laying the model out makes.

    Raises ModelFormatError if there is no pack or it differs.
    """
    path = path_of_pack(file, backend)
    packed = find(file, backend)
    if packed is None or path is None:
        raise ModelFormatError(f"{display(file.path)}: has no pack that matches")
    wanted = matrices_of(file, backend)
    total, done = sum(matrix.n_bytes for matrix in wanted), 0
    for matrix in wanted:
        found = packed.get(matrix.key.name)
        if found is None or found.key != matrix.key or found.data.nbytes != matrix.n_bytes:
            raise ModelFormatError(f"{display(path)}: matrix '{matrix.key.name}' is missing")
        at = 0
        for piece in matrix.pieces():
            if not np.array_equal(found.data[at : at + len(piece)], piece):
                raise ModelFormatError(
                    f"{display(path)}: matrix '{matrix.key.name}' differs from the model's; "
                    "remove the pack and write it again"
                )
            at, done = at + len(piece), done + len(piece)
            if progress:
                progress(done, total)
