"""Guesses are made where they pay, never at another answer's cost, and not for long where not."""

from itertools import pairwise

import pytest

from edgeinfer.engine.account import LOAN, SHARE
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.speculation import MOST_GUESSES, N_BETWEEN, SIZES, Speculation
from tests.engine.fakes import Argmax

COPIED = list(range(200))


def answer_of(tokens, n_prompt, *, max_tokens=10_000):
    sequence = Sequence(tokens[:n_prompt], Argmax(), max_tokens=max_tokens)
    sequence.tokens += tokens[n_prompt:]
    sequence.n_computed = len(sequence.tokens) - 1
    return sequence


def copying(n=20, **options):
    """Return an answer that has copied `n` tokens of its prompt."""
    return answer_of(COPIED + COPIED[:n], len(COPIED), **options)


def inventing(n=20):
    """Return an answer in which nothing stood before."""
    return answer_of(list(range(1000, 1200 + n)), 200)


def speculation(*, n_answers=1, extra=0.2, n_ctx=10_000):
    """Return one that has measured steps: one more token takes `extra` of a plain step."""
    made = Speculation(n_ctx)
    others = [inventing() for _ in range(n_answers)]
    for n_guesses in (0, 0, *(size - n_answers for size in SIZES if size > n_answers)):
        made.record(dict.fromkeys(others, 1 + n_guesses), n_guesses, 1 + extra * n_guesses)
    made._n_since_plain = 0
    return made


def settle(made, sequence):
    """Let `sequence` have gained what it may lose."""
    made.guess([sequence], 0)
    made._accounts[sequence].gained_s = 8.0


def test_an_answer_that_copies_is_guessed_ahead():
    made, sequence = speculation(extra=0.02), copying()
    settle(made, sequence)

    assert made.guess([sequence], 100)[sequence] == COPIED[20 : 20 + MOST_GUESSES]


def test_an_answer_that_repeats_nothing_is_not():
    assert speculation().guess([inventing()], 100) == {}


def test_nothing_is_guessed_before_plain_steps_are_measured():
    made, sequence = Speculation(10_000), copying()
    for _ in range(2):
        assert made.guess([sequence], 100) == {}
        made.record({sequence: 1}, 0, 1.0)

    assert made.guess([sequence], 100) != {}


def test_nothing_is_guessed_where_more_tokens_take_as_much_more_time():
    made, sequence = speculation(extra=1.0), copying()
    settle(made, sequence)

    assert made.guess([sequence], 100) == {}


def test_dearer_guesses_are_fewer():
    counts = []
    for extra in (0.02, 0.2, 0.8):
        made, sequence = speculation(extra=extra), copying(3)
        settle(made, sequence)
        counts.append(len(made.guess([sequence], 100).get(sequence, ())))

    assert all(a > b for a, b in pairwise(counts))


@pytest.mark.parametrize(
    ("options", "n_ctx", "n_left"),
    [({"max_tokens": 26}, 10_000, 100), ({}, 226, 100), ({}, 10_000, 5)],
    ids=["max_tokens", "n_ctx", "step"],
)
def test_no_guess_has_no_room(options, n_ctx, n_left):
    made, sequence = speculation(n_ctx=n_ctx), copying(**options)
    settle(made, sequence)

    assert len(made.guess([sequence], n_left)[sequence]) == 5


def test_an_answer_begins_with_a_step_of_its_own():
    made, sequence = speculation(), answer_of(COPIED * 2, 2 * len(COPIED))
    settle(made, sequence)

    assert made.guess([sequence], 100) == {}


def test_plain_steps_are_measured_again_and_again():
    made, sequence = speculation(), copying()
    settle(made, sequence)
    for _ in range(N_BETWEEN):
        n_guesses = len(made.guess([sequence], 100)[sequence])
        made.record({sequence: 1 + n_guesses}, n_guesses, 1 + 0.2 * n_guesses)

    assert made.guess([sequence], 100) == {}
    made.record({sequence: 1}, 0, 1.0)
    assert made.guess([sequence], 100) != {}


def test_nobody_waits_for_the_guesses_of_others():
    made, one, other = speculation(n_answers=2), copying(), inventing()
    settle(made, one)

    assert made.guess([one, other], 100) == {}
    made = speculation()
    settle(made, one)
    assert made.guess([one], 100) != {}


def test_answers_that_all_copy_are_guessed_together():
    made, both = speculation(n_answers=2), [copying(), copying(30)]
    for sequence in both:
        settle(made, sequence)

    found = made.guess(both, 100)

    assert {s: g[:3] for s, g in found.items()} == {
        s: s.tokens[len(s.tokens) - 200 : len(s.tokens) - 197] for s in both
    }
    assert sum(map(len, found.values())) + 2 in SIZES


def test_guesses_that_are_never_right_end():
    """However good they look: the loss stays within what a sequence may lose."""
    made, sequence = speculation(), copying()
    plain = spent = 0.0
    for _ in range(2000):
        made.guess([sequence], 0)
        odds = made._repeats.lookups[sequence].odds
        odds._hits = [0.99 * n for n in odds._trials]
        n_guesses = len(made.guess([sequence], 100).get(sequence, ()))
        made.record({sequence: 1}, n_guesses, 1 + 0.2 * n_guesses)
        plain, spent = plain + 1, spent + 1 + 0.2 * n_guesses

    assert 0 < spent - plain <= LOAN + SHARE * spent


def test_gains_of_the_past_do_not_pay_for_ever():
    made, sequence = speculation(), copying()
    settle(made, sequence)
    account = made._accounts[sequence]
    account.gained_s = 1e9
    account.book(1, 1.0, 1.0)

    assert not account.may_lose(10.0, 1.0)
    assert account.may_lose(8.0, 1.0)
