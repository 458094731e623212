"""How many KV pages a machine of a given memory may have."""

import pytest

from edgeinfer.engine import budget
from edgeinfer.engine.budget import page_budget

GIB = 1 << 30


@pytest.fixture
def memory(monkeypatch):
    """Set what is available, and what there is."""

    def put(available, total):
        monkeypatch.setattr(budget, "memory_bytes", lambda: (available, total))

    put(12 * GIB, 16 * GIB)
    return put


def test_a_small_model_gets_several_contexts(memory):
    made = page_budget(8192, 1 << 20)

    assert made.n_pages == 8 * 128
    assert made.n_kept == 2 * 128


def test_kept_prefixes_take_an_eighth_of_the_memory_at_most(memory):
    assert page_budget(1 << 20, 1 << 20).n_kept == 2048


def test_a_long_context_is_possible_whatever_the_memory(memory):
    assert page_budget(1 << 20, 32 << 20).n_pages == 1 << 14


def test_the_pool_grows_into_what_is_available_but_a_reserve(memory):
    made = page_budget(8192, 1 << 20)

    assert made.has_room(11 * 1024)
    assert not made.has_room(11 * 1024 + 1)
    memory(GIB, 16 * GIB)
    assert not made.has_room(1)


def test_a_model_without_pages_needs_none(memory):
    assert page_budget(512, 0).has_room(1)
