"""Decide what each tensor of a file becomes: the recipe, the caller's exceptions, what rows allow.

Reads names and shapes, no weights.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgeinfer.errors import InvalidParameterError, UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant import recipe as recipes
from edgeinfer.quant.formats import FORMATS, Format
from edgeinfer.quant.recipe import Facts, Recipe, Weight
from edgeinfer.quant.roles import OUTPUT, in_layer_order, layer_of, may_be_quantized, role_of
from edgeinfer.quant.tensor import Tensor

# What there are encoders for.
TARGET_FORMATS = (
    *("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0"),
    *("IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the caller wants: a recipe, and where to depart from it.

    `tensor_types` are (pattern, format name), searched in tensor names, the first that matches
    holds; `output_type` is for output.weight (and the token embeddings of a model without one),
    `embedding_type` for the token embeddings. `assigned` are format names by tensor name: where
    none of those applies, they hold before the recipe.
    """

    recipe: Recipe
    tensor_types: tuple[tuple[re.Pattern[str], str], ...] = ()
    output_type: str | None = None
    embedding_type: str | None = None
    pure: bool = False
    leave_output: bool = False
    strict: bool = False
    allow_requantize: bool = False
    assigned: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tensor and what it becomes; `wanted` is what it would be if its rows allowed it."""

    tensor: Tensor
    format: Format
    wanted: Format
    is_free: bool = False  # the recipe decided, nobody else

    @property
    def is_fallback(self) -> bool:
        """Whether its rows are no multiple of the wanted format's block."""
        return self.format is not self.wanted

    @property
    def n_bytes(self) -> int:
        """Bytes it will take."""
        return self.tensor.n_rows * self.format.row_bytes(self.tensor.n_columns)


def format_named(name: str, where: str) -> str:
    """Return a target format's name in GGUF's spelling. Raises InvalidParameterError."""
    if name.upper() not in TARGET_FORMATS:
        raise InvalidParameterError(
            f"{where}: format {name!r} is unknown (known: {', '.join(TARGET_FORMATS)})"
        )
    return name.upper()


def tensor_types_of(pairs: Mapping[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Check and compile the caller's patterns. Raises InvalidParameterError."""
    compiled = []
    for pattern, name in pairs.items():
        where = f"tensor type {pattern!r}"
        try:
            compiled.append((re.compile(pattern), format_named(name, where)))
        except re.error as error:
            raise InvalidParameterError(f"{where}: not a regular expression: {error}") from None
    return tuple(compiled)


def facts_of(
    metadata: Metadata, tensors: Mapping[str, Tensor], *, has_importance: bool = False
) -> Facts:
    """Read what recipes ask of a model. Raises ModelFormatError if a key has another type."""

    def first(key: str, default: int) -> int:
        found = metadata.get(key, default)
        if isinstance(found, int):
            return metadata.integer(key, default, least=0)
        values = metadata.integers(key)
        return int(values[0]) if len(values) else default

    n_heads = first(".attention.head_count", 0)
    return Facts(
        arch=metadata.arch,
        n_layers=metadata.integer(".block_count", 0, least=0),
        n_heads=n_heads,
        n_kv_heads=first(".attention.head_count_kv", n_heads),
        n_experts=metadata.integer(".expert_count", 0, least=0),
        is_tied=OUTPUT not in tensors,
        has_importance=has_importance,
    )


def choose(
    tensors: Mapping[str, Tensor], facts: Facts, choices: Choices, *, where: str
) -> list[Chosen]:
    """Return what each tensor becomes, in file order; `where` heads messages.

    Raises InvalidParameterError if a pattern matches nothing that may be quantized, or a tensor is
    quantized already; UnsupportedModelError if `strict` and rows do not allow what is wanted.
    """
    used: set[str] = set()
    weights = _weights(tensors, facts)
    found = []
    for tensor in tensors.values():
        weight = weights.get(tensor.name)
        wanted, is_free = (None, False) if weight is None else _wanted(weight, facts, choices, used)
        wanted = wanted or tensor.format.name
        fitting = wanted
        if wanted != tensor.format.name:
            fitting = recipes.fitting(wanted, tensor.n_columns)
        found.append(Chosen(tensor, FORMATS[fitting], FORMATS[wanted], is_free))
    unused = [p.pattern for p, _ in choices.tensor_types if p.pattern not in used]
    if unused:
        raise InvalidParameterError(
            f"tensor type {unused[0]!r}: matches no tensor of {where} that may be quantized "
            "(`edgeinfer inspect` lists them)"
        )
    _check(found, choices, where)
    return found


def _weights(tensors: Mapping[str, Tensor], facts: Facts) -> dict[str, Weight]:
    """Return what recipes ask of each tensor that may be quantized."""
    n_attn_v = sum(role_of(name) == "attn_v" for name in tensors)
    seen: Counter[str] = Counter()
    weights = {}
    for name in in_layer_order(tensors):
        tensor = tensors[name]
        if not may_be_quantized(name, tensor.shape):
            continue
        role = role_of(name)
        # Of experts a layer may have several tensors of one role.
        is_by_name = facts.n_experts > 1 and role.startswith("ffn_")
        weights[name] = Weight(
            name=name,
            role=role,
            n_columns=tensor.n_columns,
            n_matrices=tensor.shape[-3] if len(tensor.shape) > 2 else 1,
            index=layer_of(name) if is_by_name else seen[role],
            count=n_attn_v if role == "attn_v" else facts.n_layers,
        )
        seen[role] += 1
    return weights


def _wanted(
    weight: Weight, facts: Facts, choices: Choices, used: set[str]
) -> tuple[str | None, bool]:
    """Return the name of the format a weight should get, and whether the recipe is free in it.

    None leaves the weight as it is.
    """
    for pattern, name in choices.tensor_types:
        if pattern.search(weight.name):
            used.add(pattern.pattern)
            return name, False
    if weight.name == OUTPUT and choices.leave_output:
        return None, False
    if weight.role == "token_embd" and choices.embedding_type:
        return choices.embedding_type, False
    is_output = weight.role == "output" or (facts.is_tied and weight.role == "token_embd")
    if is_output and choices.output_type:
        return choices.output_type, False
    if weight.name in choices.assigned:
        return choices.assigned[weight.name], True
    if choices.pure:
        return choices.recipe.base, True
    return recipes.format_for(choices.recipe, facts, weight), True


def _check(found: Sequence[Chosen], choices: Choices, where: str) -> None:
    for chosen in found:
        tensor = chosen.tensor
        changes = chosen.format is not tensor.format
        if changes and tensor.format.block_size > 1 and not choices.allow_requantize:
            raise InvalidParameterError(
                f"{where}: tensor {quote(tensor.name)} is quantized already, as "
                f"{tensor.format.name} (need F32, F16 or BF16: quantizing twice loses twice); "
                "take the original, or allow it (--allow-requantize)"
            )
        if chosen.is_fallback and choices.strict:
            raise UnsupportedModelError(
                f"{where}: tensor {quote(tensor.name)}: rows of {tensor.n_columns} values cannot "
                f"be {chosen.wanted.name} (need a multiple of {chosen.wanted.block_size}); without "
                f"--strict it becomes {chosen.format.name}"
            )
