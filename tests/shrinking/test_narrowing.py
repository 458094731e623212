"""The search within a divergence: it keeps the bound, and ends near it."""

from types import SimpleNamespace

import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.quantizing.search import Option
from edgeinfer.shrinking.narrowing import MOST_ATTEMPTS, next_aim, smallest_within

COSTS = {
    str(i): [
        Option("Q8_0", 800, 0.001),
        Option("Q4_K", 400, 0.1 + i / 100),
        Option("Q2_K", 200, 2.0 + i / 30),
    ]
    for i in range(300)
}


def measured(law, tried):
    """Return what tries a copy out: what it loses is `law` of what was predicted."""

    def try_out(formats):
        chosen = [o for name, of in COSTS.items() for o in of if o.format == formats[name]]
        found = law(sum(option.cost for option in chosen))
        tried.append(found)
        return SimpleNamespace(
            copy=SimpleNamespace(n_bytes=sum(option.n_bytes for option in chosen)),
            divergence=SimpleNamespace(kld=SimpleNamespace(value=found)),
        )

    return try_out


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("power", [0.5, 1.0, 1.8])
def test_wrong_predictions_are_corrected(factor, power):
    tried = []
    attempt, _ = smallest_within(
        COSTS, 300.0, measured(lambda cost: 300.0 * (cost / (300.0 * factor)) ** power, tried)
    )
    assert 0.85 * 300.0 <= attempt.divergence.kld.value <= 300.0
    assert len(tried) <= MOST_ATTEMPTS
    assert attempt.divergence.kld.value == max(found for found in tried if found <= 300.0)


def test_what_is_good_enough_at_once_is_tried_once():
    tried = []
    smallest_within(COSTS, 300.0, measured(lambda cost: cost, tried))
    assert len(tried) == 1


def test_the_best_formats_are_the_last_resort_and_then_there_is_none():
    tried = []
    attempt, fit = smallest_within(
        COSTS, 300.0, measured(lambda cost: 290 if cost < 0.31 else 999, tried)
    )
    assert set(fit.formats.values()) == {"Q8_0"}
    assert attempt.divergence.kld.value == 290
    with pytest.raises(InvalidParameterError, match=r"Q8_0, are 999 from the source .allowed: 300"):
        smallest_within(COSTS, 300.0, measured(lambda cost: 999, tried))


def test_aims_stay_between_what_kept_the_bound_and_what_did_not():
    assert 1.0 < next_aim([(1.0, 0.9), (2.0, 3.0)], 1.0) < 2.0
    assert next_aim([(2.0, 3.0)], 1.0) < 2.0
    assert next_aim([(1.0, 0.5)], 1.0) > 1.0
