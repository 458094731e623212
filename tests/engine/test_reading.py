"""What a draft reads of a text is bounded by what it may lose, and by what others wait for."""

import pytest

from edgeinfer.engine.reading import ALONE, BESIDE, LEAST_READ, LOAN, MOST_LENT, Reading
from tests.engine.fakes import make_sequence, prompt


class SlowDraft:
    """Reads at `token_s` a token, and tells what it was asked to."""

    def __init__(self, token_s):
        self.token_s = token_s
        self.begun = None
        self.read_lens = []

    def is_reading(self, sequence):
        return self.begun is not None

    def begin(self, sequence, most):
        self.begun = most
        self.left = min(most, len(sequence.tokens))

    def read(self, sequence, most):
        n = min(most, self.left)
        self.left -= n
        self.read_lens.append(n)
        return n * self.token_s


def read_all(reading, sequence, *, n_left=10_000, is_alone=True):
    for _ in range(1000):
        reading.step(sequence, n_left, 1.0, is_alone=is_alone)


def answer_to(n_prompt, *, prompt_s=0.0):
    sequence = make_sequence(prompt(n_prompt))
    sequence.prompt_s = prompt_s
    return sequence


def test_a_first_text_is_read_as_far_as_was_lent():
    draft = SlowDraft(0.01)
    read_all(Reading(draft), answer_to(10_000))

    assert draft.begun == sum(draft.read_lens) == MOST_LENT / 0.01


def test_a_long_prompt_lends_a_share_of_its_own_time():
    draft = SlowDraft(0.01)
    read_all(Reading(draft), answer_to(10_000, prompt_s=100.0))

    assert draft.begun == (MOST_LENT + 1.0) / 0.01


def test_an_answer_that_will_be_short_lends_little():
    draft = SlowDraft(0.01)
    read_all(Reading(draft), answer_to(10_000), n_left=40)
    assert draft.begun == 0.4 / 0.01

    draft = SlowDraft(0.01)
    read_all(Reading(draft), answer_to(10_000), n_left=LEAST_READ - 1)
    assert draft.begun is None


def test_what_a_draft_has_gained_is_lent_to_the_next_text():
    draft = SlowDraft(0.01)
    reading = Reading(draft)
    reading.account.book(5, 1.0, 1.0)
    read_all(reading, answer_to(10_000))

    assert draft.begun == pytest.approx((MOST_LENT + 4) / 0.01, abs=1)


def test_a_draft_that_lost_too_much_reads_no_more():
    draft = SlowDraft(0.01)
    reading = Reading(draft)
    reading.account.book(0, LOAN, 1.0)
    read_all(reading, answer_to(10_000))

    assert sum(draft.read_lens) * draft.token_s <= 0.01 * LOAN + 1e-9


@pytest.mark.parametrize(("is_alone", "share"), [(True, ALONE), (False, BESIDE)])
def test_a_step_is_held_up_by_a_part_of_it(is_alone, share):
    draft = SlowDraft(0.01)
    read_all(Reading(draft), answer_to(10_000), is_alone=is_alone)

    assert max(draft.read_lens) == share / 0.01
