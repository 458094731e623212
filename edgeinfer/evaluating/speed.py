"""Measure the speed of two models by turns, so that a machine that slows down slows both."""

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from edgeinfer.llm import Model

N_PROMPT, N_ANSWER = 128, 32
EOG_BIAS = -100.0  # bans a token


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second, medians of the rounds: of a prompt of 128 tokens, of an answer of 32."""

    prompt: float
    answer: float


def speeds(
    models: tuple[Model, Model],
    *,
    n_rounds: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Speed, Speed]:
    """Return the speed of both; each round reads random tokens that nobody has read before.

    Load the models with `speculate=False`: random tokens are nothing to guess at.
    """
    chance = random.Random(1)  # every run measures the same tokens
    rates: tuple[list[tuple[float, float]], ...] = ([], [])
    for round_ in range(n_rounds + 1):
        n_vocab = min(model.n_vocab for model in models)
        prompt = [chance.randrange(n_vocab) for _ in range(N_PROMPT)]
        for model, found in zip(models, rates, strict=True):
            bias = dict.fromkeys(model.tokenizer.stop_ids, EOG_BIAS)
            timings = model.generate(
                prompt, max_tokens=N_ANSWER, temperature=0.0, logit_bias=bias
            ).timings
            if round_:  # the first one also faults pages in
                found.append((timings.prompt_tokens_per_s, timings.tokens_per_s))
        if progress is not None:
            progress(round_ + 1, n_rounds + 1)
    one, other = (Speed(*map(statistics.median, zip(*found, strict=True))) for found in rates)
    return one, other
