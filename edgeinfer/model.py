"""Make a model ready from its file, along the way of the data.

Name -> file -> tensors -> program -> executable -> engine, and beside it metadata -> tokenizer.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from edgeinfer.arch import build_program
from edgeinfer.completion import Chunk, Completion, CompletionStream, Timings, Usage
from edgeinfer.engine.engine import Engine
from edgeinfer.engine.pages import pages_for
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.backend import Executable, Limits, choose
from edgeinfer.llm import Model
from edgeinfer.loader.catalogue import CATALOGUE
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.resolve import resolve
from edgeinfer.text.tokenizer import Tokenizer, load_tokenizer, tokenizer_from_metadata

__all__ = [
    "Chunk",
    "Completion",
    "CompletionStream",
    "Model",
    "Sampled",
    "SamplingParams",
    "Timings",
    "Usage",
    "load",
    "load_tokenizer",
]

log = logging.getLogger(__name__)

LoadProgress = Callable[[str, int, int], None]  # "download" or "weights", bytes done, bytes in all
MOST_CTX = (1 << 31) - 1
HINT_PREFIX = "general.sampling."
_NUMBER_HINTS = {  # the rest of the key: the field of SamplingParams
    "temp": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_repeat": "repeat_penalty",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
_INTEGER_HINTS = {
    "top_k": "top_k",
    "penalty_last_n": "penalty_last_n",
    "mirostat": "mirostat",
}
POLL_S = 0.05  # how often a waiting load looks up for Ctrl-C
MOST_THREADS = 512
POOL_CONTEXTS = 2  # full-length sequences the KV pages are for: one running, one kept


def load(
    path_or_name: str | os.PathLike[str],
    *,
    n_ctx: int | None = None,
    n_threads: int | None = None,
    n_threads_batch: int | None = None,
    backend: str = "auto",
    progress: LoadProgress | None = None,
) -> Model:
    """Make a model ready from a GGUF file.

    Args:
        path_or_name: path of a GGUF file (of a split set, its first), a catalogue name such as
            "smollm2", or "hf:owner/repo:QUANT". What is not on disk yet is downloaded.
        n_ctx: longest sequence in tokens, prompt and answer together. None takes the length the
            model was trained for. Memory is used for the tokens there are, not for n_ctx.
        n_threads: 1 to 512. None takes what the process's CPU affinity and quota allow.
        n_threads_batch: 1 to 512, for reading prompts (steps of more than 8 tokens). None takes
            n_threads. Answers are the same whatever the counts.
        backend: "auto" (the fastest that runs here), "native", "jit" or "reference".
        progress: called as progress(stage, n_done, n_total) with bytes, from any thread; stage is
            "download" or "weights". What it raises ends the load.

    Raises:
        ModelNotFoundError: nothing answers to the name.
        ModelFormatError: the file is broken, truncated or contradicts itself.
        UnsupportedModelError: the file is sound but needs what edgeinfer does not have.
        InvalidParameterError: an argument is out of its range.
        BackendError: the backend cannot run here.
        ResourceError: memory or disk does not suffice.

    Example:
        >>> with edgeinfer.load("smollm2") as model:
        ...     print(model.chat([{"role": "user", "content": "Name a colour."}]))
    """
    started_s = time.perf_counter()
    _check_load(n_ctx, n_threads, n_threads_batch)
    kernels = choose(backend)
    path = resolve(path_or_name, progress=_download_progress(progress))
    file = open_gguf(path)
    defaults = sampling_defaults(path_or_name, file.metadata)
    limits = _limits(file.metadata, n_ctx, n_threads, n_threads_batch)
    program = build_program(file.metadata, file.tensors, n_ctx=limits.n_ctx)
    report = _Report(progress)

    def compile_program() -> Executable:
        executable = kernels.compile(
            program, file.tensors, limits, progress=report if progress else None
        )
        report.reraise(executable)
        return executable

    def build_tokenizer() -> Tokenizer:
        tokenizer = tokenizer_from_metadata(file.metadata, where=str(path))
        tokenizer.prepare()
        return tokenizer

    executable, tokenizer = _side_by_side(compile_program, build_tokenizer)
    engine = Engine(executable, limits)
    return Model(file, tokenizer, engine, defaults, load_s=time.perf_counter() - started_s)


def sampling_defaults(path_or_name: str | os.PathLike[str], metadata: Metadata) -> SamplingParams:
    """Return the sampling defaults with what the file, or else the catalogue, puts in their place.

    The keys `general.sampling.*` are written by converters from a model's generation settings.
    Raises ModelFormatError for a hint of the wrong type or out of range.
    """
    entry = CATALOGUE.get(path_or_name) if isinstance(path_or_name, str) else None
    hints: dict[str, Any] = dict(entry.sampling) if entry else {}
    for rest, name in (_NUMBER_HINTS | _INTEGER_HINTS).items():
        if (key := HINT_PREFIX + rest) not in metadata:
            continue
        hints[name] = metadata.integer(key) if rest in _INTEGER_HINTS else metadata.number(key)
        try:
            SamplingParams(**{name: hints[name]})
        except InvalidParameterError as error:
            raise metadata.error(key, f"as {error}") from None
    if HINT_PREFIX + "sequence" in metadata:
        log.warning("%ssequence: samplers run in edgeinfer's own order", HINT_PREFIX)
    return SamplingParams(**hints)


def _check_load(n_ctx: int | None, n_threads: int | None, n_threads_batch: int | None) -> None:
    for name, found, most in (
        ("n_ctx", n_ctx, MOST_CTX),
        ("n_threads", n_threads, MOST_THREADS),
        ("n_threads_batch", n_threads_batch, MOST_THREADS),
    ):
        if found is None:
            continue
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
            raise InvalidParameterError(
                f"{name}: found {found!r} (need 1 to {most}, or None for the default)"
            )


def _limits(
    metadata: Metadata, n_ctx: int | None, n_threads: int | None, n_threads_batch: int | None
) -> Limits:
    trained = metadata.integer(".context_length", least=1, most=MOST_CTX)
    n_ctx = trained if n_ctx is None else n_ctx
    if n_ctx > trained:
        log.warning("n_ctx %d is longer than the %d tokens of the model's training", n_ctx, trained)
    return Limits(
        n_ctx=n_ctx,
        n_pages=POOL_CONTEXTS * pages_for(n_ctx),
        n_threads=n_threads or 0,
        n_threads_batch=n_threads_batch or 0,
    )


def _side_by_side(
    compile_program: Callable[[], Executable], build_tokenizer: Callable[[], Tokenizer]
) -> tuple[Executable, Tokenizer]:
    """Compile on another thread while this one builds the tokenizer; fail together.

    This thread waits in short naps, so that Ctrl-C is heard at once; what is then still being
    compiled is freed when it is done.
    """
    compiled: list[Executable] = []
    failed: list[BaseException] = []
    abandoned = threading.Event()

    def work() -> None:
        try:
            compiled.append(compile_program())
        except BaseException as error:
            failed.append(error)
        if abandoned.is_set():
            _close_all(compiled)

    thread = threading.Thread(target=work, name="edgeinfer-compile", daemon=True)
    thread.start()
    try:
        tokenizer = build_tokenizer()
        while thread.is_alive():
            thread.join(POLL_S)
    except BaseException:
        abandoned.set()
        _close_all(compiled)
        raise
    if failed:
        raise failed[0]
    return compiled[0], tokenizer


def _close_all(executables: list[Executable]) -> None:
    """Close each once, whichever thread comes first."""
    while executables:
        try:
            executables.pop().close()
        except IndexError:
            return


def _download_progress(progress: LoadProgress | None) -> Callable[[int, int, str], None] | None:
    if progress is None:
        return None
    return lambda n_done, n_total, what: progress("download", n_done, n_total)


class _Report:
    """Pass a backend's progress on, and keep what the caller's function raises.

    A backend may report from a thread of its own, where an exception would be lost.
    """

    def __init__(self, progress: LoadProgress | None) -> None:
        self._progress = progress
        self._raised: BaseException | None = None

    def __call__(self, n_done: int, n_total: int) -> None:
        if self._progress is not None and self._raised is None:
            try:
                self._progress("weights", n_done, n_total)
            except BaseException as error:
                self._raised = error

    def reraise(self, executable: Executable) -> None:
        """Close what was compiled and raise what the caller's function raised, if it did."""
        if self._raised is not None:
            executable.close()
            raise self._raised
