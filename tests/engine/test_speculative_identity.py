"""With guesses, right and wrong, every text and every row of logits is what it is without."""

import pytest

from edgeinfer.engine.events import Token
from edgeinfer.engine.pages import NO_PAGE
from edgeinfer.engine.processed import ProcessedSampler
from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.speculation import Speculation
from edgeinfer.errors import CancelledError
from tests.engine.fakes import Prophet, make_engine, make_sequence, prompt, run
from tests.engine.real import N_CTX, N_VOCAB, Recorder, real_engine
from tests.engine.test_identity import KINDS

LENGTHS = (3, 70, 130, 200)
N = 60
N_RIGHT = (0, 3, 1, 15, 7, 0, 2, 20)
SAMPLING = {
    "seed": {"temperature": 0.8},
    "mirostat": {"mirostat": 2, "temperature": 1.2},
    "penalties": {"repeat_penalty": 1.2, "dry_multiplier": 0.8, "xtc_probability": 0.5},
}


@pytest.fixture(params=KINDS, ids="-".join)
def make(request, tmp_path):
    """Return an engine's context; equal calls make engines over the same weights."""
    pytest.importorskip("edgeinfer.kernels.native._native")
    arch, kv_type = request.param
    return lambda **options: real_engine(tmp_path, arch=arch, kv_type=kv_type, **options)


def sequences(lengths=LENGTHS, max_tokens=N, sampler=Recorder, **options):
    return [
        Sequence(prompt(n, seed=n), sampler(), max_tokens=max_tokens, **options) for n in lengths
    ]


def outcome(sequence):
    rows = getattr(sequence.sampler, "rows", None)
    return sequence.tokens, rows, sequence.finish_reason, sequence.stop_id


def plain(make, **options):
    """Return what sequences come to without guesses, one after another."""
    with make() as engine:
        made = sequences(**options)
        for sequence in made:
            run(engine, sequence)
    return [outcome(sequence) for sequence in made]


def prophet(outcomes, lengths=LENGTHS):
    known = [tokens for tokens, *_ in outcomes]
    answers = {tuple(t[:n]): t[n:] for n, t in zip(lengths, known, strict=True)}
    return Prophet(answers, N_RIGHT)


def total(made):
    return sum(s.n_guessed for s in made), sum(s.n_accepted for s in made)


def test_speculative_equals_plain(make):
    expected = plain(make)
    with make(guesser=prophet(expected)) as engine:
        made = sequences()
        run(engine, *made)

    assert [outcome(s) for s in made] == expected
    n_guessed, n_accepted = total(made)
    assert n_guessed > n_accepted > 100


@pytest.mark.parametrize("name", SAMPLING)
def test_a_seed_draws_the_same_with_guesses(make, name):
    def sampler():
        return Sampler(SamplingParams(seed=7, **SAMPLING[name]), N_VOCAB)

    expected = plain(make, sampler=sampler)
    with make(guesser=prophet(expected)) as engine:
        made = sequences(sampler=sampler)
        run(engine, *made)

    assert [outcome(s) for s in made] == expected
    assert total(made)[1] > 100


def test_guesses_by_lookup_change_nothing(make):
    """The pace of this machine decides what is guessed; the answers do not show it."""
    loop = prompt(20) * 5
    with make() as engine:
        alone = Sequence(loop, Recorder(), max_tokens=150)
        run(engine, alone)
    speculation = Speculation(N_CTX)
    speculation._cost.seconds = lambda n_tokens: 1.0  # everything pays
    with make(guesser=speculation) as engine:
        ahead = Sequence(loop, Recorder(), max_tokens=150)
        run(engine, ahead)

    assert outcome(ahead) == outcome(alone)
    assert ahead.n_guessed > 0


def test_guesses_in_few_pages_change_nothing(make):
    lengths = (50, 60, 70)
    expected = plain(make, lengths=lengths, max_tokens=130)
    with make(guesser=prophet(expected, lengths), n_pages=5) as engine:
        made = sequences(lengths, 130)
        waited = False
        for sequence in made:
            engine.add(sequence)
        while any(s.finish_reason is None for s in made):
            list(engine.step())
            waited |= any(s.n_generated for s in engine.scheduler.waiting)
        pool, prefixes = engine.scheduler.holdings.pool, engine.scheduler.holdings.prefixes

    assert waited
    assert [outcome(s) for s in made] == expected
    assert pool.n_free + prefixes.n_unused == 5


def test_what_is_kept_of_an_answer_holds_no_wrong_guess(make):
    expected = plain(make)
    turns = [tokens + prompt(20, seed=5) for tokens, *_ in expected]
    with make() as engine:
        later = [Sequence(turn, Recorder(), max_tokens=10) for turn in turns]
        run(engine, *later)
        cold = [outcome(s) for s in later]
    with make(guesser=prophet(expected)) as engine:
        run(engine, *sequences())
        engine.scheduler._guesser = None
        later = [Sequence(turn, Recorder(), max_tokens=10) for turn in turns]
        run(engine, *later)

    assert all(s.n_cached >= N for s in later)
    assert [outcome(s) for s in later] == cold


def test_guesses_meet_windows_that_let_pages_go(tmp_path):
    pytest.importorskip("edgeinfer.kernels.native._native")

    def make(**options):
        return real_engine(
            tmp_path,
            arch="gemma3",
            attention__sliding_window=70,
            attention__sliding_window_pattern=[True] * 3,
            **options,
        )

    expected = plain(make, lengths=(100,), max_tokens=250)
    with make(guesser=prophet(expected, (100,))) as engine:
        (made,) = sequences((100,), 250)
        engine.add(made)
        n_gone = 0
        while made.finish_reason is None:
            while engine.scheduler.holdings.prefixes.evict():
                pass
            list(engine.step())
            n_gone = max(n_gone, made.pages.count(NO_PAGE))

    assert n_gone == 4
    assert outcome(made) == expected[0]


def fake_answer(n=N, **options):
    sequence = make_sequence(prompt(40), max_tokens=n, **options)
    run(make_engine(), sequence)
    return sequence


def run_guessing(n_right, *, n=N, **options):
    answer = fake_answer().tokens[40:]
    engine = make_engine(guesser=Prophet({tuple(prompt(40)): answer}, n_right))
    sequence = make_sequence(prompt(40), max_tokens=n, **options)
    return engine, sequence, run(engine, sequence)


def test_right_guesses_save_steps():
    engine, sequence, _ = run_guessing([9])

    assert sequence.tokens == fake_answer().tokens
    assert len(engine.executable.steps) == 1 + (N - 1) // 10 + 1
    assert sequence.n_accepted == N - 1 - (N - 1) // 10 - 1


def test_an_answer_ends_among_its_guesses_as_it_ends_without():
    stop = frozenset([fake_answer().tokens[40 + 25]])
    _, sequence, events = run_guessing([9], stop_ids=stop)
    alone = fake_answer(stop_ids=stop)

    assert outcome(sequence) == outcome(alone)
    assert sequence.finish_reason == "stop"
    assert [e.id for e in events if isinstance(e, Token)] == alone.tokens[40:]


def test_log_probabilities_come_with_every_token():
    _, _, events = run_guessing([4], n_logprobs=2)

    assert all(e.logprob is not None for e in events if isinstance(e, Token))


def test_a_logits_processor_is_called_once_a_token_with_what_came_before():
    seen = []

    def processor(ids, row):
        seen.append(list(ids))
        return row

    engine, sequence, _ = run_guessing([5])
    plain_tokens = list(sequence.tokens)
    engine.scheduler._guesser.n_right = iter([5] * 100)
    again = make_sequence(prompt(40), max_tokens=N)
    again.sampler = ProcessedSampler(again.sampler, processor)
    run(engine, again)

    assert again.n_accepted > 0
    assert again.tokens == plain_tokens
    assert seen == [plain_tokens[: 40 + i] for i in range(N)]


def test_what_fails_among_guesses_ends_its_sequence_alone():
    answer = fake_answer().tokens[40:]
    engine = make_engine(guesser=Prophet({tuple(prompt(40)): answer}, [6]))
    broken, sound = make_sequence(prompt(40), max_tokens=N), make_sequence(prompt(40), max_tokens=N)
    sample = broken.sampler.sample

    def fail(logits, history, position):
        if position == 40 + 10:
            raise ZeroDivisionError
        return sample(logits, history, position)

    broken.sampler.sample = fail
    run(engine, broken, sound)

    assert isinstance(broken.error, ZeroDivisionError)
    assert len(broken.tokens) == 40 + 10
    assert sound.tokens[40:] == answer


def test_an_interrupted_step_with_guesses_is_repeated():
    answer = fake_answer().tokens[40:]
    engine = make_engine(guesser=Prophet({tuple(prompt(40)): answer}, [6]))
    sequence = make_sequence(prompt(40), max_tokens=N)
    engine.add(sequence)
    list(engine.step())
    run_step = engine.executable.run

    def interrupted(batch, *, cancel=None):
        run_step(batch, cancel=cancel)
        engine.executable.run = run_step
        raise CancelledError("step: cancelled")

    engine.executable.run = interrupted
    with pytest.raises(CancelledError):
        list(engine.step())
    while sequence.finish_reason is None:
        list(engine.step())

    assert sequence.tokens[40:] == answer
