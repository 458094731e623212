"""The table of families: each class of transformers that can be converted, and how.

A row gives the metadata and what differs between the checkpoint's weights and the file's; names
come from the `gguf` package's map. Facts of the models only: nothing here reads or writes a file.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgeinfer.convert import deepseek2, delta_net, gemma4, granite, nemotron
from edgeinfer.convert.answers import asking_keys, score_head
from edgeinfer.convert.config import FULL, SLIDING, Config
from edgeinfer.convert.encoders import ENCODERS
from edgeinfer.convert.exaone import exaone4_keys
from edgeinfer.convert.falcon_h1 import FALCON_H1
from edgeinfer.convert.family import PAIRED, TEXT_PREFIX, Family, plus_one, squeezed
from edgeinfer.convert.gemma import gemma2_keys, gemma3_keys
from edgeinfer.convert.keys import (
    Keys,
    attending_keys,
    base_keys,
    every,
    expert_keys,
    f32,
    flag,
    flags,
    pooling_key,
    score_keys,
    u32,
    window_keys,
)
from edgeinfer.convert.olmo import olmo2_keys, olmo3_keys
from edgeinfer.convert.rotation import rope_keys, rope_of, rope_tensors
from edgeinfer.convert.weights import Weights, part, reordered, stacked, transposed
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.cursor import quote
from edgeinfer.loader.metadata import REQUIRED

VISION = r"(model\.)?(vision_tower|vision_model|multi_modal_projector)\."
BARE = (r"^(?=embed_tokens\.|layers\.|norm\.)", "model.")  # as classes without a head save


def family_of(c: Config) -> Family:
    """Return the row of a configuration's class. Raises UnsupportedModelError if there is none."""
    if c.architecture in FAMILIES:
        found = FAMILIES[c.architecture]
        return found if isinstance(found, Family) else found(c)
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
    return _llama(c) + expert_keys(c, n_ff=n_ff)


def _qwen2(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    c.expect("use_sliding_window", False, default=False)
    return base_keys(c) + rope_keys(c, rope_of(c, theta=10000.0))


def _qwen3_scores(c: Config) -> Keys:
    scores = score_keys(c, "last")
    is_one = len(c.raw.get("id2label", (0, 1))) == 1
    return [*_qwen2(c), *(asking_keys() if is_one else scores)]


def _reader(family: Family) -> Family:
    """Return the row of a class that has no head; modules beside it say how it pools."""
    return replace(
        family,
        keys=lambda c: [*family.keys(c), pooling_key("none")],
        renames=tuple(dict.fromkeys((BARE, *family.renames))),
    )


def _qwen3moe(c: Config) -> Keys:
    c.expect("decoder_sparse_step", 1, default=1)
    c.expect("mlp_only_layers", [], default=[])
    n_ff = c.values.integer("moe_intermediate_size", least=1)
    return [
        *_qwen2(c),
        *expert_keys(c, n_ff=n_ff),
        flag(".expert_weights_norm", c.values.flag("norm_topk_prob", False)),
    ]


def _phi3(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    # 0 says that there is none, where readers would take a missing key for the first Phi 3's.
    window = c.values.integer("sliding_window", 0, least=0)
    rope = rope_keys(c, rope_of(c, theta=10000.0))
    return [*base_keys(c), *rope, u32(".attention.sliding_window", window)]


def _mistral3(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    if c.raw.get("sliding_window") is not None:
        raise c.error("sliding_window", f"{c.raw['sliding_window']} (need null)")
    rope = rope_of(c)
    beta = rope.values.number("llama_4_scaling_beta", 0.0, least=0.0)
    return [*base_keys(c), *rope_keys(c, rope), f32(".attention.temperature_scale", beta)]


def _smollm3(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    c.expect("use_sliding_window", False, default=False)
    turned = c.numbers("no_rope_layers", c.raw.get("no_rope_layers"), c.n_layers)
    return [
        *base_keys(c),
        *rope_keys(c, rope_of(c, theta=2e6)),
        flags(".attention.rope_pattern", [bool(value) for value in turned]),
    ]


def _ernie(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    return base_keys(c) + rope_keys(c, rope_of(c, theta=500000.0))


def _gpt_oss(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    c.expect("swiglu_limit", 7.0, default=7.0)
    rope = rope_of(c, theta=150000.0, truncates=False)
    n_ff = c.values.integer("intermediate_size", least=1)
    return [
        *base_keys(c),
        *expert_keys(c, n_ff=n_ff),
        *rope_keys(c, rope),
        *window_keys(c, [kind == SLIDING for kind in c.layer_types(every(c, 2))]),
    ]


def _starcoder2(c: Config) -> Keys:
    c.expect("hidden_act", "gelu_pytorch_tanh")
    keys = base_keys(c, eps="norm_epsilon", layer_norm=True)
    if c.raw.get("sliding_window") is not None:
        keys.append(u32(".attention.sliding_window", c.values.integer("sliding_window", least=1)))
    return keys + rope_keys(c, rope_of(c, theta=10000.0))


def _gpt2(c: Config) -> Keys:
    c.expect("hidden_act", "gelu_new", "gelu_pytorch_tanh")
    c.expect("scale_attn_weights", True, default=True)
    c.expect("scale_attn_by_inverse_layer_idx", False, default=False)
    n_ff = c.values.integer("intermediate_size", 4 * c.values.integer("hidden_size"), least=1)
    return base_keys(c, eps="layer_norm_epsilon", n_ff=n_ff, layer_norm=True)


def _rows_first(weights: Weights, c: Config) -> Weights:
    """Turn a matrix of (input, output) into one of (output, input); leave a bias."""
    return transposed(weights) if len(weights.shape) == 2 else weights


def _phi2(c: Config) -> Keys:
    c.expect("hidden_act", "gelu_new")
    c.expect("qk_layernorm", False, default=False)
    keys = base_keys(c, eps="layer_norm_eps", layer_norm=True)
    return keys + rope_keys(c, rope_of(c, theta=10000.0))


def _stablelm(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    return [
        *base_keys(c, eps="layer_norm_eps", layer_norm=True),
        *rope_keys(c, rope_of(c, theta=10000.0)),
        flag(".use_parallel_residual", c.values.flag("use_parallel_residual", False)),
    ]


def _cohere2(c: Config) -> Keys:
    c.expect("hidden_act", "silu")
    types = c.layer_types(every(c, c.values.integer("sliding_window_pattern", 4, least=2)))
    return [
        *base_keys(c, eps="layer_norm_eps", layer_norm=True),
        *rope_keys(c, rope_of(c, theta=10000.0)),
        *window_keys(c, [kind == SLIDING for kind in types]),
        f32(".logit_scale", c.values.number("logit_scale", above=0.0)),
    ]


def _is_input_first(weights: Weights) -> bool:
    """Tell whether these are matrices, and not in blocks, which go along the input."""
    return len(weights.shape) == 3 and weights.dtype != "MXFP4"


def _gate_up(weights: Weights, c: Config) -> dict[str, Weights]:
    """Take apart what gpt-oss has in alternating columns: those of the gates and of the rest."""
    experts = [part(weights, i) for i in range(weights.shape[0])]
    if _is_input_first(weights):
        experts = [transposed(expert) for expert in experts]
    rows = np.arange(experts[0].n_rows)
    return {
        f"ffn_{name}_exps": stacked([reordered(expert, rows[first::2]) for expert in experts])
        for name, first in (("gate", 0), ("up", 1))
    }


def _input_last(weights: Weights, c: Config) -> Weights:
    """Turn experts' matrices of (input, output) into those of (output, input)."""
    if not _is_input_first(weights):
        return weights
    return stacked([transposed(part(weights, i)) for i in range(weights.shape[0])])


def _lfm2(c: Config) -> Keys:
    n_ff = c.values.integer("block_ff_dim", c.values.integer("intermediate_size", None))
    if n_ff is None:
        raise c.error("intermediate_size", "none (need it, or block_ff_dim)")
    if c.values.flag("block_auto_adjust_ff_dim", True):
        n_ff = int(c.values.number("block_ffn_dim_multiplier", 1.0) * int(2 * n_ff / 3))
        step = c.values.integer("block_multiple_of", 256, least=1)
        n_ff = -(-n_ff // step) * step
    return _short_convs(c, n_ff)


def _lfm2moe(c: Config) -> Keys:
    return [
        *_short_convs(c, c.values.integer("intermediate_size", least=1)),
        *expert_keys(c, n_ff=c.values.integer("moe_intermediate_size", least=1)),
        u32(".leading_dense_block_count", c.values.integer("num_dense_layers", least=0)),
        u32(".expert_gating_func", 2),
        f32(".expert_weights_scale", c.values.number("routed_scaling_factor", 1.0, above=0.0)),
        flag(".expert_weights_norm", c.values.flag("norm_topk_prob", True)),
    ]


def _short_convs(c: Config, n_ff: int) -> Keys:
    keys = base_keys(c, eps="norm_eps", n_ff=n_ff)
    return [
        *attending_keys(c, keys, c.layer_types(known=(FULL, "conv"))),
        u32(".shortconv.l_cache", c.values.integer("conv_L_cache", least=2)),
        *rope_keys(c, rope_of(c, theta=1e6)),
    ]


_DEEPSEEK = Family(
    "deepseek2",
    deepseek2.deepseek_v2_keys,
    renames=deepseek2.RENAMES,
    splits=(("attn_kv_b", deepseek2.keys_and_values),),
)
_GEMMA3 = Family(
    "gemma3",
    gemma3_keys,
    renames=TEXT_PREFIX,
    changes=(("*norm", plus_one),),
    left_out=VISION,
)
_GEMMA4 = Family(
    "gemma4",
    gemma4.gemma4_keys,
    computed=gemma4.gemma4_factors,
    renames=(*TEXT_PREFIX, *gemma4.RENAMES),
    left_out=gemma4.OTHER_SENSES,
)
_GEMMA2 = Family("gemma2", gemma2_keys, changes=(("*norm", plus_one),))
_QWEN2 = Family("qwen2", _qwen2)
_QWEN3 = Family("qwen3", _qwen2, renames=(BARE,))
_LLAMA = Family("llama", _llama, computed=_factors(10000.0), changes=PAIRED)
_MISTRAL3 = Family("mistral3", _mistral3, renames=TEXT_PREFIX, changes=PAIRED, left_out=VISION)

FAMILIES: dict[str, Family | Callable[[Config], Family]] = {
    "Cohere2ForCausalLM": Family("cohere2", _cohere2),
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": replace(
        _DEEPSEEK, keys=deepseek2.deepseek_v3_keys, left_out=deepseek2.NEXT_TOKENS
    ),
    "Ernie4_5ForCausalLM": Family("ernie4_5", _ernie),
    "Exaone4ForCausalLM": Family("exaone4", exaone4_keys, computed=_factors(10000.0)),
    "Gemma2ForCausalLM": _GEMMA2,
    "Gemma2Model": _reader(_GEMMA2),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Gemma4UnifiedForCausalLM": replace(_GEMMA4, keys=gemma4.unified_keys),
    "Gemma4UnifiedForConditionalGeneration": replace(_GEMMA4, keys=gemma4.unified_keys),
    "Qwen3NextForCausalLM": delta_net.NEXT,
    "Qwen3_5ForCausalLM": delta_net.DENSE,
    "Qwen3_5ForConditionalGeneration": delta_net.DENSE,
    "Qwen3_5MoeForCausalLM": delta_net.MOE,
    "Qwen3_5MoeForConditionalGeneration": delta_net.MOE,
    "GPT2LMHeadModel": Family(
        "gpt2",
        _gpt2,
        renames=((r"^(?=h\.|wte\.|wpe\.|ln_f\.)", "transformer."),),
        changes=(
            ("attn_qkv", _rows_first),
            ("attn_output", _rows_first),
            ("ffn_*", _rows_first),
        ),
        left_out=r"(transformer\.)?h\.\d+\.attn\.bias$",
    ),
    "GptOssForCausalLM": Family(
        "gpt-oss",
        _gpt_oss,
        renames=(
            (r"\.experts\.gate_up_proj$", ".experts.gate_proj.weight"),
            (r"\.experts\.gate_up_proj_bias$", ".experts.gate_proj.bias"),
            (r"\.experts\.down_proj$", ".experts.down_proj.weight"),
            (r"\.experts\.down_proj_bias$", ".experts.down_proj.bias"),
        ),
        splits=(("ffn_gate_exps", _gate_up),),
        changes=(("ffn_down_exps", _input_last),),
    ),
    "FalconH1ForCausalLM": FALCON_H1,
    "GraniteForCausalLM": granite.DENSE,
    "GraniteMoeForCausalLM": granite.MOE,
    "GraniteMoeHybridForCausalLM": granite.hybrid,
    "GraniteMoeSharedForCausalLM": granite.MOE,
    "Lfm2ForCausalLM": Family("lfm2", _lfm2, changes=(("shortconv.conv", squeezed),)),
    "Lfm2MoeForCausalLM": Family(
        "lfm2moe",
        _lfm2moe,
        renames=(
            (r"\.experts\.(\d+)\.w1\.", r".experts.\1.gate_proj."),
            (r"\.experts\.(\d+)\.w2\.", r".experts.\1.down_proj."),
            (r"\.experts\.(\d+)\.w3\.", r".experts.\1.up_proj."),
            (r"\.expert_bias$", ".expert_bias.bias"),
        ),
        changes=(("shortconv.conv", squeezed),),
    ),
    "LlamaForCausalLM": _LLAMA,
    "LlamaModel": _reader(_LLAMA),
    "Ministral3ForCausalLM": _MISTRAL3,
    "Mistral3ForConditionalGeneration": _MISTRAL3,
    "MistralForCausalLM": _LLAMA,
    "MistralModel": _reader(_LLAMA),
    "MixtralForCausalLM": Family("llama", _mixtral, changes=PAIRED),
    "NemotronHForCausalLM": nemotron.nemotron,
    "Olmo2ForCausalLM": Family("olmo2", olmo2_keys),
    "Olmo3ForCausalLM": Family("olmo2", olmo3_keys),
    "PhiForCausalLM": Family("phi2", _phi2),
    "Phi3ForCausalLM": Family("phi3", _phi3, computed=_factors(10000.0)),
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2Model": _reader(_QWEN2),
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3ForSequenceClassification": Family(
        "qwen3",
        _qwen3_scores,
        renames=((r"^score\.", "embed_out."),),  # a name of the map's for an output
        splits=(("output", score_head),),
    ),
    "Qwen3Model": _reader(_QWEN3),
    "Qwen3MoeForCausalLM": Family("qwen3moe", _qwen3moe),
    "SmolLM3ForCausalLM": Family("smollm3", _smollm3, changes=PAIRED),
    "StableLmForCausalLM": Family("stablelm", _stablelm),
    "Starcoder2ForCausalLM": Family("starcoder2", _starcoder2),
    **ENCODERS,
}
