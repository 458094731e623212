"""DeepSeek's programs: two forms of one attention, how groups are scored, what keys may say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program import ops
from edgeinfer.program.program import Program
from tests.arch import tiny
from tests.kernels.kl import limits_for, run_tokens

N_EMBD, N_HEADS, RANK, STILL, TURNED, DIM, N_FF, N_EXPERTS = 48, 3, 32, 16, 8, 12, 56, 6
TOKENS = [int(t) for t in np.random.default_rng(2).integers(0, tiny.N_VOCAB, 40)]


def deepseek2(*, split: bool = True, **keys: Any) -> tuple[dict[str, Any], Any]:
    """Return metadata and weights of two layers, the first without experts.

    `split`: with matrices for keys and for values; the same weights make both forms.
    """
    values: dict[str, Any] = {
        "block_count": 2,
        "context_length": 256,
        "embedding_length": N_EMBD,
        "feed_forward_length": 72,
        "leading_dense_block_count": 1,
        "attention.head_count": N_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.kv_lora_rank": RANK,
        "rope.dimension_count": TURNED,
        "expert_count": N_EXPERTS,
        "expert_used_count": 2,
        "expert_feed_forward_length": N_FF,
        "expert_shared_count": 1,
    }
    if split:
        values |= {"attention.head_count_kv": 1, "attention.key_length": RANK + TURNED}
        values |= {"attention.value_length": RANK, "attention.value_length_mla": DIM}
        values |= {"attention.key_length_mla": STILL + TURNED}
    else:
        values |= {"attention.key_length": STILL + TURNED, "attention.value_length": DIM}
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (tiny.N_VOCAB, N_EMBD),
        "output_norm.weight": (N_EMBD,),
    }
    for il in range(2):
        blk: dict[str, tuple[int, ...]] = {
            "attn_norm": (N_EMBD,),
            "attn_q": (N_HEADS * (STILL + TURNED), N_EMBD),
            "attn_kv_a_mqa": (RANK + TURNED, N_EMBD),
            "attn_kv_a_norm": (RANK,),
            "attn_kv_b": (N_HEADS * (STILL + DIM), RANK),
            "attn_output": (N_EMBD, N_HEADS * DIM),
            "ffn_norm": (N_EMBD,),
        }
        sizes = [("", 72)] if il == 0 else [("_shexp", N_FF)]
        for suffix, n in sizes:
            blk |= {f"ffn_gate{suffix}": (n, N_EMBD), f"ffn_up{suffix}": (n, N_EMBD)}
            blk |= {f"ffn_down{suffix}": (N_EMBD, n)}
        if il == 1:
            up = (N_EXPERTS, N_FF, N_EMBD)
            blk |= {"ffn_gate_inp": (N_EXPERTS, N_EMBD), "ffn_gate_exps": up, "ffn_up_exps": up}
            blk |= {"ffn_down_exps": (N_EXPERTS, N_EMBD, N_FF)}
        shapes |= {f"blk.{il}.{name}.weight": shape for name, shape in blk.items()}
    arrays: Any = tiny.random_arrays(shapes)
    for il in range(2 * split):
        both = arrays.pop(f"blk.{il}.attn_kv_b.weight").reshape(N_HEADS, STILL + DIM, RANK)
        arrays[f"blk.{il}.attn_k_b.weight"] = both[:, :STILL].swapaxes(1, 2).copy()
        arrays[f"blk.{il}.attn_v_b.weight"] = both[:, STILL:].copy()
    metadata = {f"deepseek2.{key}": value for key, value in values.items()}
    return metadata | {"general.architecture": "deepseek2"} | tiny.prefixed(
        "deepseek2", keys
    ), arrays


def build(path: Path, metadata: dict[str, Any], arrays: Any) -> Program:
    with tiny.open_model(path, metadata, arrays) as file:
        return build_program(file.metadata, file.tensors, n_ctx=256)


def logits(path: Path, metadata: dict[str, Any], arrays: Any, backend: Any) -> Any:
    with tiny.open_model(path, metadata, arrays) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        limits = limits_for(256, kv_type="f32", activations="fine", n_threads=1)
        return run_tokens(backend.compile(program, file.tensors, limits), TOKENS, range(40)).copy()


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_older_files_give_the_same(tmp_path: Path, backend: str) -> None:
    if backend == "native":
        pytest.importorskip("edgeinfer.kernels.native._native")
        from edgeinfer.kernels.native.backend import BACKEND as found
    else:
        found = REFERENCE
    new = logits(tmp_path, *deepseek2(), found)
    old = logits(tmp_path, *deepseek2(split=False), found)
    np.testing.assert_allclose(old, new, atol=2e-5 * np.abs(new).max())


def test_one_small_row_is_kept_for_all_heads(tmp_path: Path) -> None:
    for split, sizes in ((True, (1, RANK + TURNED, RANK)), (False, (N_HEADS, STILL + TURNED, DIM))):
        for kv in build(tmp_path, *deepseek2(split=split)).kvs:
            assert (kv.n_kv_heads, kv.key_dim, kv.value_dim) == sizes
            assert kv.v_is_prefix == split


def test_matrices_in_both_forms_are_read_in_the_newer(tmp_path: Path) -> None:
    metadata, arrays = deepseek2()
    alone = build(tmp_path, metadata, arrays).print()
    both = {name: a for name, a in deepseek2(split=False)[1].items() if "attn_kv_b" in name}
    assert build(tmp_path, metadata, arrays | both).print() == alone


@pytest.mark.parametrize(("gating", "score"), [(None, "max"), (1, "max"), (2, "top2")])
def test_what_scores_experts_scores_their_groups(tmp_path: Path, gating: Any, score: str) -> None:
    keys = {"expert_group_count": 3, "expert_group_used_count": 2, "expert_gating_func": gating}
    program = build(tmp_path, *deepseek2(**keys))
    route = next(op for op in program.ops if isinstance(op, ops.Route))
    assert (route.groups, route.groups_used, route.group_score) == (3, 2, score)


def test_scores_are_scaled_by_the_square_of_what_yarn_multiplies_by(tmp_path: Path) -> None:
    keys = {"rope__scaling__type": "yarn", "rope__scaling__factor": 40.0}
    keys |= {"rope__scaling__yarn_log_multiplier": 0.0707}
    program = build(tmp_path, *deepseek2(**keys))
    attention = next(program.attentions())
    mscale = 1 + 0.0707 * np.log(40)
    assert attention.scale == pytest.approx((STILL + TURNED) ** -0.5 * mscale**2, rel=1e-6)
    assert {op.mscale for op in program.ops if isinstance(op, ops.Rope)} == {1.0}


HOSTILE: dict[str, list[Any]] = {
    "attention.head_count": [[3, 6], [3, 3, 3], 0],
    "attention.kv_lora_rank": [None, 0, 2**32 - 1],
    "attention.key_length_mla": [0, 8, 7, 2**32 - 1],
    "attention.value_length_mla": [0, 2**32 - 1],
    "attention.q_lora_rank": [-1, 2**32 - 1],
    "rope.dimension_count": [0, 9, 64],
    "expert_gating_func": [0, 3, "2"],
    "expert_group_count": [4, 7, -1],
    "expert_group_used_count": [2, -1],
    "expert_shared_count": [-1, 5000],
    "leading_dense_block_count": [3, -1],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE.items() for value in values]
)
def test_hostile_keys_are_typed_errors(tmp_path: Path, key: str, value: Any) -> None:
    metadata, arrays = deepseek2(**{key.replace(".", "__"): value})
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=rf"deepseek2\.{key}"):
        build(tmp_path, metadata, arrays)
