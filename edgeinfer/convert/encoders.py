"""The rows of the table of families for encoders: models that give embeddings and scores."""

from collections.abc import Callable

import numpy as np

from edgeinfer.convert.config import FULL, SLIDING, Config
from edgeinfer.convert.family import Family, plus_one
from edgeinfer.convert.gemma import gemma3_keys
from edgeinfer.convert.keys import (
    Keys,
    base_keys,
    f32,
    flag,
    flags,
    pooling_key,
    score_keys,
    text,
    u32,
)
from edgeinfer.convert.rotation import rope_keys, rope_of
from edgeinfer.convert.weights import Weights, part, reordered, reshaped, stacked, transposed
from edgeinfer.program.program import Pooling
from edgeinfer.writer.entries import with_entries

POOLER = r"pooler\."
# Heads that guess masked tokens.
MASKED_LM = r"(cls|lm_head)\."
MODERN_MASKED_LM = r"(head|decoder)\."
READING = (flag(".attention.causal", False), pooling_key("none"))


def _bert(c: Config) -> Keys:
    c.expect("position_embedding_type", "absolute", default="absolute")
    return _of_bert(c)


def _jina_bert(c: Config) -> Keys:
    c.expect("position_embedding_type", "alibi")
    c.expect("feed_forward_type", "geglu")
    return _of_bert(c)


def _of_bert(c: Config) -> Keys:
    c.expect("hidden_act", "gelu")
    c.expect("is_decoder", False, default=False)
    return [*base_keys(c, eps="layer_norm_eps", layer_norm=True), *READING]


def _roberta(c: Config) -> Keys:
    first = _first_position(c)
    length = c.values.integer("max_position_embeddings", least=first + 1) - first
    return with_entries(_bert(c), [u32(".context_length", length)])


def _first_position(c: Config) -> int:
    """Return the first position that RoBERTa counts, behind the id of its padding."""
    return c.values.integer("pad_token_id", 1, least=0) + 1


def _positions(weights: Weights, c: Config) -> Weights:
    found = c.values.integer("max_position_embeddings")
    if weights.n_rows != found:
        raise c.error("max_position_embeddings", f"{found} (need {weights.n_rows}, of the table)")
    return reordered(weights, np.arange(_first_position(c), weights.n_rows))


def _nomic_bert(c: Config) -> Keys:
    c.expect("hidden_act", "silu", "swiglu")
    return _nomic(c)


def _nomic_bert_moe(c: Config) -> Keys:
    c.expect("hidden_act", "gelu")
    c.expect("moe_normalize_expert_weights", False, default=False)
    c.expect("expert_choice_router", False, default=False)
    c.expect("num_shared_experts", 0, default=0)
    n_experts = c.values.integer("num_experts", least=1)
    return [
        *_nomic(c),
        u32(".moe_every_n_layers", c.values.integer("moe_every_n_layers", least=2)),
        u32(".expert_count", n_experts),
        u32(".expert_used_count", c.values.integer("moe_top_k", least=1, most=n_experts)),
    ]


def _nomic(c: Config) -> Keys:
    for name in ("prenorm", "causal", "parallel_block", "rotary_emb_interleaved", "use_rms_norm"):
        c.expect(name, False, default=False)
    c.expect("rotary_emb_fraction", 1.0, default=1.0)
    eps = "layer_norm_eps" if "layer_norm_eps" in c.values else "layer_norm_epsilon"
    keys = base_keys(c, eps=eps, layer_norm=True)
    trained = c.values.integer("max_trained_positions", None, least=1)
    if trained is not None:  # beyond them its authors stretch the angles with the text
        keys = with_entries(keys, [u32(".context_length", trained)])
    theta = c.values.number("rotary_emb_base", 1000.0, above=1.0)
    return [*keys, *rope_keys(c, rope_of(c, theta=theta)), *READING]


def _experts(weights: Weights, c: Config) -> Weights:
    """Part the rows of all experts."""
    n = c.values.integer("num_experts", least=1)
    if weights.n_rows % n:
        raise c.error("num_experts", f"{n} (need a divisor of the experts' {weights.n_rows} rows)")
    return reshaped(weights, n, weights.n_rows // n, weights.n_columns)


def _down(weights: Weights, c: Config) -> dict[str, Weights]:
    """Turn the experts' second matrices; what is added to their sum has a name of its own."""
    if len(weights.shape) == 1:
        return {"ffn_exps": weights}
    whole = _experts(weights, c)
    turned = [transposed(part(whole, i)) for i in range(whole.shape[0])]
    return {"ffn_down_exps": stacked(turned)}


def _modern_bert(c: Config) -> Keys:
    c.expect("hidden_activation", "gelu", default="gelu")
    period = c.values.integer("global_attn_every_n_layers", 3, least=1)
    types = c.layer_types([SLIDING if i % period else FULL for i in range(c.n_layers)])
    theta = c.values.number("global_rope_theta", 160000.0, above=1.0)
    theta_swa = c.values.number("local_rope_theta", 10000.0, above=1.0)
    return [
        *base_keys(c, eps="norm_eps", layer_norm=True),
        *rope_keys(c, rope_of(c, theta=theta)),
        f32(".rope.freq_base_swa", rope_of(c, SLIDING, theta=theta_swa).theta),
        u32(".attention.sliding_window", c.values.integer("local_attention", 128, least=2)),
        flags(".attention.sliding_window_pattern", [kind == SLIDING for kind in types]),
        text(".hidden_activation", "gelu"),
        *READING,
    ]


def _gemma_embedding(c: Config) -> Keys:
    return [*gemma3_keys(c, is_encoder=True), *READING]


def _scores(keys: Callable[[Config], Keys]) -> Callable[[Config], Keys]:
    """Return the keys of a class whose scores are of the first token."""
    return lambda c: with_entries(keys(c), score_keys(c, "cls"))


def _modern_scores(c: Config) -> Keys:
    c.expect("classifier_pooling", "cls", "mean", default="cls")
    c.expect("classifier_activation", "gelu", default="gelu")
    pooling: Pooling = "mean" if c.raw.get("classifier_pooling") == "mean" else "cls"
    return with_entries(_modern_bert(c), score_keys(c, pooling))


_PREFIX = (r"^(bert|roberta)\.", "")
_CLASSES = (r"^classifier\.(?=weight$|bias$)", "classifier.out_proj.")
_BERT = Family("bert", _bert, renames=(_PREFIX,), left_out=rf"(bert\.)?{POOLER}|{MASKED_LM}")
_ROBERTA = Family(
    "bert",
    _roberta,
    renames=(_PREFIX,),
    changes=(("position_embd", _positions),),
    left_out=rf"(roberta\.)?{POOLER}|{MASKED_LM}",
)
_ROBERTA_SCORES = Family(
    "bert", _scores(_roberta), renames=(_PREFIX,), changes=(("position_embd", _positions),)
)
_JINA = Family(
    "jina-bert-v2",
    _jina_bert,
    renames=(_PREFIX,),
    left_out=rf"(bert\.)?{POOLER}|{MASKED_LM}",
)
_NOMIC = Family("nomic-bert", _nomic_bert, left_out=MASKED_LM)
_NOMIC_MOE = Family(
    "nomic-bert-moe",
    _nomic_bert_moe,
    renames=((r"\.mlp\.experts\.bias$", ".mlp.experts.mlp.w2.bias"),),
    splits=(("ffn_down_exps", _down),),
    changes=(("ffn_up_exps", _experts),),
    left_out=MASKED_LM,
)
_MODERN = Family(
    "modern-bert", _modern_bert, renames=((r"^model\.", ""),), left_out=MODERN_MASKED_LM
)

ENCODERS: dict[str, Family | Callable[[Config], Family]] = {
    "BertForMaskedLM": _BERT,
    "BertForSequenceClassification": Family(
        "bert",
        _scores(_bert),
        renames=(_PREFIX, _CLASSES, (r"^pooler\.dense\.", "classifier.dense.")),
    ),
    "BertModel": _BERT,
    "Gemma3TextModel": Family(
        "gemma-embedding",
        _gemma_embedding,
        renames=((r"^(?=embed_tokens\.|layers\.|norm\.)", "model."),),
        changes=(("*norm", plus_one),),
    ),
    "JinaBertForMaskedLM": _JINA,
    "JinaBertModel": _JINA,
    "ModernBertForMaskedLM": _MODERN,
    "ModernBertForSequenceClassification": Family(
        "modern-bert", _modern_scores, renames=((r"^model\.", ""), _CLASSES)
    ),
    "ModernBertModel": _MODERN,
    "NomicBertModel": lambda c: _NOMIC_MOE if "moe_every_n_layers" in c.values else _NOMIC,
    "RobertaForMaskedLM": _ROBERTA,
    "RobertaForSequenceClassification": _ROBERTA_SCORES,
    "RobertaModel": _ROBERTA,
    "XLMRobertaForMaskedLM": _ROBERTA,
    "XLMRobertaForSequenceClassification": _ROBERTA_SCORES,
    "XLMRobertaModel": _ROBERTA,
}
