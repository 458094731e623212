"""Say how many tokens of prompts a step may hold, so that running answers keep their pace.

Knows token counts and seconds, no sequences. An answer's next token takes a step; prompt tokens in
the same step make it longer. How long it is without them is measured every so often, how much
they add is measured all the time, and the two say how many fit. Answers do not depend on how a
prompt is cut, so measured times may decide it.
"""

import math
from typing import Final

SLOWDOWN: Final = 1.9  # of a step that answers share with prompts; 2 is promised
MOST_STEP_S: Final = 0.5  # of a step of prompts alone: a new request waits no longer
FIRST: Final = 4  # tokens beside answers to begin with
FEWEST_ALONE: Final = 64
N_SHARED: Final = 16  # steps with prompts, after which the pace without them is measured again
REACH: Final = 1.25  # of what was measured: so far a slope is trusted
WEIGHT: Final = 0.4  # of the latest measurement


class Pace:
    """The pace of answers without prompts, by their number, and how many tokens halve it.

    A step of more tokens takes no more time a token than one of fewer: the weights are read once.
    So a step of n tokens in t seconds says that n * T / t of them take T at most. More of them
    do where the first token of a step is dearer than the rest: then by what a token has added, a
    little further at a time.
    """

    def __init__(self, n_batch: int) -> None:
        self._n_batch = n_batch
        self._plain_s: dict[int, float] = {}  # step without prompts, by number of answers
        self._alone_s: float | None = None  # a prompt token's share of a step without answers
        self._latest_plain_s = 0.0
        self._beside = FIRST
        self._n_shared = N_SHARED  # since a step without prompts; at first there was none

    def most_tokens(self, n_answers: int) -> int:
        """Return how many prompt tokens the next step may hold; 0 to learn the pace without."""
        if n_answers == 0:
            fitting = int(MOST_STEP_S / self._alone_s) if self._alone_s else 0
            return min(self._n_batch, max(FEWEST_ALONE, fitting))
        is_known = n_answers in self._plain_s or self._n_shared == 0
        if not is_known or self._n_shared >= N_SHARED:
            return 0
        return min(self._n_batch, self._beside)

    def record(self, n_answers: int, n_prompt_tokens: int, step_s: float) -> None:
        """Learn from a step."""
        step_s = max(step_s, 1e-9)
        if n_answers == 0:
            self._alone_s = _mixed(self._alone_s, step_s / max(1, n_prompt_tokens))
        elif n_prompt_tokens == 0:
            self._latest_plain_s = _mixed(self._plain_s.get(n_answers), step_s)
            self._plain_s[n_answers] = self._latest_plain_s
            self._n_shared = 0
        else:
            self._n_shared += 1
            plain_s = self._plain_s.get(n_answers, self._latest_plain_s)
            self._learn(plain_s, n_answers, n_prompt_tokens, step_s)

    def _learn(self, plain_s: float, n_answers: int, n_tokens: int, step_s: float) -> None:
        most_s = SLOWDOWN * plain_s
        fitting = int((n_answers + n_tokens) * most_s / step_s) - n_answers
        if step_s > plain_s:  # else what a token adds is not to be seen
            by_slope = int((most_s - plain_s) * n_tokens / (step_s - plain_s))
            fitting = max(fitting, min(by_slope, int(1 + REACH * n_tokens)))
        half_way = (fitting + self._beside) / 2  # since a step may be odd
        if fitting > self._beside:
            self._beside = math.ceil(half_way)
        elif step_s > most_s:
            self._beside = max(1, int(half_way))


def _mixed(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
