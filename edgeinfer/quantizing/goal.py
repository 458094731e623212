"""Say what each format costs a model's matrices, and choose so that its file fits a size."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from edgeinfer.loader.fields import padded
from edgeinfer.quant.recipe import RECIPES, Recipe
from edgeinfer.quant.roles import layer_of, role_of
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.choices import Chosen
from edgeinfer.quantizing.copying import Copy
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.quantizing.search import LADDER, Fit, Option, Options, fit_bytes, measured, weighed
from edgeinfer.quantizing.source import SourceRows

# Where the search begins: the best format it may give.
START = RECIPES["Q8_0"]

# How much a model suffers from noise in the matrices of a role, all layers together, where that was
# not measured: the divergence (KL, in nats) of SmolLM2 with that role alone in Q4_0;
# benchmarks/RESULTS.md. Only proportions count.
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
    "Q4_1",
    "IQ4_XS",
    "IQ4_NL",
    "Q3_K_M",
    "Q2_K",
    "Q4_0",
    "Q5_0",
)


def noises(copy: Copy, n_threads: int) -> dict[str, list[Option]]:
    """Measure the noise of each format in each tensor that the recipe was free in.

    Raises as reading and encoding do.
    """
    file = copy.file
    free = [c.tensor for c in copy.chosen if c.is_free]
    encode = encoder(LADDER, file.tensors)

    def options(tensor: Tensor) -> list[Option]:
        importance = copy.importance.get(tensor.name)
        return measured(source, tensor, importance, encode, alignment=file.alignment)

    with SourceRows(file) as source, ThreadPoolExecutor(n_threads) as pool:
        found = pool.map(options, free)
        return {tensor.name: of for tensor, of in zip(free, found, strict=True)}


def usual_costs(noise: Options) -> dict[str, list[Option]]:
    """Return what the formats cost where nothing was measured but their noise."""
    n_layers = 1 + max(map(layer_of, noise), default=0)
    return {name: weighed(of, _weight(name, n_layers)) for name, of in noise.items()}


def formats_within(copy: Copy, options: Options, most_bytes: int) -> Fit:
    """Return formats with which a planned copy takes at most `most_bytes`.

    They are for the tensors that the recipe was free in. Raises InvalidParameterError if that
    cannot be.
    """
    alignment = copy.file.alignment
    free = sum(padded(c.n_bytes, alignment) for c in copy.chosen if c.is_free)
    return fit_bytes(options, most_bytes, other_bytes=copy.n_bytes - free)


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
