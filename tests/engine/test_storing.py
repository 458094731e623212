"""Prefixes move between pages and where they are kept; what cannot be read changes nothing."""

import threading

import numpy as np
import pytest

from edgeinfer.engine.driver import Driver
from edgeinfer.engine.pages import PAGE_LEN
from edgeinfer.engine.storing import Storage
from edgeinfer.errors import InvalidParameterError, ModelClosedError, SessionError
from tests.engine.fakes import answer, make_engine, make_sequence, prompt, run

TOKENS = prompt(150, seed=1)


class Kept:
    """Tokens and pages that an engine computed."""

    def __init__(self, tokens, n_pages=16, snapshot_bytes=0):
        engine = make_engine(n_pages=n_pages, snapshot_bytes=snapshot_bytes)
        run(engine, make_sequence(tokens, max_tokens=0))
        held = engine.storage.hold(tokens)
        self.tokens = tokens[: held.n_tokens]
        self.pages = [engine.storage.read(held, i) for i in range(len(held.pages))]
        self.last_state = engine.storage.read_state(held) if snapshot_bytes else None
        self.n_read = 0
        self.damaged = None

    def page(self, index):
        if index == self.damaged:
            raise SessionError("kept: page: the checksum is wrong")
        self.n_read += 1
        return self.pages[index]

    def state(self):
        if self.damaged == "state":
            raise SessionError("kept: state: the checksum is wrong")
        return self.last_state


def with_stored(engine, *stored):
    engine.storage = Storage(engine.scheduler.holdings, engine.executable, stored)
    return engine


def n_free(engine):
    return engine.scheduler.holdings.n_available


def test_what_is_restored_is_not_computed_again():
    kept, engine = Kept(TOKENS), make_engine()
    assert engine.storage.restore(kept) == 150
    sequence = make_sequence([*TOKENS, 5, 6])
    run(engine, sequence)
    assert sequence.n_cached == 150
    assert engine.executable.steps[0] == (2,)
    assert sequence.tokens[152:] == answer(make_engine(), [*TOKENS, 5, 6])
    assert n_free(engine) == 16


def test_restoring_in_pieces_comes_to_the_same():
    kept, engine = Kept(TOKENS), make_engine()
    assert [engine.storage.restore(kept, most_pages=1) for _ in range(4)] == [64, 128, 150, 150]
    assert kept.n_read == 3


def test_what_is_known_already_is_not_read():
    kept, engine = Kept(TOKENS), make_engine()
    run(engine, make_sequence([*TOKENS[:70], 1]))
    assert engine.storage.restore(kept) == 150
    assert kept.n_read == 2
    assert engine.storage.restore(kept) == 150
    assert kept.n_read == 2


def test_a_damaged_page_leaves_what_came_before():
    kept, engine = Kept(TOKENS), make_engine()
    kept.damaged = 1
    with pytest.raises(SessionError):
        engine.storage.restore(kept)
    assert n_free(engine) == 16
    sequence = make_sequence([*TOKENS, 5])
    run(engine, sequence)
    assert sequence.n_cached == PAGE_LEN
    assert sequence.tokens[151:] == answer(make_engine(), [*TOKENS, 5])


def test_what_finds_no_room_is_left_out():
    kept, engine = Kept(TOKENS), make_engine(n_pages=3)
    other = make_sequence(prompt(70, seed=2), max_tokens=50)
    engine.add(other)
    list(engine.step())
    list(engine.step())
    assert engine.storage.restore(kept) == PAGE_LEN
    run(engine)
    assert other.n_computed == 70


def test_a_prompt_finds_the_stored_prefix_it_has_most_in_common_with():
    short, long = Kept(TOKENS[:80]), Kept(TOKENS)
    engine = with_stored(make_engine(), short, long)
    sequence = make_sequence([*TOKENS[:140], 9, 9])
    run(engine, sequence)
    assert sequence.n_cached == 140
    assert (short.n_read, long.n_read) == (0, 3)
    assert sequence.tokens[142:] == answer(make_engine(), [*TOKENS[:140], 9, 9])


def test_of_a_longer_prefix_only_what_is_needed_is_read():
    kept = Kept(TOKENS)
    engine = with_stored(make_engine(), kept)
    run(engine, make_sequence([*TOKENS[:50], 9, 9]))
    assert kept.n_read == 1


def test_a_prefix_that_was_evicted_is_read_again():
    kept = Kept(TOKENS)
    engine = with_stored(make_engine(n_pages=4), kept)
    answers = []
    for _ in range(2):
        answers.append(answer(engine, [*TOKENS, 5]))
        answer(engine, prompt(200, seed=3))
    assert kept.n_read > 3
    assert answers == [answer(make_engine(), [*TOKENS, 5])] * 2


def test_a_stored_prefix_that_cannot_be_read_is_told_once(caplog):
    kept = Kept(TOKENS)
    kept.damaged = 0
    engine = with_stored(make_engine(), kept)
    for _ in range(2):
        assert answer(engine, [*TOKENS, 5]) == answer(make_engine(), [*TOKENS, 5])
    assert [record.message for record in caplog.records] == [
        "kept: page: the checksum is wrong; the prompt is read without it"
    ]


def test_held_pages_stay_while_others_need_room():
    engine = make_engine(n_pages=4)
    run(engine, make_sequence(TOKENS, max_tokens=0))
    held = engine.storage.hold(TOKENS)
    before = [engine.storage.read(held, i) for i in range(3)]
    run(engine, make_sequence(prompt(60, seed=4), max_tokens=2))
    run(engine, make_sequence(prompt(60, seed=5), max_tokens=2))
    assert all((engine.storage.read(held, i) == before[i]).all() for i in range(3))
    assert n_free(engine) == 1
    engine.storage.release(held)
    assert n_free(engine) == 4


def test_nothing_behind_the_held_tokens_is_read():
    engine = make_engine()
    run(engine, make_sequence(TOKENS, max_tokens=30))
    held = engine.storage.hold(TOKENS)
    assert held.n_tokens == 150
    slots = engine.storage.read(held, 2).view(np.uint64)
    assert slots[: 150 - 2 * PAGE_LEN].all()
    assert not slots[150 - 2 * PAGE_LEN :].any()


# -- hybrids: the state behind the last token goes with the pages ----------------------------------

LARGE = 2048  # of a state, four pages of the fake


def hybrid(**options):
    return make_engine(snapshot_bytes=LARGE, **options)


def snapshots_in_use(engine):
    snapshots = engine.scheduler.holdings.snapshots
    return snapshots.pool.n_pages - snapshots.pool.n_free - snapshots.n_kept


@pytest.mark.parametrize("tokens", [TOKENS, TOKENS[:128], TOKENS[:3]])
def test_a_hybrid_goes_on_behind_what_is_restored(tokens):
    kept, engine = Kept(tokens, snapshot_bytes=LARGE), hybrid()
    assert engine.storage.restore(kept) == len(tokens)
    assert engine.storage.restore(kept) == len(tokens)
    assert kept.n_read == len(kept.pages)
    sequence = make_sequence([*tokens, 5, 6])
    run(engine, sequence)
    assert sequence.n_cached == len(tokens)
    assert sequence.tokens[len(tokens) + 2 :] == answer(hybrid(), [*tokens, 5, 6])
    assert (n_free(engine), snapshots_in_use(engine)) == (16, 0)


def test_pages_that_are_known_need_the_state_still():
    kept, engine = Kept(TOKENS, snapshot_bytes=LARGE), hybrid()
    run(engine, make_sequence([*TOKENS, *prompt(20, seed=3)]))
    engine.scheduler.holdings.snapshots.drop(range(32))
    assert engine.storage.restore(kept) == 150
    assert kept.n_read == 0
    sequence = make_sequence([*TOKENS, 5])
    run(engine, sequence)
    assert sequence.n_cached == 150
    assert sequence.tokens[151:] == answer(hybrid(), [*TOKENS, 5])


def test_a_state_that_finds_no_room_or_is_damaged_is_not_gone_on_from():
    kept, engine = Kept(TOKENS, snapshot_bytes=LARGE), hybrid()
    taken = engine.scheduler.holdings.snapshots.take(32)
    assert engine.storage.restore(kept) == 0
    engine.scheduler.holdings.snapshots.release(taken)
    kept.damaged = "state"
    with pytest.raises(SessionError):
        engine.storage.restore(kept)
    assert snapshots_in_use(engine) == 0
    assert answer(engine, [*TOKENS, 5]) == answer(hybrid(), [*TOKENS, 5])


def test_a_hybrids_prompt_finds_the_longest_stored_prefix_it_begins_with():
    short, long = (Kept(TOKENS[:n], snapshot_bytes=LARGE) for n in (80, 150))
    engine = with_stored(hybrid(), short, long)
    sequence = make_sequence([*TOKENS[:140], 9, 9])
    run(engine, sequence)
    assert sequence.n_cached == 80
    assert sequence.tokens[142:] == answer(hybrid(), [*TOKENS[:140], 9, 9])
    run(engine, make_sequence(TOKENS))
    assert long.n_read == 0


def test_held_states_stay_while_others_need_room():
    engine = hybrid(n_snapshots=3)
    run(engine, make_sequence(TOKENS, max_tokens=0))
    held = engine.storage.hold(TOKENS)
    before = engine.storage.read_state(held)
    run(engine, make_sequence(prompt(60, seed=4), max_tokens=8))
    assert (engine.storage.read_state(held) == before).all()
    assert snapshots_in_use(engine) == 0
    engine.storage.release(held)
    assert engine.scheduler.holdings.snapshots.take(3) is not None


def test_a_call_runs_on_the_engines_thread_and_brings_back_what_it_gives():
    driver = Driver(make_engine())
    assert driver.call(lambda: threading.current_thread().name) == "edgeinfer-engine"
    with pytest.raises(ZeroDivisionError):
        driver.call(lambda: 1 / 0)
    assert driver.submit(make_sequence(TOKENS)).result().n_generated == 8
    driver.close()
    with pytest.raises(ModelClosedError):
        driver.call(lambda: 1)


def test_a_call_from_the_engines_thread_is_refused():
    driver = Driver(make_engine())
    with pytest.raises(InvalidParameterError, match="wait for itself"):
        driver.call(lambda: driver.call(lambda: 1))
    driver.close()
