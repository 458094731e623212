"""Gemma 4's programs: whose keys a layer reads, sizes of two kinds, what a file may leave out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import ModelFormatError, UnsupportedModelError
from edgeinfer.program.program import Program
from tests.arch import tiny

WIDTHS = {"w": (24, 2), "g": (40, 1)}  # of a head, and how many of keys
N_EMBD, N_HEADS, N_FF, N_INPUT = 48, 4, 56, 8


def gemma4(layers: str = "wgwwgwg", n_shared: int = 3, **keys: Any) -> tuple[dict[str, Any], Any]:
    """Return metadata and weights; each layer is w, with a window, or g, global."""
    n = len(layers)
    values = {
        "block_count": n,
        "context_length": 256,
        "embedding_length": N_EMBD,
        "embedding_length_per_layer_input": N_INPUT,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEADS,
        "attention.head_count_kv": [WIDTHS[kind][1] for kind in layers],
        "attention.key_length": WIDTHS["g"][0],
        "attention.value_length": WIDTHS["g"][0],
        "attention.key_length_swa": WIDTHS["w"][0],
        "attention.value_length_swa": WIDTHS["w"][0],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 16,
        "attention.sliding_window_pattern": [kind == "w" for kind in layers],
        "attention.shared_kv_layers": n_shared,
    }
    metadata = {f"gemma4.{key}": value for key, value in values.items()}
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (tiny.N_VOCAB, N_EMBD),
        "per_layer_token_embd.weight": (tiny.N_VOCAB, n * N_INPUT),
        "per_layer_model_proj.weight": (n * N_INPUT, N_EMBD),
        "per_layer_proj_norm.weight": (N_INPUT,),
        "output_norm.weight": (N_EMBD,),
    }
    for il, kind in enumerate(layers):
        dim, n_kv = WIDTHS[kind]
        blk: dict[str, tuple[int, ...]] = {
            "attn_q": (N_HEADS * dim, N_EMBD),
            "attn_q_norm": (dim,),
            "attn_output": (N_EMBD, N_HEADS * dim),
            "ffn_gate": (N_FF, N_EMBD),
            "ffn_up": (N_FF, N_EMBD),
            "ffn_down": (N_EMBD, N_FF),
            "inp_gate": (N_INPUT, N_EMBD),
            "proj": (N_EMBD, N_INPUT),
        }
        norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        blk |= dict.fromkeys(norms, (N_EMBD,))
        if il < n - n_shared:
            blk |= {"attn_k": (n_kv * dim, N_EMBD), "attn_k_norm": (dim,)}
            blk |= {"attn_v": (n_kv * dim, N_EMBD)} if kind == "w" else {}
        shapes |= {f"blk.{il}.{name}.weight": shape for name, shape in blk.items()}
    metadata |= {"general.architecture": "gemma4"} | tiny.prefixed("gemma4", keys)
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return metadata, tiny.random_arrays(shapes)


def build(path: Path, metadata: dict[str, Any], arrays: Any) -> Program:
    with tiny.open_model(path, metadata, arrays) as file:
        return build_program(file.metadata, file.tensors, n_ctx=64)


def test_shared_layers_read_the_last_of_their_kind(tmp_path: Path) -> None:
    program = build(tmp_path, *gemma4("wgwwgwg", n_shared=3))
    assert [op.kv for op in program.attentions()] == [0, 1, 2, 3, 1, 3, 1]
    assert [(kv.n_kv_heads, kv.key_dim, kv.window) for kv in program.kvs] == [
        *((2, 24, 16), (1, 40, 0), (2, 24, 16), (2, 24, 16))
    ]


def test_keys_of_shared_layers_are_left_out(tmp_path: Path) -> None:
    """Checkpoints bring them, and so do files made of those."""
    metadata, arrays = gemma4("wgwg", n_shared=2)
    without = build(tmp_path, metadata, arrays)
    for name in ("attn_k", "attn_v", "attn_k_norm"):
        arrays[f"blk.2.{name}.weight"] = arrays[f"blk.0.{name}.weight"]
    assert build(tmp_path, metadata, arrays).print() == without.print()
    arrays["blk.2.attn_v_norm.weight"] = np.ones(24, np.float32)
    with pytest.raises(UnsupportedModelError, match=r"blk\.2\.attn_v_norm"):
        build(tmp_path, metadata, arrays)


def test_a_shared_layer_without_one_like_it_is_an_error(tmp_path: Path) -> None:
    metadata, arrays = gemma4("wwwg", n_shared=1)
    with pytest.raises(ModelFormatError, match=r"shared_kv_layers.*heads like those of 3"):
        build(tmp_path, metadata, arrays)


HOSTILE: dict[str, list[Any]] = {
    "attention.sliding_window": [None, 0, -1, 1.5],
    "attention.sliding_window_pattern": [None, 6, [True], "w"],
    "attention.key_length_swa": [0, 2**32 - 1, "24"],
    "attention.value_length_swa": [0, 2**32 - 1],
    "attention.shared_kv_layers": [7, -1, 2**32 - 1],
    "embedding_length_per_layer_input": [-1, 2**32 - 1],
    "rope.dimension_count_swa": [0, 25, 26],
    "rope.freq_base_swa": [0.0, float("nan")],
    "expert_count": [-1, 5000],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in HOSTILE.items() for value in values]
)
def test_hostile_keys_are_typed_errors(tmp_path: Path, key: str, value: Any) -> None:
    metadata, arrays = gemma4(**{key.replace(".", "__"): value})
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=rf"gemma4\.{key}"):
        build(tmp_path, metadata, arrays)
