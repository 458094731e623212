"""Which kept pages a new prompt gets, and which are given up."""

import pytest

from edgeinfer.engine.pages import PagePool, pages_for
from edgeinfer.engine.prefix import PrefixCache


@pytest.fixture
def pool():
    return PagePool(16)


@pytest.fixture
def cache(pool):
    return PrefixCache(pool, n_kept=2)


def keep(cache, pool, tokens):
    pages = pool.take(pages_for(len(tokens)))
    cache.keep(tokens, pages)
    return pages


def test_nothing_kept_gives_nothing(cache):
    assert cache.claim([1, 2, 3]) == ([], 0)


def test_a_continued_sequence_is_taken_over_with_its_last_page(cache, pool):
    keep(cache, pool, list(range(100)))

    assert cache.claim([*range(100), 7, 7]) == ([0, 1], 100)
    assert len(cache) == 0
    assert pool.owners(1) == 1


def test_the_last_token_of_the_prompt_is_always_computed_again(cache, pool):
    keep(cache, pool, list(range(100)))

    assert cache.claim(list(range(100))) == ([0, 1], 99)


def test_an_earlier_branch_gives_the_rest_back(cache, pool):
    keep(cache, pool, list(range(200)))

    assert cache.claim([*range(120), 999]) == ([0, 1], 120)
    assert pool.n_free == 14


def test_another_try_is_taken_over_however_long_the_first_was(cache, pool):
    keep(cache, pool, list(range(500)))

    assert cache.claim(list(range(38))) == ([0], 37)
    assert pool.n_free == 15


def test_another_sequence_with_the_same_beginning_shares_whole_pages(cache, pool):
    keep(cache, pool, list(range(300)))

    assert cache.claim([*range(70), 999, 999]) == ([0], 64)
    assert pool.owners(0) == 2
    assert len(cache) == 1


def test_a_shared_page_is_never_taken_over_for_writing(pool):
    cache = PrefixCache(pool, n_kept=3)
    keep(cache, pool, list(range(200)))
    for other in (300, 400):
        tokens = [*range(64), *range(other, other + 20)]
        pages, _ = cache.claim(tokens)
        cache.keep(tokens, pages + pool.take(1))

    assert cache.claim([*range(50), 999]) == ([], 0)
    assert pool.owners(0) == 3


def test_the_longest_common_prefix_wins(cache, pool):
    keep(cache, pool, [1] * 70)
    keep(cache, pool, [1] * 65 + [2] * 70)

    assert cache.claim([1] * 65 + [2] * 100) == ([2, 3, 4], 135)


def test_the_least_recently_used_is_dropped_first(cache, pool):
    for first in (1, 2, 3):
        keep(cache, pool, [first] * 64)

    assert cache.claim([1] * 65) == ([], 0)
    assert cache.claim([3] * 65)[1] == 64
    assert pool.n_free == 14


def test_one_that_a_longer_one_contains_is_dropped(cache, pool):
    keep(cache, pool, [1] * 64)
    keep(cache, pool, [1] * 128)

    assert len(cache) == 1
    assert pool.n_free == 14


def test_pages_beyond_the_computed_tokens_are_given_back(cache, pool):
    cache.keep([1] * 10, pool.take(3))

    assert pool.n_free == 15


def test_a_sequence_without_computed_tokens_keeps_nothing(cache, pool):
    cache.keep([], pool.take(1))

    assert (len(cache), pool.n_free) == (0, 16)


def test_evict_gives_pages_back_until_nothing_is_kept(cache, pool):
    keep(cache, pool, [1] * 64)

    assert cache.evict()
    assert not cache.evict()
    assert pool.n_free == 16
