"""A constrained answer holds allowed ids only, and is the same whatever runs and is guessed."""

import numpy as np
import pytest

from edgeinfer.engine.constrained import ConstrainedSampler
from edgeinfer.engine.processed import ProcessedSampler
from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.scoring import score
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import GrammarError, NonFiniteError
from tests.engine.fakes import N_VOCAB, Prophet, make_engine, prompt, run

LENGTHS = (3, 70, 130)
N = 60
SAMPLED = {"seed": 7, "temperature": 1.5, "top_k": 0, "min_p": 0.0, "top_p": 1.0}


class Thirds:
    """Allow ids whose remainder by 3 is that of the last one, plus one; end after `n` of them."""

    def __init__(self, n=10**9):
        self.n = n
        self.tokens = []

    @property
    def is_done(self):
        return len(self.tokens) >= self.n

    def mask(self):
        last = self.tokens[-1] if self.tokens else 0
        return np.arange(N_VOCAB) % 3 == (last + 1) % 3

    def allowed(self):
        return np.packbits(self.mask(), bitorder="little")

    def accept(self, token):
        assert self.mask()[token]
        self.tokens.append(token)


def constrained(tokens, *, max_tokens=N, n=10**9, processor=None, params=SAMPLED, **options):
    constraint = Thirds(n)
    sampler = ConstrainedSampler(Sampler(SamplingParams(**params), N_VOCAB), constraint)
    if processor is not None:
        sampler = ProcessedSampler(sampler, processor)
    return Sequence(tokens, sampler, max_tokens=max_tokens, constraint=constraint, **options)


def alone(n_tokens, **options):
    sequence = constrained(prompt(n_tokens, seed=n_tokens), **options)
    run(make_engine(n_pages=64), sequence)
    return sequence


def answer(sequence):
    return sequence.tokens[sequence.n_prompt :]


def test_only_allowed_ids_come_and_each_is_told_once():
    sequence = alone(70)

    assert len(answer(sequence)) == N
    assert sequence.constraint.tokens == answer(sequence)
    assert sequence.finish_reason == "length"


def test_an_answer_ends_where_its_constraint_does():
    whole, ended = alone(70), alone(70, n=17)

    assert answer(ended) == answer(whole)[:17]
    assert ended.finish_reason == "stop"
    assert ended.stop_id is None


def test_an_answer_that_is_complete_at_its_last_token_has_stopped():
    assert alone(3, n=N).finish_reason == "stop"


def test_masking_comes_before_the_filters():
    """With the 5 likeliest of all tokens kept first, none of those allowed might be left."""
    logits = np.linspace(0, 10, N_VOCAB, dtype=np.float32)
    logits[1::3] = -20
    logits[1] = -19
    params = SamplingParams(seed=1, top_k=1)

    token = ConstrainedSampler(Sampler(params, N_VOCAB), Thirds()).sample(logits, [5], 1)

    assert token == 1


def test_what_is_drawn_is_what_is_drawn_from_the_allowed_alone():
    logits = np.random.default_rng(3).standard_normal(N_VOCAB).astype(np.float32)
    masked = np.where(Thirds().mask(), logits, -np.inf).astype(np.float32)
    for seed in range(30):
        params = SamplingParams(**{**SAMPLED, "seed": seed})
        plain = Sampler(params, N_VOCAB).sample(masked, [1], 1)

        found = ConstrainedSampler(Sampler(params, N_VOCAB), Thirds()).sample(logits, [1], 1)

        assert found == plain


def test_a_constraint_that_allows_all_changes_no_bit_of_the_logits():
    class Everything(Thirds):
        def mask(self):
            return np.ones(N_VOCAB, np.bool_)

    class Keep:
        def sample(self, logits, history, position):
            self.row = logits
            return 0

    keep = Keep()
    logits = np.random.default_rng(3).standard_normal(N_VOCAB).astype(np.float32)
    logits[:4] = [0.0, -0.0, 1e-45, -np.inf]

    ConstrainedSampler(keep, Everything()).sample(logits, [1], 1)

    assert keep.row.tobytes() == logits.tobytes()


def test_log_probabilities_are_those_of_the_model():
    logits = np.random.default_rng(3).standard_normal(N_VOCAB).astype(np.float32)
    sampler = ConstrainedSampler(Sampler(SamplingParams(**SAMPLED), N_VOCAB), Thirds())

    found = sampler.sample_with_logprobs(logits, [1], 1, 3)

    assert found == score(logits, found.token, 3)
    assert len(found.top) == 3


def test_a_processor_cannot_let_in_what_is_not_allowed():
    def favour_2(ids, logits):
        logits[2] = 100.0
        return logits

    sequence = constrained(prompt(5), processor=favour_2)
    run(make_engine(), sequence)

    assert sequence.constraint.tokens == answer(sequence)
    assert 2 in answer(sequence)  # where it is allowed, it comes


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_damaged_row_is_an_error_though_the_damage_is_masked(bad):
    logits = np.zeros(N_VOCAB, np.float32)
    logits[2] = bad

    with pytest.raises(NonFiniteError):
        ConstrainedSampler(Sampler(SamplingParams(), N_VOCAB), Thirds()).sample(logits, [1], 1)


def test_batched_equals_alone():
    expected = [answer(alone(n)) for n in LENGTHS]
    made = [constrained(prompt(n, seed=n)) for n in LENGTHS]

    run(make_engine(n_pages=64), *made)

    assert [answer(s) for s in made] == expected


def test_guesses_change_nothing():
    expected = [alone(n) for n in LENGTHS]
    answers = {tuple(s.tokens[: s.n_prompt]): answer(s) for s in expected}
    guesser = Prophet(answers, (0, 3, 1, 15, 7))
    made = [constrained(prompt(n, seed=n)) for n in LENGTHS]

    run(make_engine(n_pages=64, guesser=guesser), *made)

    assert [answer(s) for s in made] == [answer(s) for s in expected]
    assert sum(s.n_guessed for s in made) > sum(s.n_accepted for s in made) > 0


def test_a_guess_behind_the_end_is_not_taken():
    whole = alone(70)
    guesser = Prophet({tuple(whole.tokens[: whole.n_prompt]): answer(whole)}, (15,))
    made = constrained(prompt(70, seed=70), n=17)

    run(make_engine(n_pages=64, guesser=guesser), made)

    assert answer(made) == answer(whole)[:17]
    assert made.finish_reason == "stop"


def test_preempted_equals_uninterrupted():
    lengths = (50, 60, 70)
    expected = [answer(alone(n, max_tokens=130)) for n in lengths]
    engine = make_engine(n_pages=5)
    made = [constrained(prompt(n, seed=n), max_tokens=130) for n in lengths]
    for sequence in made:
        engine.add(sequence)
    waited = False
    while any(s.finish_reason is None for s in made):
        list(engine.step())
        waited |= any(s.n_generated for s in engine.scheduler.waiting)

    assert waited
    assert [answer(s) for s in made] == expected


def test_a_constraint_that_fails_ends_its_own_answer_alone():
    class DeadEnd(Thirds):
        def allowed(self):
            if len(self.tokens) == 4:
                raise GrammarError("no text can follow")
            return super().allowed()

    expected = answer(alone(70))
    dead = DeadEnd()
    sampler = ConstrainedSampler(Sampler(SamplingParams(**SAMPLED), N_VOCAB), dead)
    failing = Sequence(prompt(9), sampler, max_tokens=N, constraint=dead)
    other = constrained(prompt(70, seed=70))

    run(make_engine(n_pages=64), failing, other)

    assert failing.finish_reason == "error"
    assert isinstance(failing.error, GrammarError)
    assert len(answer(failing)) == 4
    assert answer(other) == expected
