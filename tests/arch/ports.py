"""Encoders that transformers has no class for, written from their authors' description in torch."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm


class Port(nn.Module):
    """A model that is saved as its repository holds it."""

    architecture: str

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config

    def norm(self, x: Tensor, norm: nn.LayerNorm, eps: str) -> Tensor:
        return layer_norm(x, x.shape[1:], norm.weight, norm.bias, self.config[eps])

    def save_pretrained(self, folder: Path) -> None:
        """Write what a repository of the model holds."""
        folder.mkdir()
        config = {**self.config, "architectures": [self.architecture]}
        (folder / "config.json").write_text(json.dumps(config))
        weights = {name: value.contiguous() for name, value in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors")


class JinaBert(Port):
    """Jina Embeddings 2: a BERT without positions, whose scores fall with the distance."""

    architecture = "JinaBertForMaskedLM"

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        width, wide = config["hidden_size"], config["intermediate_size"]
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config["vocab_size"], width)
        self.embeddings.token_type_embeddings = nn.Embedding(config["type_vocab_size"], width)
        self.embeddings.LayerNorm = nn.LayerNorm(width)
        layers = []
        for _ in range(config["num_hidden_layers"]):
            layer, attention, own, out = (nn.Module() for _ in range(4))
            own.query, own.key, own.value = (nn.Linear(width, width) for _ in range(3))
            out.dense, out.LayerNorm = nn.Linear(width, width), nn.LayerNorm(width)
            attention.self, attention.output = own, out
            layer.attention, layer.mlp = attention, nn.Module()
            layer.mlp.gated_layers = nn.Linear(width, 2 * wide, bias=False)
            layer.mlp.wo, layer.mlp.layernorm = nn.Linear(wide, width), nn.LayerNorm(width)
            layers.append(layer)
        self.encoder.layer = nn.ModuleList(layers)

    def forward(self, tokens: Tensor) -> SimpleNamespace:
        """Return the rows of one sequence, (1, n)."""
        eps = "layer_norm_eps"
        x = self.embeddings.word_embeddings(tokens[0])
        x = self.norm(
            x + self.embeddings.token_type_embeddings.weight[0], self.embeddings.LayerNorm, eps
        )
        for layer in self.encoder.layer:
            out = layer.attention.output
            x = self.norm(x + out.dense(self.attend(x, layer.attention.self)), out.LayerNorm, eps)
            gate, up = layer.mlp.gated_layers(x).chunk(2, dim=1)
            x = self.norm(x + layer.mlp.wo(gelu(gate) * up), layer.mlp.layernorm, eps)
        return SimpleNamespace(last_hidden_state=x[None])

    def attend(self, x: Tensor, own: Any) -> Tensor:
        n = self.config["num_attention_heads"]
        q, k, v = (f(x).view(len(x), n, -1) for f in (own.query, own.key, own.value))
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        places = torch.arange(len(x))
        distances = (places[:, None] - places).abs()
        scores = scores - torch.tensor(falls(n))[:, None, None] * distances
        return torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v).flatten(1)


def falls(n: int) -> list[float]:
    """Return each head's slope, as the paper on ALiBi has them."""
    if n & (n - 1) == 0:
        first = 2 ** (-8 / n)
        return [first ** (i + 1) for i in range(n)]
    lower = 2 ** (n.bit_length() - 1)
    return falls(lower) + falls(2 * lower)[0::2][: n - lower]


class NomicBertMoe(Port):
    """Nomic Embed 2: every other layer sends tokens to experts, as the router weighs them."""

    architecture = "NomicBertModel"

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        width, n_layers = config["n_embd"], config["n_layer"]
        every = config["moe_every_n_layers"]
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config["vocab_size"], width)
        self.embeddings.token_type_embeddings = nn.Embedding(config["type_vocab_size"], width)
        self.emb_ln = nn.LayerNorm(width)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList(self.layer(i % every == 1) for i in range(n_layers))

    def layer(self, is_sparse: bool) -> nn.Module:
        """Return the parameters of a layer."""
        width, wide, n = (self.config[key] for key in ("n_embd", "n_inner", "num_experts"))
        made, mlp = nn.Module(), nn.Module()
        made.attn = nn.Module()
        made.attn.Wqkv, made.attn.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        made.norm1, made.norm2, made.mlp = nn.LayerNorm(width), nn.LayerNorm(width), mlp
        if is_sparse:
            mlp.router, mlp.experts = nn.Module(), nn.Module()
            mlp.router.layer = nn.Linear(width, n, bias=False)
            mlp.experts.mlp = nn.Module()
            mlp.experts.mlp.w1 = nn.Parameter(torch.zeros(n * wide, width))
            mlp.experts.mlp.w2 = nn.Parameter(torch.zeros(n * wide, width))
            mlp.experts.bias = nn.Parameter(torch.zeros(width))
        else:
            mlp.fc1, mlp.fc2 = nn.Linear(width, wide), nn.Linear(wide, width)
        return made

    def forward(self, tokens: Tensor) -> SimpleNamespace:
        """Return the rows of one sequence, (1, n)."""
        eps = "layer_norm_epsilon"
        types = self.embeddings.token_type_embeddings.weight[0]
        x = self.norm(self.embeddings.word_embeddings(tokens[0]) + types, self.emb_ln, eps)
        for layer in self.encoder.layers:
            x = self.norm(x + self.attend(x, layer.attn), layer.norm1, eps)
            mlp = self.experts if hasattr(layer.mlp, "router") else self.dense
            x = self.norm(x + mlp(x, layer.mlp), layer.norm2, eps)
        return SimpleNamespace(last_hidden_state=x[None])

    def attend(self, x: Tensor, attn: Any) -> Tensor:
        q, k, v = attn.Wqkv(x).view(len(x), 3, self.config["n_head"], -1).unbind(1)
        n = q.shape[-1] // 2
        inverse = self.config["rotary_emb_base"] ** (-torch.arange(n, dtype=torch.float64) / n)
        turn = torch.polar(
            torch.ones(1, dtype=torch.float64), torch.arange(len(x))[:, None, None] * inverse
        )

        def turned(y: Tensor) -> Tensor:
            z = torch.complex(y[..., :n], y[..., n:]) * turn
            return torch.cat((z.real, z.imag), dim=-1).float()

        scores = torch.einsum("qhd,khd->hqk", turned(q), turned(k)) * (2 * n) ** -0.5
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v)
        return attn.out_proj(mixed.flatten(1))

    def dense(self, x: Tensor, mlp: Any) -> Tensor:
        return mlp.fc2(gelu(mlp.fc1(x)))

    def experts(self, x: Tensor, mlp: Any) -> Tensor:
        shape = (self.config["num_experts"], self.config["n_inner"], -1)
        up, down = mlp.experts.mlp.w1.view(shape), mlp.experts.mlp.w2.view(shape)
        shares, chosen = mlp.router.layer(x).softmax(dim=-1).topk(self.config["moe_top_k"])
        out = [
            sum(p * (gelu(up[e] @ row) @ down[e]) for p, e in zip(some, best, strict=True))
            for row, some, best in zip(x, shares, chosen, strict=True)
        ]
        return torch.stack(out) + mlp.experts.bias
