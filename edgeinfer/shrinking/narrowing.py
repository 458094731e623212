"""Find the smallest file within a divergence: predict, try, and correct what was predicted."""

import math
from collections.abc import Callable, Mapping, Sequence

from edgeinfer.errors import InvalidParameterError
from edgeinfer.quantizing.search import Fit, Options, fit_cost
from edgeinfer.shrinking.attempts import Attempt

MOST_ATTEMPTS = 8
NEAR_ENOUGH = 0.95  # of what is allowed: what another attempt would save is hardly a hundredth
SAFETY = 0.98  # of what is allowed: what an attempt aims at
LEAST_SLOPE, MOST_SLOPE = 0.3, 3.0  # of what is found over what is predicted, both as logarithms

TryOut = Callable[[Mapping[str, str]], Attempt]


def smallest_within(costs: Options, max_kld: float, try_out: TryOut) -> tuple[Attempt, Fit]:
    """Return the smallest copy found whose measured divergence is at most `max_kld`.

    The last copy tried need not be the one returned. Raises InvalidParameterError if not even the
    best formats come so near to the source.
    """
    best: tuple[Attempt, Fit] | None = None
    points: list[tuple[float, float]] = []  # predicted and found
    seen: set[tuple[str, ...]] = set()
    aim = max_kld * SAFETY
    for _ in range(MOST_ATTEMPTS):
        fit = fit_cost(costs, aim)
        if (key := tuple(fit.formats.values())) in seen:
            break
        seen.add(key)
        attempt = try_out(fit.formats)
        found = attempt.divergence.kld.value
        if found <= max_kld:
            if best is None or attempt.copy.n_bytes < best[0].copy.n_bytes:
                best = attempt, fit
            if found >= NEAR_ENOUGH * max_kld:
                break
        points.append((max(fit.cost, 1e-12), max(found, 1e-12)))
        aim = next_aim(points, max_kld)
    return best or _best_formats(costs, max_kld, try_out)


def next_aim(points: Sequence[tuple[float, float]], max_kld: float) -> float:
    """Return what to predict next, from what was predicted and then found, both as logarithms.

    It lies on the line through the two that came nearest, and between the last that kept within
    `max_kld` and the first that did not.
    """
    target = math.log(SAFETY * max_kld)
    logs = [(math.log(predicted), math.log(found)) for predicted, found in points]
    near = sorted(logs, key=lambda point: abs(point[1] - target))[:2]
    (x, y), slope = near[0], 1.0
    if len(near) == 2 and near[1][0] != x:
        slope = (near[1][1] - y) / (near[1][0] - x)
        slope = min(max(slope, LEAST_SLOPE), MOST_SLOPE)
    aim = x + (target - y) / slope
    met = max((p for p, f in logs if math.exp(f) <= max_kld), default=-math.inf)
    missed = min((p for p, f in logs if math.exp(f) > max_kld), default=math.inf)
    if not met < aim < missed:
        aim = (met + missed) / 2 if math.isfinite(met + missed) else missed - 1
    return math.exp(aim)


def _best_formats(costs: Options, max_kld: float, try_out: TryOut) -> tuple[Attempt, Fit]:
    fit = fit_cost(costs, 0.0)
    attempt = try_out(fit.formats)
    found = attempt.divergence.kld.value
    if found > max_kld:
        formats = ", ".join(sorted(set(fit.formats.values())))
        raise InvalidParameterError(
            f"max kld: the best formats, {formats}, are {found:.3g} from the source (allowed: "
            f"{max_kld:g}); allow more, or keep floats (recipe F16)"
        )
    return attempt, fit
