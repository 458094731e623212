"""Choose a token with NumPy where nothing is compiled: the same tokens as csrc/sample*.c.

Every sum and every exp and log repeats the order of operations that C uses, in float64 and without
a fused multiply-add. The names are those of the C files, which hold the reasons.
"""

import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from edgeinfer.errors import InvalidParameterError, NonFiniteError

N_LANES = 16
LN2, LN2_HI = float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.62e42feep-1")
LN2_LO, LOG2_E = float.fromhex("0x1.a39ef35793c76p-33"), float.fromhex("0x1.71547652b82fep+0")
SQRT2, ROUND = float.fromhex("0x1.6a09e667f3bcdp+0"), float.fromhex("0x1.8p52")
LEAST = -700.0
LEAST_TEMPERATURE = 1e-6
FLOAT_MAX = float(np.finfo(np.float32).max)
MOST_PENALTY = 1e30
DRAW_TOKEN, DRAW_XTC = 0, 1


def exp_neg(x: np.ndarray) -> np.ndarray:
    """Return e^x for x <= 0, 0 where x is below LEAST."""
    kept = np.maximum(x, LEAST)
    t = kept * LOG2_E + ROUND
    n = t - ROUND
    r = (kept - n * LN2_HI) - n * LN2_LO
    p = r * (1.0 / 39916800) + 1.0 / 3628800
    for factorial in (362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1):
        p = p * r + 1.0 / factorial
    power = ((t.view(np.uint64) + np.uint64(1023)) << np.uint64(52)).view(np.float64)
    return np.where(x > LEAST, p * power, 0.0)


def log_of(x: float) -> float:
    """Return ln x of a positive x."""
    bits = struct.unpack("<Q", struct.pack("<d", x))[0]
    e = (bits >> 52) - 1023
    m: float = struct.unpack("<d", struct.pack("<Q", bits & (1 << 52) - 1 | 0x3FF << 52))[0]
    if m > SQRT2:
        m, e = m * 0.5, e + 1
    f = (m - 1.0) / (m + 1.0)
    g, p = f * f, 1.0 / 21
    for k in range(19, 0, -2):
        p = p * g + 1.0 / k
    return float(e) * LN2_HI + (float(e) * LN2_LO + 2.0 * f * p)


def uniform(seed: int, position: int, draw: int, choice: int) -> float:
    """Return Philox4x32-10's number in [0, 1) for a seed and a counter."""
    mask = 0xFFFFFFFF
    c0, c1, c2, c3 = position & mask, position >> 32, draw, choice
    k0, k1 = seed & mask, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & mask, (a >> 32) ^ c3 ^ k1, a & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return (c0 << 21 | c1 >> 11) * 2.0**-53


def lane_sum(x: np.ndarray) -> float:
    """Sum (n,) float64 in 16 lanes by index, then the lanes by halves."""
    padded = np.zeros((-(-len(x) // N_LANES), N_LANES))
    padded.reshape(-1)[: len(x)] = x
    lanes: np.ndarray = np.add.accumulate(padded, axis=0)[-1]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return float(lanes[0])


class NumpySampler:
    """Hold one sequence's parameters and mirostat state; the arguments are NativeSampler's."""

    def __init__(
        self,
        n_vocab: int,
        values: Mapping[str, float],
        bias: Mapping[int, float],
        breakers: Sequence[Sequence[int]],
    ) -> None:
        self.n_vocab = n_vocab
        self.p = dict(values)
        self.bias = bias
        self.breakers = breakers
        self.mu = 2.0 * self.p["mirostat_tau"]

    def sample(
        self, logits: np.ndarray, history: np.ndarray, position: int, n_top: int
    ) -> tuple[int, float, list[tuple[int, float]]]:
        """Return (token, its log-probability, the n_top best with theirs); n_top -1: neither."""
        if np.isnan(logits).any() or logits.max() == np.inf:
            raise NonFiniteError("sampler: the logits hold NaN or infinity (need finite numbers)")
        raw = _Candidates(logits)
        log_mass = log_of(raw.open_mass(1.0)[0]) if n_top >= 0 else 0.0
        top = []
        if n_top > 0:
            raw.rank_top(n_top)
            top = [
                (int(id), float(d) - log_mass) for id, d in zip(raw.ids, raw.relative, strict=True)
            ]
        row = edit_logits(logits, history, self.p, self.bias, self.breakers)
        token = self._choose(_Candidates(row), position)
        return token, (float(logits[token]) - raw.top) - log_mass, top

    def _uniform(self, position: int, draw: int) -> float:
        return uniform(int(self.p["seed"]), position, draw, int(self.p["choice"]))

    def _choose(self, c: "_Candidates", position: int) -> int:
        p = self.p
        if p["temperature"] <= 0.0:
            return c.first()
        if p["mirostat"]:
            return self._draw_mirostat(c, position)
        keep_top_n_sigma(c, p["top_n_sigma"])
        keep_top_k(c, int(p["top_k"]), int(p["min_keep"]))
        keep_typical(c, p["typical_p"], int(p["min_keep"]))
        keep_top_p(c, p["top_p"], int(p["min_keep"]))
        keep_min_p(c, p["min_p"], int(p["min_keep"]))
        if self._uniform(position, DRAW_XTC) < p["xtc_probability"] and p["xtc_threshold"] <= 0.5:
            exclude_top(c, p["xtc_threshold"], int(p["min_keep"]))
        temperature = dynamic_temperature(c, p)
        if temperature <= LEAST_TEMPERATURE:
            return c.first()
        mass = c.mass(temperature)[0]
        if c.open:
            c.rank_all()
        return int(c.ids[self._draw(c.weights(temperature), mass, position)])

    def _draw(self, weights: np.ndarray, mass: float, position: int) -> int:
        sums = np.add.accumulate(weights)
        u = self._uniform(position, DRAW_TOKEN)
        i = int(np.searchsorted(sums, u * mass, side="right"))
        return i if i < len(sums) else int(np.flatnonzero(weights > 0)[-1])

    def _draw_mirostat(self, c: "_Candidates", position: int) -> int:
        t = self.p["temperature"]
        if t <= LEAST_TEMPERATURE:
            return c.first()
        c.rank_from((log_of(c.open_mass(t)[0]) - self.mu * LN2) * t)
        if len(c.ids) == 0:
            c.rank_top(1)
        mass = c.mass(t)[0]
        i = self._draw(c.weights(t), mass, position)
        surprise = (log_of(mass) - float(c.relative[i]) / t) / LN2
        self.mu -= self.p["mirostat_eta"] * (surprise - self.p["mirostat_tau"])
        return int(c.ids[i])


class _Candidates:
    """The tokens that may still be chosen: all of the row while `open`, else a ranked list.

    `relative` is a candidate's logit less that of the first, in float64.
    """

    def __init__(self, row: np.ndarray) -> None:
        self.row = row
        self.top = float(row.max())
        if self.top == -np.inf:
            raise InvalidParameterError("logit_bias: every token is banned (leave at least one)")
        self.offsets = row.astype(np.float64) - self.top
        self.open = True
        self.ids = np.empty(0, np.int64)
        self.relative = np.empty(0)

    def first(self) -> int:
        return int(np.argmax(self.row) if self.open else self.ids[0])

    def rank_from(self, bound: float) -> None:
        kept = np.flatnonzero(self.offsets >= max(bound, -np.finfo(np.float64).max))
        order = np.argsort(-self.offsets[kept], kind="stable")
        self._list(kept[order])

    def rank_all(self) -> None:
        self.rank_from(-math.inf)

    def rank_top(self, k: int) -> None:
        self.rank_all()
        self._list(self.ids[:k])

    def _list(self, ids: np.ndarray) -> None:
        self.open = False
        self.ids = ids
        logits = self.row[ids].astype(np.float64)
        self.relative = logits - logits[0] if len(ids) else logits

    def keep(self, kept: slice | np.ndarray) -> None:
        self._list(self.ids[kept])

    def n(self) -> int:
        return int((self.offsets > -np.inf).sum()) if self.open else len(self.ids)

    def weights(self, temperature: float) -> np.ndarray:
        return exp_neg(self.relative / temperature)

    def open_mass(self, temperature: float) -> tuple[float, float]:
        d = self.offsets / temperature
        w = exp_neg(d)
        return lane_sum(w), lane_sum(w * np.maximum(d, LEAST))

    def mass(self, temperature: float) -> tuple[float, float]:
        """Return the sum of w = exp(d) and of w * d, d being relative / temperature."""
        if self.open:
            return self.open_mass(temperature)
        d = self.relative / temperature
        w = exp_neg(d)
        dots = np.add.accumulate(w * np.maximum(d, LEAST))
        return float(np.add.accumulate(w)[-1]), float(dots[-1])


def keep_top_n_sigma(c: _Candidates, n_sigma: float) -> None:
    if n_sigma <= 0.0:
        return
    unbanned = c.offsets > -np.inf
    d = np.where(unbanned, c.offsets, 0.0)
    n = float(c.n())
    mean = lane_sum(d) / n
    apart = np.where(unbanned, d - mean, 0.0)
    c.rank_from(-(n_sigma * math.sqrt(lane_sum(apart * apart) / n)))


def keep_top_k(c: _Candidates, k: int, min_keep: int) -> None:
    if k <= 0:
        return
    if c.open:
        c.rank_all()
    c.keep(slice(max(k, min_keep)))


def keep_typical(c: _Candidates, typical_p: float, min_keep: int) -> None:
    if typical_p >= 1.0:
        return
    if c.open:
        c.rank_all()
    mass, dot = c.mass(1.0)
    apart = np.abs(np.maximum(c.relative, LEAST) - dot / mass).astype(np.float32)
    order = np.argsort(apart, kind="stable")
    sums = np.add.accumulate(c.weights(1.0)[order])
    n = max(min_keep, int(np.searchsorted(sums, typical_p * mass, side="right")) + 1)
    c.keep(np.sort(order[:n]))


def keep_top_p(c: _Candidates, top_p: float, min_keep: int) -> None:
    if top_p >= 1.0:
        return
    wanted = top_p * c.mass(1.0)[0]
    if c.open:
        c.rank_all()
    n = int(np.searchsorted(np.add.accumulate(c.weights(1.0)), wanted, side="left")) + 1
    c.keep(slice(max(n, min_keep)))


def keep_min_p(c: _Candidates, min_p: float, min_keep: int) -> None:
    if min_p <= 0.0:
        return
    bound = log_of(min_p)
    if c.open:
        c.rank_all()
    c.keep(slice(max(1, min_keep, int((c.relative >= bound).sum()))))


def exclude_top(c: _Candidates, threshold: float, min_keep: int) -> None:
    if c.open:
        c.rank_all()
    n_above = int((c.weights(1.0) >= threshold * c.mass(1.0)[0]).sum())
    if n_above >= 2 and len(c.ids) - n_above + 1 >= min_keep:
        c.keep(slice(n_above - 1, None))


def dynamic_temperature(c: _Candidates, p: Mapping[str, float]) -> float:
    n, temperature, reach = c.n(), p["temperature"], p["dynatemp_range"]
    if reach <= 0.0 or n < 2:
        return temperature
    mass, dot = c.mass(1.0)
    share = min(1.0, (log_of(mass) - dot / mass) / log_of(float(n)))
    low, high = max(0.0, temperature - reach), temperature + reach
    power = 0.0
    if p["dynatemp_exponent"] == 0.0:
        power = 1.0
    elif share > 0.0:
        power = float(exp_neg(np.array([p["dynatemp_exponent"] * log_of(share)]))[0])
    return low + (high - low) * power


def edit_logits(
    logits: np.ndarray,
    history: np.ndarray,
    p: Mapping[str, float],
    bias: Mapping[int, float],
    breakers: Sequence[Sequence[int]],
) -> np.ndarray:
    """Return the logits after bias, penalties and DRY; the given row where nothing changes."""
    n_penalty, n_dry = (_window(int(p[f"{k}_last_n"]), len(history)) for k in ("penalty", "dry"))
    read = history[len(history) - max(n_penalty, n_dry) :]
    if len(read) and (read.min() < 0 or read.max() >= len(logits)):
        raise InvalidParameterError("sampler: a token id is outside the vocabulary")
    row = logits.copy()

    def edit(id: int, value: float) -> None:
        row[id] = value if value == -math.inf else min(max(value, -FLOAT_MAX), FLOAT_MAX)

    for id, added in bias.items():
        edit(id, -math.inf if added <= -100.0 else float(row[id]) + added)
    repeat, frequency, presence = (p[f"{k}_penalty"] for k in ("repeat", "frequency", "presence"))
    if (repeat, frequency, presence) != (1.0, 0.0, 0.0):
        seen, counts = np.unique(history[len(history) - n_penalty :], return_counts=True)
        for id, count in zip(seen.tolist(), counts.tolist(), strict=True):
            x = float(row[id])
            x = x * repeat if x <= 0.0 else x / repeat
            edit(id, x - (float(count) * frequency + presence))
    window = history[len(history) - n_dry :].tolist()
    for id, len_ in repetitions(window, int(p["dry_allowed_length"]), breakers, p).items():
        edit(id, float(row[id]) - dry_penalty(p, len_))
    return row


def _window(wanted: int, n_history: int) -> int:
    return n_history if wanted < 0 else min(wanted, n_history)


def repetitions(
    window: list[int], allowed: int, breakers: Sequence[Sequence[int]], p: Mapping[str, float]
) -> dict[int, int]:
    """Return token -> the length of the longest repetition it would prolong."""
    n = len(window)
    if p["dry_multiplier"] == 0.0 or n <= allowed:
        return {}
    limit = n
    for start in range(n - 1, -1, -1):
        found = [len(b) for b in breakers if window[start : start + len(b)] == list(b)]
        if found:
            limit = n - start - max(found)
            break
    longest: dict[int, int] = {}
    if limit < allowed:
        return longest
    for k in range(1, n):
        same = 0
        while same < min(limit, n - k) and window[n - 1 - same] == window[n - 1 - k - same]:
            same += 1
        if same >= allowed:
            id = window[n - k]
            longest[id] = max(same, longest.get(id, 0))
    return longest


def dry_penalty(p: Mapping[str, float], len_: int) -> float:
    penalty = p["dry_multiplier"]
    for _ in range(int(p["dry_allowed_length"]), len_):
        if penalty >= MOST_PENALTY or p["dry_base"] == 1.0:
            break
        penalty *= p["dry_base"]
    return min(penalty, MOST_PENALTY)
