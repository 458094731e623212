"""Compare a backend's logits with the stored float32 truth of a real model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.kernels.backend import PAGE_LEN, Batch, Executable, Limits

CHUNK = 512
ROUNDING = 0.5e-4  # of the stored logarithms
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """One text of `shared/reference`: token ids, and what follows some of its positions."""

    name: str
    tokens: list[int]
    positions: npt.NDArray[np.int64]  # (P,)
    ids: npt.NDArray[np.int64]  # (P, 32), the likeliest next ids
    logprobs: npt.NDArray[np.float64]  # (P, 32), natural logarithms
    raw: dict[str, Any]


def read_cases(path: Path) -> list[Case]:
    """Return the cases of one model's file."""
    return [
        Case(
            name=raw["case"],
            tokens=raw["tokens"],
            positions=np.array([at["pos"] for at in raw["positions"]]),
            ids=np.array([at["ids"] for at in raw["positions"]]),
            logprobs=np.array([at["logprobs"] for at in raw["positions"]], np.float64),
            raw=raw,
        )
        for raw in json.loads(path.read_text())["cases"]
    ]


def kl32(logits: Floats, case: Case) -> npt.NDArray[np.float64]:
    """Return KL(truth || logits) in nats at each position of the case, `(P,)`.

    `logits` is `(P, n_vocab)`, one row a position. The outcomes are the 32 stored ids, and all
    other ids together: a lower bound of the KL over the whole vocabulary. The stored logarithms
    are rounded to 4 decimals, so the truth's own rest is known to +-5e-5 only (where one id is
    almost certain, that alone would count as up to 3e-4): the nearest possible rest is taken, and
    the sum is KL's form for masses that are not exactly 1.
    """
    rows = zip(logits, case.ids, case.logprobs, strict=True)
    return np.array([_kl_row(row.astype(np.float64), ids, log_p) for row, ids, log_p in rows])


def _kl_row(
    x: npt.NDArray[np.float64], ids: npt.NDArray[np.int64], log_p: npt.NDArray[np.float64]
) -> float:
    x = x - x.max()
    log_q = x[ids] - np.log(np.exp(x).sum())
    p, q = np.exp(log_p), np.exp(log_q)
    q_rest = max(1 - q.sum(), 1e-15)
    known, slack = 1 - p.sum(), ROUNDING * p.sum()
    p_rest = max(min(max(q_rest, known - slack), known + slack), 1e-15)
    listed = (p * (log_p - log_q) - p + q).sum()
    return float(listed + p_rest * np.log(p_rest / q_rest) - p_rest + q_rest)


def limits_for(n_tokens: int, **more: Any) -> Limits:
    """Return limits that hold one sequence of `n_tokens`."""
    return Limits(n_ctx=n_tokens, n_pages=-(-n_tokens // PAGE_LEN), n_batch=CHUNK, **more)


def one_sequence(
    tokens: list[int],
    first_pos: int,
    wanted: npt.ArrayLike,
    pages: npt.ArrayLike | None = None,
    snapshot: int = 0,
) -> Batch:
    """Return a step of one sequence's tokens from position `first_pos` on, in pages 0, 1, ..

    Its recurrent state, if it has one, goes from a snapshot, 0 or 1, to the other one.
    """
    n = len(tokens)
    if pages is None:
        pages = np.arange(-(-(first_pos + n) // PAGE_LEN))
    return Batch(
        tokens=np.array(tokens, np.int32),
        positions=np.arange(first_pos, first_pos + n, dtype=np.int32),
        sequences=np.zeros(n, np.int32),
        page_tables=np.array([pages], np.int32),
        wanted=np.asarray(wanted, np.int32),
        snapshots=np.array([snapshot], np.int32),
        saved_rows=np.array([n - 1], np.int32),
        saved_snapshots=np.array([1 - snapshot], np.int32),
    )


def run_tokens(
    executable: Executable, tokens: list[int], wanted: npt.ArrayLike, chunk: int = CHUNK
) -> Floats:
    """Run one sequence in chunks; return the logits of the wanted positions, ascending."""
    wanted = np.asarray(wanted)
    parts = []
    for i, start in enumerate(range(0, len(tokens), chunk)):
        part = tokens[start : start + chunk]
        here = wanted[(wanted >= start) & (wanted < start + len(part))] - start
        logits = executable.run(one_sequence(part, start, here, snapshot=i % 2))
        parts.append(logits.copy())
    return np.concatenate(parts)


def run_case(executable: Executable, case: Case, chunk: int = CHUNK) -> Floats:
    """Return the logits at the case's positions, `(P, n_vocab)`."""
    return run_tokens(executable, case.tokens, case.positions, chunk)
