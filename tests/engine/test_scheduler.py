"""Who runs in a step, with how many tokens, on which pages; who gives way; no model."""

from edgeinfer.engine.holdings import Holdings
from edgeinfer.engine.pages import PagePool
from edgeinfer.engine.prefix import PrefixCache
from edgeinfer.engine.scheduler import MOST_PASSED_OVER, Scheduler
from tests.engine.fakes import make_sequence, prompt


class FixedPace:
    def __init__(self, beside):
        self.beside = beside

    def most_tokens(self, n_answers):
        return self.beside if n_answers else 10**9


def make_scheduler(*, n_pages=8, n_batch=64, n_rows=100, beside=10**9, window=0):
    pool = PagePool(n_pages)
    holdings = Holdings(pool, PrefixCache(pool), n_kept=n_pages, window=window)
    return Scheduler(holdings, FixedPace(beside), n_batch=n_batch, n_rows=n_rows)


def step(scheduler, *, answer=True):
    """Carry out a step; who has caught up gets the token 0. Return who computed how much."""
    plan = scheduler.plan()
    assert not plan.starved
    done = [(item.sequence, item.n_tokens) for item in plan.work]
    for item in plan.work:
        caught_up = item.catches_up
        scheduler.advance(item)
        if caught_up and answer:
            item.sequence.tokens.append(0)
    return done


def add(scheduler, tokens, **options):
    sequence = make_sequence(tokens, **options)
    scheduler.add(sequence)
    return sequence


def answering(scheduler, tokens, **options):
    """Add a sequence whose prompt is computed."""
    sequence = add(scheduler, tokens, **options)
    while sequence.n_generated == 0:
        step(scheduler)
    return sequence


def test_a_long_prompt_catches_up_in_chunks():
    scheduler = make_scheduler()
    long = add(scheduler, prompt(150))

    sizes = [n for _ in range(3) for _, n in step(scheduler)]

    assert sizes == [64, 64, 22]
    assert long.pages == [0, 1, 2]


def test_an_answer_runs_beside_a_prompt_and_first():
    scheduler = make_scheduler()
    one = answering(scheduler, prompt(5))
    long = add(scheduler, prompt(150, seed=1))

    assert step(scheduler) == [(one, 1), (long, 63)]


def test_prompts_beside_answers_get_what_the_pace_allows():
    scheduler = make_scheduler(beside=10)
    one = answering(scheduler, prompt(5))
    short, long = add(scheduler, prompt(8, seed=2)), add(scheduler, prompt(150, seed=1))

    assert step(scheduler) == [(one, 1), (short, 8), (long, 2)]


def test_a_step_without_prompts_is_possible_when_the_pace_asks_for_it():
    scheduler = make_scheduler(beside=0)
    one = answering(scheduler, prompt(5))
    add(scheduler, prompt(150, seed=1))

    assert step(scheduler) == [(one, 1)]


def test_answers_keep_their_place_in_a_full_step():
    scheduler = make_scheduler(n_batch=4)
    answers = [answering(scheduler, prompt(3, seed=seed)) for seed in range(3)]
    long = add(scheduler, prompt(150, seed=9))

    assert step(scheduler) == [*((s, 1) for s in answers), (long, 1)]


def test_the_prompt_that_is_least_behind_goes_first():
    scheduler = make_scheduler()
    long, short = add(scheduler, prompt(150)), add(scheduler, prompt(20, seed=1))

    assert step(scheduler) == [(short, 20), (long, 44)]


def test_a_higher_priority_goes_first_however_long_it_is():
    scheduler = make_scheduler()
    short, long = add(scheduler, prompt(20)), add(scheduler, prompt(150, seed=1), priority=1)

    assert step(scheduler) == [(long, 64)]
    assert short.n_computed == 0


def test_short_prompts_do_not_starve_a_long_one():
    scheduler = make_scheduler(n_pages=400)
    long = add(scheduler, prompt(150))
    n_steps = 0
    while long.n_computed == 0:
        other = add(scheduler, prompt(64, seed=n_steps + 1), max_tokens=0)
        step(scheduler, answer=False)
        if not other.n_due:
            scheduler.finish(other, "length")
        n_steps += 1

    assert n_steps == MOST_PASSED_OVER + 1


def test_higher_priorities_do_not_starve_a_lower_one():
    scheduler = make_scheduler(n_pages=400)
    low = add(scheduler, prompt(30), priority=-5)
    n_steps = 0
    while low.n_computed == 0:
        other = add(scheduler, prompt(64, seed=n_steps + 1), priority=5, max_tokens=0)
        step(scheduler, answer=False)
        if not other.n_due:
            scheduler.finish(other, "length")
        n_steps += 1

    assert n_steps == MOST_PASSED_OVER + 1


def test_who_waited_too_long_goes_first_until_its_end():
    scheduler = make_scheduler(n_pages=40)
    low = add(scheduler, prompt(150), priority=-5)
    low.n_passed_over = MOST_PASSED_OVER
    add(scheduler, prompt(64, seed=1), priority=5)

    assert [step(scheduler)[0][0] for _ in range(3)] == [low] * 3


def test_a_paused_sequence_is_left_out():
    scheduler = make_scheduler()
    one = add(scheduler, prompt(5))
    one.paused = True

    assert step(scheduler) == []
    assert not scheduler.has_work


def test_rows_of_logits_bound_the_step():
    scheduler = make_scheduler(n_rows=10)
    scoring = add(scheduler, prompt(25), max_tokens=0, rows_from=0)

    assert step(scheduler) == [(scoring, 10)]


def test_one_of_two_equal_prompts_waits_and_finds_all_but_its_end_cached():
    scheduler = make_scheduler(n_batch=200)
    one, two = add(scheduler, prompt(150)), add(scheduler, prompt(150))

    assert step(scheduler) == [(one, 150)]
    plan = scheduler.plan()
    assert plan.copies == [(2, 3)]
    assert [(item.sequence, item.n_tokens) for item in plan.work] == [(one, 1), (two, 1)]
    assert (one.pages, two.pages) == ([0, 1, 2], [0, 1, 3])
    assert two.n_cached == 149


def test_choices_of_a_short_prompt_read_it_once():
    scheduler = make_scheduler()
    choices = [add(scheduler, prompt(30)) for _ in range(4)]

    assert step(scheduler) == [(choices[0], 30)]
    assert step(scheduler) == [(one, 1) for one in choices]


def test_two_prompts_that_share_too_little_do_not_wait():
    scheduler = make_scheduler()
    one, two = add(scheduler, prompt(8)), add(scheduler, prompt(8))

    assert step(scheduler) == [(one, 8), (two, 8)]


def test_who_waits_for_another_goes_on_alone_when_that_one_ends():
    scheduler = make_scheduler()
    one, two = add(scheduler, prompt(150)), add(scheduler, prompt(150))
    assert step(scheduler) == [(one, 64)]
    scheduler.finish(one, "cancelled")

    assert step(scheduler) == [(two, 64)]
    assert two.n_cached == 64


def test_a_part_of_a_page_is_copied_before_it_is_written():
    scheduler = make_scheduler()
    one = add(scheduler, prompt(40), max_tokens=0)
    step(scheduler, answer=False)
    scheduler.finish(one, "length")
    two = add(scheduler, prompt(40) + prompt(10, seed=1))

    plan = scheduler.plan()

    assert plan.copies == [(0, 1)]
    assert (two.pages, two.n_computed) == ([1], 40)
    assert [item.n_tokens for item in plan.work] == [10]


def test_kept_pages_are_given_up_for_a_running_sequence():
    scheduler = make_scheduler(n_pages=2)
    first = add(scheduler, prompt(64), max_tokens=0)
    step(scheduler, answer=False)
    scheduler.finish(first, "length")
    second = add(scheduler, prompt(120, seed=1))
    step(scheduler)

    assert step(scheduler) == [(second, 56)]
    assert second.pages == [1, 0]
    assert len(scheduler.holdings.prefixes) == 2  # both are of the second's


def test_the_pool_does_not_grow_for_prefixes_beyond_their_share():
    scheduler = make_scheduler(n_pages=8)
    scheduler.holdings._n_kept = 2
    for seed in range(6):
        one = add(scheduler, prompt(64, seed=seed), max_tokens=0)
        step(scheduler, answer=False)
        scheduler.finish(one, "length")

    assert scheduler.holdings.pool.n_touched == 2


def test_a_prompt_waits_until_there_are_pages_for_all_of_it():
    scheduler = make_scheduler(n_pages=4)
    one, two = add(scheduler, prompt(150)), add(scheduler, prompt(100, seed=1))
    three = add(scheduler, prompt(5, seed=2))

    assert step(scheduler) == [(one, 64)]
    assert scheduler.waiting == [two, three]  # in the order of arrival: nobody slips past
    step(scheduler)
    scheduler.finish(one, "cancelled")

    assert [s for s, _ in step(scheduler)] == [three, two]


def fill(scheduler, *sequences):
    """Step until all pages are taken and the next token of the first needs another one."""
    while sequences[0].n_computed % 64 or sequences[0].n_generated == 0:
        step(scheduler)


def test_when_pages_run_out_the_youngest_waits_and_returns_with_what_is_left():
    scheduler = make_scheduler(n_pages=4, n_batch=200)
    old, young = add(scheduler, prompt(100)), add(scheduler, prompt(70, seed=1))
    fill(scheduler, old)
    assert (old.pages, young.pages) == ([2, 3], [0, 1])

    assert step(scheduler) == [(old, 1)]
    assert (old.pages, young.pages) == ([2, 3, 1], [])
    assert scheduler.waiting == [young]

    scheduler.finish(old, "length")
    assert step(scheduler) == [(young, len(young.tokens) - 1 - 64)]
    assert young.pages == [0, 1]
    assert young.n_cached == 0


def test_who_is_paused_gives_way_even_to_the_younger():
    scheduler = make_scheduler(n_pages=3, n_batch=200)
    old, young = add(scheduler, prompt(70)), add(scheduler, prompt(40, seed=1))
    fill(scheduler, young)
    old.paused = True

    assert step(scheduler) == [(young, 1)]
    assert (old.pages, scheduler.waiting) == ([], [old])


def test_who_gives_way_in_a_step_leaves_its_part_of_it_to_others():
    """Tokens of the prompt's share, and the blocks that another one would have waited for."""
    scheduler = make_scheduler(n_pages=10, beside=46)
    one = answering(scheduler, prompt(5))
    old, young = add(scheduler, prompt(150, seed=1)), add(scheduler, prompt(132, seed=2))
    alike = add(scheduler, young.tokens[:130] + prompt(40, seed=3))
    assert [step(scheduler), step(scheduler)] == [[(one, 1), (young, 46)]] * 2
    scheduler.holdings.pool.take(6)  # one page is left, for the rest of `young`

    assert step(scheduler) == [(one, 1), (old, 6), (alike, 40)]
    assert scheduler.waiting == [young]


def test_a_lower_priority_gives_way_at_once():
    scheduler = make_scheduler(n_pages=3)
    low = add(scheduler, prompt(150), priority=-1)
    step(scheduler)
    step(scheduler)
    high = add(scheduler, prompt(150, seed=1))

    for _ in range(3):
        assert step(scheduler)[0][0] is high
    assert low.pages == []


def test_many_that_cannot_run_together_all_end():
    scheduler = make_scheduler(n_pages=4, n_batch=32)
    left = [add(scheduler, prompt(60 + 9 * seed, seed=seed)) for seed in range(8)]
    n_steps = 0
    while left:
        step(scheduler)
        n_steps += 1
        assert n_steps < 1000
        for sequence in [s for s in left if s.n_generated >= 60]:
            scheduler.finish(sequence, "length")
            left.remove(sequence)

    assert scheduler.holdings.n_available == 4


def test_a_sequence_for_which_no_page_is_left_though_it_is_alone_is_named():
    scheduler = make_scheduler(n_pages=1)
    one = answering(scheduler, prompt(63))
    step(scheduler)

    plan = scheduler.plan()

    assert (plan.starved, plan.work) == ([one], [])


def test_pages_behind_all_windows_are_given_back_and_stay_known():
    scheduler = make_scheduler(n_pages=8, window=70)
    one = add(scheduler, prompt(300), max_tokens=0)
    for _ in range(5):
        step(scheduler, answer=False)

    assert one.pages == [-1, -1, -1, 3, 4]
    assert scheduler.holdings.prefixes.n_unused == 3
    scheduler.finish(one, "length")
    again = add(scheduler, prompt(300))
    assert step(scheduler) == [(again, 1)]
    assert again.n_cached == 299


def test_all_pages_are_free_or_kept_when_all_have_finished():
    scheduler = make_scheduler()
    for n in (5, 70, 130):
        sequence = add(scheduler, prompt(n, seed=n), max_tokens=0)
        while sequence.n_due:
            step(scheduler, answer=False)
        scheduler.finish(sequence, "cancelled")

    while scheduler.holdings.prefixes.evict():
        pass

    assert scheduler.holdings.pool.n_free == 8
