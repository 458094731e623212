"""Read what sentence-transformers keeps beside a model: how tokens are pooled, matrices after it.

In goes the folder, out come the keys and tensors of the GGUF file. What a file cannot say is
refused; that vectors are normalized in the end is left to whoever reads the file.
"""

import re
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from edgeinfer.convert.keys import Keys, pooling_key, u32
from edgeinfer.convert.safetensors import open_safetensors
from edgeinfer.convert.strict_json import Object, read_object, read_objects
from edgeinfer.convert.weights import Weights, stored
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.loader.unmapped import UnmappedFile
from edgeinfer.program.program import Pooling

NAME = "modules.json"
WEIGHT = "linear.weight"
# By the names of old configurations and of new ones.
MODES: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
}
MODE = "pooling_mode"
IDENTITY = "torch.nn.modules.linear.Identity"
DENSE = ("dense_2", "dense_3")
FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Modules:
    """The keys and tensors that the modules after a model give, and the files they are in, open."""

    keys: Keys = field(default_factory=list)
    weights: dict[str, Weights] = field(default_factory=dict)
    files: tuple[UnmappedFile, ...] = ()

    def __enter__(self) -> "Modules":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for file in self.files:
            file.close()


NO_MODULES = Modules()


def read_modules(folder: Path) -> Modules:
    """Return what a folder's modules.json names; nothing if there is none.

    Raises UnsupportedModelError for a module that a GGUF file has no form for, ModelFormatError if
    a file is damaged.
    """
    if not (folder / NAME).is_file():
        return NO_MODULES
    with ExitStack() as opened:
        modules = _modules(folder, opened)
        opened.pop_all()
    return modules


def _modules(folder: Path, opened: ExitStack) -> Modules:
    where = display(folder / NAME)
    keys: Keys = []
    weights: dict[str, Weights] = {}
    files: list[UnmappedFile] = []
    for module in read_objects(folder / NAME):
        kind = str(module.get("type")).rpartition(".")[2]
        if kind in ("Transformer", "Normalize"):
            continue
        if kind not in ("Pooling", "Dense") or len(files) == len(DENSE):
            raise UnsupportedModelError(
                f"{where}: found module {quote(kind)} (need Transformer, one Pooling, up to "
                f"{len(DENSE)} of Dense, Normalize): a GGUF file has no form for it"
            )
        inner = folder_of(module, folder, where)
        if kind == "Pooling":
            keys.append(pooling_key(_pooling(inner / "config.json")))
            continue
        file, weight = _dense(inner)
        files.append(opened.enter_context(closing(file)))
        name = DENSE[len(weights)]
        weights[f"{name}.weight"] = weight
        n_out, n_in = weight.shape
        keys += [u32(f".{name}_feat_in", n_in), u32(f".{name}_feat_out", n_out)]
    if len(keys) != 1 + 2 * len(files):
        raise ModelFormatError(f"{where}: found no or several modules Pooling (need one)")
    return Modules(keys, weights, tuple(files))


def folder_of(module: Object, folder: Path, where: str) -> Path:
    """Return where a module's files are. Raises ModelFormatError unless that is inside `folder`."""
    path = module.get("path")
    if not isinstance(path, str) or FOLDER.fullmatch(path) is None:
        raise ModelFormatError(f"{where}: path: found {quote(str(path))} (need a folder's name)")
    return folder / path


def _pooling(path: Path) -> Pooling:
    raw, where = read_object(path), display(path)
    mode = raw.get(MODE)
    found = [key for key, value in raw.items() if key.startswith(f"{MODE}_") and value is True]
    if isinstance(mode, str):
        found = mode.split("+")
    if len(found) != 1 or found[0] not in MODES:
        raise UnsupportedModelError(
            f"{where}: found pooling {quote(', '.join(found))} (need one of "
            f"{', '.join(MODES)}): a GGUF file has no form for others"
        )
    if raw.get("include_prompt") is False:
        raise UnsupportedModelError(
            f"{where}: key 'include_prompt': found false (need true): a GGUF file has no "
            "form for it"
        )
    return MODES[found[0]]


def _dense(folder: Path) -> tuple[UnmappedFile, Weights]:
    raw, where = read_object(folder / "config.json"), display(folder / "config.json")
    activation = raw.get("activation_function", IDENTITY)
    if activation != IDENTITY:
        raise UnsupportedModelError(
            f"{where}: key 'activation_function': found {quote(str(activation))} (need "
            f"{IDENTITY}): a GGUF file has no form for others"
        )
    path = folder / "model.safetensors"
    file, tensors = open_safetensors(path)
    if list(tensors) != [WEIGHT] or len(tensors[WEIGHT].shape) != 2:
        file.close()
        raise UnsupportedModelError(
            f"{display(path)}: found tensors {', '.join(map(quote, tensors))} (need {WEIGHT}, a "
            "matrix, alone): a GGUF file has no form for others"
        )
    return file, stored(tensors[WEIGHT])
