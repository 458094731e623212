"""Tell what rows of logits say of the tokens that came, in float64."""

import math
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def log_probabilities(row: Logits) -> Floats:
    """Return the log-softmax of one row."""
    values = row.astype(np.float64)
    values -= values.max()
    values -= math.log(float(np.exp(values).sum()))
    return values


def negative_log_likelihoods(rows: Logits, labels: Ids[int]) -> Floats:
    """Return -log p(label) of each row."""
    pairs = zip(rows, labels, strict=True)
    return np.array([-log_probabilities(row)[label] for row, label in pairs])


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
        log_p, log_q = log_probabilities(p_row), log_probabilities(q_row)
        kld[i] = np.exp(log_p) @ (log_p - log_q)
        nll_p[i], nll_q[i] = -log_p[label], -log_q[label]
    same = p_rows.argmax(axis=1) == q_rows.argmax(axis=1)
    return Compared(kld, nll_p, nll_q, same)
