"""A draft guesses in pages of its own, goes back where it was wrong, and harms nobody."""

import logging

import numpy as np
import pytest

from edgeinfer.engine.draft import AT_ONCE, ROOM
from edgeinfer.engine.speculation import MOST_GUESSES
from edgeinfer.errors import BackendError, CancelledError
from tests.engine.fakes import N_VOCAB, answer, fake_draft, make_engine, make_sequence, prompt

N = 40


def begun(draft, n_prompt, *, n_answered=1, most=10**9):
    """Return an answer of the fake model, and its tokens to come, with its text read."""
    tokens = prompt(n_prompt)
    to_come = answer(make_engine(), tokens, max_tokens=N)
    sequence = make_sequence(tokens)
    sequence.tokens += to_come[:n_answered]
    draft.begin(sequence, most)
    read_all(draft, sequence)
    return sequence, to_come[n_answered:]


def read_all(draft, sequence):
    while draft.read(sequence, 50) > 0:
        pass


def guess(draft, sequence, n, least=0.0):
    made = draft.guess({sequence: n}, least)
    return made[sequence].tokens if made else []


def n_free(draft):
    return draft._holdings.pool.n_free + draft._holdings.prefixes.n_unused


@pytest.mark.parametrize("n_prompt", [3, 62, 63, 64, 65, 200])
def test_the_model_as_its_own_draft_is_always_right(n_prompt):
    draft = fake_draft()
    sequence, to_come = begun(draft, n_prompt)
    for _ in range(6):
        found = guess(draft, sequence, 4)
        assert found == to_come[:4]
        sequence.tokens += to_come[:5]
        to_come = to_come[5:]
        draft.follow(sequence)


def test_a_guess_costs_one_step_and_a_token_that_came_as_guessed_none():
    draft = fake_draft()
    sequence, to_come = begun(draft, 30)
    steps = draft._executable.steps
    steps.clear()

    guess(draft, sequence, 4)
    assert steps == [(1,)] * 4
    sequence.tokens += to_come[:5]  # four as guessed, and one more
    draft.follow(sequence)
    guess(draft, sequence, 3)
    assert steps[4:] == [(2,), (1,), (1,)]


def test_after_a_wrong_guess_it_goes_on_from_what_came():
    draft = fake_draft()
    sequence, to_come = begun(draft, 60)
    guess(draft, sequence, 6)
    other = (to_come[2] + 1) % N_VOCAB
    sequence.tokens += [*to_come[:2], other]
    draft.follow(sequence)

    assert guess(draft, sequence, 6) == answer(make_engine(), sequence.tokens, max_tokens=6)


def test_guesses_that_were_not_used_are_not_made_again():
    draft = fake_draft()
    sequence, to_come = begun(draft, 30)
    guess(draft, sequence, 6)
    n_steps = len(draft._executable.steps)
    sequence.tokens += to_come[:1]
    draft.follow(sequence)

    assert guess(draft, sequence, 5) == to_come[1:6]
    assert len(draft._executable.steps) == n_steps


def test_sequences_are_guessed_together():
    draft = fake_draft()
    one, one_to_come = begun(draft, 30)
    two, two_to_come = begun(draft, 90)
    draft._executable.steps.clear()

    made = draft.guess({one: 2, two: 4}, 0.0)

    assert made[one].tokens == one_to_come[:2]
    assert made[two].tokens == two_to_come[:4]
    assert draft._executable.steps == [(1, 1), (1, 1), (1,), (1,)]


def test_it_stops_where_it_is_not_sure_enough():
    draft = fake_draft()
    sequence, _ = begun(draft, 30)

    assert len(guess(draft, sequence, 10, least=0.9)) == 1


def test_how_good_guesses_are_is_learned_from_what_comes():
    draft = fake_draft()
    sequence, to_come = begun(draft, 30)
    before = draft.hopes(sequence, 3)
    assert before == sorted(before, reverse=True)

    guess(draft, sequence, 8)
    sequence.tokens += to_come[:8]
    draft.follow(sequence)
    good = draft.hopes(sequence, 3)
    guess(draft, sequence, 8)
    sequence.tokens.append((to_come[8] + 1) % N_VOCAB)
    draft.follow(sequence)

    assert good[0] > before[0]
    assert draft.hopes(sequence, 3)[0] < good[0]


def test_a_text_that_is_too_dear_is_read_from_further_on():
    draft = fake_draft()
    sequence, _ = begun(draft, 200, most=70)

    assert draft.is_ready(sequence)
    assert sum(map(sum, draft._executable.steps)) <= 70
    assert len(guess(draft, sequence, 3)) == 3


def test_what_another_text_has_in_common_is_not_read_again():
    draft = fake_draft()
    begun(draft, 200)
    draft._executable.steps.clear()
    later = make_sequence(prompt(200) + prompt(30, seed=1))
    draft.begin(later, 60)
    read_all(draft, later)

    assert draft.is_ready(later)
    assert sum(map(sum, draft._executable.steps)) < 60


def test_a_text_longer_than_its_context_is_followed_at_its_end():
    draft = fake_draft(n_ctx=128, n_pages=4)
    sequence = make_sequence(prompt(300))
    draft.begin(sequence, 10**9)
    read_all(draft, sequence)
    for token in prompt(128):
        assert len(guess(draft, sequence, 2)) == 2 or not draft.is_reading(sequence)
        sequence.tokens.append(token)
        draft.follow(sequence)

    assert not draft.is_reading(sequence)  # and is begun with anew, from further on
    assert n_free(draft) == 4


def test_without_pages_there_are_no_guesses():
    draft = fake_draft(n_pages=1)
    sequence, _ = begun(draft, 60)

    assert len(guess(draft, sequence, 15)) == 64 - 60
    other = make_sequence(prompt(20, seed=1))
    draft.begin(other, 100)
    assert draft.read(other, 10) == 0.0
    assert guess(draft, other, 3) == []


def test_all_pages_come_back():
    draft = fake_draft()
    for n_prompt in (30, 100):
        sequence, _ = begun(draft, n_prompt)
        guess(draft, sequence, 5)
        draft.forget(sequence)
        draft.forget(sequence)

    assert n_free(draft) == 16


def test_a_step_that_is_stopped_gives_what_there_is():
    draft = fake_draft()
    sequence, to_come = begun(draft, 30)
    run = draft._executable.run

    def stop(batch, *, cancel=None):
        if len(draft._executable.steps) == n_steps + 2:
            draft._executable.run = run
            raise CancelledError("step: cancelled")
        return run(batch, cancel=cancel)

    n_steps = len(draft._executable.steps)
    draft._executable.run = stop

    assert guess(draft, sequence, 6) == to_come[:2]
    assert guess(draft, sequence, 6) == to_come[:6]


@pytest.mark.parametrize("damage", ["raises", "nan"])
def test_a_draft_that_fails_is_told_of_and_not_asked_again(damage, caplog):
    draft = fake_draft()
    sequence, _ = begun(draft, 30)
    if damage == "raises":
        draft._executable.fail_with = BackendError("step failed")
    else:
        draft._executable.run = lambda *_, **__: np.full((1, N_VOCAB), np.nan, np.float32)
    with caplog.at_level(logging.WARNING):
        assert guess(draft, sequence, 3) == []

    assert "answers go on without" in caplog.text
    assert draft.chances(sequence, 3) == []


def test_much_that_came_meanwhile_is_read_before_the_next_guess():
    draft = fake_draft()
    sequence, to_come = begun(draft, 30)
    sequence.tokens += to_come[: AT_ONCE + 1]
    draft.follow(sequence)
    assert not draft.is_ready(sequence)
    assert draft.chances(sequence, 2) == []

    read_all(draft, sequence)

    assert guess(draft, sequence, 2) == to_come[AT_ONCE + 1 : AT_ONCE + 3]


def test_a_context_too_short_to_follow_a_text_is_not_begun_with():
    draft = fake_draft(n_ctx=4 * ROOM - 1)

    assert draft.hopes(make_sequence(prompt(30)), 3) == []
    assert fake_draft(n_ctx=4 * ROOM).hopes(make_sequence(prompt(30)), 3) != []


def test_there_is_room_for_guesses_behind_every_text_it_follows():
    assert ROOM > MOST_GUESSES + 1
