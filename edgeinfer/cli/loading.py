"""Make a named model ready for a command: resolve, load and close it, with progress on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgeinfer.cli.options import LoadFlags
from edgeinfer.cli.progress import DownloadProgress

if TYPE_CHECKING:
    from edgeinfer.model import Model


@contextmanager
def load_model(name: str, flags: LoadFlags) -> Iterator["Model"]:
    """Yield the loaded model and close it afterwards."""
    from edgeinfer.loader.resolve import resolve
    from edgeinfer.model import load

    with DownloadProgress() as progress:
        path = resolve(name, progress=progress)
    with load(path, n_ctx=flags.n_ctx, n_threads=flags.n_threads, backend=flags.backend) as model:
        yield model
