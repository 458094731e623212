"""Say what one speed measurement is, and take it through any side's `Runner`.

A side is a child process: it reads a job as JSON on stdin, loads the model, measures the rows and
prints their rates as JSON. The peer's side runs under another Python, which may lack edgeinfer, so
the standard library is all that this module uses.
"""

import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ROOT = Path(__file__).resolve().parent.parent
N_BATCH = 512  # most tokens of a step, on both sides
WARM_UP = {"pp": 64, "tg": 4}  # tokens before a row is timed
MOST_S = 30.0  # a row of single tokens ends here, and no repeat begins after it
LEAST_STEPS = 8  # before it may end
ROW = re.compile(r"(pp|tg)(\d+)(?:\s*x\s*(\d+))?(?:\s*@\s*d?(\d+)(k?))?")


class Row(NamedTuple):
    """A prompt of `n_tokens` read at once (pp), or as many tokens written one by one (tg).

    `n_sequences` write side by side, one token each in every step; the rate counts all tokens.
    """

    kind: str
    n_tokens: int
    depth: int = 0  # tokens in the context before
    n_sequences: int = 1

    @property
    def name(self) -> str:
        """Return the row's name in llama-bench's words, without spaces."""
        several = f"x{self.n_sequences}" if self.n_sequences > 1 else ""
        return f"{self.kind}{self.n_tokens}{several}" + (f"@d{self.depth}" if self.depth else "")

    @property
    def n_ctx(self) -> int:
        """Return how many tokens each sequence has in the end."""
        return self.depth + self.n_tokens


def parse_row(text: str) -> Row:
    """Return the row of a name such as pp512, tg64@8k, tg64 @ d2048 or tg64x8.

    Raises ValueError for any other text.
    """
    found = ROW.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"row: found {text!r} (need pp512, tg64, tg64@8k, tg64x8 or the like)")
    kind, n_tokens, n_sequences, depth, kilo = found.groups()
    row = Row(kind, int(n_tokens), int(depth or 0) * (1024 if kilo else 1), int(n_sequences or 1))
    if row.n_tokens < 1 or row.n_sequences < 1:
        raise ValueError(f"row: found {text!r} (need at least 1 token and 1 sequence)")
    if row.n_sequences > 1 and (row.kind == "pp" or row.depth):
        raise ValueError(f"row: found {text!r} (sequences side by side: only tg, and no depth)")
    return row


class Runner(Protocol):
    """One side's model with its sequences in it."""

    n_vocab: int

    def fill(self, depth: int, tokens: list[int]) -> None:
        """Put `depth` tokens into sequence 0, where `restore` goes back to."""
        ...

    def step(self, tokens: list[list[int]], position: int) -> None:
        """Evaluate the tokens of each sequence, from this position on, up to the last's logits."""
        ...

    def restore(self) -> None:
        """Drop what was evaluated since `fill`."""
        ...


def measure(runner: Runner, row: Row, repeats: int) -> float:
    """Return a row's tokens a second: the best of the repeats, after a warm-up.

    Token ids are random below the vocabulary, from a fixed seed: every run has the same ones.
    """
    source = random.Random(1)
    tokens = [source.randrange(runner.n_vocab) for _ in range(row.n_ctx)]
    runner.fill(row.depth, tokens[: row.depth])
    start_s = time.perf_counter()
    _rate(runner, row._replace(n_tokens=min(row.n_tokens, WARM_UP[row.kind])), tokens)
    best = 0.0
    for repeat in range(repeats):
        if repeat and time.perf_counter() - start_s > MOST_S:
            break
        best = max(best, _rate(runner, row, tokens))
    return best


def _rate(runner: Runner, row: Row, tokens: list[int]) -> float:
    """Return tokens a second; the context holds `row.depth` tokens before and after."""
    n_step = N_BATCH if row.kind == "pp" else 1
    start_s = time.perf_counter()
    for position in range(row.depth, row.n_ctx, n_step):
        end = min(position + n_step, row.n_ctx)
        runner.step([tokens[position:end]] * row.n_sequences, position)
        elapsed_s = time.perf_counter() - start_s
        n_steps = position - row.depth + 1
        if row.kind == "tg" and elapsed_s > MOST_S and n_steps >= LEAST_STEPS:
            break
    runner.restore()
    return (end - row.depth) * row.n_sequences / elapsed_s


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
    return job, [parse_row(name) for name in job["rows"]]


def answer(**fields: object) -> None:
    """Print the child's answer, its last line."""
    print(json.dumps(fields))
