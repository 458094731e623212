"""Parameters are checked, seeds mean what they say, and C and NumPy choose the same tokens."""

import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from edgeinfer.engine import sampler as sampler_module
from edgeinfer.engine.sampler import Sampler
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.sampling_numpy import NumpySampler, exp_neg, log_of, uniform
from edgeinfer.errors import InvalidParameterError, NonFiniteError
from edgeinfer.kernels.native.isa import why_unavailable

NATIVE = pytest.mark.skipif(
    why_unavailable() is not None, reason="the compiled kernels are not installed"
)
SAMPLERS = ["numpy", pytest.param("native", marks=NATIVE)]
GREEDY = SamplingParams(temperature=0)


@pytest.fixture(params=SAMPLERS)
def make(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[SamplingParams, int], Sampler]:
    """Make samplers of one kind through the public class."""
    if request.param == "numpy":
        monkeypatch.setattr(sampler_module, "why_unavailable", lambda: "switched off by a test")
    return Sampler


def row(*logits: float) -> np.ndarray:
    return np.array(logits, np.float32)


def draws(sampler: Sampler, logits: np.ndarray, n: int = 60) -> list[int]:
    return [sampler.sample(logits, [], position) for position in range(n)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", v) for v in (math.nan, math.inf, -1, 1e30, "1", True, None)),
        *(("top_p", v) for v in (-1, 2, math.nan)),
        *(("min_p", v) for v in (-0.1, 1.5)),
        *(("top_k", v) for v in (-2, 2**40, 1.5, "40")),
        *(("repeat_penalty", v) for v in (0, -1, math.nan, math.inf)),
        *(("frequency_penalty", v) for v in (math.nan, 1e9)),
        *(("penalty_last_n", v) for v in (-2, 2**31)),
        *(("seed", v) for v in (-2, 2**64, "x", 1.5, True)),
        *(("mirostat", v) for v in (1, 3, -1)),
        *(("logit_bias", v) for v in ({"abc": 1}, {-1: 1}, {1.5: 1}, {True: 1}, [1], None)),
        *(("logit_bias", {5: v}) for v in (math.nan, 1e30, -101, math.inf, "1")),
        ("logit_bias", {5: 1, "5": 2}),
        *(("dry_breakers", v) for v in ("\n", [[]], [[1.5]], [["a"]], 3)),
        ("dry_allowed_length", 0),
        ("dry_base", 0.5),
        ("min_keep", -1),
        ("choice", -1),
    ],
)
def test_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidParameterError, match=rf"^{name}: found .*allowed: "):
        replace(SamplingParams(), **{name: value})


@pytest.mark.parametrize(
    "value",
    ["9" * 10_000, 10**10_000, -(10**10_000), (9,) * 10_000],
    ids=["text", "integer", "negative", "tuple"],
)
@pytest.mark.parametrize("name", ["top_k", "seed", "temperature", "logit_bias"])
def test_a_long_value_is_shortened_in_the_message(name: str, value: object) -> None:
    with pytest.raises(InvalidParameterError) as error:
        replace(SamplingParams(), **{name: {value: 1} if name == "logit_bias" else value})
    assert len(str(error.value)) < 200


def test_special_values_keep_their_documented_meaning() -> None:
    params = SamplingParams(top_k=-1, penalty_last_n=-1, top_n_sigma=-1, seed=-1, top_p=0)
    assert params.top_k == -1
    assert SamplingParams(temperature=1, top_p=1).temperature == 1.0


def test_bias_keys_may_be_digits_and_ids_must_exist() -> None:
    params = SamplingParams(logit_bias={"7": -100, 3: 5, 4: -math.inf})  # type: ignore[dict-item]
    assert params.logit_bias == {3: 5.0, 4: -100.0, 7: -100.0}
    params.check_vocabulary(8)
    with pytest.raises(InvalidParameterError, match="logit_bias: found 7"):
        Sampler(params, 7)
    with pytest.raises(InvalidParameterError, match="dry_breakers: found 9"):
        Sampler(SamplingParams(dry_breakers=((9,),)), 9)
    with pytest.raises(InvalidParameterError, match="logit_bias"):
        SamplingParams(logit_bias={"9" * 5000: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 0),
        ({"repeat_penalty": 1.1}, 64),
        ({"presence_penalty": 1, "penalty_last_n": 9}, 9),
        ({"dry_multiplier": 1}, -1),
        ({"dry_multiplier": 1, "dry_last_n": 100, "frequency_penalty": 1}, 100),
    ],
)
def test_only_as_much_history_as_the_penalties_read(changed: dict[str, Any], expected: int) -> None:
    assert SamplingParams(**changed).history_len == expected


def test_greedy_is_the_argmax_of_the_raw_logits_by_default(
    make: Callable[[SamplingParams, int], Sampler],
) -> None:
    logits = row(1, 5, 5, 4.9)
    assert make(GREEDY, 4).sample(logits, [1, 1, 1], 3) == 1  # of equals the lower id
    assert make(replace(GREEDY, repeat_penalty=1.1), 4).sample(logits, [1, 1, 1], 3) == 2
    assert logits.tolist() == row(1, 5, 5, 4.9).tolist()


def test_bias_bans_and_forces(make: Callable[[SamplingParams, int], Sampler]) -> None:
    logits = row(9, 1, 0)
    banned = make(SamplingParams(logit_bias={0: -100}, top_p=1, min_p=0, temperature=100), 3)
    assert set(draws(banned, logits)) == {1, 2}
    assert set(draws(make(SamplingParams(logit_bias={2: 100}), 3), logits)) == {2}


def test_banning_every_token_is_an_error(make: Callable[[SamplingParams, int], Sampler]) -> None:
    for params in (GREEDY, SamplingParams(), SamplingParams(mirostat=2)):
        sampler = make(replace(params, logit_bias={0: -100, 1: -100}), 2)
        with pytest.raises(InvalidParameterError, match="every token is banned"):
            sampler.sample(row(1, 2), [], 0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_logits_are_an_error(
    make: Callable[[SamplingParams, int], Sampler], value: float
) -> None:
    sampler = make(GREEDY, 100)
    for at in (0, 50, 99):
        logits = np.zeros(100, np.float32)
        logits[at] = value
        with pytest.raises(NonFiniteError):
            sampler.sample(logits, [], 0)
    assert sampler.sample(np.zeros(100, np.float32), [], 0) == 0


def test_wrong_rows_and_ids_are_refused(make: Callable[[SamplingParams, int], Sampler]) -> None:
    sampler = make(replace(GREEDY, presence_penalty=1), 4)
    for logits in (np.zeros(3, np.float32), np.zeros(4), np.zeros((1, 4), np.float32)):
        with pytest.raises(InvalidParameterError, match="logits: found"):
            sampler.sample(logits, [], 0)
    for history in ([4], [-1]):
        with pytest.raises(InvalidParameterError, match="outside the vocabulary"):
            sampler.sample(row(1, 2, 3, 4), history, 1)
    with pytest.raises(InvalidParameterError, match="n_top"):
        sampler.sample_with_logprobs(row(1, 2, 3, 4), [], 0, 65)


def test_equal_seeds_draw_equal_tokens_and_others_do_not(
    make: Callable[[SamplingParams, int], Sampler],
) -> None:
    logits = np.zeros(1000, np.float32)
    params = SamplingParams(top_k=0, seed=42)
    first = draws(make(params, 1000), logits)
    assert draws(make(params, 1000), logits) == first
    assert draws(make(replace(params, seed=43), 1000), logits) != first
    assert draws(make(replace(params, choice=1), 1000), logits) != first


def test_a_draw_depends_on_its_position_and_not_on_those_before(
    make: Callable[[SamplingParams, int], Sampler],
) -> None:
    logits = np.zeros(1000, np.float32)
    params = SamplingParams(seed=42, top_k=0)
    backwards = make(params, 1000)
    expected = [backwards.sample(logits, [], position) for position in range(59, -1, -1)][::-1]
    assert draws(make(params, 1000), logits) == expected


@pytest.mark.parametrize("seed", [None, -1])
def test_a_drawn_seed_is_reported_and_repeats_the_text(
    make: Callable[[SamplingParams, int], Sampler], seed: int | None
) -> None:
    logits = np.zeros(1000, np.float32)
    params = SamplingParams(seed=seed, top_k=0)
    first, second = make(params, 1000), make(params, 1000)
    assert first.seed != second.seed
    assert draws(make(replace(params, seed=first.seed), 1000), logits) == draws(first, logits)


def test_logprobs_are_of_the_model_alone(make: Callable[[SamplingParams, int], Sampler]) -> None:
    sampler = make(replace(GREEDY, logit_bias={1: -100}), 4)
    found = sampler.sample_with_logprobs(row(1, 3, 2, -math.inf), [], 0, 64)
    log_mass = math.log(math.exp(1) + math.exp(2) + math.exp(3))
    assert found.token == 2
    assert found.logprob == pytest.approx(2 - log_mass, abs=1e-12)
    assert [id for id, _ in found.top] == [1, 2, 0]
    assert found.top[0][1] == pytest.approx(3 - log_mass, abs=1e-12)


def test_random_numbers_exp_and_log_are_right() -> None:
    assert uniform(0, 0, 0, 0) == (0x6627E8D5 << 21 | 0xE169C58D >> 11) / 2**53
    x = np.linspace(-699, 0, 5001)
    assert np.abs(exp_neg(x) / np.exp(x) - 1).max() < 1e-13
    assert exp_neg(np.array([-math.inf, -701.0])).tolist() == [0.0, 0.0]
    for value in (1e-9, 0.05, 0.9999, 1.0, 1.5, 262144.0):
        assert log_of(value) == pytest.approx(math.log(value), rel=1e-14, abs=1e-16)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "temperature": (0.0, 1e-30, 0.1, 0.8, 1.0, 1.5, 100.0),
    "dynatemp_range": (0.0, 0.0, 0.5, 2.0),
    "dynatemp_exponent": (1.0, 0.0, 0.5, 3.0),
    "top_k": (-1, 0, 1, 2, 40, 40, 1000, 10**6),
    "top_p": (0.0, 0.1, 0.5, 0.95, 1.0, 1.0),
    "min_p": (0.0, 0.0, 0.05, 0.5, 1.0),
    "typical_p": (1.0, 1.0, 1.0, 0.9, 0.2, 0.0),
    "top_n_sigma": (-1.0, -1.0, 0.0, 0.5, 1.0, 3.0),
    "xtc_probability": (0.0, 0.0, 0.5, 1.0),
    "xtc_threshold": (0.0, 0.01, 0.1, 0.5, 0.6),
    "repeat_penalty": (1.0, 1.0, 1.1, 0.5),
    "frequency_penalty": (0.0, 0.0, 0.3, -0.5),
    "presence_penalty": (0.0, 0.0, 0.7),
    "penalty_last_n": (-1, 0, 5, 64),
    "dry_multiplier": (0.0, 0.0, 0.8, 5.0),
    "dry_base": (1.0, 1.75, 100.0),
    "dry_allowed_length": (1, 2, 4),
    "dry_last_n": (-1, 0, 10, 100),
    "dry_breakers": ((), ((1,),), ((0, 1), (1,))),
    "mirostat": (0, 0, 0, 2),
    "mirostat_tau": (0.0, 2.0, 5.0),
    "mirostat_eta": (0.1, 1.0),
    "min_keep": (0, 0, 1, 5, 100),
    "logit_bias": ({}, {}, {0: -100.0, 1: 5.0}, {1: 100.0}),
    "choice": (0, 1, 7),
}


def _random_logits(numbers: np.random.Generator, n: int) -> np.ndarray:
    logits = numbers.standard_normal(n) * numbers.choice([0.01, 1, 3, 20])
    match numbers.integers(5):
        case 0:  # ties, and zeros of both signs
            logits = np.round(logits * 2) / 2
        case 1:
            logits[1:][numbers.random(n - 1) < 0.5] = -np.inf
        case 2:  # the edge of float32
            logits = logits * 1e36
        case 3:  # a few likely tokens
            logits = logits + (numbers.random(n) < 0.02) * 10
    return logits.astype(np.float32)


@NATIVE
@pytest.mark.parametrize("seed", range(5))
def test_c_and_numpy_choose_the_same_tokens(seed: int) -> None:
    from edgeinfer.kernels.native.sampler import NativeSampler

    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    for _ in range(150):
        n = choose.choice([2, 5, 63, 64, 65, 100, 777, 5000])
        params = SamplingParams(
            seed=choose.getrandbits(64), **{k: choose.choice(v) for k, v in _CHOICES.items()}
        )
        values = asdict(params)
        bias, breakers = values.pop("logit_bias"), values.pop("dry_breakers")
        logits = _random_logits(numbers, n)
        n_history = choose.choice([0, 1, 5, 30, 200])
        history = numbers.integers(0, min(n, choose.choice([3, 10, n])), n_history, np.int32)
        n_top = min(n, choose.choice([-1, 0, 1, 5, 64]))
        pair = [S(n, values, bias, breakers) for S in (NativeSampler, NumpySampler)]
        for position in (n_history, n_history + 1, 2**33):
            found, expected = (_outcome(s, logits, history, position, n_top) for s in pair)
            assert found == expected, (params, n, position)


def _outcome(sampler: Any, logits: np.ndarray, history: np.ndarray, at: int, n_top: int) -> object:
    try:
        token, logprob, top = sampler.sample(logits, history, at, n_top)
    except InvalidParameterError as error:
        return str(error)
    return token, logprob if n_top >= 0 else None, top
