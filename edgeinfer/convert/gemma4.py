"""Say how Gemma 4 becomes GGUF: layers of two kinds, each with sizes of its own, and its names."""

from edgeinfer.arch.shared.hyper import MAX_HEAD_DIM
from edgeinfer.convert.config import FULL, SLIDING, Config
from edgeinfer.convert.keys import Keys, base_keys, counts, expert_keys, f32, u32, window_keys
from edgeinfer.convert.rotation import Rope, rope_keys, rope_of, rope_tensors
from edgeinfer.convert.weights import Weights

RENAMES = (
    (r"\.router\.scale$", ".router.proj.scale"),
    (r"\.router\.per_expert_scale$", ".experts.down_proj.scale"),
)
OTHER_SENSES = r"model\.(vision_tower|audio_tower|embed_vision|embed_audio)\."
REPLACED = ("head_count_kv", "feed_forward_length", "key_length", "value_length")


def unified_keys(c: Config) -> Keys:
    """Return the metadata of a model without embeddings for each layer, as the 12B is."""
    return gemma4_keys(c, n_input=0)


def gemma4_keys(c: Config, *, n_input: int = 256) -> Keys:
    """Return the metadata of a configuration; `n_input` is its default."""
    c.expect("hidden_activation", "gelu_pytorch_tanh", default="gelu_pytorch_tanh")
    c.expect("use_bidirectional_attention", None, "vision")
    integer = c.values.integer
    types, n_input = _types(c), integer("hidden_size_per_layer_input", n_input, least=0)
    if n_input:
        c.expect("vocab_size_per_layer_input", integer("vocab_size", least=1))
    n_shared = integer("num_kv_shared_layers", 0, least=0, most=c.n_layers - 1)
    is_wide = c.values.flag("use_double_wide_mlp", False)
    n_ff = [integer("intermediate_size", least=1)] * (c.n_layers - n_shared)
    n_ff += n_shared * [(1 + is_wide) * n_ff[0]]
    n_kv, head_dim = _global_kv_heads(c), _global_dim(c)
    swa = rope_of(c, SLIDING, theta=10000.0)
    keys = [
        *(key for key in base_keys(c) if not key.key.endswith(REPLACED)),
        counts(".attention.head_count_kv", [n_kv if t == FULL else c.n_kv_heads for t in types]),
        counts(".feed_forward_length", n_ff),
        u32(".attention.key_length", head_dim),
        u32(".attention.value_length", head_dim),
        u32(".attention.key_length_swa", c.head_dim),
        u32(".attention.value_length_swa", c.head_dim),
        u32(".attention.shared_kv_layers", n_shared),
        u32(".embedding_length_per_layer_input", n_input),
        *window_keys(c, [kind == SLIDING for kind in types]),
        *rope_keys(c, _global_rope(c)),
        u32(".rope.dimension_count_swa", swa.n_rot),
        f32(".rope.freq_base_swa", swa.theta),
        f32(".final_logit_softcapping", c.values.number("final_logit_softcapping", 0.0)),
    ]
    if c.values.flag("enable_moe_block", False):
        n_ff_experts = integer("moe_intermediate_size", least=1)
        keys += expert_keys(c, n_ff=n_ff_experts, n_used="top_k_experts")
    return keys


def gemma4_factors(c: Config) -> dict[str, Weights]:
    """Return the divisors that keep most pairs of the global layers' heads from turning."""
    return rope_tensors(c, _global_rope(c))


def _types(c: Config) -> list[str]:
    default = [SLIDING if (i + 1) % 6 else FULL for i in range(c.n_layers)]
    return [*c.layer_types(default)[:-1], FULL]  # whatever it says of the last


def _global_rope(c: Config) -> Rope:
    return rope_of(c, FULL, theta=1e6, head_dim=_global_dim(c))


def _global_dim(c: Config) -> int:
    stated = c.values.integer("global_head_dim", 512, least=1, most=MAX_HEAD_DIM)
    return _global(c, "head_dim", stated)


def _global_kv_heads(c: Config) -> int:
    found = None
    if c.values.flag("attention_k_eq_v", False):
        found = c.values.integer("num_global_key_value_heads", None, least=1)
    return _global(c, "num_key_value_heads", c.n_kv_heads if found is None else found)


def _global(c: Config, key: str, stated: int) -> int:
    """Return a size of the global layers: stated for them all, or for one after the other."""
    name = "per_layer_config"
    if c.raw.get(name) is None:
        return stated
    default = c.values.integer(key, least=1)
    c.section(c.raw[name], name)
    own = [c.raw[name].get(str(il), {}) for il in range(c.n_layers)]
    found = [c.section(layer, name).integer(key, default, least=1) for layer in own]
    sizes = set(zip(_types(c), found, strict=True))
    of_global = [n for kind, n in sizes if kind == FULL]
    if len(of_global) > 1 or not {n for kind, n in sizes if kind != FULL} <= {default}:
        raise c.error(name, f"{key} {found} (need {default}, and one other in all global layers)")
    return of_global[0]
