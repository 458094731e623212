"""Who runs in a step, with how many tokens, on which pages."""

from edgeinfer.engine.pages import PagePool
from edgeinfer.engine.scheduler import Scheduler
from tests.engine.fakes import make_sequence, prompt


def make_scheduler(*, n_pages=8, n_batch=64, n_rows=100):
    return Scheduler(PagePool(n_pages), n_batch=n_batch, n_rows=n_rows, n_kept=2)


def planned(scheduler):
    work, starved = scheduler.plan()
    assert not starved
    return [(item.sequence, item.n_tokens) for item in work]


def compute(work):
    for sequence, n_tokens in work:
        sequence.n_computed += n_tokens


def test_a_long_prompt_catches_up_in_chunks():
    scheduler, long = make_scheduler(), make_sequence(prompt(150))
    scheduler.add(long)

    sizes = []
    while long.n_due:
        work = planned(scheduler)
        compute(work)
        sizes += [n for _, n in work]

    assert sizes == [64, 64, 22]
    assert long.pages == [0, 1, 2]


def test_an_answer_runs_beside_a_prompt_and_first():
    scheduler = make_scheduler()
    long, answering = make_sequence(prompt(150)), make_sequence(prompt(5))
    answering.n_computed = 4
    scheduler.add(long)
    scheduler.running.append(answering)

    assert planned(scheduler) == [(answering, 1), (long, 63)]


def test_a_paused_sequence_is_left_out():
    scheduler, one = make_scheduler(), make_sequence(prompt(5))
    scheduler.add(one)
    one.paused = True

    assert planned(scheduler) == []
    assert not scheduler.has_work


def test_rows_of_logits_bound_the_step():
    scheduler = make_scheduler(n_rows=10)
    scoring = make_sequence(prompt(25), max_tokens=0, all_rows=True)
    scheduler.add(scoring)

    assert planned(scheduler) == [(scoring, 10)]


def test_kept_pages_are_given_up_for_a_running_sequence():
    scheduler = make_scheduler(n_pages=2)
    first, second = make_sequence(prompt(64)), make_sequence(prompt(128, seed=1))
    scheduler.add(first)
    compute(planned(scheduler))
    scheduler.finish(first, "length")
    scheduler.add(second)
    compute(planned(scheduler))

    assert planned(scheduler) == [(second, 64)]
    assert len(scheduler.prefixes) == 0


def test_a_sequence_for_which_no_page_is_left_is_named():
    scheduler = make_scheduler(n_pages=1)
    first, second = make_sequence(prompt(10)), make_sequence(prompt(12))
    scheduler.add(first)
    scheduler.add(second)

    work, starved = scheduler.plan()

    assert [item.sequence for item in work] == [first]
    assert starved == [second]


def test_all_pages_are_free_or_kept_when_all_have_finished():
    scheduler = make_scheduler()
    for n in (5, 70, 130):
        sequence = make_sequence(prompt(n, seed=n))
        scheduler.add(sequence)
        while sequence.n_due:
            compute(planned(scheduler))
        scheduler.finish(sequence, "cancelled")

    while scheduler.prefixes.evict():
        pass

    assert scheduler.pool.n_free == scheduler.pool.n_pages
