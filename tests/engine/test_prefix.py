"""Which pages a prompt finds, which are copied, which are given up; exact ids, no model."""

import pytest

from edgeinfer.engine.pages import NO_PAGE, PAGE_LEN, PagePool, pages_for
from edgeinfer.engine.prefix import PrefixCache


@pytest.fixture
def pool():
    return PagePool(16)


@pytest.fixture
def cache(pool):
    return PrefixCache(pool)


def keep(cache, pool, tokens):
    """Let a sequence compute `tokens` and end; return its pages."""
    keys = []
    pages = cache.claim([*tokens, -1], keys, 0)
    pages += pool.take(pages_for(len(tokens)) - len(pages))
    for index, page in enumerate(pages):
        cache.keep(tokens, keys, index, page)
    cache.release(pages)
    return pages


def claim(cache, tokens):
    return cache.claim(tokens, [], 0)


def claim_part(cache, tokens, n_held=0):
    return cache.claim_part(tokens, [], n_held)


def test_nothing_known_gives_nothing(cache):
    assert claim(cache, [1] * 200) == []
    assert claim_part(cache, [1] * 200) == (NO_PAGE, 0)


def test_whole_pages_are_shared_and_the_rest_is_a_part(cache, pool):
    keep(cache, pool, list(range(150)))
    longer = [*range(150), 7, 7]

    assert claim(cache, longer) == [0, 1]
    assert claim_part(cache, longer, 2) == (2, 22)
    assert [pool.owners(page) for page in range(3)] == [2, 2, 2]


def test_the_last_token_of_the_prompt_is_always_computed_again(cache, pool):
    keep(cache, pool, list(range(128)))

    assert claim(cache, list(range(128))) == [0]
    assert claim_part(cache, list(range(128)), 1) == (1, 63)


def test_an_earlier_branch_shares_up_to_where_it_leaves(cache, pool):
    keep(cache, pool, list(range(200)))

    assert claim(cache, [*range(100), 999, 999]) == [0]
    assert claim_part(cache, [*range(100), 999, 999], 1) == (1, 36)


def test_the_block_that_agrees_longest_is_the_part(cache, pool):
    keep(cache, pool, [1] * 10 + [2] * 10)
    keep(cache, pool, [1] * 12 + [3] * 10)
    keep(cache, pool, [1] * 11 + [4] * 10)

    assert claim_part(cache, [1] * 12 + [5] * 9) == (1, 12)


def test_a_few_tokens_are_not_worth_a_copy(cache, pool):
    keep(cache, pool, [1] * 7 + [2] * 10)

    assert claim_part(cache, [1] * 20) == (NO_PAGE, 0)


def test_a_conversation_that_goes_on_does_not_keep_its_end_twice(cache, pool):
    keep(cache, pool, [1] * 10)
    keep(cache, pool, [1] * 20)

    assert len(cache) == 1
    assert pool.n_free == 15


def test_a_page_that_is_filled_further_is_known_further(cache, pool):
    tokens, keys = [1] * 30, []
    (page,) = pool.take(1)
    cache.keep(tokens, keys, 0, page)
    assert claim_part(cache, [1] * 64) == (page, 30)
    cache.release([page])

    cache.keep([1] * 50, keys, 0, page)
    cache.keep([1] * 40, keys, 0, page)

    assert len(cache) == 1
    assert claim_part(cache, [1] * 64) == (page, 50)
    assert pool.owners(page) == 3  # its sequence, the cache, this test
    tokens = [1] * 64
    cache.keep(tokens, keys, 0, page)
    assert claim(cache, [1] * 65) == [page]


def test_what_is_known_already_is_not_kept_again(cache, pool):
    keep(cache, pool, [1] * 20)
    keep(cache, pool, [1] * 10)

    assert len(cache) == 1
    assert claim_part(cache, [1] * 21) == (0, 20)


def test_the_least_recently_used_goes_first_and_a_chain_from_its_end(cache, pool):
    keep(cache, pool, [1] * 128)
    keep(cache, pool, [2] * 128)
    cache.release(claim(cache, [1] * 129))

    order = []
    while cache.evict():
        order.append(pool.take(1)[0])

    assert order == [3, 2, 1, 0]


def test_what_is_in_use_is_not_given_up(cache, pool):
    keep(cache, pool, [1] * 128)
    held = claim(cache, [1] * 100)

    assert held == [0]
    assert cache.n_unused == 1
    assert cache.evict()
    assert not cache.evict()


def test_pages_used_by_others_are_counted_as_shared(cache, pool):
    keep(cache, pool, [1] * 192)
    assert cache.n_shared([1] * 193, []) == 0

    claim(cache, [1] * 129)

    assert cache.n_shared([1] * 193, []) == 2


def test_equal_keys_are_not_enough(cache, pool):
    keep(cache, pool, [1] * 64)
    keys = []
    cache.key_of([1] * 64, keys, 0)

    assert cache.claim([2] * 65, keys, 0) == []


def test_another_model_adapter_or_kv_type_has_other_keys(pool):
    keys = {PrefixCache(pool, mark).root for mark in (b"a f16", b"a q8_0", b"b f16")}

    assert len(keys) == 3


def test_keys_differ_from_process_to_process(pool):
    assert PrefixCache(pool, b"a").root != PrefixCache(pool, b"a").root


def test_the_same_ids_behind_others_are_another_block(cache, pool):
    keep(cache, pool, [1] * 64 + [2] * 64)

    assert claim(cache, [3] * 64 + [2] * 65) == []


def test_damaged_pages_are_forgotten_with_all_behind_them(cache, pool):
    pages = keep(cache, pool, [1] * 192)
    other = keep(cache, pool, [2] * 64)

    cache.forget(pages[1:2])

    assert claim(cache, [1] * 193) == pages[:1]
    assert claim(cache, [2] * 65) == other
    assert pool.n_free == 14


def test_a_long_chain_is_forgotten_at_once():
    pool = PagePool(3000)
    cache = PrefixCache(pool)
    pages = keep(cache, pool, [1] * (3000 * PAGE_LEN))

    cache.forget(pages[:1])

    assert pool.n_free == 3000
