"""Make a named model ready for a command: resolve, load and close it, with progress on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgeinfer.cli.options import LoadFlags, ReadFlags
from edgeinfer.cli.progress import DownloadProgress, Line

if TYPE_CHECKING:
    from edgeinfer.model import Model
    from edgeinfer.program.program import Pooling


@contextmanager
def load_model(
    name: str, flags: ReadFlags, *, pooling: "Pooling | None" = None
) -> Iterator["Model"]:
    """Yield the loaded model, made to read if `pooling` says how, and close it afterwards."""
    from edgeinfer.loader.resolve import resolve
    from edgeinfer.model import load

    guessing = flags if isinstance(flags, LoadFlags) else LoadFlags()
    for wanted in filter(None, (name, guessing.draft)):
        with DownloadProgress() as download:
            resolve(wanted, progress=download)
    line = Line()

    def on_load(stage: str, n_done: int, n_total: int) -> None:
        line.update(f"loading {stage}", n_done, n_total, "B")

    try:
        # By its name, not by the path: a model of the catalogue brings its sampling defaults.
        model = load(
            name,
            n_ctx=flags.n_ctx,
            n_threads=flags.n_threads or None,
            n_threads_batch=flags.n_threads_batch or None,
            kv_type=flags.kv_type,
            activations="fine" if flags.fine else "auto",
            speculate="auto" if guessing.speculate else False,
            draft=guessing.draft,
            backend=flags.backend,
            pooling=pooling,
            progress=on_load,
        )
    finally:
        line.clear()
    with model:
        yield model
