"""The seconds of steps, known and estimated."""

from edgeinfer.engine.step_cost import N_KEPT, STEEP, StepCost


def cost_of(**seconds):
    cost = StepCost()
    for name, step_s in seconds.items():
        cost.record(int(name[1:]), step_s)
    return cost


def test_a_stray_step_does_not_count():
    cost = StepCost()
    for step_s in (1.0, 1.1, 50.0, 0.9, 1.0):
        cost.record(1, step_s)

    assert cost.seconds(1) == 1.0


def test_what_is_long_past_is_forgotten():
    cost = StepCost()
    for step_s in [1.0] * 20 + [2.0] * N_KEPT:
        cost.record(1, step_s)

    assert cost.seconds(1) == 2.0
    assert cost.n_measured(1) == N_KEPT
    assert cost.n_measured(2) == 0


def test_sizes_between_known_ones_lie_between_them():
    assert cost_of(_2=1.0, _6=3.0).seconds(3) == 1.5


def test_sizes_beyond_known_ones_are_estimated():
    cost = cost_of(_2=1.0, _6=3.0)

    assert cost.seconds(1) == 1.0
    assert cost.seconds(8) == 3.0 + 2 * STEEP
