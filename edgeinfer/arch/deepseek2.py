# Beside qwen3moe: latent attention, first layers without experts, then one more expert that all
# rows meet, and a choice among the experts of the best groups only.
"""Write the programs of architecture "deepseek2": DeepSeek V2, V3, R1."""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch.shared.blocks import (
    Experts,
    gated_mlp,
    head,
    moe_block,
    selects_rows,
    shared_mlp,
)
from edgeinfer.arch.shared.experts import MAX_EXPERTS, read_experts
from edgeinfer.arch.shared.hyper import MAX_HEAD_DIM, MAX_WIDTH, Hyper, read_hyper
from edgeinfer.arch.shared.latent import Latent, latent_attention, latent_output
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops_routing import Groups
from edgeinfer.program.program import Program
from edgeinfer.program.rope import yarn_mscale
from edgeinfer.quant.tensor import Tensor

NORM_EPS = 1e-20  # of the experts' weights
LATENT_EPS = 1e-6  # of the norms within attention, whatever those of the layers add
# Files hold a tenth of what the models' configurations call mscale_all_dim.
LOG_UNIT = 10.0


def build(m: Metadata, tensors: Mapping[str, Tensor], *, n_ctx: int) -> Program:
    """Build the program from metadata; raises ModelFormatError naming the key at fault."""
    hp = read_hyper(m, tensors, n_ctx)
    latent = _latent(m, tensors, hp)
    n_dense = m.integer(".leading_dense_block_count", 0, least=0, most=hp.n_layers)
    experts = _experts(m, tensors, hp)
    n_shared = experts.n_ff * m.integer(".expert_shared_count", 0, least=0, most=MAX_EXPERTS)
    b = Builder("deepseek2", tensors)
    x = b.embed("token_embd", hp.n_vocab, hp.n_embd)
    for il in range(hp.n_layers):
        layer = f"blk.{il}"
        o = latent_attention(b, b.rms_norm(x, f"{layer}.attn_norm", hp.eps), layer, latent)
        if il == hp.n_layers - 1 and selects_rows(hp):
            o, x = b.rows(o), b.rows(x)
        x = b.add(x, latent_output(b, o, layer, latent, hp.n_embd))
        h = b.rms_norm(x, f"{layer}.ffn_norm", hp.eps)
        if il < n_dense:
            x = b.add(x, gated_mlp(b, h, layer, hp.n_ff[il], "silu"))
            continue
        x = b.add(x, moe_block(b, h, layer, experts, "silu"))
        if n_shared:
            x = b.add(x, shared_mlp(b, h, layer, n_shared, "silu"))
    head(b, b.rms_norm(x, "output_norm", hp.eps), hp)
    return b.finish(hp)


def _latent(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> Latent:
    """Read the sizes of attention; those of heads have keys of their own in newer files."""
    if len(set(hp.n_heads)) > 1:
        raise m.error(".attention.head_count", f"found {hp.n_heads} (need as many in every layer)")
    n_rot = rope_dims(m, hp.key_dim)
    key_dim = m.integer(".attention.key_length_mla", hp.key_dim, least=1, most=MAX_HEAD_DIM)
    if key_dim <= n_rot:
        key = ".attention.key_length_mla"
        raise m.error(key, f"found {key_dim} (need more than the {n_rot} elements that turn)")
    # What queries and keys are multiplied by through the scores, instead of in the rotation.
    log_multiplier = LOG_UNIT * m.number(".rope.scaling.yarn_log_multiplier", 0.0, least=0.0)
    stretch = 1.0
    if m.text(".rope.scaling.type", "none") == "yarn":
        stretch = yarn_mscale(m.number(".rope.scaling.factor", above=0.0), log_multiplier)
    return Latent(
        n_heads=hp.n_heads[0],
        q_rank=m.integer(".attention.q_lora_rank", 0, least=0, most=MAX_WIDTH),
        kv_rank=m.integer(".attention.kv_lora_rank", least=1, most=MAX_HEAD_DIM),
        still_dim=key_dim - n_rot,
        turned_dim=n_rot,
        value_dim=m.integer(
            ".attention.value_length_mla", hp.value_dim, least=1, most=MAX_HEAD_DIM
        ),
        rope=scaled_table(m, tensors, hp, n_rot, mscale=1.0 if log_multiplier else None),
        scale=key_dim**-0.5 * stretch**2,
        eps=LATENT_EPS,
        is_split="blk.0.attn_k_b.weight" in tensors,
    )


def _experts(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> Experts:
    """Read the experts: V2 scores them, and groups by their best one, with softmax; V3 not."""
    experts = read_experts(m, tensors, hp, "softmax", "sigmoid")
    n = m.integer(".expert_group_count", 1, least=0, most=experts.n_experts) or 1
    n_used = m.integer(".expert_group_used_count", n, least=0, most=n) or n
    if experts.n_experts % n:
        need = f"a divisor of the {experts.n_experts} experts"
        raise m.error(".expert_group_count", f"found {n} (need {need})")
    return replace(
        experts,
        norm=m.flag(".expert_weights_norm", False),
        norm_eps=NORM_EPS,
        groups=Groups(n, n_used, "top2" if experts.score == "sigmoid" else "max"),
    )
