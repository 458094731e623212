"""Answer llama-cpp-python's calls for embeddings, in its shapes."""

from collections.abc import Sequence
from typing import Any

from edgeinfer.compat.llama_cpp import constants
from edgeinfer.compat.llama_cpp.errors import (
    LlamaOverflowError,
    LlamaReadyError,
    LlamaUnsupportedError,
    LlamaValueError,
    translated,
)
from edgeinfer.llm.vectors import Pooling, cut_and_normalized
from edgeinfer.model import Model

# How the rows of a model that writes text are pooled, by numbers of llama.h.
KINDS: dict[int, Pooling] = {
    constants.LLAMA_POOLING_TYPE_MEAN: "mean",
    constants.LLAMA_POOLING_TYPE_CLS: "cls",
    constants.LLAMA_POOLING_TYPE_LAST: "last",
}
NAMES = {name.lower(): number for number, name in constants.POOLING_NAMES.items()}


def pooling_of(number: int) -> str | None:
    """Return what `load` calls a pooling of llama.h; None for what the file says."""
    if number == constants.LLAMA_POOLING_TYPE_UNSPECIFIED:
        return None
    if number not in constants.POOLING_NAMES:
        known = ", ".join(map(str, constants.POOLING_NAMES))
        raise LlamaValueError(f"Llama: pooling_type: found {number!r} (need one of {known})")
    return constants.POOLING_NAMES[number].lower()


class Embeddings:
    """What a model gives that reads texts."""

    edgeinfer: Model
    model_path: str
    n_batch: int
    _embedding: bool
    _pooling_type: int

    def pooling_type(self) -> int:
        """Return how rows are pooled, a LLAMA_POOLING_TYPE_*: as asked for, or by the file."""
        if self.edgeinfer.pooling is not None:
            return NAMES[self.edgeinfer.pooling]
        return max(self._pooling_type, constants.LLAMA_POOLING_TYPE_NONE)

    def embed(
        self,
        input: str | Sequence[str],
        normalize: bool = False,
        truncate: bool = True,
        return_count: bool = False,
    ) -> Any:
        """Return the embedding of a text as a list of floats, or a list of them for several.

        Without pooling it is a list for each token. `truncate` cuts texts at n_batch tokens.
        """
        self._check_embeds()
        inputs = [input] if isinstance(input, str) else list(input)
        with translated():
            ids = [self.edgeinfer.tokenize(text) for text in inputs]
            most = min(self.n_batch, self.edgeinfer.n_ctx)
            if truncate:
                ids = [one[:most] for one in ids]
            longest = max(map(len, ids), default=0)
            if longest > most:
                raise LlamaOverflowError(
                    f"Requested tokens ({longest}) exceed batch size of {most}; shorten the text, "
                    "or load the model with a larger n_batch and n_ctx"
                )
            found = self._embedded(ids, normalize)
        output = found[0] if isinstance(input, str) else found
        return (output, sum(map(len, ids))) if return_count else output

    def create_embedding(self, input: str | Sequence[str], model: str | None = None) -> Any:
        """Return embeddings as a dict in OpenAI's form."""
        inputs = [input] if isinstance(input, str) else list(input)
        found, n_tokens = self.embed(inputs, return_count=True)
        data = [
            {"object": "embedding", "embedding": vector, "index": index}
            for index, vector in enumerate(found)
        ]
        return {
            "object": "list",
            "data": data,
            "model": model if model is not None else self.model_path,
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        }

    def _embedded(self, ids: list[list[int]], normalize: bool) -> list[Any]:
        number = self.pooling_type()
        if number == constants.LLAMA_POOLING_TYPE_NONE:
            rows = self.edgeinfer.embed_tokens(ids)
            assert isinstance(rows, list)
            if normalize:
                rows = [cut_and_normalized(one, one.shape[1], normalize=True) for one in rows]
            return [one.tolist() for one in rows]
        kind = KINDS[number] if self.edgeinfer.pooling is None else None
        vectors = self.edgeinfer.embed(ids, normalize=normalize, pooling=kind)
        return list(vectors.tolist())

    def _check_embeds(self) -> None:
        if not self._embedding:
            raise LlamaReadyError(
                "Llama model must be created with embedding=True to call this method"
            )
        if self.pooling_type() == constants.LLAMA_POOLING_TYPE_RANK:
            raise LlamaUnsupportedError(
                "embed: found a model that ranks (need `Llama.edgeinfer.rank(query, documents)`)"
            )
