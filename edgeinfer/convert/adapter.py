"""Read a folder of PEFT: a LoRA adapter's matrices, under the names its base model has in a file.

W + scale * B A replaces the base's W. Rows that a file has in another order are so in B; what a
file changes otherwise has no adapter. In go the folder and the base's configuration, out come keys
and tensors.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgeinfer.convert.config import Config
from edgeinfer.convert.family import Family
from edgeinfer.convert.keys import Keys, f32, text
from edgeinfer.convert.naming import named_weights
from edgeinfer.convert.safetensors import Stored
from edgeinfer.convert.strict_json import Object, read_object
from edgeinfer.convert.weights import Weights, changed
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.loader.metadata import Metadata

SETTINGS = "adapter_config.json"
BASE = "base_model_name_or_path"
MOST_RANK = 1 << 16
MOST_ALPHA = 1e6
_PART = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
# Settings that change what is computed, and the values that change nothing.
PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none", None),
    "use_dora": (False, None),
    "use_qalora": (False, None),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
}

Pair = tuple[Stored, Stored]


@dataclass(frozen=True, slots=True)
class Settings:
    """An adapter_config.json that is understood."""

    where: str
    raw: Object
    values: Metadata

    @property
    def alpha(self) -> float:
        """What the product is multiplied with, but for the rank."""
        return self._within("lora_alpha", self.raw.get("lora_alpha"))

    def rank(self, module: str) -> int:
        """Return the rank of a module's matrices."""
        given = _of_module(self.raw.get("rank_pattern"), module)
        if given is None:
            return self.values.integer("r", least=1, most=MOST_RANK)
        if type(given) is not int or not 1 <= given <= MOST_RANK:
            raise self._error("rank_pattern", f"{given} (need 1 to {MOST_RANK})")
        return given

    def factor(self, module: str) -> float:
        """Return what B is multiplied with, so that one alpha holds for all modules."""
        given = _of_module(self.raw.get("alpha_pattern"), module)
        alpha = self.alpha if given is None else self._within("alpha_pattern", given)
        root = math.sqrt(self.rank(module)) if self.values.flag("use_rslora", False) else 1.0
        return alpha / self.alpha * root

    def _within(self, key: str, found: Any) -> float:
        if type(found) not in (int, float) or not 0 < found <= MOST_ALPHA:
            raise self._error(key, f"{quote(str(found))} (need more than 0, up to {MOST_ALPHA:g})")
        return float(found)

    def _error(self, key: str, found: str) -> ModelFormatError:
        return ModelFormatError(f"{self.where}: key {quote(key)}: found {found}")


def _of_module(pattern: Any, module: str) -> Any:
    """Return the value of the first pattern that is a module's name, or its end."""
    for name, value in pattern.items() if isinstance(pattern, dict) else ():
        if module == name or module.endswith(f".{name}"):
            return value
    return None


def read_settings(folder: Path) -> Settings:
    """Read a folder's adapter_config.json.

    Raises ModelFormatError if it is damaged, UnsupportedModelError for what a file cannot say.
    """
    path = folder / SETTINGS
    raw, where = read_object(path), display(path)
    kind = raw.get("peft_type")
    if kind != "LORA":
        raise UnsupportedModelError(
            f"{where}: key 'peft_type': found {quote(str(kind))} (need LORA); merge the adapter "
            "into its model (merge_and_unload of PEFT) and convert that"
        )
    for key, allowed in PLAIN.items():
        if raw.get(key) not in allowed:
            raise UnsupportedModelError(
                f"{where}: key {quote(key)}: found {quote(str(raw[key]))} (need "
                f"{allowed[0]}): a file of an adapter has no form for it; merge the adapter into "
                "its model (merge_and_unload of PEFT) and convert that"
            )
    scalars = {key: value for key, value in raw.items() if isinstance(value, bool | int | float)}
    return Settings(where, raw, Metadata(scalars, where=where))


def base_of(settings: Settings, given: Path | None) -> Path:
    """Return the folder of the base model: the one given, or the one the settings name.

    Raises ModelFormatError if there is none here.
    """
    named = settings.raw.get(BASE)
    base = given or (Path(named) if isinstance(named, str) and named else None)
    if base is None or not (base / "config.json").is_file():
        raise ModelFormatError(
            f"{settings.where}: key {quote(BASE)}: found {quote(str(named))}, no folder with "
            "config.json here (need the base model's; give it with --base)"
        )
    return base


def adapter_keys(settings: Settings) -> Keys:
    """Return what says that a file is an adapter."""
    return [
        text("general.type", "adapter"),
        text("adapter.type", "lora"),
        f32("adapter.lora.alpha", settings.alpha),
    ]


def adapter_weights(
    tensors: Mapping[str, Stored],
    settings: Settings,
    family: Family,
    c: Config,
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, Weights]:
    """Return the matrices of a file, by name; none is read.

    Args:
        tensors: those of the adapter.
        settings: its settings.
        family: how the base model becomes a file.
        c: the base model's configuration.
        shapes: of the base's tensors by their names in the checkpoint, as far as they are known.

    Raises:
        ModelFormatError: a matrix is missing or has another shape.
        UnsupportedModelError: a tensor is no matrix of an adapter, or has no place in a file.
    """
    pairs = _pairs(tensors, settings)
    for module, pair in pairs.items():
        _check(module, pair, settings, shapes)
    bare = replace(family, computed=lambda c: {}, splits=())
    firsts = {f"{module}.weight": pair[0] for module, pair in pairs.items()}
    seconds = {f"{module}.weight": pair[1] for module, pair in pairs.items()}
    a = named_weights(firsts, replace(bare, changes=()), c)
    b = named_weights(seconds, bare, c)
    # The names of a module in the file and in the adapter have the same place in both.
    by_name = dict(zip(a, pairs, strict=False))
    if len(a) != len(pairs) or a.keys() != b.keys():
        raise UnsupportedModelError(
            f"{settings.where}: found matrices for {len(pairs)} modules, {len(a)} of which a file "
            "of the text model has (need all); merge the adapter into its model"
        )
    made: dict[str, Weights] = {}
    for name, module in by_name.items():
        if b[name].change is not None or b[name].shape != pairs[module][1].shape:
            raise UnsupportedModelError(
                f"{settings.where}: module {quote(module)}: {name} is more than reordered in a "
                "file, which an adapter cannot follow; merge the adapter into its model"
            )
        factor = np.float32(settings.factor(module))
        made[f"{name}.lora_a"] = a[name]
        made[f"{name}.lora_b"] = b[name] if factor == 1 else _scaled(b[name], factor)
    return made


def _scaled(weights: Weights, factor: np.float32) -> Weights:
    return changed(weights, lambda values: values * factor)


def _pairs(tensors: Mapping[str, Stored], settings: Settings) -> dict[str, Pair]:
    """Return A and B of each module."""
    found: dict[str, dict[str, Stored]] = {}
    for name, tensor in tensors.items():
        match = _PART.fullmatch(name)
        if match is None or ".experts." in name:
            raise UnsupportedModelError(
                f"{settings.where}: tensor {quote(name)}: found no matrix of an adapter (need "
                "MODULE.lora_A.weight and MODULE.lora_B.weight, of no expert); merge the adapter "
                "into its model (merge_and_unload of PEFT) and convert that"
            )
        found.setdefault(match[1], {})[match[2]] = tensor
    if not found:
        raise ModelFormatError(f"{settings.where}: found an adapter without tensors")
    for module, parts in found.items():
        if len(parts) != 2:
            missing = "B" if "A" in parts else "A"
            raise ModelFormatError(
                f"{settings.where}: module {quote(module)}: found no lora_{missing} (need both)"
            )
    return {module: (parts["A"], parts["B"]) for module, parts in found.items()}


def _check(
    module: str, pair: Pair, settings: Settings, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise ModelFormatError unless both matrices fit each other, the rank and the base."""
    (a, b), rank = (tensor.shape for tensor in pair), settings.rank(module)
    where = f"{settings.where}: module {quote(module)}"
    if len(a) != 2 or len(b) != 2 or (a[0], b[1]) != (rank, rank):
        raise ModelFormatError(
            f"{where}: found lora_A {a} and lora_B {b} (need ({rank}, columns) and (rows, {rank}))"
        )
    need = shapes.get(f"{module}.weight")
    if need is not None and (b[0], a[1]) != need:
        raise ModelFormatError(
            f"{where}: found lora_A {a} and lora_B {b}, for a matrix of {(b[0], a[1])} (the base "
            f"model's is {need}); adapter and base do not belong together"
        )
