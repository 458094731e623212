"""Tiny random models that transformers makes give its logits, on the reference backend.

transformers runs in a Python of its own: it warns in ways that are not ours.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.arch import build_program
from edgeinfer.kernels.reference.backend import BACKEND
from tests.arch import tiny
from tests.kernels.kl import limits_for, run_tokens

N_TOKENS = 200

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("transformers")), reason="needs torch and transformers"
)

LFM2 = """
import sys
import numpy as np, torch
from transformers import Lfm2Config, Lfm2ForCausalLM
torch.manual_seed(3)
config = Lfm2Config(
    vocab_size=97, hidden_size=48, intermediate_size=72, num_hidden_layers=5,
    num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=256,
    conv_L_cache=4, conv_bias=True, block_auto_adjust_ff_dim=True,
    block_multiple_of=20, block_ffn_dim_multiplier=1.1,
    layer_types=["conv", "full_attention", "conv", "conv", "full_attention"],
    rope_parameters={{"rope_type": "default", "rope_theta": 30000.0}}, norm_eps=1e-5,
)
model = Lfm2ForCausalLM(config).eval().float()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
        if parameter.ndim == 1:
            parameter.add_(1.0)
    tokens = torch.randint(0, 97, ({n},))
    logits = model(tokens[None]).logits[0]
state = {{name: value.numpy() for name, value in model.state_dict().items()}}
np.savez({path!r}, tokens=tokens.numpy(), logits=logits.numpy(), **state)
"""
LFM2_NAMES = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}


def made_by_transformers(source: str, path: Path) -> dict[str, Any]:
    """Return the arrays that a script saves: `tokens`, `logits`, and weights under HF's names."""
    script = source.format(path=str(path), n=N_TOKENS)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(np.load(path))


def lfm2(arrays: dict[str, Any]) -> tuple[dict[str, Any], tiny.Arrays]:
    """Return metadata and weights as the converter would write them."""
    renamed = {}
    for name, array in arrays.items():
        if name.startswith("model.layers."):
            _, _, il, rest = name.split(".", 3)
            rest, _, kind = rest.rpartition(".")
            renamed[f"blk.{il}.{LFM2_NAMES[rest]}.{kind}"] = np.squeeze(array)
    renamed["token_embd.weight"] = arrays["model.embed_tokens.weight"]
    renamed["token_embd_norm.weight"] = arrays["model.embedding_norm.weight"]
    metadata = {
        "general.architecture": "lfm2",
        "lfm2.block_count": 5,
        "lfm2.context_length": 256,
        "lfm2.embedding_length": 48,
        "lfm2.feed_forward_length": len(renamed["blk.0.ffn_gate.weight"]),
        "lfm2.attention.head_count": 6,
        "lfm2.attention.head_count_kv": [0, 2, 0, 0, 2],
        "lfm2.attention.layer_norm_rms_epsilon": 1e-5,
        "lfm2.rope.freq_base": 30000.0,
        "lfm2.shortconv.l_cache": 4,
    }
    return metadata, renamed


def test_lfm2_is_that_of_transformers(tmp_path: Path) -> None:
    arrays = made_by_transformers(LFM2, tmp_path / "made.npz")
    tokens, expected = arrays.pop("tokens").tolist(), arrays.pop("logits")
    with tiny.open_model(tmp_path, *lfm2(arrays)) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=256)
        executable = BACKEND.compile(program, file.tensors, limits_for(256))
        for chunk in (200, 17):
            found = run_tokens(executable, tokens, np.arange(N_TOKENS), chunk)
            assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
