"""Define Measured: the mean of a sample and how far it may be off."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_POWER = 709.0  # e to it is near the largest float
Progress = Callable[[int, int, float], None]  # windows or tasks done, of them, the value so far


@dataclass(frozen=True, slots=True)
class Measured:
    """A value and its standard error; NaN where a single token leaves the error unknown."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.error:.4f}"


def mean_of(values: npt.NDArray[np.generic]) -> Measured:
    """Return the mean of a sample and the standard error of it."""
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    if len(sample) < 2:
        return Measured(mean, math.nan)
    return Measured(mean, float(sample.std()) / math.sqrt(len(sample) - 1))


def exp_of(measured: Measured) -> Measured:
    """Return e to a measured power, its error to first order; infinity where that is no float."""
    value = math.exp(measured.value) if measured.value < MOST_POWER else math.inf
    return Measured(value, value * measured.error)


def root_of(measured: Measured) -> Measured:
    """Return the square root of a measured value that is not negative, its error to first order."""
    value = math.sqrt(measured.value)
    return Measured(value, measured.error / (2 * value) if value else 0.0)
