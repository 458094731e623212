"""`edgeinfer pull`: a model's name in, the path of its local file on the last line of stdout."""

from typing import Annotated

from typer import Option

from edgeinfer.cli.options import ModelArgument, choose_model
from edgeinfer.cli.progress import DownloadProgress


def pull(
    model: ModelArgument = None,
    list_: Annotated[bool, Option("--list", help="List the catalogue and what is here.")] = False,
) -> None:
    """Download a model, verify it and print the path of its file.

    What is already here is not downloaded again; a path is printed as it is.
    """
    if list_:
        print_catalogue()
        return
    from edgeinfer.loader.resolve import resolve

    with DownloadProgress() as progress:
        path = resolve(choose_model(model, None), progress=progress)
    print(path)


def print_catalogue() -> None:
    """Print the name of each model of the catalogue, whether it is here, and what it is."""
    from edgeinfer.loader.cache import cache_folder
    from edgeinfer.loader.catalogue import CATALOGUE

    folder = cache_folder() / "models"
    for entry in CATALOGUE.values():
        here = "here" if (folder / entry.file_name).is_file() else "-"
        print(f"{entry.name:<14} {here:<5} {entry.summary}")
