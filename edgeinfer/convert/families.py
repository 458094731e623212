"""The table of families: each class of transformers that can be converted, and how.

A row gives the metadata and what differs between the checkpoint's weights and the file's; names
come from the `gguf` package's map. Facts of the models only: nothing here reads or writes a file.
"""

from collections.abc import Callable

from edgeinfer.convert.config import FULL, SLIDING, Config
from edgeinfer.convert.delta_net import CHANGES, RENAMES, delta_net_keys
from edgeinfer.convert.family import PAIRED, Family, plus_one
from edgeinfer.convert.keys import (
    Keys,
    base_keys,
    counts,
    expert_keys,
    f32,
    u32,
    window_keys,
)
from edgeinfer.convert.rotation import rope_keys, rope_of, rope_tensors
from edgeinfer.convert.weights import Weights, reshaped
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.metadata import REQUIRED

VISION = r"(model\.)?(vision_tower|vision_model|multi_modal_projector)\."
TEXT_PREFIX = (
    (r"^language_model\.model\.", "model."),
    (r"^model\.language_model\.", "model."),
    (r"^language_model\.lm_head\.", "lm_head."),
)


def family_of(c: Config) -> Family:
    """Return the row of a configuration's class. Raises UnsupportedModelError if there is none."""
    if c.architecture in FAMILIES:
        return FAMILIES[c.architecture]
    raise UnsupportedModelError(
        f"{c.values.where}: architecture {quote(c.architecture)} (need one of "
        f"{', '.join(sorted(FAMILIES))}): this version of edgeinfer cannot convert it"
    )


def _factors(theta: float = REQUIRED) -> Callable[[Config], dict[str, Weights]]:
    return lambda c: rope_tensors(c, rope_of(c, theta=theta))


def _llama(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    keys = base_keys(c) + rope_keys(c, rope_of(c, theta=10000.0))
    if c.raw.get("sliding_window") is not None:
        keys.append(u32(".attention.sliding_window", c.values.integer("sliding_window", least=1)))
    return keys


def _mixtral(c: Config) -> Keys:
    n_ff = c.values.integer("intermediate_size", least=1)
    return _llama(c) + expert_keys(c, count="num_local_experts", n_ff=n_ff)


def _gemma3(c: Config) -> Keys:
    c.expect("hidden_activation", "gelu_pytorch_tanh", default="gelu_pytorch_tanh")
    c.expect("use_bidirectional_attention", False, default=False)
    _expect_scale(c, n_layers=62)
    types = c.layer_types(_every(c, c.values.integer("sliding_window_pattern", 6, least=2)))
    local = c.values.number("rope_local_base_freq", 10000.0)
    if isinstance(c.raw.get("rope_parameters"), dict):
        local = rope_of(c, SLIDING, theta=10000.0).theta
    cap = c.values.number("final_logit_softcapping", 0.0)
    return [
        *base_keys(c),
        *rope_keys(c, rope_of(c, theta=1e6)),
        *window_keys(c, [kind == SLIDING for kind in types]),
        f32(".rope.freq_base_swa", local),
        *([f32(".final_logit_softcapping", cap)] if cap else []),
    ]


def _expect_scale(c: Config, *, n_layers: int) -> None:
    """Refuse a scale of queries that the file cannot say: it follows from the number of layers."""
    n_embd = c.values.integer("hidden_size", least=1)
    need = n_embd / c.n_heads if c.n_layers == n_layers else float(c.head_dim)
    found = c.values.number("query_pre_attn_scalar", above=0.0)
    if found != need:
        raise UnsupportedModelError(
            f"{c.values.where}: key 'query_pre_attn_scalar': found {found} (need {need}): a GGUF "
            "file has no key for another"
        )


def _every(c: Config, period: int) -> list[str]:
    """Return layer types of which each `period`-th is global."""
    return [SLIDING if (i + 1) % period else FULL for i in range(c.n_layers)]


def _lfm2(c: Config) -> Keys:
    n_ff = c.values.integer("block_ff_dim", c.values.integer("intermediate_size", None))
    if n_ff is None:
        raise c.error("intermediate_size", "none (need it, or block_ff_dim)")
    if c.values.flag("block_auto_adjust_ff_dim", True):
        n_ff = int(c.values.number("block_ffn_dim_multiplier", 1.0) * int(2 * n_ff / 3))
        step = c.values.integer("block_multiple_of", 256, least=1)
        n_ff = -(-n_ff // step) * step
    keys = base_keys(c, eps="norm_eps", n_ff=n_ff)
    kinds = [c.n_kv_heads if kind == FULL else 0 for kind in c.layer_types()]
    return [
        *(key for key in keys if key.key != ".attention.head_count_kv"),
        counts(".attention.head_count_kv", kinds),
        u32(".shortconv.l_cache", c.values.integer("conv_L_cache", least=2)),
        *rope_keys(c, rope_of(c, theta=1e6)),
    ]


def _squeezed(weights: Weights, c: Config) -> Weights:
    """Take a convolution's axis of one channel away."""
    return reshaped(weights, *(n for n in weights.shape if n > 1))


_QWEN35 = Family(
    "qwen35",
    delta_net_keys,
    renames=(*TEXT_PREFIX, *RENAMES),
    changes=CHANGES,
    left_out=r"(model\.visual|mtp)\.",
)
_GEMMA3 = Family(
    "gemma3",
    _gemma3,
    renames=TEXT_PREFIX,
    changes=(("*norm", plus_one),),
    left_out=VISION,
)

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", _llama, computed=_factors(10000.0), changes=PAIRED),
    "MistralForCausalLM": Family("llama", _llama, computed=_factors(10000.0), changes=PAIRED),
    "MixtralForCausalLM": Family("llama", _mixtral, changes=PAIRED),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "Qwen3_5ForCausalLM": _QWEN35,
    "Qwen3_5ForConditionalGeneration": _QWEN35,
    "Lfm2ForCausalLM": Family("lfm2", _lfm2, changes=(("shortconv.conv", _squeezed),)),
}
