"""A draft is asked where it pays, reads what it may cost, and is left alone where it is wrong.

Seconds are counted, not measured: a plain step takes one.
"""

from itertools import count, takewhile
from types import SimpleNamespace

import pytest

from edgeinfer.engine.reading import LOAN
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.speculation import SIZES, Speculation
from tests.engine.fakes import (
    N_VOCAB,
    Argmax,
    answer,
    fake_draft,
    make_engine,
    make_sequence,
    prompt,
    run,
)

EXTRA = 0.1  # plain steps that one more token in a step takes


@pytest.fixture
def drafted(monkeypatch):
    """Return a function that makes a speculation whose draft takes `cost` a step."""

    def make(cost, *, n_pages=64):
        draft = fake_draft(n_ctx=1024, n_pages=n_pages, n_batch=512)
        draft._relative = cost
        ticks = count(step=cost)
        clock = SimpleNamespace(perf_counter=lambda: next(ticks))
        monkeypatch.setattr("edgeinfer.engine.draft.time", clock)
        made = Speculation(100_000, draft)
        for n_tokens in SIZES:
            made._cost.record(n_tokens, step_s(n_tokens))
        return made, draft

    return make


def step_s(n_tokens):
    return 1 + EXTRA * (n_tokens - 1)


def play(made, draft, answers, *, n_together=1):
    """Let answers come, given by their prompts; return the seconds they took.

    Those of a step wait for each other; a draft's steps take what its clock says.
    """
    waiting = [(make_sequence(list(p), max_tokens=len(a)), list(a)) for p, a in answers]
    running, seconds = [], 0.0
    while waiting or running:
        while waiting and len(running) < n_together:
            sequence, to_come = waiting.pop(0)
            sequence.tokens.append(to_come.pop(0))
            running.append((sequence, to_come))
        n_steps = len(draft._executable.steps)
        guesses = made.guess([sequence for sequence, _ in running], 100)
        gained = {}
        for sequence, to_come in running:
            pairs = zip(guesses.get(sequence, ()), to_come, strict=False)
            n_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            gained[sequence] = min(1 + n_right, len(to_come))
            sequence.tokens += to_come[: gained[sequence]]
            del to_come[: gained[sequence]]
        n_guesses = sum(map(len, guesses.values()))
        seconds += step_s(len(running) + n_guesses)
        made.record(gained, n_guesses, step_s(len(running) + n_guesses))
        seconds += draft._relative * (len(draft._executable.steps) - n_steps)
        for sequence, _ in [pair for pair in running if not pair[1]]:
            made.forget(sequence)
        running = [pair for pair in running if pair[1]]
    return seconds


def right(n_prompt=40, n=160, seed=0):
    """Return a prompt and what the draft guesses of it."""
    tokens = prompt(n_prompt, seed=seed)
    return tokens, answer(make_engine(n_ctx=1024), tokens, max_tokens=n)


def wrong(n_prompt=40, n=160, seed=0):
    """Return a prompt and an answer that the draft never guesses."""
    sequence = Sequence(prompt(n_prompt, seed=seed), Contrary(), max_tokens=n)
    run(make_engine(n_ctx=1024), sequence)
    return sequence.tokens[:n_prompt], sequence.tokens[n_prompt:]


class Contrary(Argmax):
    def sample(self, logits, history, position):
        return (super().sample(logits, history, position) + 1) % N_VOCAB


def test_a_cheap_draft_that_is_right_makes_an_answer_come_sooner(drafted):
    made, draft = drafted(0.05)
    tokens, to_come = right()

    assert play(made, draft, [(tokens, to_come)]) < 0.5 * len(to_come)


@pytest.mark.parametrize("cost", [0.02, 0.05, 0.1, 0.2])
def test_a_draft_that_is_never_right_costs_an_answer_next_to_nothing(drafted, cost):
    made, draft = drafted(cost)
    tokens, to_come = wrong()

    seconds = play(made, draft, [(tokens, to_come)])

    assert len(draft._executable.steps) > 1  # it was given a try
    assert seconds <= len(to_come) / 0.97


def test_what_it_costs_does_not_grow_with_the_number_of_answers(drafted):
    made, draft = drafted(0.1)
    answers = [wrong(seed=seed, n=80) for seed in range(8)]
    n_tokens = sum(len(to_come) for _, to_come in answers)

    seconds = play(made, draft, answers)

    assert seconds - n_tokens <= 2 * LOAN + 0.02 * n_tokens


def test_a_draft_that_lost_too_much_is_tried_again_when_time_has_passed(drafted):
    made, draft = drafted(0.05)
    made._reading.account.gained_s = -LOAN - 1
    play(made, draft, [right(n=90)])
    assert draft._executable.steps == []

    for _ in range(500):
        made.record({make_sequence([1]): 1}, 0, 1.0)
    tokens, to_come = right(seed=20)

    assert play(made, draft, [(tokens, to_come)]) < 0.6 * len(to_come)


def test_a_draft_as_dear_as_the_model_is_never_asked(drafted):
    made, draft = drafted(1.0)
    play(made, draft, [right()])

    assert draft._executable.steps == []


def test_what_is_repeated_is_taken_from_the_text(drafted):
    made, draft = drafted(0.1)
    loop = prompt(30, seed=3) * 4

    seconds = play(made, draft, [(loop, (prompt(30, seed=3) * 6)[:120])])

    assert seconds < 60
    assert len(draft._executable.steps) < 8  # of the first steps, before it was seen


def test_both_take_turns_in_one_answer(drafted):
    """What the draft knows, then a repetition of it that the draft does not expect."""
    made, draft = drafted(0.1)
    tokens, known = right(n=60)

    seconds = play(made, draft, [(tokens, known + known + known)])

    assert seconds < 0.6 * 180


def test_a_long_text_is_read_from_its_end_at_first_and_whole_when_that_has_paid(drafted):
    made, draft = drafted(0.1)
    tokens, to_come = wrong(n_prompt=400, n=200)
    play(made, draft, [(tokens, to_come)])
    read = sum(max(step) for step in draft._executable.steps if max(step) > 8)
    assert 0 < read < 200

    made, draft = drafted(0.02)
    play(made, draft, [right(n=200)])
    tokens, to_come = right(n_prompt=300, n=100, seed=9)
    draft._executable.steps.clear()

    assert play(made, draft, [(tokens, to_come)]) < 60
    assert sum(max(step) for step in draft._executable.steps if max(step) > 8) >= 290


def test_the_more_a_step_brings_the_likelier_one_more_guess_has_to_be(drafted):
    made, draft = drafted(0.1)
    least, guess = [], draft.guess

    def asked(counts, chance):
        least.append(chance)
        return guess(counts, chance)

    draft.guess = asked
    play(made, draft, [right(n_prompt=12)])

    assert least[0] < 0.3 < 0.6 < max(least)


def test_answers_together_are_drafted_together(drafted):
    made, draft = drafted(0.05)
    answers = [right(seed=seed) for seed in range(3)]

    assert play(made, draft, answers, n_together=3) < 0.7 * 160 * step_s(3)
    assert any(len(step) == 3 for step in draft._executable.steps)


def test_a_sequence_that_ended_leaves_nothing(drafted):
    made, draft = drafted(0.05)
    play(made, draft, [right(), wrong(seed=1)])

    assert made._accounts == made._repeats.lookups == draft._shadows == {}
    made.close()
    made.close()
    assert draft._executable.closed == 2
