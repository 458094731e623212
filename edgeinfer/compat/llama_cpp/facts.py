"""Tell what llama-cpp-python tells of a model: sizes, special ids, metadata as text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeinfer.compat.llama_cpp.errors import LlamaUnsupportedError
from edgeinfer.model import Model


class Facts:
    """What does not change between calls."""

    edgeinfer: Model

    def n_ctx(self) -> int:
        """Return the length of the context."""
        return self.edgeinfer.n_ctx

    def n_embd(self) -> int:
        """Return the width of the model."""
        return self.edgeinfer.metadata.integer(".embedding_length")

    def n_vocab(self) -> int:
        """Return how many ids there are."""
        return self.edgeinfer.n_vocab

    def token_eos(self) -> int:
        """Return the id that ends a text, -1 if there is none."""
        return _id_or_minus_1(self.edgeinfer.tokenizer.eos_id)

    def token_bos(self) -> int:
        """Return the id that begins a text, -1 if there is none."""
        return _id_or_minus_1(self.edgeinfer.tokenizer.bos_id)

    def token_nl(self) -> int:
        """Return the id of a line's end, -1 if there is none."""
        return [-1, *self.edgeinfer.tokenizer.encode("\n", add_special=False)][-1]

    @property
    def metadata(self) -> dict[str, str]:
        """The file's keys and values but for arrays, as text."""
        found = self.edgeinfer.metadata
        return {key: text for key in found if (text := _as_text(found[key])) is not None}

    @property
    def ctx(self) -> Any:
        """Raise LlamaUnsupportedError: there is no llama_context."""
        raise LlamaUnsupportedError("Llama.ctx: there is no llama_context; use Llama.edgeinfer")

    @property
    def model(self) -> Any:
        """Raise LlamaUnsupportedError: there is no llama_model."""
        raise LlamaUnsupportedError("Llama.model: there is no llama_model; use Llama.edgeinfer")

    @staticmethod
    def logits_to_logprobs(
        logits: npt.NDArray[np.single] | Sequence[float], axis: int = -1
    ) -> npt.NDArray[np.single]:
        """Return the log-softmax along an axis."""
        exact = np.asarray(logits, np.float64)
        exact = exact - exact.max(axis=axis, keepdims=True)
        exact -= np.log(np.exp(exact).sum(axis=axis, keepdims=True))
        return np.asarray(exact, np.single)

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        """Return how many leading ids are equal."""
        differs = (i for i, (left, right) in enumerate(zip(a, b, strict=False)) if left != right)
        return next(differs, min(len(a), len(b)))


def _id_or_minus_1(id: int | None) -> int:
    return -1 if id is None else id


def _as_text(value: object) -> str | None:
    """Return a value as llama.cpp prints it, None for an array."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:f}"
        case int() | str():
            return str(value)
    return None
