"""`edgeinfer bench`: measure prompt processing (pp) and text generation (tg) in tokens a second.

Runs random token ids through the compiled model itself: no text, no sampling, no reuse of a prefix.
Beside each figure stands the roof, measured in the same run: for pp how fast the kernels' multiply
instructions run on registers alone, for tg how fast the memory can be read.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from edgeinfer.cli.options import ModelArgument, ModelOption, choose_model, integers
from edgeinfer.cli.progress import DownloadProgress, Line, amount
from edgeinfer.errors import InvalidParameterError

MOST_TOKENS = 1 << 24  # of a sequence: its random ids alone are many a minute's work

if TYPE_CHECKING:
    from pathlib import Path

    from edgeinfer.kernels.backend import Executable
    from edgeinfer.program.program import Program
    from edgeinfer.quant.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row of the table; rates in tokens a second, `samples` one rate a repeat.

    `bound_by` says what the roof is, "int8" in multiply-adds or "memory" in bytes a second; `share`
    is how much of it the model's matrices (and keys and values) took. None: not measured.
    `packed`: the weights lie in the model's pack. `only_reads`: the model writes no text.
    """

    test: str
    tokens_per_s: float
    stddev: float
    samples: list[float]
    n_prompt: int
    n_gen: int
    n_depth: int
    n_threads: int
    n_batch: int
    bound_by: str
    roof: float | None
    share: float | None
    model: str
    model_file: str
    model_bytes: int
    n_params: int
    backend: str
    isa: str
    cpu: str
    build: str
    packed: bool
    only_reads: bool


def bench(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    n_prompt: Annotated[
        str | None,
        Option(
            "--n-prompt",
            "-p",
            help="Prompt lengths to measure, 0 for none (default: 512, or all positions).",
        ),
    ] = None,
    n_gen: Annotated[
        str | None,
        Option(
            "--n-gen",
            "-n",
            help="Answer lengths to measure, 0 for none (default: 128 if the model writes).",
        ),
    ] = None,
    n_depth: Annotated[
        int, Option("--n-depth", "-d", min=0, help="Tokens already in context before each test.")
    ] = 0,
    repetitions: Annotated[
        int, Option("--repetitions", "-r", min=1, max=1000, help="Repeats of each test.")
    ] = 5,
    n_threads: Annotated[
        str, Option("--threads", "-t", help="Thread counts to measure, 0 for the default.")
    ] = "0",
    n_threads_batch: Annotated[
        int, Option("--threads-batch", "-tb", min=0, help="Threads for prompts, 0 for as -t.")
    ] = 0,
    n_batch: Annotated[
        int, Option("--batch-size", "-b", min=1, help="Most tokens in one step.")
    ] = 512,
    backend: Annotated[str, Option("--backend", help="auto, native, jit or reference.")] = "auto",
    kv_type: Annotated[
        str, Option("--kv-type", help="Keys and values: f32, f16, q8_0 or q4_0.")
    ] = "f16",
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the speed of a model on this machine.

    pp512 is a prompt of 512 tokens read at once, tg128 is 128 tokens written one after the
    other; each is warmed up once, then repeated. Lists such as -p 128,512 measure all of them.
    A pack of the model is used as 'run' uses it. Models that write no text are measured at reading.
    """
    from edgeinfer.loader.resolve import resolve

    tests = [(n, 0) for n in integers(n_prompt or "512", "-p") if n]
    tests += [(0, n) for n in integers(n_gen or "128", "-n") if n]
    if not tests:
        raise InvalidParameterError("nothing to measure: both -p and -n are 0")
    if (n_ctx := n_depth + max(map(max, tests))) > MOST_TOKENS:
        raise InvalidParameterError(
            f"-p, -n, -d: found {n_ctx} tokens together (need at most {MOST_TOKENS})"
        )
    name = choose_model(model, model_option, "smollm2")
    with DownloadProgress() as progress:
        path = resolve(name, progress=progress)
    results: list[Result] = []
    for count in integers(n_threads, "-t"):
        counts = (count, n_threads_batch, n_batch, n_depth, repetitions)
        plan = Plan(
            name,
            path,
            backend,
            *counts,
            kv_type,
            own_prompts=n_prompt is not None,
            own_answers=n_gen is not None,
        )
        for result in measure(plan, tests):
            if not as_json:
                if not results:
                    print(_head(result))
                print(_row(result), flush=True)
            results.append(result)
    if as_json:
        print(json.dumps([asdict(result) for result in results], indent=1))


@dataclass(frozen=True, slots=True)
class Plan:
    """What stays the same over the tests of one compiled model."""

    name: str
    path: "Path"
    backend: str
    n_threads: int
    n_threads_batch: int
    n_batch: int
    n_depth: int
    repetitions: int
    kv_type: str = "f16"
    own_prompts: bool = True  # lengths of the user's, not the default
    own_answers: bool = True


def measure(plan: Plan, tests: list[tuple[int, int]]) -> Iterable[Result]:
    """Compile the model once and yield the result of each (prompt, answer) length."""
    from math import prod

    from edgeinfer import packing
    from edgeinfer.arch import build_program
    from edgeinfer.kernels.backend import PAGE_LEN, Limits, choose
    from edgeinfer.loader.gguf import open_gguf

    backend = choose(plan.backend)
    with open_gguf(plan.path) as file, ExitStack() as opened:
        tests = _suited(tests, plan, build_program(file.metadata, file.tensors, n_ctx=1))
        n_ctx = plan.n_depth + max(map(max, tests))
        n_pages = -(-n_ctx // PAGE_LEN)
        limits = Limits(
            n_ctx=n_ctx,
            n_pages=n_pages,
            n_batch=plan.n_batch,
            n_threads=plan.n_threads,
            n_threads_batch=plan.n_threads_batch,
            kv_type=plan.kv_type,
        )
        program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
        packed = packing.find(file, backend)
        if packed is not None:
            opened.callback(packed.close)
        executable = backend.compile(program, file.tensors, limits, packed=packed)
        try:
            steps = Steps(executable, n_pages, plan.n_batch)
            roofs = Roofs(program, file.tensors, backend.name)
            for n_prompt, n_gen in tests:
                n_threads = executable.n_threads_batch if n_prompt else executable.n_threads
                rates = list(_rates(steps, n_prompt, n_gen, plan))
                yield Result(
                    test=f"pp{n_prompt}" if n_prompt else f"tg{n_gen}",
                    tokens_per_s=statistics.fmean(rates),
                    stddev=statistics.stdev(rates) if len(rates) > 1 else 0.0,
                    samples=rates,
                    n_prompt=n_prompt,
                    n_gen=n_gen,
                    n_depth=plan.n_depth,
                    n_threads=n_threads,
                    n_batch=plan.n_batch,
                    **roofs.beside(
                        statistics.fmean(rates), n_threads, n_prompt, n_gen, plan.n_depth
                    ),
                    model=plan.name,
                    model_file=plan.path.name,
                    model_bytes=file.n_bytes,
                    n_params=sum(prod(tensor.shape) for tensor in file.tensors.values()),
                    backend=backend.name,
                    **_machine(backend.name),
                    packed=packed is not None,
                    only_reads=program.pooling is not None,
                )
        finally:
            executable.close()


def _suited(tests: list[tuple[int, int]], plan: Plan, program: "Program") -> list[tuple[int, int]]:
    """Return the tests that a model can run, where the user has not named others."""
    if program.pooling is not None:
        if plan.own_answers and any(n_gen for _, n_gen in tests):
            raise InvalidParameterError(f"{plan.name}: this model writes no text (need -n 0)")
        tests = [test for test in tests if test[0]]
        if not tests:
            raise InvalidParameterError(f"{plan.name}: this model only reads (need -p above 0)")
    most = (program.n_positions or MOST_TOKENS) - plan.n_depth
    if not plan.own_prompts:
        tests = [
            (max(1, min(n_prompt, most)), n_gen) if n_prompt else (0, n_gen)
            for n_prompt, n_gen in tests
        ]
    if (found := max(map(max, tests))) > most:
        raise InvalidParameterError(
            f"{plan.name}: -p, -n, -d: found {found + plan.n_depth} tokens together (need at most "
            f"{program.n_positions}, the positions this model has learned)"
        )
    return tests


class Steps:
    """Runs random tokens through an executable, always as the one sequence of its pages."""

    def __init__(self, executable: "Executable", n_pages: int, n_batch: int) -> None:
        import numpy as np

        self._executable = executable
        self._n_batch = n_batch
        self._page_tables = np.arange(n_pages, dtype=np.int32)[np.newaxis]
        self._snapshots = np.array([0], np.int32), np.array([1], np.int32)  # read, written
        self._random = random.Random(1)  # a fixed seed: every run measures the same tokens

    def run(self, n_tokens: int, position: int) -> None:
        """Run one step of `n_tokens` at `position`, with logits for its last token."""
        import numpy as np

        from edgeinfer.kernels.backend import Batch

        n_vocab = self._executable.n_vocab
        before, after = self._snapshots
        self._snapshots = after, before
        tokens = [self._random.randrange(n_vocab) for _ in range(n_tokens)]
        self._executable.run(
            Batch(
                tokens=np.array(tokens, np.int32),
                positions=np.arange(position, position + n_tokens, dtype=np.int32),
                sequences=np.zeros(n_tokens, np.int32),
                page_tables=self._page_tables,
                wanted=np.array([n_tokens - 1], np.int32),
                snapshots=before,
                saved_rows=np.array([n_tokens - 1], np.int32),
                saved_snapshots=after,
            )
        )

    def read(self, n_tokens: int, position: int) -> None:
        """Run a prompt in as few steps as its length allows."""
        for done in range(0, n_tokens, self._n_batch):
            self.run(min(self._n_batch, n_tokens - done), position + done)

    def write(self, n_tokens: int, position: int) -> None:
        """Run one token a step, as an answer is written."""
        for done in range(n_tokens):
            self.run(1, position + done)


def _rates(steps: Steps, n_prompt: int, n_gen: int, plan: Plan) -> Iterable[float]:
    """Yield tokens a second of each repeat; every repeat starts the sequence anew."""
    line = Line()
    run: Callable[[int, int], None] = steps.read if n_prompt else steps.write
    n_tokens = n_prompt or n_gen
    steps.read(plan.n_depth, 0)
    # The warm-up: the first run also faults the pages in.
    run(n_prompt or min(n_gen, 8), plan.n_depth)
    for repeat in range(plan.repetitions):
        line.update("measuring", repeat, plan.repetitions, "runs")
        steps.read(plan.n_depth, 0)
        start = time.perf_counter()
        run(n_tokens, plan.n_depth)
        yield n_tokens / (time.perf_counter() - start)
    line.clear()


class Roofs:
    """What this machine can do at most, beside what a model did."""

    def __init__(self, program: "Program", tensors: "Mapping[str, Tensor]", backend: str) -> None:
        self._program, self._tensors = program, tensors
        self._isa = _machine(backend)["isa"] if backend == "native" else None

    def beside(
        self, rate: float, n_threads: int, n_prompt: int, n_gen: int, n_depth: int
    ) -> dict[str, Any]:
        """Measure the roof that bounds a test; return the result's fields about it."""
        from edgeinfer.kernels.native import machine
        from edgeinfer.program.work import kv_bytes, macs_per_token, weight_bytes

        bound_by = "int8" if n_prompt else "memory"
        if self._isa is None:
            return {"bound_by": bound_by, "roof": None, "share": None}
        if n_prompt:
            roof = machine.int8_peak(self._isa, n_threads)
            needed = macs_per_token(self._program)
        else:
            roof = machine.read_bandwidth(n_threads)
            needed = weight_bytes(self._program, self._tensors)
            needed += kv_bytes(self._program, n_depth + n_gen // 2)
        share = rate * needed / roof if roof else None
        return {"bound_by": bound_by, "roof": roof or None, "share": share}


def _machine(backend: str) -> dict[str, Any]:
    from edgeinfer import __version__
    from edgeinfer.cli.machine import chosen_isa, cpu_name

    isa = (chosen_isa()[0] if backend == "native" else None) or "-"
    return {"isa": isa, "cpu": cpu_name(), "build": __version__}


COLUMNS = (("model", 24), ("size", 9), ("params", 10), ("backend", 16), ("threads", 7), ("test", 8))


def _head(result: Result) -> str:
    titles = " | ".join(f"{title:<{width}}" for title, width in COLUMNS)
    rule = " | ".join("-" * width for _, width in COLUMNS)
    notes = [f"{result.cpu}, edgeinfer {result.build}"]
    notes += ["weights mapped from the pack"] * result.packed
    notes += ["this model writes no text: reading alone is measured"] * result.only_reads
    return (
        f"{'; '.join(notes)}\n\n"
        f"| {titles} | {'t/s':>22} | {'of the roof':>24} |\n"
        f"| {rule} | {'-' * 21}: | {'-' * 23}: |"
    )


def _row(result: Result) -> str:
    backend = f"{result.backend} {result.isa}".removesuffix(" -")
    test = result.test + (f" @ d{result.n_depth}" if result.n_depth else "")
    size = amount(result.model_bytes, "B")
    params = (
        f"{result.n_params / 1e6:.2f} M"
        if result.n_params < 1e9
        else (f"{result.n_params / 1e9:.2f} B")
    )
    cells = (result.model[-24:], size, params, backend, str(result.n_threads), test)
    row = " | ".join(f"{cell:<{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))
    rate = f"{result.tokens_per_s:.2f} ± {result.stddev:.2f}"
    return f"| {row} | {rate:>22} | {_roof(result):>24} |"


def _roof(result: Result) -> str:
    if result.roof is None or result.share is None:
        return "-"
    unit = "GMAC/s" if result.bound_by == "int8" else "GB/s"
    return f"{result.share:.0%} of {result.roof / 1e9:.1f} {unit}"
