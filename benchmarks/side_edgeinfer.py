"""Measure edgeinfer for `benchmarks.models`: a job as JSON on stdin, rates as JSON on stdout."""

from pathlib import Path

import numpy as np

from benchmarks.measuring import N_BATCH, N_CTX, answer, measure, read_job
from edgeinfer import __version__
from edgeinfer.arch import build_program
from edgeinfer.cli.machine import chosen_isa
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Executable, Limits, choose
from edgeinfer.loader.gguf import open_gguf

N_PAGES = -(-N_CTX // PAGE_LEN)


class Ours:
    """An executable with one sequence; a position written again replaces what it held."""

    def __init__(self, executable: Executable) -> None:
        self.n_vocab = executable.n_vocab
        self._executable = executable
        self._page_tables = np.arange(N_PAGES, dtype=np.int32)[np.newaxis]

    def step(self, tokens: list[int], position: int) -> None:
        n_tokens = len(tokens)
        self._executable.run(
            Batch(
                tokens=np.array(tokens, np.int32),
                positions=np.arange(position, position + n_tokens, dtype=np.int32),
                sequences=np.zeros(n_tokens, np.int32),
                page_tables=self._page_tables,
                wanted=np.array([n_tokens - 1], np.int32),
            )
        )

    def remember(self) -> None:
        pass

    def restore(self) -> None:
        pass


def main() -> None:
    """Measure once."""
    job, rows = read_job()
    limits = Limits(n_ctx=N_CTX, n_pages=N_PAGES, n_batch=N_BATCH, n_threads=job["n_threads"])
    with open_gguf(Path(job["model"])) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=N_CTX)
        executable = choose("native").compile(program, file.tensors, limits)
        rates = measure(Ours(executable), rows, job["repeats"])
        executable.close()
    answer(rates=rates, version=f"edgeinfer {__version__}", isa=chosen_isa()[0])


if __name__ == "__main__":
    main()
