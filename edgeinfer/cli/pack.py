"""`edgeinfer pack`: keep a model's weights laid out in the cache, so that it loads at once."""

import time
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from edgeinfer.cli.options import ModelArgument, ModelOption, choose_model
from edgeinfer.cli.progress import DownloadProgress, Line, amount
from edgeinfer.errors import InvalidParameterError

if TYPE_CHECKING:
    from edgeinfer.kernels.backend import Backend
    from edgeinfer.loader.gguf import GgufFile
    from edgeinfer.loader.packs import Kept


def pack(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    list_: Annotated[bool, Option("--list", help="List the packs and end.")] = False,
    remove: Annotated[bool, Option("--remove", help="Remove the model's packs.")] = False,
    verify: Annotated[
        bool, Option("--verify", help="Compare the pack with the model, byte for byte.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Say what would be written or removed, do nothing.")
    ] = False,
    max_bytes: Annotated[
        int | None,
        Option(
            "--max-bytes",
            help="What all packs may take (default: EDGEINFER_PACK_MAX_BYTES, else 32 GiB).",
        ),
    ] = None,
) -> None:
    """Write a model's weights to the cache in the layout the kernels use.

    Loading the model then maps them instead of laying them out, and processes that run it share
    one copy. Prints the path of the pack.
    """
    if sum((list_, remove, verify)) > 1:
        raise InvalidParameterError("--list, --remove, --verify: found several (need one of them)")
    if max_bytes is not None and max_bytes < 0:
        raise InvalidParameterError(f"--max-bytes: found {max_bytes} (need 0 or more)")
    if list_:
        print_packs()
        return
    from edgeinfer.kernels.backend import choose
    from edgeinfer.loader.gguf import open_gguf
    from edgeinfer.loader.resolve import resolve

    with DownloadProgress() as progress:
        path = resolve(choose_model(model, model_option), progress=progress)
    with open_gguf(path) as file:
        if remove:
            remove_packs(file, dry_run=dry_run)
        elif verify:
            verify_pack(file, choose())
        else:
            write_pack(file, choose(), max_bytes, dry_run=dry_run)


def print_packs() -> None:
    """Print each pack: its size, when it was used, whether it would be used again, its model."""
    from edgeinfer.kernels.backend import choose
    from edgeinfer.loader.packs import kept, max_bytes, packs_folder

    packs = kept()
    backend = choose()
    for found in packs:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.used_s))
        source = "-" if found.header is None else _printable(found.header.source)
        print(f"{amount(found.n_bytes, 'B'):>9}  {used}  {state(found, backend):<8} {source}")
    total = sum(found.n_bytes for found in packs)
    print(f"{amount(total, 'B'):>9}  of {amount(max_bytes(), 'B')} in {packs_folder()}")


def state(found: "Kept", backend: "Backend") -> str:
    """Say what has become of a pack: "ready", or why it will not be used."""
    from edgeinfer.errors import EdgeInferError
    from edgeinfer.loader.gguf import open_gguf
    from edgeinfer.packing import path_of_pack

    if found.header is None:
        return "damaged"
    try:
        with open_gguf(found.header.source) as file:
            return "ready" if path_of_pack(file, backend) == found.path else "outdated"
    except EdgeInferError:
        return "orphan"


def remove_packs(file: "GgufFile", *, dry_run: bool) -> None:
    """Remove every pack of this model file, whatever state of it they were made from."""
    from edgeinfer.loader.packs import kept, remove_pack

    source = str(file.path.absolute())
    mine = [found for found in kept() if found.header and found.header.source == source]
    for found in mine:
        if not dry_run:
            remove_pack(found.path)
        print(f"{'would remove' if dry_run else 'removed'} {found.path}")
    if not mine:
        print(f"no pack of {_printable(source)}")


def verify_pack(file: "GgufFile", backend: "Backend") -> None:
    """Compare the pack with the model; end with 3 if it differs."""
    from edgeinfer.packing import compare

    line = Line()
    try:
        compare(file, backend, lambda done, total: line.update("comparing", done, total, "B"))
    finally:
        line.clear()
    print("the pack equals the model")


def write_pack(
    file: "GgufFile", backend: "Backend", max_bytes: int | None, *, dry_run: bool
) -> None:
    """Write the pack, or say what that would do, and print its path."""
    from edgeinfer import packing

    if dry_run:
        _print_plan(file, backend)
        return
    line = Line()
    try:
        path = packing.write(
            file,
            backend,
            most_bytes=max_bytes,
            progress=lambda done, total: line.update("packing", done, total, "B"),
            on_wait=lambda: line.update("another process writes this pack", 0, 0, "B"),
        )
    finally:
        line.clear()
    print(path)


def _print_plan(file: "GgufFile", backend: "Backend") -> None:
    from edgeinfer import packing

    path = packing.path_of_pack(file, backend)
    if path is None:
        print(f"backend '{backend.name}' packs nothing")
        raise Exit(1)
    matrices = packing.matrices_of(file, backend)
    n_bytes = sum(matrix.n_bytes for matrix in matrices)
    verb = "is there already:" if path.is_file() else "would write"
    print(f"{verb} {path}: {len(matrices)} matrices, {amount(n_bytes, 'B')}")


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)
