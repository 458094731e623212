"""What a file weighs and which formats its parts have; speeds taken by turns."""

import numpy as np

from edgeinfer.evaluating.facts import facts_of, kind_of
from edgeinfer.evaluating.speed import N_ANSWER, N_PROMPT, speeds
from tests.fake_llm import make_model


def test_formats_are_counted_by_kind_of_tensor(tiny_gguf):
    path = tiny_gguf(
        {"general.architecture": "llama"},
        {
            "token_embd.weight": ("Q8_0", (4, 32)),
            "blk.0.attn_q.weight": ("Q4_0", (2, 32)),
            "blk.1.attn_q.weight": ("Q4_0", (2, 32)),
            "blk.2.attn_q.weight": ("Q8_0", (2, 32)),
            "blk.0.attn_norm.weight": np.ones(32, np.float32),
        },
    )
    facts = facts_of(path)

    assert facts.formats == {"token_embd": {"Q8_0": 1}, "attn_q": {"Q4_0": 2, "Q8_0": 1}}
    assert facts.n_params == 128 + 3 * 64 + 32
    n_bytes = 6 * 34 + 4 * 18 + 128
    assert facts.bits_per_weight == 8 * n_bytes / facts.n_params
    assert facts.n_bytes == path.stat().st_size


def test_kinds_are_names_without_layers():
    assert kind_of("blk.31.ffn_down_exps.weight") == "ffn_down_exps"
    assert kind_of("output.weight") == "output"
    assert kind_of("enc.blk.0.attn_q.weight") == "enc.blk.attn_q"


def test_models_run_by_turns_over_prompts_nobody_has_read():
    turns = []
    with make_model(n_pages=64) as one, make_model(n_pages=64) as other:
        for name, model in (("one", one), ("other", other)):
            generate = model.generate

            def noted(prompt, *, name=name, generate=generate, **how):
                done = generate(prompt, **how)
                turns.append((name, done.usage.cached_tokens, len(done.tokens), len(prompt)))
                return done

            model.generate = noted
        rates = speeds((one, other), n_rounds=2)

    assert turns == [("one", 0, N_ANSWER, N_PROMPT), ("other", 0, N_ANSWER, N_PROMPT)] * 3
    assert all(rate.prompt > 0 and rate.answer > 0 for rate in rates)
