"""Find the weights of a Hugging Face folder: one safetensors file, or the shards an index names.

In goes the folder, out come all tensors by name and the files they are in. Pickles are refused.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeinfer.convert.safetensors import Stored, open_safetensors
from edgeinfer.convert.strict_json import read_object
from edgeinfer.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.loader.unmapped import UnmappedFile

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FILE = re.compile(r"[\w .()+-]+\.safetensors")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a model under its authors' names, and the files they are in, open."""

    files: tuple[UnmappedFile, ...]
    tensors: dict[str, Stored]

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for file in self.files:
            file.close()


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open all weights of a folder.

    Raises ModelNotFoundError if there are none or one is missing, UnsupportedModelError if there
    are only pickles, ModelFormatError if a file is damaged or the index does not fit the shards.
    """
    if (folder / INDEX).is_file():
        return _indexed(folder)
    path = folder / SINGLE
    if not path.is_file():
        found = sorted(folder.glob("*.safetensors"))
        if len(found) != 1:
            raise _none(folder, len(found))
        path = found[0]
    file, tensors = open_safetensors(path)
    return Checkpoint((file,), tensors)


def _none(folder: Path, n_found: int) -> Exception:
    where = display(folder)
    if n_found:
        return ModelFormatError(
            f"{where}: found {n_found} safetensors files and no {INDEX} (need it, or one file)"
        )
    if any(True for pattern in PICKLES for _ in folder.glob(pattern)):
        return UnsupportedModelError(
            f"{where}: found weights as Python pickles only (need safetensors): a pickle can run "
            "code when it is read. Where you trust it, load it in transformers and save it with "
            "save_pretrained(FOLDER, safe_serialization=True), or take the repository's "
            "safetensors branch"
        )
    return ModelNotFoundError(
        f"{where}: found no safetensors files (need {SINGLE}, or shards and {INDEX})"
    )


def _indexed(folder: Path) -> Checkpoint:
    where = display(folder / INDEX)
    weight_map: Any = read_object(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFormatError(f"{where}: key 'weight_map': found no tensors (need name: file)")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        # A name of another folder would make the copy hold what its user did not give.
        if FILE.fullmatch(name) is None:
            raise ModelFormatError(f"{where}: found file {quote(name)} (need NAME.safetensors)")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelNotFoundError(
            f"{where}: names {len(names)} files, of which {len(missing)} are not there, "
            f"{missing[0]} first; the download is incomplete, fetch it again"
        )
    with ExitStack() as opened:
        shards = []
        for name in names:
            shards.append(open_safetensors(folder / name))
            opened.callback(shards[-1][0].close)
        tensors = _collected(names, [found for _, found in shards], weight_map, where)
        opened.pop_all()
    return Checkpoint(tuple(file for file, _ in shards), tensors)


def _collected(
    names: list[str], shards: list[dict[str, Stored]], weight_map: dict[str, Any], where: str
) -> dict[str, Stored]:
    """Return the tensors of all shards, which must be those the index says."""
    tensors: dict[str, Stored] = {}
    for name, found in zip(names, shards, strict=True):
        for tensor in found.values():
            if weight_map.get(tensor.name) != name:
                raise ModelFormatError(
                    f"{where}: tensor {quote(tensor.name)}: found in {name} (the index says "
                    f"{quote(str(weight_map.get(tensor.name)))})"
                )
            tensors[tensor.name] = tensor
    missing = weight_map.keys() - tensors.keys()
    if missing:
        raise ModelFormatError(
            f"{where}: tensor {quote(min(missing))}: not in {weight_map[min(missing)]}, nor are "
            f"{len(missing) - 1} others; the download is incomplete"
        )
    return tensors
