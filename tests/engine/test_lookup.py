"""What followed the end of a text where it stood before is guessed, and every guess is judged."""

from itertools import pairwise

import numpy as np

from edgeinfer.engine.lookup import LONG, MOST_MATCH, RESUMED, Lookup


def lookup_of(tokens, *, n_given=None):
    lookup = Lookup()
    lookup.read(tokens, n_given=len(tokens) if n_given is None else n_given)
    return lookup


def guess(tokens, most=4, **options):
    return lookup_of(tokens, **options).guess(tokens, most)


def test_what_followed_before_is_guessed():
    assert guess([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]) == [4, 5, 6, 7]


def test_nothing_is_guessed_where_nothing_repeats():
    assert guess(list(range(40))) == []
    assert guess([5]) == []
    assert not lookup_of(list(range(40))).is_following


def test_no_more_is_guessed_than_asked_for():
    assert guess([1, 2, 3, 4, 1, 2], most=1) == [3]
    assert guess([1, 2, 3, 4, 1, 2], most=0) == []


def test_a_short_loop_is_guessed_round_and_round():
    assert guess([9, 1, 2, 3, 1, 2, 3], most=8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert guess([7, 7, 7], most=3) == [7, 7, 7]


def test_a_long_match_goes_before_a_later_short_one():
    tokens = [1, 2, 3, 4, 50, 6, 3, 4, 60, 7, 1, 2, 3, 4]

    assert guess(tokens, 1) == [50]
    assert lookup_of(tokens).n_match == LONG


def test_a_prompt_taken_in_at_once_gives_the_guesses_of_one_taken_in_by_steps():
    random = np.random.default_rng(0)
    for _ in range(200):
        tokens = random.integers(0, 4, random.integers(1, 60)).tolist()
        text = [*tokens, *tokens[-3:]]
        at_once, by_steps = Lookup(), Lookup()
        at_once.read(text, n_given=len(text))
        for end in range(1, len(text) + 1):
            by_steps.read(text[:end], n_given=end)

        assert at_once._latest == by_steps._latest


def test_a_match_grows_with_right_guesses_and_ends_with_a_wrong_one():
    text = [*range(20), 100, 3, 4]
    lookup = lookup_of(text)
    assert lookup.n_match == 2

    lookup.read([*text, 5], n_given=len(text))
    assert (lookup.n_match, lookup.guess([*text, 5], 2)) == (3, [6, 7])

    lookup.read([*text, 5, 200], n_given=len(text))
    assert not lookup.is_following


def test_a_replaced_token_is_stepped_over():
    text = [*range(20), 100, *range(5, 5 + RESUMED)]
    lookup = lookup_of(text)
    answer = [*text, 200]

    lookup.read(answer, n_given=len(text))

    assert (lookup.n_match, lookup.guess(answer, 2)) == (0, [10, 11])


def test_chances_fall_with_wrong_guesses_and_rise_with_right_ones():
    text = [1, 2, 30, 1, 2]
    before = lookup_of(text).chances(1)[0]
    right, wrong = lookup_of(text), lookup_of(text)
    right.read([*text, 30], n_given=len(text))
    wrong.read([*text, 40, 1, 2], n_given=len(text))

    right.read([*text, 30, 50, 1, 2], n_given=len(text))

    assert wrong.n_match == right.n_match == 2
    assert wrong.chances(1)[0] < before < right.chances(1)[0]


def test_no_guess_is_likelier_than_the_one_before_it():
    text = [*range(60), *range(50)]
    chances = lookup_of(text).chances(MOST_MATCH)

    assert all(0 < b <= a < 1 for a, b in pairwise(chances))


def test_a_prompt_is_no_answer_to_a_guess():
    loop = [1, 2] * 30

    assert lookup_of(loop).odds._trials == Lookup().odds._trials
    assert lookup_of(loop, n_given=10).odds._trials != Lookup().odds._trials
