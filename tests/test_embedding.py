"""Embeddings and ranking: which rows make a vector, what shares a step, what is refused."""

import asyncio
import threading

import numpy as np
import pytest

from edgeinfer import errors
from edgeinfer.llm.vectors import likelihood
from edgeinfer.model import load
from edgeinfer.sizing import estimate
from tests.arch import tiny
from tests.arch.test_encoders import N_POSITIONS, bert
from tests.fake_llm import make_model, started_at_once
from tests.gguf_writer import write_gguf

TEXTS = ["hello", "a longer text " * 9, "x", "hello world", "a longer text " * 3]


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    with load(smollm2_path, n_ctx=256, n_threads=1, speculate=False) as model:
        yield model


def word_a_letter():
    """Return the keys of a tokenizer."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"\u2581{chr(97 + i)}" for i in range(26))]
    words += [f"\u2581x{i}" for i in range(tiny.N_VOCAB - len(words))]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 2, 3, 3] + [1] * (len(words) - 4),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }


def encoder_path(folder, arrays=None, **keys):
    """Write a tiny model whose tokens see all others, with a word a letter."""
    metadata, own = tiny.llama(bias=False, rope_freqs=False, attention__causal=False, **keys)
    metadata |= {"llama.context_length": 1024} | word_a_letter()
    return write_gguf(folder / "encoder.gguf", metadata, own | (arrays or {}))


@pytest.fixture
def model():
    with make_model(n_pages=64) as model:
        yield model


@pytest.fixture
def encoder():
    """Gives a row a text, from all of its tokens at once."""
    with make_model(n_pages=64, n_batch=512, whole_sequences=True, pooling="mean") as model:
        yield model


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_a_text_has_the_same_bits_in_any_company(smollm2, pooling):
    together = smollm2.embed(TEXTS, pooling=pooling)
    assert together.dtype == np.float32 and together.shape == (5, 576)
    assert (smollm2.embed(TEXTS[::-1], pooling=pooling) == together[::-1]).all()
    for text, vector in zip(TEXTS, together, strict=True):
        assert (smollm2.embed(text, pooling=pooling) == vector).all()


def test_vectors_are_pooled_of_the_rows_of_tokens(smollm2):
    rows = smollm2.embed_tokens(TEXTS[1])
    assert rows.shape == (len(smollm2.tokenize(TEXTS[1])), 576)
    for pooling, expected in (("mean", rows.mean(axis=0)), ("last", rows[-1]), ("cls", rows[0])):
        found = smollm2.embed(TEXTS[1], pooling=pooling, normalize=False)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(smollm2.embed(TEXTS), axis=1), 1, rtol=1e-6)
    cut = smollm2.embed(TEXTS, dimensions=32)
    whole = smollm2.embed(TEXTS, normalize=False)[:, :32]
    np.testing.assert_allclose(cut, whole / np.linalg.norm(whole, axis=1, keepdims=True), rtol=1e-5)


def test_a_model_loaded_to_read_gives_the_same_and_writes_nothing(smollm2, smollm2_path):
    with load(smollm2_path, n_ctx=256, n_threads=1, pooling="last") as reader:
        assert reader.pooling == "last"
        assert (reader.embed(TEXTS) == smollm2.embed(TEXTS, pooling="last")).all()
        uses = (reader.generate, reader.next_logits, reader.keep_prefix)
        for use in uses:
            with pytest.raises(errors.InvalidParameterError, match="writes no text"):
                use([1])


def test_rows_that_look_back_are_pooled_as_they_come(smollm2, smollm2_path):
    with load(smollm2_path, n_ctx=1024, n_threads=1, pooling="mean") as reader:
        assert reader.pooling == "mean" and reader._engine.limits.n_batch == 512
        assert (reader.embed(TEXTS) == smollm2.embed(TEXTS)).all()
        assert len(reader.embed_tokens(TEXTS[1])) == len(reader.tokenize(TEXTS[1]))
        reader.embed("a longer text " * 250)


def test_embedding_beside_an_answer_changes_neither(smollm2):
    alone, vectors = smollm2.generate("Once", max_tokens=30, seed=1), smollm2.embed(TEXTS)
    done = []
    thread = threading.Thread(
        target=lambda: done.append(smollm2.generate("Once", max_tokens=30, seed=1))
    )
    thread.start()
    while thread.is_alive():
        assert (smollm2.embed(TEXTS) == vectors).all()
    assert done[0].tokens == alone.tokens


def test_texts_share_steps_and_progress_counts_tokens(model):
    seen = []
    progress = {"progress": lambda *n: seen.append(n)}
    found = started_at_once(
        model, len(TEXTS), lambda: model.embed(TEXTS, normalize=False, **progress)
    )
    steps = model._engine.executable.steps
    assert steps[0] == (1, 5, 11, 42, 5)  # the longest begins in what the others leave
    total = sum(len(model.tokenize(text)) for text in TEXTS)
    assert seen[-1] == (total, total) and len(seen) == len(TEXTS)
    assert found.shape == (5, 1)
    assert model.embed([]).shape == (0, 1)
    assert model.embed([model.tokenize(TEXTS[0])], normalize=False) == found[0]


@pytest.mark.parametrize("snapshot_bytes", [0, 8])  # of a hybrid
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_many_more_texts_than_are_under_way(monkeypatch, snapshot_bytes, pooling):
    monkeypatch.setattr("edgeinfer.llm.passes.MOST_UNDER_WAY", 3)
    texts = [f"text {i % 5} " * (i % 7 + 1) for i in range(40)]
    options = {"normalize": False, "pooling": pooling}
    with make_model(n_pages=64, snapshot_bytes=snapshot_bytes) as model:
        found = model.embed(texts, **options)
        alone = [model.embed(text, **options) for text in texts]
    assert (found == np.stack(alone)).all()


def test_a_long_text_is_refused_by_name_or_cut_if_asked(model):
    texts = ["short", "x" * 600]
    with pytest.raises(errors.ContextOverflowError, match=r"texts\[1\]: found 600 tokens .*512"):
        model.embed(texts)
    cut = model.embed(texts, truncate=True, normalize=False)
    assert (cut[1] == model.embed("x" * 512, normalize=False)).all()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda m: m.embed(["ok", ""]), r"texts\[1\]: found an empty text"),
        (lambda m: m.embed([1, 2]), "found token ids .*a list of token ids for each"),
        (lambda m: m.embed([b"ok"]), "found bytes"),
        (lambda m: m.embed(["ok", [1, 97]]), r"texts\[1\]: token id: found 97 \(need 0 to 96"),
        (lambda m: m.embed("x", pooling="max"), "pooling: found 'max'"),
        (lambda m: m.embed("x", dimensions=2), "dimensions: found 2 .*1 to 1"),
        (lambda m: m.rank("q", ["d"]), "no head that ranks"),
    ],
)
def test_what_cannot_be_is_refused(model, call, match):
    with pytest.raises(errors.InvalidParameterError, match=match):
        call(model)


def test_time_that_is_up_and_a_task_that_is_cancelled_end_the_work(model):
    executable = model._engine.executable
    executable.gate = threading.Event()
    with pytest.raises(errors.CancelledError, match=r"timeout_s: found 2 of 2 texts not done"):
        model.embed(["hello", "world"], timeout_s=0.05)

    async def cancelled():
        task = asyncio.ensure_future(model.aembed(TEXTS))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    executable.gate.set()
    assert len(model.embed(TEXTS)) == len(TEXTS)
    assert len(asyncio.run(model.aembed(TEXTS))) == len(TEXTS)


def test_a_step_takes_texts_whole_where_tokens_look_ahead(encoder):
    lengths = [300, 150, 100, 500, 7, 1]
    started_at_once(encoder, len(lengths), lambda: encoder.embed(["x" * n for n in lengths]))
    assert encoder._engine.executable.steps == [(1, 7, 100, 150), (300,), (500,)]
    pool = encoder._engine.scheduler.holdings.pool
    assert pool.n_free == pool.n_pages


def test_an_encoder_reads_texts_longer_than_a_packed_step(tmp_path):
    path = encoder_path(tmp_path, pooling_type=1)
    texts = ["a b c", "d e " * 400, "f", "g h i " * 30]
    with load(path) as encoder:
        assert (encoder.pooling, encoder.n_ctx) == ("mean", 1024)
        assert len(encoder.tokenize(texts[1])) == 802
        together = encoder.embed(texts)
        for text, vector in zip(texts, together, strict=True):
            assert (encoder.embed(text) == vector).all()
        assert encoder.embed("").shape == (80,)  # of [CLS] and [SEP]
        with pytest.raises(errors.InvalidParameterError, match="loaded; load it with"):
            encoder.embed(texts, pooling="cls")
        with pytest.raises(errors.ContextOverflowError, match=r"found 1502 tokens"):
            encoder.embed("a b c " * 500)
        assert len(encoder.embed(["a b c " * 500], truncate=True)) == 1
    assert estimate(path).n_ctx == 1024
    with load(path, pooling="none") as encoder:
        rows = encoder.embed_tokens(texts[0])
        mean = encoder.embed(texts[0], pooling="mean")
        assert rows.shape == (5, 80)
        np.testing.assert_allclose(mean, together[0], rtol=1e-4, atol=1e-6)


def test_a_file_with_a_head_ranks(tmp_path):
    head = np.random.default_rng(1).standard_normal((1, 80)).astype(np.float32)
    path = encoder_path(tmp_path, {"cls.output.weight": head}, pooling_type=4)
    documents = ["a b", "c d e", "f"]
    with load(path) as ranker:
        found = {place.index: place for place in ranker.rank("q", documents)}
        for i, document in enumerate(documents):
            assert ranker.rank("q", [document])[0].score == found[i].score
            assert found[i].n_tokens == 4 + len(document.split())
        cut = ranker.rank("q", ["a b " * 600], truncate=True)
        assert cut[0].n_tokens == 1024
        asked = ranker.rank("q", documents, template="{query} z {document}")
        assert [place.n_tokens for place in sorted(asked, key=lambda p: p.index)] == [5, 6, 4]


def test_documents_are_ranked_best_first():
    with make_model(n_pages=64, n_batch=512, whole_sequences=True, pooling="rank") as ranker:
        ranker._engine.executable.n_out = 1
        documents = ["one", "two", "three", "one"]
        found = ranker.rank("query", documents, raw=True)
        assert [place.score for place in found] == sorted((p.score for p in found), reverse=True)
        ones = [place.index for place in found if documents[place.index] == "one"]
        assert ones == [0, 3]  # equal scores keep their order
        assert found[0].n_tokens == len("query") + 1 + len(documents[found[0].index])
        shares = ranker.rank("query", documents, top_n=2)
        assert [s.index for s in shares] == [p.index for p in found[:2]]
        assert shares[0].score == likelihood(found[0].score)
        assert asyncio.run(ranker.arank("query", documents, raw=True)) == found
        with pytest.raises(errors.InvalidParameterError, match="this model ranks documents"):
            ranker.embed("x")
        with pytest.raises(errors.InvalidParameterError, match=r"found no \{document\}"):
            ranker.rank("q", ["d"], template="{query}")


def test_classes_are_no_ranks(tmp_path):
    head = np.ones((2, 80), np.float32)
    path = encoder_path(tmp_path, {"cls.output.weight": head}, pooling_type=4)
    with load(path) as classifier, pytest.raises(errors.InvalidParameterError, match="no head"):
        classifier.rank("q", ["d"])


def test_likelihood_is_a_share_of_one():
    assert likelihood(0.0) == 0.5 and likelihood(1e6) == 1.0 and likelihood(-1e6) == 0.0
    assert abs(likelihood(1.0) - 0.7310586) < 1e-6


def test_no_more_positions_are_served_than_the_model_has_learned(tmp_path, caplog):
    metadata, arrays = bert()
    path = write_gguf(tmp_path / "bert.gguf", metadata | word_a_letter(), arrays)
    with load(path, n_ctx=N_POSITIONS + 1, pooling="mean") as model:
        assert model.n_ctx == N_POSITIONS
        assert f"has learned {N_POSITIONS} positions" in caplog.text
        assert model.embed("a b c").shape == (metadata["bert.embedding_length"],)
        with pytest.raises(errors.ContextOverflowError):
            model.embed("a " * N_POSITIONS)
