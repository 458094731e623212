"""Read config.json: typed answers about a model's configuration, with errors that name the key.

Knows where writers of different ages put things: values under `text_config`, sizes under GPT-2's
names, RoPE at the top, in `rope_scaling`, or in `rope_parameters`, once or once a layer type.
Decides nothing by itself.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from edgeinfer.arch.shared.hyper import MAX_HEAD_DIM, MAX_HEADS
from edgeinfer.convert.strict_json import Object, read_object
from edgeinfer.errors import ModelFormatError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.mapped import display
from edgeinfer.loader.metadata import REQUIRED, Metadata

NAME = "config.json"
MOST_LAYERS = 1024
TIED = "tie_word_embeddings"
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
# What transformers calls layer types, by the names that older configurations have.
_LAYER_TYPES = {"attention": FULL, "mamba": LINEAR}
# Classes whose embeddings are the output matrix where nothing is said, as transformers 5.24 has it.
_TIED = re.compile("Cohere2|Ernie4_5|Gemma|GPT2|Lfm2|Mistral3|SmolLM3|Starcoder2")
# What GPT-2's configuration, and those made after it, call what all others agree about.
_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
}


@dataclass(frozen=True, slots=True, eq=False)
class Config:
    """A configuration: `values` answers typed questions, `raw` holds all as it is."""

    architecture: str
    raw: Object
    values: Metadata

    @property
    def n_layers(self) -> int:
        """Layers of the text model."""
        kinds = self.raw.get("layers_block_type")
        default = len(kinds) if isinstance(kinds, list) else REQUIRED
        return self.values.integer("num_hidden_layers", default, least=1, most=MOST_LAYERS)

    @property
    def n_heads(self) -> int:
        """Query heads of a layer."""
        return self.values.integer("num_attention_heads", least=1, most=MAX_HEADS)

    @property
    def n_kv_heads(self) -> int:
        """Key heads of a layer, a divisor of the query heads; as many where nothing is said."""
        found = self.values.integer("num_key_value_heads", self.n_heads, least=1)
        if self.n_heads % found:
            raise self.error("num_key_value_heads", f"{found} (need a divisor of {self.n_heads})")
        return found

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        found = self.values.integer("head_dim", None, least=1, most=MAX_HEAD_DIM)
        if found is not None:
            return found
        n_embd = self.values.integer("hidden_size", least=1)
        if n_embd % self.n_heads:
            raise self.error("head_dim", f"none (need it for {n_embd} / {self.n_heads} columns)")
        return n_embd // self.n_heads

    @property
    def is_tied(self) -> bool:
        """Whether the embeddings are the output matrix, too."""
        by_default = _TIED.match(self.architecture) is not None
        return self.values.flag(TIED, by_default)

    def layer_types(
        self, default: list[str] | None = None, *, known: Sequence[str] = (FULL, SLIDING)
    ) -> list[str]:
        """Return the kind of each layer, one of the known, under transformers' present names."""
        key = "layer_types" if "layer_types" in self.raw else "layers_block_type"
        found = self.raw.get(key)
        if found is None and default is not None:
            return default
        if not isinstance(found, list) or len(found) != self.n_layers:
            raise self.error(key, f"{quote(str(found))} (need {self.n_layers} names)")
        kinds = [_LAYER_TYPES.get(str(kind), str(kind)) for kind in found]
        other = next((kind for kind in kinds if kind not in known), None)
        if other is not None:
            raise self.error(key, f"{quote(other)} (need one of {', '.join(known)})")
        return kinds

    def numbers(self, key: str, values: Any, n: int) -> list[float]:
        """Check and return a list of `n` numbers found under `key`."""
        is_list = isinstance(values, list) and len(values) == n
        if not is_list or not all(type(v) in (int, float) and isfinite(v) for v in values):
            raise self.error(key, f"{quote(str(values))} (need {n} numbers)")
        return [float(value) for value in values]

    def expect(self, key: str, *allowed: Any, default: Any = REQUIRED) -> None:
        """Raise ModelFormatError unless a key has one of the values that are understood."""
        found = self.raw.get(key)
        if found is None and default is not REQUIRED:
            found = default
        if found not in allowed:
            raise self.error(key, f"{quote(str(found))} (need one of {allowed})")

    def changed(self, **values: Any) -> "Config":
        """Return one with other values under some keys."""
        raw = self.raw | values
        return Config(self.architecture, raw, Metadata(_stated(raw), where=self.values.where))

    def section(self, raw: Any, name: str) -> Metadata:
        """Return an object inside the configuration, to be asked as `values` is."""
        if not isinstance(raw, dict):
            raise self.error(name, f"{quote(str(raw))} (need an object)")
        return Metadata(_stated(raw), where=f"{self.values.where}: {name}")

    def error(self, key: str, found: str) -> ModelFormatError:
        """Return an error about a key."""
        return ModelFormatError(f"{self.values.where}: key {quote(key)}: found {found}")


def read_config(folder: Path) -> Config:
    """Read a folder's config.json; of a model with several parts, that of the text model.

    Raises ModelNotFoundError if there is none, ModelFormatError if it is damaged or does not name
    its architecture.
    """
    raw = read_object(folder / NAME, infinite=True)
    where = display(folder / NAME)
    names = raw.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise ModelFormatError(
            f"{where}: key 'architectures': found {quote(str(names))} (need the class's name)"
        )
    inner = raw.get("text_config")
    if isinstance(inner, dict):
        # The class named ties by its own configuration, as transformers 5 reads it. The inner one
        # counts only where that says nothing and its class does not tie: older files have it there.
        outer = raw.get(TIED)
        if outer is None and _TIED.match(names[0]):
            outer = True
        merged = raw | inner if outer is None else raw | inner | {TIED: outer}
        raw = _stated(merged)
    raw = {name: raw[old] for old, name in _NAMES.items() if old in raw} | raw
    return Config(names[0], raw, Metadata(_stated(raw), where=where))


def _stated(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without null, which counts as missing."""
    return {key: value for key, value in raw.items() if value is not None}
