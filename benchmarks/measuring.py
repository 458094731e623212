"""Say what one speed measurement is, and take it through any side's `Runner`.

A side is a child process: it reads a job as JSON on stdin, loads the model, measures the rows and
prints their rates as JSON. The peer's side runs under another Python, which may lack edgeinfer, so
the standard library is all that this module uses.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ROOT = Path(__file__).resolve().parent.parent
N_BATCH = 512  # most tokens of a step, on both sides
DEPTHS = (0, 1024)
WARM_UP = {"pp": 64, "tg": 4}  # tokens before a row is timed


class Row(NamedTuple):
    """A prompt of `n_tokens` read at once (pp), or as many tokens written one by one (tg)."""

    kind: str
    n_tokens: int
    depth: int  # tokens in the context before

    @property
    def name(self) -> str:
        """Return the row's name in llama-bench's words."""
        return f"{self.kind}{self.n_tokens}" + (f" @ d{self.depth}" if self.depth else "")


ROWS = [Row(*test, depth) for depth in DEPTHS for test in (("pp", 256), ("pp", 512), ("tg", 64))]
N_CTX = max(row.depth + row.n_tokens for row in ROWS)


class Runner(Protocol):
    """One side's model with one sequence in it."""

    n_vocab: int

    def step(self, tokens: list[int], position: int) -> None:
        """Evaluate the tokens, from this position on, up to the last one's logits."""
        ...

    def remember(self) -> None:
        """Note the context as it is."""
        ...

    def restore(self) -> None:
        """Go back to the context last noted; the empty one if there was none."""
        ...


def measure(runner: Runner, rows: list[Row], repeats: int) -> dict[str, float]:
    """Return tokens a second of each row: the best of the repeats, after a warm-up.

    Token ids are random below the vocabulary, from a fixed seed: every run has the same ones.
    """
    source = random.Random(1)
    tokens = [source.randrange(runner.n_vocab) for _ in range(N_CTX)]
    rates = {}
    at = 0
    for depth in sorted({row.depth for row in rows}):
        for start in range(at, depth, N_BATCH):
            runner.step(tokens[start : min(start + N_BATCH, depth)], start)
        at = depth
        runner.remember()
        for row in (row for row in rows if row.depth == depth):
            _timed(runner, row._replace(n_tokens=WARM_UP[row.kind]), tokens)
            best_s = min(_timed(runner, row, tokens) for _ in range(repeats))
            rates[row.name] = row.n_tokens / best_s
    return rates


def _timed(runner: Runner, row: Row, tokens: list[int]) -> float:
    """Return the seconds of a row; the context holds `row.depth` tokens before and after."""
    n_step = row.n_tokens if row.kind == "pp" else 1
    end = row.depth + row.n_tokens
    start_s = time.perf_counter()
    for position in range(row.depth, end, n_step):
        runner.step(tokens[position : position + n_step], position)
    elapsed_s = time.perf_counter() - start_s
    runner.restore()
    return elapsed_s


def run_side(python: str, module: str, job: dict[str, Any]) -> dict[str, Any]:
    """Run one side in a process of its own and return what it printed."""
    done = subprocess.run(
        [python, "-m", f"benchmarks.{module}"],
        cwd=ROOT,
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{module}: exit code {done.returncode} under {python}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def read_job() -> tuple[dict[str, Any], list[Row]]:
    """Return the job of this child process, and its rows."""
    job = json.load(sys.stdin)
    return job, [Row(*row) for row in job["rows"]]


def answer(**fields: object) -> None:
    """Print the child's answer, its last line."""
    print(json.dumps(fields))
