"""Shapes of models on which the recipes' choices were compared with llama.cpp's quantizer.

Sizes are the smallest that whole blocks of 256 allow; what differs is what recipes look at.
"""

from dataclasses import dataclass
from typing import Any

Shapes = dict[str, tuple[int, ...]]

HEAD_DIM = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceModel:
    """A model's architecture and sizes; `fused` has attn_qkv in place of three matrices."""

    arch: str = "llama"
    n_layers: int
    n_heads: int = 8
    n_kv_heads: int = 8
    n_experts: int = 0
    n_embd: int = 256
    n_ff: int = 256
    is_tied: bool = False
    fused: bool = False

    def metadata(self) -> dict[str, Any]:
        """Return the keys that both quantizers read."""
        keys = {
            "block_count": self.n_layers,
            "context_length": 64,
            "embedding_length": self.n_embd,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": self.n_kv_heads,
            "attention.key_length": HEAD_DIM,
            "attention.value_length": HEAD_DIM,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.layer_norm_epsilon": 1e-5,
            "attention.sliding_window": 16,
            "rope.freq_base": 1e4,
            "rope.dimension_count": HEAD_DIM,
        }
        if self.n_experts:
            keys |= {"expert_count": self.n_experts, "expert_used_count": 2}
            keys["expert_feed_forward_length"] = self.n_ff
        named = {f"{self.arch}.{key}": value for key, value in keys.items()}
        return {"general.architecture": self.arch} | named

    def shapes(self) -> Shapes:
        """Return the tensors' shapes in NumPy order."""
        embd = self.n_embd
        found: Shapes = {"token_embd.weight": (64, embd), "output_norm.weight": (embd,)}
        if not self.is_tied:
            found["output.weight"] = (64, embd)
        for i in range(self.n_layers):
            found |= {f"blk.{i}.{name}.weight": shape for name, shape in self._layer().items()}
        return found

    def _layer(self) -> Shapes:
        embd, ff, experts = self.n_embd, self.n_ff, self.n_experts
        q, kv = self.n_heads * HEAD_DIM, self.n_kv_heads * HEAD_DIM
        layer: Shapes = {"attn_norm": (embd,), "ffn_norm": (embd,), "attn_output": (embd, q)}
        if self.fused:
            layer["attn_qkv"] = (q + 2 * kv, embd)
        else:
            layer |= {"attn_q": (q, embd), "attn_k": (kv, embd), "attn_v": (kv, embd)}
        if experts:
            layer |= {
                "ffn_gate_inp": (experts, embd),
                "ffn_gate_exps": (experts, ff, embd),
                "ffn_up_exps": (experts, ff, embd),
                "ffn_down_exps": (experts, embd, ff),
            }
        else:
            layer |= {"ffn_gate": (ff, embd), "ffn_up": (ff, embd), "ffn_down": (embd, ff)}
        return layer


MODELS = {
    "llama, 16 layers": ChoiceModel(n_layers=16),
    "llama, 24 layers, tied, 4 heads a KV head": ChoiceModel(
        n_layers=24, n_kv_heads=2, is_tied=True
    ),
    "llama, 7 layers, 2 heads a KV head": ChoiceModel(n_layers=7, n_kv_heads=4),
    "llama, 80 layers": ChoiceModel(n_layers=80, n_kv_heads=1),
    "qwen2, 80 layers": ChoiceModel(arch="qwen2", n_layers=80),
    "mixtral": ChoiceModel(n_layers=17, n_kv_heads=2, n_experts=8),
    "llama, 4 experts": ChoiceModel(n_layers=9, n_experts=4),
    "llama, odd rows": ChoiceModel(n_layers=12, n_heads=6, n_kv_heads=2, n_embd=192, n_ff=352),
    "llama, odd rows, tied": ChoiceModel(
        n_layers=12, n_heads=6, n_kv_heads=2, n_embd=192, n_ff=352, is_tied=True
    ),
    "phi3": ChoiceModel(arch="phi3", n_layers=16, fused=True),
    "gemma3": ChoiceModel(arch="gemma3", n_layers=18, n_heads=4, n_kv_heads=1, is_tied=True),
    "falcon": ChoiceModel(arch="falcon", n_layers=32, fused=True),
}


def in_runs(formats: dict[str, str]) -> dict[str, str]:
    """Shorten formats by tensor name: the formats of the layers in order, to the names with them.

    {"Q6_K*2 Q4_K": "attn_v ffn_down"}: of both, two layers have Q6_K and the third Q4_K.
    """
    by_name: dict[str, list[str]] = {}
    for name, fmt in formats.items():
        by_name.setdefault(name.removesuffix(".weight").split(".")[-1], []).append(fmt)
    by_run: dict[str, list[str]] = {}
    for name in sorted(by_name):
        by_run.setdefault(_run_lengths(by_name[name]), []).append(name)
    return {run: " ".join(names) for run, names in by_run.items()}


def _run_lengths(items: list[str]) -> str:
    runs: list[tuple[str, int]] = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    return " ".join(item if n == 1 else f"{item}*{n}" for item, n in runs)
