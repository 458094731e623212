"""Say how the next token is chosen: every parameter, its default, its range and what it means.

Knows numbers and token ids; knows no logits and no text.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeinfer.errors import InvalidParameterError

INT32_MAX = 2**31 - 1
SEED_MAX = 2**64 - 1
BAN = -100.0  # a bias this low removes the token, as users of the OpenAI parameter expect

# field: (least, most, what the special values mean)
_FLOATS = {
    "temperature": (0.0, 100.0, "0 is greedy"),
    "dynatemp_range": (0.0, 100.0, "0 is off"),
    "dynatemp_exponent": (0.0, 100.0, ""),
    "top_p": (0.0, 1.0, "1 is off"),
    "min_p": (0.0, 1.0, "0 is off"),
    "typical_p": (0.0, 1.0, "1 is off"),
    "top_n_sigma": (-1.0, 100.0, "0 or less is off"),
    "xtc_probability": (0.0, 1.0, "0 is off"),
    "xtc_threshold": (0.0, 1.0, "above 0.5 is off"),
    "repeat_penalty": (0.01, 100.0, "1 is off"),
    "frequency_penalty": (-100.0, 100.0, "0 is off"),
    "presence_penalty": (-100.0, 100.0, "0 is off"),
    "dry_multiplier": (0.0, 100.0, "0 is off"),
    "dry_base": (1.0, 100.0, ""),
    "mirostat_tau": (0.0, 100.0, ""),
    "mirostat_eta": (0.0, 100.0, ""),
}
_INTEGERS = {
    "top_k": (-1, INT32_MAX, "0 or -1 is off"),
    "penalty_last_n": (-1, INT32_MAX, "0 is off, -1 is the whole sequence"),
    "dry_allowed_length": (1, INT32_MAX, ""),
    "dry_last_n": (-1, INT32_MAX, "0 is off, -1 is the whole sequence"),
    "min_keep": (0, INT32_MAX, ""),
    "choice": (0, INT32_MAX, ""),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one sequence chooses its tokens; llama.cpp's names, order and defaults.

    Order: logit_bias, repeat/frequency/presence penalties, DRY, then top_n_sigma, top_k, typical_p,
    top_p, min_p, XTC, temperature. Mirostat replaces what follows DRY. With temperature 0 the most
    probable token after bias, penalties and DRY is taken, which by default is the most probable
    token of the model; of equal ones the lowest id.

    logit_bias maps a token id (int, or its decimal digits) to what is added to its logit, -100 to
    100; -100 (or -inf) bans the token. A ban is of one id: the same word with a space before it is
    another token.
    dry_breakers are token sequences a repetition does not reach across.
    seed None or -1: drawn anew for each sequence; Sampler.seed tells which. `choice` is the index
    among several answers to one prompt, and gives each its own random numbers under one seed.

    Raises:
        InvalidParameterError: a value is of the wrong type or outside its range.
    """

    logit_bias: Mapping[int, float] = field(default_factory=dict)
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = -1
    dry_breakers: tuple[tuple[int, ...], ...] = ()
    top_n_sigma: float = -1.0
    top_k: int = 40
    typical_p: float = 1.0
    top_p: float = 0.95
    min_p: float = 0.05
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    min_keep: int = 0
    seed: int | None = None
    choice: int = 0

    def __post_init__(self) -> None:
        for name, (low, high, meaning) in _FLOATS.items():
            object.__setattr__(self, name, _number(name, getattr(self, name), low, high, meaning))
        for name, (least, most, meaning) in _INTEGERS.items():
            _integer(name, getattr(self, name), least, most, meaning)
        _integer("mirostat", self.mirostat, 0, 2, "0 is off; 1 is not offered")
        if self.mirostat == 1:
            raise _error("mirostat", 1, "0 or 2")
        if self.seed is not None:
            _integer("seed", self.seed, -1, SEED_MAX, "-1 draws one")
        object.__setattr__(self, "logit_bias", _bias(self.logit_bias))
        object.__setattr__(self, "dry_breakers", _breakers(self.dry_breakers))

    def check_vocabulary(self, n_vocab: int) -> None:
        """Raise InvalidParameterError where a token id is not below n_vocab."""
        for id in self.logit_bias:
            _integer("logit_bias", id, 0, n_vocab - 1, "a token id of this model")
        for breaker in self.dry_breakers:
            for id in breaker:
                _integer("dry_breakers", id, 0, n_vocab - 1, "a token id of this model")

    @property
    def history_len(self) -> int:
        """How many of the last tokens the penalties look at; -1: all."""
        wanted = [0]
        off = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty) == (1, 0, 0)
        if not off:
            wanted.append(self.penalty_last_n)
        if self.dry_multiplier > 0:
            wanted.append(self.dry_last_n)
        return -1 if -1 in wanted else max(wanted)


def draw_seed(params: SamplingParams) -> int:
    """Return the seed to use: the caller's, or 32 bits of the system's randomness."""
    if params.seed is None or params.seed == -1:
        return int.from_bytes(os.urandom(4), "little")
    return params.seed


def _error(name: str, found: object, allowed: str) -> InvalidParameterError:
    # Python refuses to print integers of thousands of digits
    if isinstance(found, int) and found.bit_length() > 128:
        shown = f"an integer of {found.bit_length()} bits"
    else:
        shown = repr(found)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return InvalidParameterError(f"{name}: found {shown} (allowed: {allowed})")


def _range(least: float, most: float, meaning: str) -> str:
    return f"{least:g} to {most:g}" + (f"; {meaning}" if meaning else "")


def _number(name: str, value: object, least: float, most: float, meaning: str) -> float:
    allowed = _range(least, most, meaning)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _error(name, value, f"a number from {allowed}")
    if not least <= value <= most:  # NaN fails too
        raise _error(name, value, allowed)
    return float(value)


def _integer(name: str, value: object, least: int, most: int, meaning: str) -> int:
    allowed = f"{least} to {most}" + (f"; {meaning}" if meaning else "")
    if isinstance(value, bool) or not isinstance(value, int):
        raise _error(name, value, f"an integer from {allowed}")
    if not least <= value <= most:
        raise _error(name, value, allowed)
    return value


def _bias(given: object) -> dict[int, float]:
    """Return ids and finite biases in order of id, BAN standing for a ban."""
    if not isinstance(given, Mapping):
        raise _error("logit_bias", given, "a map from token ids to numbers")
    made: dict[int, float] = {}
    for key, value in given.items():
        digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10
        id = _integer("logit_bias", int(key) if digits else key, 0, INT32_MAX, "a token id")
        if id in made:
            raise _error("logit_bias", id, "each token id once")
        ban = isinstance(value, float) and value == -math.inf
        made[id] = BAN if ban else _number("logit_bias", value, BAN, 100.0, "-100 or -inf bans")
    return dict(sorted(made.items()))


def _breakers(given: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(given, list | tuple):
        raise _error("dry_breakers", given, "a list of token sequences")
    made = []
    for ids in given:
        if not isinstance(ids, list | tuple) or not ids:
            raise _error("dry_breakers", ids, "sequences of at least one token id")
        made.append(tuple(_integer("dry_breakers", id, 0, INT32_MAX, "a token id") for id in ids))
    return tuple(made)
