"""Keep the tokens of one sequence to what a constraint allows; knows ids and masks, no grammar."""

from collections.abc import Sequence as Ids

import numpy as np

from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.scoring import score
from edgeinfer.engine.sequence import Constraint, TokenSampler
from edgeinfer.errors import NonFiniteError

# What is added to 8 logits, by the byte of their bits. -0.0 leaves every number as it is. Adding
# takes a tenth of the time of choosing, whose branches nothing foretells.
_BANS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") > 0,
    np.float32(-0.0),
    np.float32(-np.inf),
)


class ConstrainedSampler:
    """A sampler that sees no logits but those of ids that a constraint allows.

    They are masked before any filter: what is left has the model's probabilities given that nothing
    else may come. Drawing first, and again where the token is not allowed, would filter by the
    probabilities of all tokens. Log-probabilities stay those of the model.

    The constraint is told each token once, when it is chosen: guesses are held against what is
    chosen, and a sequence that loses its pages keeps its tokens.
    """

    def __init__(self, sampler: TokenSampler, constraint: Constraint) -> None:
        self._sampler = sampler
        self._constraint = constraint

    def sample(self, logits: np.ndarray, history: Ids[int], position: int) -> int:
        """Choose the token at `position` among those allowed."""
        if not logits.max() < np.inf:  # NaN fails too; the mask may hide either
            raise NonFiniteError("logits: found NaN or infinity; the weights may be damaged")
        bans = _BANS.take(self._constraint.allowed(), axis=0).reshape(-1)
        row = logits + bans[: len(logits)]
        token = self._sampler.sample(row, history, position)
        self._constraint.accept(token)
        return token

    def sample_with_logprobs(
        self, logits: np.ndarray, history: Ids[int], position: int, n_top: int
    ) -> Sampled:
        """Choose the same token, and report it as the model alone has it."""
        return score(logits, self.sample(logits, history, position), n_top)
