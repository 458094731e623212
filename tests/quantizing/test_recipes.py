"""A recipe's name means what it means elsewhere: llama.cpp's choices, tensor for tensor."""

import json
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.recipe import RECIPES, fitting, recipe_named
from edgeinfer.quant.roles import may_be_quantized, role_of
from edgeinfer.quant.tensor import Tensor
from edgeinfer.quantizing.choices import TARGET_FORMATS, Choices, choose, facts_of
from tests.quantizing.choice_models import MODELS, ChoiceModel, in_runs

# Made by benchmarks/recipe_choices.py from llama.cpp's own quantizer.
EXPECTED = json.loads((Path(__file__).parent / "recipe_choices.json").read_text())
NO_BYTES = np.empty(0, np.uint8)


def chosen(model: ChoiceModel, recipe: str, *, has_importance=False, **options):
    tensors = {
        name: Tensor(name, shape, FORMATS["F32" if len(shape) == 1 else "F16"], NO_BYTES)
        for name, shape in model.shapes().items()
    }
    facts = facts_of(Metadata(model.metadata()), tensors, has_importance=has_importance)
    choices = Choices(recipe=RECIPES[recipe], **options)
    return {c.tensor.name: c.format.name for c in choose(tensors, facts, choices, where="m")}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_gets_what_llama_cpp_gives_it(model, recipe):
    assert in_runs(chosen(MODELS[model], recipe)) == EXPECTED[model][recipe]


def test_the_table_has_every_model_and_recipe():
    assert EXPECTED.keys() == MODELS.keys()
    assert all(found.keys() == RECIPES.keys() for found in EXPECTED.values())


def test_importance_moves_the_first_ffn_down():
    model = MODELS["llama, 16 layers"]
    for recipe, plain, weighted in (
        ("Q4_0", "Q4_0", "Q4_1"),
        ("Q5_0", "Q5_0", "Q5_1"),
        ("IQ4_XS", "Q5_K", "IQ4_XS"),
        ("Q4_K_M", "Q6_K", "Q6_K"),
    ):
        for has_importance, fmt in ((False, plain), (True, weighted)):
            found = chosen(model, recipe, has_importance=has_importance)
            assert found["blk.1.ffn_down.weight"] == fmt
            if recipe in ("Q4_0", "Q5_0"):
                assert found["blk.2.ffn_down.weight"] == recipe


def test_pure_gives_all_matrices_the_base():
    found = chosen(MODELS["mixtral"], "Q4_K_M", pure=True)
    assert set(found.values()) == {"Q4_K", "F32", "F16"}
    assert {name.split(".")[-2] for name, fmt in found.items() if fmt == "F16"} == {"ffn_gate_inp"}


def test_the_output_type_holds_for_tied_embeddings_unless_they_have_their_own():
    model = MODELS["gemma3"]
    assert chosen(model, "Q4_0", output_type="Q8_0")["token_embd.weight"] == "Q8_0"
    both = chosen(model, "Q4_0", output_type="Q8_0", embedding_type="Q5_0")
    assert both["token_embd.weight"] == "Q5_0"
    untied = chosen(MODELS["llama, 16 layers"], "Q4_0", output_type="Q8_0")
    assert untied["token_embd.weight"] == "Q4_0"


@pytest.mark.parametrize("name", TARGET_FORMATS)
@pytest.mark.parametrize("n_columns", [1, 31, 32, 96, 256, 320, 576])
def test_what_fits_has_whole_blocks(name, n_columns):
    found = fitting(name, n_columns)
    assert found in TARGET_FORMATS
    assert n_columns % FORMATS[found].block_size == 0
    assert (found == name) == (n_columns % FORMATS[name].block_size == 0)
    block, other = FORMATS[name], FORMATS[found]
    assert other.block_bytes / other.block_size >= block.block_bytes / block.block_size


@pytest.mark.parametrize(
    "name",
    [
        *("blk.0.ffn_gate_inp.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.bias"),
        *("blk.3.ssm_conv1d.weight", "blk.3.shortconv.conv.weight", "blk.0.ssm_a"),
        *("position_embd.weight", "token_types.weight", "blk.0.altup_router.weight"),
        *("per_layer_model_proj.weight", "blk.0.time_mix_w1.weight", "v.patch_embd.weight"),
    ],
)
def test_small_tensors_on_which_much_depends_are_left_alone(name):
    assert not may_be_quantized(name, (64, 64))


def test_vectors_are_left_alone_however_many_axes_they_have():
    assert may_be_quantized("blk.0.attn_q.weight", (2, 64))
    assert not may_be_quantized("blk.0.attn_q.weight", (64,))
    assert not may_be_quantized("blk.0.attn_q.weight", (1, 1, 64))


def test_roles():
    assert role_of("blk.3.attn_qkv.weight") == "attn_v"
    assert role_of("blk.3.ffn_down_exps.weight") == "ffn_down"
    assert role_of("per_layer_token_embd.weight") == "token_embd"
    assert role_of("blk.3.ssm_in.weight") == "other"


def test_a_recipe_is_found_in_any_case():
    assert recipe_named("q4_k_m") is RECIPES["Q4_K_M"]
    assert [recipe_named(f"Q{bits}_K").name for bits in (2, 3, 4, 5, 6)] == [
        *("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K")
    ]
    for name in ("Q4_K_X", "Q4", ""):
        with pytest.raises(InvalidParameterError, match=f"'{name}': unknown"):
            recipe_named(name)
