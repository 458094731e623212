"""A hybrid's recurrent state goes where its pages go: cached, preempted, guessed at, given back."""

import random

import numpy as np
import pytest

from edgeinfer.engine.engine import Engine
from edgeinfer.engine.events import Rows
from edgeinfer.engine.pages import PAGE_LEN, PagePool
from edgeinfer.engine.prefix import PrefixCache
from edgeinfer.engine.sequence import Sequence
from edgeinfer.engine.state import MOST_SPACING, Snapshots, spacing_of
from edgeinfer.errors import CancelledError, NonFiniteError
from tests.engine.fakes import Prophet, answer, make_engine, make_sequence, prompt, run

SMALL, LARGE = 8, 2048  # a page of the fake has 512 bytes: a snapshot every page, every fourth page
SIZES = pytest.mark.parametrize("snapshot_bytes", [SMALL, LARGE])


def hybrid(snapshot_bytes: int = SMALL, **options) -> Engine:
    return make_engine(snapshot_bytes=snapshot_bytes, **options)


def alone(tokens: list[int], **options) -> list[int]:
    return answer(hybrid(), tokens, **options)


def answers_of(sequence: Sequence) -> list[int]:
    assert sequence.finish_reason == "length", sequence.error
    return sequence.tokens[sequence.n_prompt :]


def snapshots_of(engine: Engine) -> Snapshots:
    return engine.scheduler.holdings.snapshots


def nothing_leaked(engine: Engine) -> bool:
    snapshots, holdings = snapshots_of(engine), engine.scheduler.holdings
    all_free = snapshots.pool.n_free + snapshots.n_kept == snapshots.pool.n_pages
    return all_free and holdings.n_available == holdings.pool.n_pages


def test_the_fake_depends_on_its_state():
    assert alone(prompt(30)) != answer(make_engine(), prompt(30))


@SIZES
@pytest.mark.parametrize("n_batch", [1, 7, 64, 200])
def test_chunked_equals_whole(snapshot_bytes, n_batch):
    engine = hybrid(snapshot_bytes, n_batch=n_batch)
    assert answer(engine, prompt(150)) == answer(hybrid(n_batch=512), prompt(150))
    assert nothing_leaked(engine)


@SIZES
def test_batched_equals_alone(snapshot_bytes):
    prompts = [prompt(n, seed=n) for n in (3, 70, 128, 150)]
    engine = hybrid(snapshot_bytes)
    together = [make_sequence(tokens) for tokens in prompts]
    run(engine, *together)
    assert [answers_of(s) for s in together] == [alone(tokens) for tokens in prompts]
    assert nothing_leaked(engine)


def test_a_prompt_that_comes_again_is_computed_from_its_last_token_on():
    engine = hybrid(LARGE)
    run(engine, make_sequence(prompt(150), max_tokens=3))
    again = make_sequence(prompt(150))
    run(engine, again)
    assert again.n_cached == 149
    assert answers_of(again) == alone(prompt(150))


def test_the_next_turn_goes_on_behind_the_answer():
    engine = hybrid(LARGE)
    first = make_sequence(prompt(100), max_tokens=20)
    run(engine, first)
    turn = make_sequence([*first.tokens, *prompt(30, seed=9)])
    run(engine, turn)
    assert turn.n_cached == 119  # all but the last token, which was never computed
    assert answers_of(turn) == alone(turn.tokens[: turn.n_prompt])


@pytest.mark.parametrize(("snapshot_bytes", "n_cached"), [(SMALL, 256), (LARGE, 256), (4096, 0)])
def test_a_prompt_that_begins_alike_goes_on_from_the_last_snapshot(snapshot_bytes, n_cached):
    engine = hybrid(snapshot_bytes)
    run(engine, make_sequence(prompt(400)))
    other = make_sequence([*prompt(400)[:300], *prompt(50, seed=1)])
    run(engine, other)
    assert other.n_cached == n_cached
    assert answers_of(other) == alone([*prompt(400)[:300], *prompt(50, seed=1)])


def test_prompts_that_share_while_they_run_equal_each_alone():
    prompts = [[*prompt(150), *prompt(n, seed=n)] for n in (5, 40, 80)]
    engine = hybrid()
    together = [make_sequence(tokens) for tokens in prompts]
    run(engine, *together)
    assert sorted(s.n_cached // PAGE_LEN for s in together) == [0, 2, 2]
    assert [answers_of(s) for s in together] == [alone(tokens) for tokens in prompts]


def test_choices_of_one_prompt_compute_it_once():
    engine = hybrid(LARGE)
    together = [make_sequence(prompt(150)) for _ in range(3)]
    run(engine, *together)
    assert sorted(s.n_cached for s in together) == [0, 149, 149]
    assert [answers_of(s) for s in together] == [alone(prompt(150))] * 3


@SIZES
@pytest.mark.parametrize(("n_pages", "n_snapshots"), [(5, 32), (16, 4), (16, 2), (5, 5)])
def test_preempted_equals_uninterrupted(snapshot_bytes, n_pages, n_snapshots):
    engine = hybrid(snapshot_bytes, n_pages=n_pages, n_snapshots=n_snapshots)
    together = [make_sequence(prompt(n, seed=n), max_tokens=130) for n in (50, 60, 70)]
    run(engine, *together)
    expected = [alone(prompt(n, seed=n), max_tokens=130) for n in (50, 60, 70)]
    assert [answers_of(s) for s in together] == expected
    assert nothing_leaked(engine)


@SIZES
@pytest.mark.parametrize("n_snapshots", [2, 3, 5, 32])
def test_speculative_equals_plain(snapshot_bytes, n_snapshots):
    prompts = [prompt(n, seed=n) for n in (20, 60)]
    plain = {tuple(tokens): alone(tokens, max_tokens=60) for tokens in prompts}
    guesser = Prophet(plain, n_right=(0, 1, 3, 2))
    engine = hybrid(snapshot_bytes, guesser=guesser, n_snapshots=n_snapshots)
    together = [make_sequence(tokens, max_tokens=60) for tokens in prompts]
    run(engine, *together)
    assert [answers_of(s) for s in together] == list(plain.values())
    assert nothing_leaked(engine)
    assert (sum(s.n_accepted for s in together) > 20) == (n_snapshots > 2)


def test_a_step_that_was_cancelled_changes_nothing():
    engine = hybrid(n_batch=32)
    sequence = make_sequence(prompt(150))
    engine.add(sequence)
    list(engine.step())
    before = engine.executable.snapshots[sequence.snapshot].copy()
    engine.executable.fail_with = CancelledError("step: cancelled")
    for _ in range(3):
        with pytest.raises(CancelledError):
            list(engine.step())
    engine.executable.fail_with = None
    assert (engine.executable.snapshots[sequence.snapshot] == before).all()
    while sequence.finish_reason is None:
        list(engine.step())
    assert answers_of(sequence) == alone(prompt(150))
    assert nothing_leaked(engine)


def test_nothing_starts_from_the_states_of_a_damaged_sequence():
    engine = hybrid()
    sequence = make_sequence(prompt(150))
    engine.add(sequence)
    for _ in range(4):
        list(engine.step())
    assert snapshots_of(engine).n_kept > 0
    engine.finish(sequence, "error", NonFiniteError("logits: found NaN"))
    assert snapshots_of(engine).n_kept == 0
    again = make_sequence(prompt(150))
    run(engine, again)
    assert again.n_cached == 0
    assert nothing_leaked(engine)


def test_rows_of_a_scored_text_are_those_of_an_answer():
    tokens = prompt(150)
    engine = hybrid(n_batch=40)
    run(engine, make_sequence(tokens[:100]))
    scored = Sequence(tokens, None, max_tokens=0, rows_from=90)
    events = run(engine, scored)
    rows = np.concatenate([event.rows for event in events if isinstance(event, Rows)])
    assert scored.n_cached == 64
    assert int(rows[-1].argmax()) == alone(tokens)[0]
    assert nothing_leaked(engine)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_answers_are_those_of_each_alone(seed):
    """Few pages, few snapshots, shared beginnings, priorities, ends from outside."""
    rng = random.Random(seed)
    engine = hybrid(
        rng.choice([SMALL, LARGE]),
        n_pages=rng.choice([8, 12, 40]),
        n_snapshots=rng.choice([2, 5, 9, 40]),
        n_batch=rng.choice([16, 64, 200]),
    )
    begin = prompt(200, seed=100 + seed)
    live: list[Sequence] = []
    done: list[Sequence] = []
    for _ in range(60):
        if rng.random() < 0.4:
            tokens = begin[: rng.randrange(1, 200)] + prompt(rng.randrange(1, 40), rng.randrange(3))
            live.append(
                make_sequence(tokens, max_tokens=rng.randrange(1, 30), priority=rng.randrange(3))
            )
            engine.add(live[-1])
        if live and rng.random() < 0.05:
            engine.finish(rng.choice(live), "cancelled")
        list(engine.step())
        done += [s for s in live if s.finish_reason]
        live = [s for s in live if not s.finish_reason]
    run(engine)
    while live:
        list(engine.step())
        done += [s for s in live if s.finish_reason]
        live = [s for s in live if not s.finish_reason]
    assert len(done) > 10
    assert nothing_leaked(engine)
    for sequence in done:
        found = sequence.tokens[sequence.n_prompt :]
        expected = alone(sequence.tokens[: sequence.n_prompt], max_tokens=sequence.max_tokens)
        assert found == expected[: len(found)]
        assert sequence.finish_reason == "cancelled" or len(found) == len(expected)


def test_kept_snapshots_give_way_to_those_in_use_the_least_recently_used_first():
    snapshots = Snapshots(PagePool(6), spacing=1)
    places: list[dict[int, int]] = [{}, {}, {}]
    ids, others = snapshots.take(3), snapshots.take(3)
    for place, id in zip(places, ids, strict=True):
        snapshots.keep(place, 64, id)
    snapshots.release(ids)
    snapshots.use(ids[0])
    assert snapshots.take(1) == [ids[1]]
    assert places == [{64: ids[0]}, {}, {64: ids[2]}]
    assert snapshots.take(1) == [ids[2]]
    assert snapshots.take(1) is None
    snapshots.release(others)


def test_no_more_than_half_of_all_are_kept():
    snapshots = Snapshots(PagePool(6), spacing=1)
    places: list[dict[int, int]] = [{}, {}, {}, {}]
    ids = snapshots.take(4)
    for place, id in zip(places, ids, strict=True):
        snapshots.keep(place, 64, id)
        snapshots.release([id])
    assert places == [{}, *({64: id} for id in ids[1:])]
    assert snapshots.pool.n_free == 3


def test_a_block_that_takes_the_place_of_others_gets_their_states_once():
    snapshots = Snapshots(PagePool(6), spacing=1)
    one, other, target = {}, {}, {}
    ids = snapshots.take(3)
    for place, length, id in zip((one, one, other), (10, 20, 20), ids, strict=True):
        snapshots.keep(place, length, id)
    snapshots.release(ids)
    snapshots.move(one, target)
    snapshots.move(other, target)
    assert target == {10: ids[0], 20: ids[1]}
    assert (one, other, snapshots.n_kept, snapshots.pool.n_free) == ({}, {}, 2, 4)


def test_states_of_a_page_that_another_one_makes_needless_are_kept_beside_that():
    """A page known in part is filled as far as another one, and no longer known for itself."""
    pool, snapshots = PagePool(4), Snapshots(PagePool(8), spacing=1)
    prefixes = PrefixCache(pool, snapshots=snapshots)
    tokens = prompt(60)
    page, longer = pool.take(2)
    (state,) = snapshots.take(1)
    prefixes.keep(tokens[:20], [], 0, page)
    prefixes.keep_state(tokens, [], 20, state)
    prefixes.keep(tokens[:50], [], 0, longer)
    prefixes.keep(tokens[:40], [], 0, page)
    found = prefixes.claim_state(tokens, [], 0)
    assert (found.pages, found.source, found.n_part, found.snapshot) == ([], longer, 20, state)
    prefixes.release([page, longer, longer])
    snapshots.release([state, state])
    while prefixes.evict():
        pass
    assert (pool.n_free, snapshots.pool.n_free, snapshots.n_kept) == (4, 8, 0)


@pytest.mark.parametrize(
    ("snapshot_bytes", "page_bytes", "pages"),
    [
        (1, 512, 1),
        (512, 512, 1),
        (513, 512, 2),
        (48 << 20, 1 << 20, 48),
        (1 << 30, 0, MOST_SPACING),
    ],
)
def test_a_snapshot_takes_no_more_than_the_pages_it_is_kept_for(snapshot_bytes, page_bytes, pages):
    assert spacing_of(snapshot_bytes, page_bytes) == pages
