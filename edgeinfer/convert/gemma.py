"""The keys of Gemma 2 and 3, and of encoders made of Gemma 3."""

from edgeinfer.convert.config import SLIDING, Config
from edgeinfer.convert.keys import Keys, base_keys, every, f32, window_keys
from edgeinfer.convert.rotation import rope_keys, rope_of
from edgeinfer.errors import UnsupportedModelError


def gemma2_keys(c: Config) -> Keys:
    """Return the keys of Gemma 2; raises UnsupportedModelError."""
    _expect_gemma(c, n_layers_largest=46)
    types = c.layer_types(every(c, 2))
    return [
        *base_keys(c),
        *rope_keys(c, rope_of(c, theta=10000.0)),
        *window_keys(c, [kind == SLIDING for kind in types]),
        f32(".attn_logit_softcapping", c.values.number("attn_logit_softcapping", 0.0)),
        f32(".final_logit_softcapping", c.values.number("final_logit_softcapping", 0.0)),
    ]


def gemma3_keys(c: Config, *, is_encoder: bool = False) -> Keys:
    """Return the keys of Gemma 3, or of an encoder made of it; raises UnsupportedModelError."""
    _expect_gemma(c, n_layers_largest=62, is_encoder=is_encoder)
    types = c.layer_types(every(c, c.values.integer("sliding_window_pattern", 6, least=2)))
    local = c.values.number("rope_local_base_freq", 10000.0)
    if isinstance(c.raw.get("rope_parameters"), dict):
        local = rope_of(c, SLIDING, theta=10000.0).theta
    return [
        *base_keys(c),
        *rope_keys(c, rope_of(c, theta=1e6)),
        *window_keys(c, [kind == SLIDING for kind in types]),
        f32(".rope.freq_base_swa", local),
        f32(".attn_logit_softcapping", c.values.number("attn_logit_softcapping", 0.0)),
        f32(".final_logit_softcapping", c.values.number("final_logit_softcapping", 0.0)),
    ]


def _expect_gemma(c: Config, *, n_layers_largest: int, is_encoder: bool = False) -> None:
    """Refuse what the file cannot say; the scale of queries follows from the number of layers."""
    c.expect("hidden_activation", "gelu_pytorch_tanh", default="gelu_pytorch_tanh")
    c.expect("use_bidirectional_attention", is_encoder, default=False)
    n_embd = c.values.integer("hidden_size", least=1)
    is_largest = c.n_layers == n_layers_largest
    need = n_embd / c.n_heads if is_largest else float(c.head_dim)
    found = c.values.number("query_pre_attn_scalar", above=0.0)
    if found != need:
        raise UnsupportedModelError(
            f"{c.values.where}: key 'query_pre_attn_scalar': found {found} (need {need}): a GGUF "
            "file has no key for another"
        )
