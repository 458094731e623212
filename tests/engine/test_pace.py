"""How many prompt tokens run beside answers, on machines made up of a few numbers."""

import pytest

from edgeinfer.engine.pace import MOST_STEP_S, N_SHARED, Pace


class Machine:
    """A step takes the time to read the weights, or to compute, whichever is longer, or both."""

    def __init__(self, read_s, token_s, *, adds=False):
        self.read_s, self.token_s, self.adds = read_s, token_s, adds

    def step_s(self, n_tokens):
        compute_s = n_tokens * self.token_s
        return self.read_s + compute_s if self.adds else max(self.read_s, compute_s)


def run(pace, machine, n_answers, n_steps):
    """Let a prompt without end run beside answers; return (its tokens, slowdown) of each step."""
    done = []
    for _ in range(n_steps):
        n = pace.most_tokens(n_answers)
        step_s = machine.step_s(n_answers + n)
        pace.record(n_answers, n, step_s)
        done.append((n, step_s / machine.step_s(n_answers)))
    return done


@pytest.mark.parametrize("token_s", [1e-4, 3e-4, 1e-3])
@pytest.mark.parametrize("n_answers", [1, 4])
def test_answers_keep_half_their_pace_and_prompts_get_the_rest(token_s, n_answers):
    machine = Machine(0.02, token_s)

    done = run(Pace(512), machine, n_answers, 200)

    slow = [ratio for n, ratio in done if n]
    assert max(slow) <= 2.0
    most = 1.9 * machine.step_s(n_answers) / token_s - n_answers
    assert done[-1][0] == pytest.approx(most, rel=0.1)


@pytest.mark.parametrize("token_s", [2e-4, 2e-3])
def test_what_a_token_adds_is_found_where_reading_comes_on_top(token_s):
    done = run(Pace(512), Machine(0.01, token_s, adds=True), 1, 200)

    assert max(ratio for n, ratio in done if n) <= 2.0
    assert done[-1][0] == pytest.approx(0.9 * (0.01 + token_s) / token_s, abs=1)


def test_the_pace_without_prompts_is_measured_first_and_again():
    done = run(Pace(512), Machine(0.02, 1e-3), 1, 2 * N_SHARED + 3)

    assert [i for i, (n, _) in enumerate(done) if n == 0] == [0, N_SHARED + 1, 2 * N_SHARED + 2]


def test_another_number_of_answers_is_another_pace():
    pace, machine = Pace(512), Machine(0.02, 1e-3)
    run(pace, machine, 1, 15)

    assert pace.most_tokens(3) == 0


def test_answers_that_found_no_place_in_the_step_do_not_keep_prompts_out():
    pace = Pace(4)
    assert pace.most_tokens(6) == 0
    pace.record(4, 0, 0.02)

    assert pace.most_tokens(6) > 0


def test_a_machine_that_becomes_slow_gives_prompts_less():
    pace = Pace(512)
    fast = run(pace, Machine(0.02, 1e-4), 1, 100)[-1][0]

    slow = run(pace, Machine(0.02, 1e-3), 1, 100)[-1][0]

    assert slow < fast / 2


def test_a_short_prompt_says_nothing_against_long_ones():
    pace, machine = Pace(512), Machine(0.02, 1e-4)
    before = run(pace, machine, 1, 60)[-1][0]
    pace.record(1, 3, machine.step_s(4))

    assert pace.most_tokens(1) == before


def test_prompts_never_stop_altogether():
    done = run(Pace(512), Machine(1e-4, 1.0), 1, 50)[2:]

    assert min(n for n, _ in done if n) == 1


def test_alone_a_prompt_gets_the_whole_step_unless_it_takes_too_long():
    pace = Pace(512)
    assert pace.most_tokens(0) == 64
    pace.record(0, 64, 64 * 5e-4)
    assert pace.most_tokens(0) == 512
    pace = Pace(512)
    pace.record(0, 64, 64 * 2e-3)

    assert pace.most_tokens(0) == int(MOST_STEP_S / 2e-3)
    pace.record(0, 250, 250.0)
    assert pace.most_tokens(0) == 64


def test_a_batch_bounds_everything():
    pace = Pace(8)
    run(pace, Machine(0.02, 1e-5), 1, 50)

    assert pace.most_tokens(0) == pace.most_tokens(1) == 8


def test_a_clock_that_stands_still_does_no_harm():
    pace = Pace(512)
    for n_answers, n_tokens in [(0, 5), (0, 0), (1, 0), (1, 5), (1, 5)]:
        pace.record(n_answers, n_tokens, 0.0)

    assert pace.most_tokens(1) >= 1
    assert pace.most_tokens(0) == 512
