"""Choose the format of each weight: a recipe's name and a model's facts in, a format name out.

A recipe is a format for most weights and rules for those on which more depends, one row each. The
choices are those of llama.cpp's quantizer, so that a name means the same everywhere; the tests hold
its answers. Knows no file and no arithmetic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgeinfer.errors import InvalidParameterError
from edgeinfer.quant.formats import FORMATS

QUANTIZATION_VERSION = 2

# What a format becomes where rows are no multiple of its block, and what is left at the end.
FALLBACKS = {
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    "IQ4_XS": "IQ4_NL",
}
LAST_FALLBACK = "F16"


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a model the choices depend on."""

    arch: str
    n_layers: int
    n_heads: int  # of the first layer
    n_kv_heads: int
    n_experts: int
    is_tied: bool  # no output.weight: the token embeddings are the output, too
    has_importance: bool = False

    @property
    def n_heads_a_kv_head(self) -> int:
        """Query heads that share a KV head; 0 where there are none."""
        return self.n_heads // self.n_kv_heads if self.n_kv_heads else 0

    @property
    def is_70b(self) -> bool:
        """Whether it is one of the models of 70 billion with a narrow attn_v."""
        if self.n_layers != 80:
            return False
        return self.arch == "qwen2" or (self.arch == "llama" and self.n_heads != self.n_kv_heads)


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight to choose for: the `index`-th of `count` of its role, from the first layer on."""

    name: str
    role: str
    n_columns: int
    n_matrices: int  # above 1: experts
    index: int
    count: int


Condition = Callable[[Facts, Weight], bool]
Rule = tuple[str, Condition]


def _always(facts: Facts, weight: Weight) -> bool:
    return True


def _more_bits(facts: Facts, weight: Weight) -> bool:
    """The first and last eighth of the layers, and every third between."""
    i, eighth = weight.index, weight.count // 8
    return i < eighth or i >= 7 * weight.count // 8 or (i - eighth) % 3 == 2


def _first(n: int) -> Condition:
    return lambda facts, weight: weight.index < n


def _first_part(n: int) -> Condition:
    return lambda facts, weight: weight.index < weight.count // n


def _shared_by_4(facts: Facts, weight: Weight) -> bool:
    return facts.n_heads_a_kv_head >= 4


def _with_importance(condition: Condition, wanted: bool) -> Condition:
    return lambda facts, weight: facts.has_importance is wanted and condition(facts, weight)


_EIGHTH = _first_part(8)
_4_BIT_CODEBOOK: Mapping[str, tuple[Rule, ...]] = {
    "attn_v": (("Q5_K", _shared_by_4),),
    "ffn_down": (("Q5_K", _with_importance(_EIGHTH, False)),),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe; `file_type` is its number in `general.file_type`, `base` the usual format.

    `rules` give a role its format, the first whose condition holds; `with_8_experts` is the format
    of attn_output in models of 8 experts.
    """

    name: str
    file_type: int
    base: str
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    with_8_experts: str = ""


_ROWS = (
    Recipe("F32", 0, "F32"),
    Recipe("F16", 1, "F16"),
    Recipe("BF16", 32, "BF16"),
    Recipe("Q8_0", 7, "Q8_0"),
    Recipe("Q4_0", 2, "Q4_0", {"ffn_down": (("Q4_1", _with_importance(_EIGHTH, True)),)}),
    Recipe("Q4_1", 3, "Q4_1"),
    Recipe("Q5_0", 8, "Q5_0", {"ffn_down": (("Q5_1", _with_importance(_EIGHTH, True)),)}),
    Recipe("Q5_1", 9, "Q5_1"),
    Recipe(
        "Q2_K",
        10,
        "Q2_K",
        {
            "attn_v": (("Q4_K", _shared_by_4), ("Q3_K", _always)),
            "ffn_down": (("Q3_K", _always),),
            "attn_output": (("Q3_K", _always),),
        },
        with_8_experts="Q5_K",
    ),
    Recipe("Q3_K_S", 11, "Q3_K", with_8_experts="Q5_K"),
    Recipe(
        "Q3_K_M",
        12,
        "Q3_K",
        {
            "attn_v": (("Q5_K", _first(2)), ("Q4_K", _always)),
            "ffn_down": (("Q5_K", _first_part(16)), ("Q4_K", _always)),
            "attn_output": (("Q4_K", _always),),
        },
        with_8_experts="Q5_K",
    ),
    Recipe(
        "Q3_K_L",
        13,
        "Q3_K",
        {
            "attn_v": (("Q5_K", _always),),
            "ffn_down": (("Q5_K", _always),),
            "attn_output": (("Q5_K", _always),),
        },
    ),
    Recipe(
        "Q4_K_S",
        14,
        "Q4_K",
        {"attn_v": (("Q5_K", _first(4)),), "ffn_down": (("Q5_K", _EIGHTH),)},
        with_8_experts="Q5_K",
    ),
    Recipe(
        "Q4_K_M",
        15,
        "Q4_K",
        {"attn_v": (("Q6_K", _more_bits),), "ffn_down": (("Q6_K", _more_bits),)},
        with_8_experts="Q5_K",
    ),
    Recipe("Q5_K_S", 16, "Q5_K"),
    Recipe(
        "Q5_K_M",
        17,
        "Q5_K",
        {"attn_v": (("Q6_K", _more_bits),), "ffn_down": (("Q6_K", _more_bits),)},
    ),
    Recipe("Q6_K", 18, "Q6_K"),
    Recipe("IQ4_NL", 25, "IQ4_NL", _4_BIT_CODEBOOK, with_8_experts="Q5_K"),
    Recipe("IQ4_XS", 30, "IQ4_XS", _4_BIT_CODEBOOK, with_8_experts="Q5_K"),
    Recipe("MXFP4_MOE", 38, "MXFP4"),
)

RECIPES: dict[str, Recipe] = {row.name: row for row in _ROWS}

# Falcon's layers need other care than a llama's.
_FALCON: dict[str, Mapping[str, tuple[Rule, ...]]] = {
    "Q3_K_M": {"ffn_down": (("Q5_K", _first_part(16)), ("Q4_K", _more_bits)), "attn_output": ()},
    "Q3_K_L": {"ffn_down": (("Q4_K", _always),), "attn_output": (("Q4_K", _always),)},
    "Q4_K_M": {"ffn_down": (("Q6_K", _first_part(16)), ("Q5_K", _more_bits))},
    "Q4_K_S": {"ffn_down": ()},
    "Q2_K": {"attn_output": ()},
}

# Formats that hold any number; no rule applies to a model that is only rounded to one of them.
_FLOATS = ("F32", "F16", "BF16")


def recipe_named(name: str) -> Recipe:
    """Return a recipe; letter case does not count, and "Q4_K" is "Q4_K_M", as in llama.cpp.

    Raises InvalidParameterError.
    """
    found = RECIPES.get(name.upper()) or RECIPES.get(f"{name.upper()}_M")
    if found is None:
        raise InvalidParameterError(f"recipe {name!r}: unknown (known: {', '.join(RECIPES)})")
    return found


def format_for(recipe: Recipe, facts: Facts, weight: Weight) -> str:
    """Return the name of the format a recipe gives a weight, whatever the length of its rows."""
    base = recipe.base
    if base in _FLOATS:
        return base
    if weight.role == "output" or (facts.is_tied and weight.role == "token_embd"):
        whole_blocks = weight.n_columns % FORMATS[base].block_size == 0
        plain = base in ("Q8_0", "MXFP4") or facts.arch == "falcon" or not whole_blocks
        return "Q8_0" if plain else "Q6_K"
    if base == "MXFP4":
        return "MXFP4" if weight.n_matrices > 1 else "Q8_0"
    if facts.n_experts == 8:
        if weight.role in ("attn_v", "attn_k"):
            return "Q8_0"
        if weight.role == "attn_output":
            return recipe.with_8_experts or base
    rules = dict(recipe.rules)
    if facts.arch == "falcon":
        rules |= _FALCON.get(recipe.name, {})
    chosen = next(
        (name for name, holds in rules.get(weight.role, ()) if holds(facts, weight)), base
    )
    if weight.role == "attn_v" and facts.is_70b and chosen in ("Q3_K", "Q4_K"):
        return "Q5_K"
    return chosen


def fitting(name: str, n_columns: int) -> str:
    """Return the format itself if rows of this length are whole blocks, else what replaces it."""
    if n_columns % FORMATS[name].block_size == 0:
        return name
    other = FALLBACKS.get(name, LAST_FALLBACK)
    return other if n_columns % FORMATS[other].block_size == 0 else LAST_FALLBACK
