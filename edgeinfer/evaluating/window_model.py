"""Read windows of token ids with a model, one at a time: its rows of logits come out.

For who looks at a model from inside: its activations can be watched, some of its weights replaced.
Nothing is kept between windows. Activations are the fine ones.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from edgeinfer import packing
from edgeinfer.arch import build_program
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.evaluating.windows import window_len
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Limits, choose
from edgeinfer.loader.fingerprint import fingerprint
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.mapped import display
from edgeinfer.loader.resolve import resolve
from edgeinfer.program.program import Program
from edgeinfer.quant.imatrix import Sums
from edgeinfer.quant.tensor import Tensor
from edgeinfer.sizing import check_room
from edgeinfer.text.tokenizer import Tokenizer, tokenizer_from_metadata

MOST_BATCH = 128  # tokens of a step: their rows of logits take 134 MB at 262,144 tokens


class WindowModel:
    """A model compiled for windows of `n_ctx` tokens; owns file and executable until `close`."""

    def __init__(
        self,
        path_or_name: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        n_threads: int | None = None,
        backend: str = "auto",
        replaced: Mapping[str, Tensor] | None = None,
        observe: Callable[[Program], Mapping[str, Sums]] | None = None,
    ) -> None:
        """Open and compile a model.

        Args:
            path_or_name, n_threads, backend: as `load` has them.
            n_ctx: length of a window in tokens, 4 to what the model was trained for; None: 512.
            replaced: weights, by name, that stand in for the file's; of a mapped file as well, for
                the pages of what is laid out are given back.
            observe: tells, from the program, which sums are to be kept of what matrices multiply.

        Raises:
            InvalidParameterError: n_ctx is out of its range.
            UnsupportedModelError: the model predicts no tokens.
            Others as `load`.
        """
        kernels = choose(backend)
        self._file = open_gguf(resolve(path_or_name))
        self.path = self._file.path
        metadata, tensors = self._file.metadata, self._file.tensors
        if replaced:
            tensors = {**tensors, **replaced}
        pooling = build_program(metadata, tensors, n_ctx=1).pooling
        if pooling is not None:
            raise UnsupportedModelError(
                f"{display(self.path)}: predicts no tokens (its pooling is {pooling!r}): there is "
                "nothing to read off it"
            )
        self.n_ctx = window_len(n_ctx, metadata.integer(".context_length", least=1))
        program = build_program(metadata, tensors, n_ctx=self.n_ctx)
        whole = program.takes_whole_sequences
        self._n_batch = self.n_ctx if whole else min(self.n_ctx, MOST_BATCH)
        limits = Limits(
            n_ctx=self.n_ctx,
            n_pages=-(-self.n_ctx // PAGE_LEN),
            n_batch=self._n_batch,
            n_threads=n_threads or 0,
            activations="fine",
        )
        self._has_state = bool(program.recurrent)
        packed = None if replaced else packing.find(self._file, kernels)
        if packed is None:
            check_room(self._file, program, kernels)
        self._executable = kernels.compile(
            program,
            tensors,
            limits,
            packed=packed,
            observe=observe(program) if observe is not None else None,
        )

    @property
    def n_vocab(self) -> int:
        """Tokens in the vocabulary: the length of a row of logits."""
        return self._executable.n_vocab

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return tokenizer_from_metadata(self._file.metadata, where=str(self.path))

    @property
    def fingerprint(self) -> bytes:
        """What tells the file from others, as `loader.fingerprint` has it."""
        return fingerprint(self._file.parts)

    def stream_logits(
        self, ids: tuple[int, ...], *, first: int = 0
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Read a window; yield the logits of its rows from `first` on, some at a time.

        Each item is the index of its first row, and some rows.
        """
        for number, start in enumerate(range(0, len(ids), self._n_batch)):
            step = ids[start : start + self._n_batch]
            wanted = max(first - start, 0)
            rows = self._step(step, start, number, wanted)
            if len(rows):
                yield start + wanted, rows.copy()

    def _step(
        self, ids: tuple[int, ...], start: int, number: int, first: int
    ) -> npt.NDArray[np.float32]:
        """Read a part of a window.

        States of constant size go from step to step in two snapshots, by turns.
        """
        n, n_states = len(ids), int(self._has_state)
        before = number % 2
        return self._executable.run(
            Batch(
                tokens=np.array(ids, np.int32),
                positions=np.arange(start, start + n, dtype=np.int32),
                sequences=np.zeros(n, np.int32),
                page_tables=np.arange(-(-(start + n) // PAGE_LEN), dtype=np.int32)[np.newaxis],
                wanted=np.arange(first, n, dtype=np.int32),
                snapshots=np.full(n_states, before, np.int32),
                saved_rows=np.full(n_states, n - 1, np.int32),
                saved_snapshots=np.full(n_states, 1 - before, np.int32),
            )
        )

    def close(self) -> None:
        """Free the model; calling it again does nothing."""
        self._executable.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
