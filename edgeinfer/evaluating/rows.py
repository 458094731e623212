"""Tell what rows of logits say of the tokens that came, in float64."""

import math
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def negative_log_likelihoods(rows: Logits, labels: Ids[int]) -> Floats:
    """Return -log p(label) of each row."""
    found = np.empty(len(rows))
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        values, _, log_total = _softmax(row)
        found[i] = log_total - values[label]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """What two predictions of each token differ by.

    kld: KL(p || q), the sum of p * (log p - log q), in nats. nll_p, nll_q: -log p(label) and
    -log q(label). same: whether p and q have the same likeliest token.
    """

    kld: Floats
    nll_p: Floats
    nll_q: Floats
    same: npt.NDArray[np.bool_]


def compare(p_rows: Logits, q_rows: Logits, labels: Ids[int]) -> Compared:
    """Compare two models' rows, one row of each at a time."""
    kld, nll_p, nll_q = (np.empty(len(p_rows)) for _ in range(3))
    for i, (p_row, q_row, label) in enumerate(zip(p_rows, q_rows, labels, strict=True)):
        p, p_masses, p_total = _softmax(p_row)
        q, _, q_total = _softmax(q_row)
        kld[i] = (p_masses @ (p - q)) / math.exp(p_total) - p_total + q_total
        nll_p[i], nll_q[i] = p_total - p[label], q_total - q[label]
    same = p_rows.argmax(axis=1) == q_rows.argmax(axis=1)
    return Compared(kld, nll_p, nll_q, same)


def _softmax(row: Logits) -> tuple[Floats, Floats, float]:
    """Return logits below the largest, e to them, and the log of the sum of those."""
    values = row.astype(np.float64)
    values -= values.max()
    masses = np.exp(values)
    return values, masses, math.log(float(masses.sum()))
