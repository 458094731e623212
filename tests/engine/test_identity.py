"""On real kernels every row of logits is the same to the bit, however a sequence was computed."""

from types import SimpleNamespace

import numpy as np
import pytest

from edgeinfer.engine.pages import NO_PAGE
from edgeinfer.engine.sequence import Sequence
from edgeinfer.kernels.backend import KV_TYPES
from tests.engine.fakes import prompt, run
from tests.engine.real import Recorder, real_engine

pytest.importorskip("edgeinfer.kernels.native._native")

KINDS = [
    *(("llama", kv_type) for kv_type in KV_TYPES),
    *(("gemma3", kv_type) for kv_type in ("f16", "q8_0")),
    ("lfm2", "f16"),
    ("qwen35", "f16"),
    ("granitehybrid", "f16"),
]
LENGTHS = (3, 70, 130, 200)
N = 30


@pytest.fixture(params=KINDS, ids="-".join)
def make(request, tmp_path):
    """Return an engine's context; equal calls make engines over the same weights."""
    arch, kv_type = request.param
    return lambda **options: real_engine(tmp_path, arch=arch, kv_type=kv_type, **options)


def sequence_of(tokens, max_tokens=N, **options):
    return Sequence(tokens, Recorder(), max_tokens=max_tokens, **options)


def prompts():
    return [prompt(n, seed=n) for n in LENGTHS]


def rows(sequence):
    assert sequence.finish_reason == "length", sequence.error
    return sequence.tokens, sequence.sampler.rows


def alone(make, tokens, **options):
    with make() as engine:
        sequence = sequence_of(tokens, **options)
        run(engine, sequence)
        return rows(sequence)


def test_batched_equals_alone(make):
    with make() as engine:
        together = [sequence_of(tokens) for tokens in prompts()]
        run(engine, *together)

    assert [rows(s) for s in together] == [alone(make, tokens) for tokens in prompts()]


@pytest.mark.parametrize("n_batch", [1, 7, 64])
def test_chunked_equals_whole(make, n_batch):
    with make(n_batch=n_batch) as engine:
        sequence = sequence_of(prompt(110))
        run(engine, sequence)

    assert rows(sequence) == alone(make, prompt(110))


def test_any_number_of_threads_gives_the_same(make):
    with make(n_threads=3) as engine:
        sequence = sequence_of(prompt(110))
        run(engine, sequence)

    assert rows(sequence) == alone(make, prompt(110))


def test_cached_equals_cold(make):
    with make() as engine:
        first = sequence_of(prompt(100))
        run(engine, first)
        again, shared = sequence_of(prompt(100)), sequence_of(prompt(100)[:90] + prompt(60, seed=1))
        turn = sequence_of(first.tokens + prompt(30, seed=9))
        run(engine, again, shared, turn)

    # a hybrid goes on from a snapshot: behind a page, before a last token, where an answer ended
    is_hybrid = engine.executable.snapshot_bytes > 0
    expected = (99, 64, 129) if is_hybrid else (99, 90, 128)
    assert (again.n_cached, shared.n_cached, turn.n_cached) == expected
    for sequence in (again, shared, turn):
        assert rows(sequence) == alone(make, sequence.tokens[: sequence.n_prompt])


def test_prompts_that_share_while_they_run_equal_each_alone(make):
    tails = [prompt(n, seed=n) for n in (5, 40, 80)]
    with make() as engine:
        together = [sequence_of(prompt(150) + tail) for tail in tails]
        run(engine, *together)

    assert sorted(s.n_cached // 64 for s in together) == [0, 2, 2]
    assert [rows(s) for s in together] == [alone(make, prompt(150) + tail) for tail in tails]


def test_preempted_equals_uninterrupted(make):
    with make(n_pages=5) as engine:
        together = [sequence_of(prompt(n, seed=n), 130) for n in (50, 60, 70)]
        waited = False
        for sequence in together:
            engine.add(sequence)
        while any(s.finish_reason is None for s in together):
            list(engine.step())
            waited |= any(s.n_generated for s in engine.scheduler.waiting)

    assert waited
    assert [rows(s) for s in together] == [
        alone(make, prompt(n, seed=n), max_tokens=130) for n in (50, 60, 70)
    ]


def test_restored_equals_continued(make):
    """Bytes of pages, and of the state behind them, are all that another engine needs."""
    tokens, more = prompt(150), [*prompt(150), *prompt(20, seed=4)]
    with make() as engine:
        run(engine, Sequence(tokens, None, max_tokens=0))
        held = engine.storage.hold(tokens)
        kept = [engine.storage.read(held, index) for index in range(len(held.pages))]
        state = engine.storage.read_state(held) if engine.executable.snapshot_bytes else None
    with make(n_threads=2) as engine:
        stored = SimpleNamespace(tokens=tokens, page=kept.__getitem__, state=lambda: state)
        assert engine.storage.restore(stored) == held.n_tokens == 150
        sequence = sequence_of(more)
        run(engine, sequence)

    assert sequence.n_cached == 150
    assert rows(sequence) == alone(make, more)


def test_an_interrupted_step_changes_nothing(make):
    with make() as engine:
        sequence = sequence_of(prompt(200))
        engine.add(sequence)
        list(engine.step())
        engine.cancel.set()
        with pytest.raises(Exception, match="cancelled"):
            list(engine.step())
        engine.cancel.clear()
        while sequence.finish_reason is None:
            list(engine.step())

    assert rows(sequence) == alone(make, prompt(200))


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_pages_behind_all_windows_are_not_missed(tmp_path, kv_type):
    windows = {"attention__sliding_window": 70}

    def make(**options):
        return real_engine(tmp_path, arch="gemma3", kv_type=kv_type, **options)

    with make(**windows, attention__sliding_window_pattern=[True] * 3) as engine:
        kept = engine.scheduler.holdings
        kept._window = 0
        whole = sequence_of(prompt(300))
        run(engine, whole)
    with make(**windows, attention__sliding_window_pattern=[True] * 3) as engine:
        pruned, other = sequence_of(prompt(300)), sequence_of(prompt(290, seed=1), 40)
        n_gone = 0
        engine.add(pruned)
        engine.add(other)
        while pruned.finish_reason is None:
            while engine.scheduler.holdings.prefixes.evict():
                pass  # what is behind the windows is written by others
            list(engine.step())
            n_gone = max(n_gone, pruned.pages.count(NO_PAGE))

    assert n_gone == 4
    assert rows(pruned) == rows(whole)


def test_rows_of_a_scored_text_equal_those_of_an_answer(make):
    tokens, expected = alone(make, prompt(70))
    with make(n_batch=16) as engine:
        scored = Sequence(tokens, None, max_tokens=0, rows_from=0)
        events = run(engine, scored)

    found = np.concatenate([e.rows for e in events if hasattr(e, "rows")])
    assert [row.tobytes() for row in found[69:-1]] == expected
