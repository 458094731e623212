"""`Llama` token by token: eval, sample, generate, states, as llama-cpp-python has them."""

from edgeinfer.compat import llama_cpp

PROMPT = "The capital of France is"


def test_eval_and_sample_go_token_by_token(llm):
    llm.reset()
    llm.eval(llm.tokenize(PROMPT.encode()))
    chosen = []
    for _ in range(3):
        chosen.append(llm.sample(temp=0))
        llm.eval([chosen[-1]])

    assert llm.detokenize(chosen) == b" Paris.\n"
    assert llm.n_tokens == 8 == len(llm.eval_tokens)
    assert llm.input_ids[:8].tolist() == llm.tokenize(PROMPT.encode()) + chosen
    assert llm.scores.shape == (512, 49152)
    rows = llm.edgeinfer.logits(llm.input_ids[:8].tolist())
    assert (llm.scores[7] == rows[7]).all()
    assert (llm.scores[4] == rows[4]).all()
    assert len(llm.eval_logits) == 1


def test_generate_yields_ids_and_takes_what_is_sent(llm):
    tokens = llm.tokenize(PROMPT.encode())

    ids = llm.generate(tokens, temp=0)
    first = [next(ids) for _ in range(3)]

    assert llm.detokenize(first) == b" Paris.\n"
    ids = llm.generate(tokens, temp=0)
    assert next(ids) == first[0]
    sent = llm.tokenize(b" and of Italy it is", add_bos=False)
    assert ids.send(sent) != first[1]
    assert llm.input_ids[: llm.n_tokens].tolist() == [*tokens, first[0], *sent]
    stopped = llm.generate(
        tokens, temp=0, stopping_criteria=llama_cpp.StoppingCriteriaList([lambda *_: True])
    )
    assert list(stopped) == []


def test_a_state_is_restored(llm):
    llm.reset()
    llm.eval(llm.tokenize(PROMPT.encode()))
    state = llm.save_state()
    before = llm.scores[4].copy()
    llm.eval(llm.tokenize(b" Rome, of course"))
    llm.scores[4] = 0

    llm.load_state(state)

    assert llm.n_tokens == state.n_tokens == 5
    assert (llm.scores[4] == before).all()
    assert llm.sample(temp=0) == 7042


def test_caches_are_taken_and_prefixes_kept_without_them(llm):
    for cache in (llama_cpp.LlamaCache(), llama_cpp.LlamaRAMCache(1 << 20)):
        llm.set_cache(cache)
        assert (cache.cache_size, [1] in cache) == (0, False)
    llm.set_cache(None)
