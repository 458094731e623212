"""What a sequence answers does not depend on batches, chunks, caches or neighbours."""

import numpy as np
import pytest

from edgeinfer.engine.events import Progress, Rows, Token
from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.errors import (
    CancelledError,
    ContextOverflowError,
    InvalidParameterError,
    NonFiniteError,
    ResourceError,
)
from tests.engine.fakes import (
    N_VOCAB,
    answer,
    ends_of,
    make_engine,
    make_sequence,
    prompt,
    run,
    tokens_of,
)


def test_batched_equals_alone():
    alone = [answer(make_engine(), prompt(n, seed=n), max_tokens=20) for n in (3, 70, 130)]

    engine = make_engine()
    together = [make_sequence(prompt(n, seed=n), max_tokens=20) for n in (3, 70, 130)]
    run(engine, *together)

    assert [s.tokens[s.n_prompt :] for s in together] == alone
    assert [len(ids) for ids in alone] == [20, 20, 20]
    assert max(len(step) for step in engine.executable.steps) == 3


@pytest.mark.parametrize("n_batch", [1, 7, 64, 512])
def test_chunked_equals_whole(n_batch):
    whole = answer(make_engine(n_batch=512), prompt(200), max_tokens=10)

    assert answer(make_engine(n_batch=n_batch), prompt(200), max_tokens=10) == whole


def test_a_continued_conversation_equals_a_cold_one():
    engine = make_engine()
    first = answer(engine, prompt(100), max_tokens=20)
    longer = [*prompt(100), *first, *prompt(30, seed=9)]
    engine.executable.steps.clear()

    warm = make_sequence(longer, max_tokens=20)
    run(engine, warm)

    assert warm.tokens[warm.n_prompt :] == answer(make_engine(), longer, max_tokens=20)
    assert warm.n_cached == 119  # the last sampled token was never computed
    assert engine.executable.steps[0] == (31,)


def test_the_same_prompt_again_computes_its_last_token_only():
    engine = make_engine()
    cold = answer(engine, prompt(100), max_tokens=20)
    engine.executable.steps.clear()

    assert answer(engine, prompt(100), max_tokens=20) == cold
    assert engine.executable.steps[0] == (1,)


def test_a_shared_beginning_leaves_the_other_conversation_whole():
    engine = make_engine()
    system, one, two = prompt(80), prompt(200, seed=1), prompt(50, seed=2)
    first = answer(engine, system + one, max_tokens=5)
    second = make_sequence(system + two, max_tokens=5)
    run(engine, second)
    again = make_sequence(system + one, max_tokens=5)
    run(engine, again)

    assert second.n_cached == 80
    assert second.tokens[second.n_prompt :] == answer(make_engine(), system + two, max_tokens=5)
    assert again.n_cached == 279
    assert again.tokens[again.n_prompt :] == first


def test_a_cancelled_conversation_is_continued_too():
    engine = make_engine()
    sequence = make_sequence(prompt(150), max_tokens=20)
    engine.add(sequence)
    list(engine.step())
    engine.finish(sequence, "cancelled")

    again = make_sequence(prompt(150), max_tokens=20)
    run(engine, again)

    assert again.n_cached == 64
    assert again.tokens[again.n_prompt :] == answer(make_engine(), prompt(150), max_tokens=20)


def test_an_aborted_step_changes_nothing():
    engine, sequence = make_engine(), make_sequence(prompt(100), max_tokens=20)
    engine.add(sequence)
    list(engine.step())
    engine.executable.fail_with = CancelledError("stop")
    with pytest.raises(CancelledError):
        list(engine.step())
    engine.executable.fail_with = None
    while sequence.finish_reason is None:
        list(engine.step())

    assert sequence.tokens[sequence.n_prompt :] == answer(make_engine(), prompt(100), max_tokens=20)


def test_max_tokens_ends_with_length():
    engine, sequence = make_engine(), make_sequence(prompt(5), max_tokens=3)

    events = run(engine, sequence)

    assert (sequence.finish_reason, sequence.n_generated) == ("length", 3)
    assert tokens_of(events, sequence) == sequence.tokens[5:]
    assert ends_of(events, sequence) == 1


def test_no_tokens_asked_for_computes_the_prompt_and_keeps_it():
    engine, sequence = make_engine(), make_sequence(prompt(100), max_tokens=0)
    run(engine, sequence)
    again = make_sequence(prompt(101), max_tokens=1)
    run(engine, again)

    assert (sequence.finish_reason, sequence.n_generated) == ("length", 0)
    assert again.n_cached == 100


def test_a_stop_id_ends_and_is_not_part_of_the_answer():
    ids = answer(make_engine(), prompt(5), max_tokens=8)
    stop = next(i for i in range(1, 8) if ids[i] not in ids[:i])
    sequence = make_sequence(prompt(5), max_tokens=8, stop_ids=frozenset([ids[stop]]))

    run(make_engine(), sequence)

    assert (sequence.finish_reason, sequence.stop_id) == ("stop", ids[stop])
    assert sequence.tokens[5:] == ids[:stop]


def test_a_full_context_ends_with_length():
    sequence = make_sequence(prompt(60), max_tokens=1000)

    run(make_engine(n_ctx=100), sequence)

    assert (sequence.finish_reason, len(sequence.tokens)) == ("length", 100)


def test_the_last_page_ends_with_length():
    sequence = make_sequence(prompt(100), max_tokens=400)

    run(make_engine(n_pages=2), sequence)

    assert (sequence.finish_reason, len(sequence.tokens)) == ("length", 129)


def make_engine_with_room(n_pages):
    """Return an engine whose memory has room for so many of its pages."""
    engine = make_engine()
    pool = engine.scheduler.holdings.pool
    pool._n_granted, pool._has_room = n_pages, lambda n: False
    return engine


def test_memory_that_runs_out_ends_a_lone_answer_with_length():
    sequence = make_sequence(prompt(100), max_tokens=400)

    run(make_engine_with_room(2), sequence)

    assert (sequence.finish_reason, len(sequence.tokens)) == ("length", 129)
    assert sequence.tokens[100:] == answer(make_engine(), prompt(100), max_tokens=29)


def test_memory_that_runs_out_in_a_prompt_is_an_error_with_both_numbers():
    sequence, other = make_sequence(prompt(200)), make_sequence(prompt(50, seed=1), max_tokens=8)

    run(make_engine_with_room(2), sequence, other)

    assert isinstance(sequence.error, ResourceError)
    assert "found 200 tokens (need at most 128" in str(sequence.error)
    assert other.tokens[50:] == answer(make_engine(), prompt(50, seed=1), max_tokens=8)


def test_sequences_that_cannot_run_together_get_what_they_get_alone():
    together = [make_sequence(prompt(60 + 9 * s, seed=s), max_tokens=80) for s in range(6)]

    run(make_engine_with_room(4), *together)

    for seed, sequence in enumerate(together):
        expected = answer(make_engine(), prompt(60 + 9 * seed, seed=seed), max_tokens=80)
        assert sequence.tokens[sequence.n_prompt :] == expected


def test_who_fails_a_step_ends_and_the_others_do_not_notice():
    engine = make_engine()
    bad, good = make_sequence(prompt(34, seed=1)), make_sequence(prompt(30), max_tokens=8)
    execute = engine.executable.run

    def fail_for_bad(batch, *, cancel=None):
        if bad.finish_reason is None and len(batch.tokens) >= 34:  # it is in the step
            raise MemoryError
        return execute(batch, cancel=cancel)

    engine.executable.run = fail_for_bad
    run(engine, bad, good)

    assert isinstance(bad.error, MemoryError)
    assert good.tokens[30:] == answer(make_engine(), prompt(30), max_tokens=8)


def test_progress_counts_cached_and_computed_tokens():
    engine = make_engine()
    run(engine, make_sequence(prompt(80), max_tokens=0))

    events = run(engine, make_sequence(prompt(80) + prompt(100, seed=1), max_tokens=2))

    progress = [(e.n_done, e.n_total, e.n_cached) for e in events if isinstance(e, Progress)]
    assert progress == [(80, 180, 80), (144, 180, 80), (180, 180, 80)]


def test_all_rows_come_in_order_and_equal_one_at_a_time():
    def rows(n_batch):
        engine = make_engine(n_batch=n_batch)
        events = run(engine, make_sequence(prompt(90), max_tokens=0, rows_from=0))
        return np.concatenate([e.rows for e in events if isinstance(e, Rows)])

    assert rows(64).shape == (90, N_VOCAB)
    assert (rows(64) == rows(1)).all()


def test_rows_from_a_token_on_take_what_is_cached_before_it_and_equal_those_of_all():
    ids = prompt(200)
    whole = run(make_engine(), make_sequence(ids, max_tokens=0, rows_from=0))
    engine = make_engine()
    run(engine, make_sequence(ids[:100] + prompt(20, seed=1), max_tokens=0))

    sequence = make_sequence(ids, max_tokens=0, rows_from=90)
    parts = [e for e in run(engine, sequence) if isinstance(e, Rows)]

    assert sequence.n_cached == 90
    assert parts[0].first == 90
    rows = np.concatenate([e.rows for e in parts])
    assert (rows == np.concatenate([e.rows for e in whole if isinstance(e, Rows)])[90:]).all()


def test_tokens_before_the_first_row_wanted_take_no_room_of_rows():
    engine = make_engine()
    engine.scheduler._n_rows = 8
    sequence = make_sequence(prompt(64), max_tokens=0, rows_from=60)

    parts = [e for e in run(engine, sequence) if isinstance(e, Rows)]

    assert engine.executable.steps == [(64,)]
    assert [(e.first, len(e.rows)) for e in parts] == [(60, 4)]


def test_logprobs_are_the_log_softmax_best_first():
    engine, sequence = make_engine(), make_sequence(prompt(5), max_tokens=1, n_logprobs=5)
    sequence.sampler = Sampler(SamplingParams(temperature=0), N_VOCAB)

    logprob = next(e.logprob for e in run(engine, sequence) if isinstance(e, Token))

    rows = make_sequence(prompt(5), max_tokens=0, rows_from=0)
    row = next(e.rows[-1] for e in run(engine, rows) if isinstance(e, Rows)).astype(float)
    expected = np.sort(row - np.log(np.exp(row).sum()))[::-1][:5]
    assert [value for _, value in logprob.top] == pytest.approx(expected.tolist())
    assert logprob.top[0] == (logprob.token, logprob.logprob)


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "error", "words"),
    [
        ([], 1, InvalidParameterError, "no tokens"),
        ([-1], 1, InvalidParameterError, "-1"),
        ([N_VOCAB], 1, InvalidParameterError, f"found {N_VOCAB}"),
        ([2**40], 1, InvalidParameterError, str(2**40)),
        ([1], -1, InvalidParameterError, "max_tokens"),
        ([1] * 100, 1, ContextOverflowError, "100 tokens .need at most 99"),
        ([1] * 101, 0, ContextOverflowError, "101 tokens .need at most 100"),
    ],
)
def test_what_cannot_run_is_refused_with_both_numbers(tokens, max_tokens, error, words):
    with pytest.raises(error, match=words):
        make_engine(n_ctx=100).check(tokens, max_tokens=max_tokens)


def test_a_failing_sampler_ends_its_own_sequence_only():
    class Failing:
        def sample(self, logits, history, position):
            raise NonFiniteError("logits: found NaN")

    engine = make_engine()
    bad, good = make_sequence(prompt(5)), make_sequence(prompt(6), max_tokens=8)
    bad.sampler = Failing()

    run(engine, bad, good)

    assert bad.finish_reason == "error"
    assert isinstance(bad.error, NonFiniteError)
    assert good.tokens[6:] == answer(make_engine(), prompt(6), max_tokens=8)


def test_nothing_of_a_failed_sequence_is_used_again():
    class Failing:
        def sample(self, logits, history, position):
            raise NonFiniteError("logits: found NaN")

    engine, bad = make_engine(), make_sequence(prompt(100))
    bad.sampler = Failing()
    run(engine, bad)
    again = make_sequence(prompt(100))
    run(engine, again)

    assert again.n_cached == 0


def test_damaged_rows_are_an_error():
    engine, sequence = make_engine(), make_sequence(prompt(5), max_tokens=0, rows_from=0)
    engine.executable.run = lambda batch, cancel: np.full((5, N_VOCAB), np.nan, np.float32)

    run(engine, sequence)

    assert isinstance(sequence.error, NonFiniteError)
