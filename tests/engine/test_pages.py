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


def test_the_pool_grows_as_long_as_there_is_room():
    asked = []

    def has_room(n):
        asked.append(n)
        return sum(asked) <= 40

    pool = PagePool(100, has_room=has_room)

    assert pool.take(20) == list(range(20))
    assert pool.take(16) == list(range(20, 36))
    assert pool.take(5) is None
    assert (asked, pool.n_touched) == ([36, 21, 5], 36)


def test_pages_that_came_back_need_no_room():
    pool = PagePool(100, has_room=lambda n: False)
    assert pool.take(1) is None

    pool = PagePool(4, has_room=lambda n: True)
    pages = pool.take(4)
    pool._has_room = lambda n: False
    pool.give_back(pages)
    assert pool.take(4) == pages
