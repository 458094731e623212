"""Choose the formats of a model's matrices so that its file takes at most so many bytes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from edgeinfer.loader.fields import padded
from edgeinfer.quant.recipe import RECIPES, Recipe
from edgeinfer.quant.roles import layer_of, role_of
from edgeinfer.quantizing.choices import Chosen
from edgeinfer.quantizing.copying import Copy
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.quantizing.search import LADDER, Option, fit, measured
from edgeinfer.quantizing.source import SourceRows

# Where the search begins: the best format it may give.
START = RECIPES["Q8_0"]

# How much a model suffers from noise in the matrices of a role, all layers together: the divergence
# (KL, in nats) of SmolLM2 with that role alone in Q4_0; benchmarks/RESULTS.md. Only proportions
# count.
SENSITIVITY = {
    "token_embd": 0.15,
    "output": 0.15,
    "ffn_down": 0.13,
    "attn_v": 0.11,
    "attn_output": 0.028,
    "attn_k": 0.022,
    "attn_q": 0.019,
    "ffn_up": 0.054,
    "ffn_gate": 0.032,
    "other": 0.05,  # not measured: as much as the middle of them
}

# What a file of the search says it is, by the format that takes most of it.
_NAMED_BY = (
    "Q8_0",
    "Q6_K",
    "Q5_K_M",
    "Q5_1",
    "Q4_K_M",
    "IQ4_XS",
    "IQ4_NL",
    "Q3_K_M",
    "Q2_K",
    "Q4_0",
    "Q5_0",
)


def formats_within(copy: Copy, most_bytes: int, n_threads: int) -> dict[str, str]:
    """Return formats, by name, with which a planned copy takes at most `most_bytes`.

    They are for the tensors that the recipe was free in. Raises InvalidParameterError if that
    cannot be, and as reading and encoding do.
    """
    file = copy.file
    free = [c for c in copy.chosen if c.is_free]
    n_layers = 1 + max((layer_of(c.tensor.name) for c in free), default=0)
    others = copy.n_bytes - sum(padded(c.n_bytes, file.alignment) for c in free)
    encode = encoder(LADDER)

    def options(c: Chosen) -> list[Option]:
        return measured(
            source,
            c.tensor,
            copy.importance.get(c.tensor.name),
            encode,
            weight=_weight(c.tensor.name, n_layers),
            alignment=file.alignment,
        )

    with SourceRows(file) as source, ThreadPoolExecutor(n_threads) as pool:
        found = list(pool.map(options, free))
    named = {c.tensor.name: of for c, of in zip(free, found, strict=True)}
    return fit(named, most_bytes - others)


def nearest_recipe(chosen: Sequence[Chosen]) -> Recipe:
    """Return the recipe whose base format takes most of the bytes."""
    taken: dict[str, int] = {}
    for c in chosen:
        taken[c.format.name] = taken.get(c.format.name, 0) + c.n_bytes
    recipes = [RECIPES[name] for name in _NAMED_BY]
    return max(recipes, key=lambda recipe: taken.get(recipe.base, 0))


def _weight(name: str, n_layers: int) -> float:
    """Return what a model suffers if all of a matrix's output were noise, by its role."""
    role = role_of(name)
    share = n_layers if layer_of(name) >= 0 else 1
    return SENSITIVITY.get(role, SENSITIVITY["other"]) / share
