"""Page ids, owners and the order of the free list."""

from edgeinfer.engine.pages import PagePool, pages_for


def test_pages_for_counts_started_pages():
    assert [pages_for(n) for n in (0, 1, 64, 65, 128)] == [0, 1, 1, 2, 2]


def test_low_ids_are_taken_first():
    pool = PagePool(4)

    assert pool.take(2) == [0, 1]
    assert pool.take(1) == [2]
    assert pool.n_free == 1


def test_too_many_takes_nothing():
    pool = PagePool(2)

    assert pool.take(3) is None
    assert pool.n_free == 2


def test_given_back_pages_are_taken_again_in_the_same_order():
    pool = PagePool(4)
    pages = pool.take(3)

    pool.give_back(pages)

    assert pool.take(4) == [0, 1, 2, 3]


def test_a_shared_page_is_free_when_its_last_owner_gives_it_back():
    pool = PagePool(2)
    pages = pool.take(1)
    pool.share(pages)

    pool.give_back(pages)
    assert (pool.owners(0), pool.n_free) == (1, 1)
    pool.give_back(pages)
    assert (pool.owners(0), pool.n_free) == (0, 2)
