"""With a draft's guesses, all right or all wrong, every text and row is what it is without one."""

import numpy as np
import pytest

from edgeinfer.engine.pages import NO_PAGE
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.speculation import Speculation
from edgeinfer.errors import CancelledError
from edgeinfer.kernels.backend import Cancel
from tests.engine.fakes import Eager, answer, fake_draft, make_engine, make_sequence, prompt, run
from tests.engine.real import N_CTX, Recorder, real_draft, real_engine

LENGTHS = (3, 70, 130)
N = 60
OTHER = {"n_embd": 96, "n_ff": 72}  # a model of other random weights
WINDOWS = {
    "attention__sliding_window": 70,
    "attention__sliding_window_pattern": [True] * 3,
}


@pytest.fixture(autouse=True)
def native():
    pytest.importorskip("edgeinfer.kernels.native._native")


def sequences(lengths=LENGTHS, max_tokens=N, sampler=Recorder):
    return [Sequence(prompt(n, seed=n), sampler(), max_tokens=max_tokens) for n in lengths]


def outcome(sequence):
    return sequence.tokens, sequence.sampler.rows, sequence.finish_reason


def plain(folder, lengths=LENGTHS, max_tokens=N, **options):
    with real_engine(folder, **options) as engine:
        made = sequences(lengths, max_tokens)
        for sequence in made:
            run(engine, sequence)
    return [outcome(sequence) for sequence in made]


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_the_model_as_its_own_draft_is_always_right(tmp_path, kv_type):
    expected = plain(tmp_path, kv_type=kv_type)
    with (
        real_draft(tmp_path, kv_type=kv_type) as draft,
        real_engine(tmp_path, kv_type=kv_type, guesser=Eager(draft)) as engine,
    ):
        made = sequences()
        run(engine, *made)

    assert [outcome(s) for s in made] == expected
    assert sum(s.n_accepted for s in made) == sum(s.n_guessed for s in made) > 2 * N


def test_a_draft_that_knows_nothing_changes_nothing(tmp_path):
    expected = plain(tmp_path)
    with (
        real_draft(tmp_path, **OTHER) as draft,
        real_engine(tmp_path, guesser=Eager(draft)) as engine,
    ):
        made = sequences()
        run(engine, *made)

    assert [outcome(s) for s in made] == expected
    assert sum(s.n_accepted for s in made) < N < sum(s.n_guessed for s in made)


def test_whole_speculation_changes_nothing(tmp_path):
    """Lookup and draft together, with every step taken to pay."""
    lengths = (20, 130)
    expected = plain(tmp_path, lengths, 100)
    with real_draft(tmp_path) as draft:
        speculation = Speculation(N_CTX, draft)
        speculation._cost.seconds = lambda n_tokens: 1.0
        with real_engine(tmp_path, guesser=speculation) as engine:
            made = sequences(lengths, 100)
            run(engine, *made)

    assert [outcome(s) for s in made] == expected
    assert all(s.n_accepted > 0 for s in made)


def test_preempted_answers_are_guessed_on(tmp_path):
    lengths = (50, 60, 70)
    expected = plain(tmp_path, lengths, 130)
    with (
        real_draft(tmp_path, n_pages=5) as draft,
        real_engine(tmp_path, guesser=Eager(draft), n_pages=5) as engine,
    ):
        made = sequences(lengths, 130)
        waited = False
        for sequence in made:
            engine.add(sequence)
        while any(s.finish_reason is None for s in made):
            list(engine.step())
            waited |= any(s.n_generated for s in engine.scheduler.waiting)
        holdings = [engine.scheduler.holdings, draft._holdings]

    assert waited
    assert [outcome(s) for s in made] == expected
    assert all(s.n_accepted for s in made)
    assert [h.pool.n_free + h.prefixes.n_unused for h in holdings] == [5, 5]


def test_a_later_turn_is_guessed_from_what_both_have_kept(tmp_path):
    expected = plain(tmp_path)
    turns = [tokens + prompt(20, seed=5) for tokens, *_ in expected]
    with real_engine(tmp_path) as engine:
        later = [Sequence(turn, Recorder(), max_tokens=10) for turn in turns]
        run(engine, *later)
        cold = [outcome(s) for s in later]
    with (
        real_draft(tmp_path) as draft,
        real_engine(tmp_path, guesser=Eager(draft)) as engine,
    ):
        run(engine, *sequences())
        later = [Sequence(turn, Recorder(), max_tokens=10) for turn in turns]
        run(engine, *later)

    assert [outcome(s) for s in later] == cold
    assert all(s.n_cached >= N and s.n_accepted > 0 for s in later)


def test_windows_of_both_let_pages_go(tmp_path):
    windows = {"arch": "gemma3", **WINDOWS}
    expected = plain(tmp_path, (100,), 250, **windows)
    with (
        real_draft(tmp_path, **windows) as draft,
        real_engine(tmp_path, guesser=Eager(draft), **windows) as engine,
    ):
        (made,) = sequences((100,), 250)
        engine.add(made)
        n_gone = 0
        while made.finish_reason is None:
            list(engine.step())
            for shadow in draft._shadows.values():
                n_gone = max(n_gone, shadow.sequence.pages.count(NO_PAGE))

    assert n_gone >= 3
    assert outcome(made) == expected[0]
    assert made.n_accepted == made.n_guessed > 0


def test_many_that_come_end_and_give_way_leave_no_page_behind():
    """Cancelled at any moment, paused, out of pages: the texts are right, and all pages free."""
    rng = np.random.default_rng(3)
    draft = fake_draft(n_pages=12)
    engine = make_engine(n_pages=12, guesser=Eager(draft))
    prompts = [prompt(int(rng.integers(2, 150)), seed=seed % 5) for seed in range(30)]
    left = [make_sequence(tokens, max_tokens=int(rng.integers(1, 60))) for tokens in prompts]
    running, done = [], []
    while left or running:
        if left and rng.random() < 0.3:
            running.append(left.pop())
            engine.add(running[-1])
        for sequence in running:
            sequence.paused = rng.random() < 0.1
        if running and rng.random() < 0.05:
            engine.finish(running[int(rng.integers(len(running)))], "cancelled")
        list(engine.step())
        done += [s for s in running if s.finish_reason is not None]
        running = [s for s in running if s.finish_reason is None]

    assert len(done) == 30
    for sequence in done:
        n = sequence.n_generated
        alone = answer(make_engine(), sequence.tokens[: sequence.n_prompt], max_tokens=max(1, n))
        assert sequence.tokens[sequence.n_prompt :] == alone[:n]
    assert sum(s.n_accepted for s in done) > 100
    for holdings in (engine.scheduler.holdings, draft._holdings):
        assert holdings.pool.n_free + holdings.prefixes.n_unused == 12
    assert draft._shadows == {}


def test_a_step_that_is_stopped_while_the_draft_guesses_is_repeated():
    (alone,) = (make_sequence(prompt(40), max_tokens=N),)
    run(make_engine(), alone)
    cancel = Cancel()
    draft = fake_draft()
    draft._cancel = cancel
    engine = make_engine(guesser=Eager(draft))
    engine.cancel = cancel
    sequence = make_sequence(prompt(40), max_tokens=N)
    engine.add(sequence)
    list(engine.step())
    list(engine.step())
    run_draft, run_model = draft._executable.run, engine.executable.run

    def stopped(batch, *, cancel=None):
        cancel.set()
        raise CancelledError("step: cancelled")

    def polled(batch, *, cancel=None):
        if cancel.is_set:
            raise CancelledError("step: cancelled")
        return run_model(batch, cancel=cancel)

    draft._executable.run, engine.executable.run = stopped, polled
    with pytest.raises(CancelledError):
        list(engine.step())
    cancel.clear()
    draft._executable.run = run_draft
    while sequence.finish_reason is None:
        list(engine.step())

    assert sequence.tokens == alone.tokens
    assert sequence.n_accepted > N // 2
