"""Make a model ready from its file, along the way of the data.

Name -> file -> tensors -> program -> executable -> engine, and beside it metadata -> tokenizer.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Literal

from edgeinfer import packing
from edgeinfer.arch import build_program
from edgeinfer.compiling import LoadProgress, Report, side_by_side
from edgeinfer.completion import Chunk, Completion, CompletionStream, Timings, Usage
from edgeinfer.drafting import open_draft
from edgeinfer.engine.budget import page_budget, snapshot_budget
from edgeinfer.engine.engine import Engine
from edgeinfer.engine.pages import PAGE_LEN
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.engine.speculation import Speculation
from edgeinfer.errors import InvalidParameterError, ResourceError
from edgeinfer.kernels.backend import (
    KV_TYPES,
    MOST,
    MOST_THREADS,
    Backend,
    Cancel,
    Executable,
    Limits,
    choose,
    step_len,
)
from edgeinfer.llm import Model
from edgeinfer.loader.catalogue import CATALOGUE
from edgeinfer.loader.fingerprint import fingerprint
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.kv_file import Binding, KvFile
from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.pack_file import Pack
from edgeinfer.loader.prefixes import find as find_prefixes
from edgeinfer.loader.resolve import resolve
from edgeinfer.program.program import Pooling, Program
from edgeinfer.sizing import check_room
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

LEARNED_POSITIONS = "position_embd.weight"
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
PACK_CHOICES = ("auto", "write", False)
SPECULATE_CHOICES = ("auto", False)


def load(
    path_or_name: str | os.PathLike[str],
    *,
    n_ctx: int | None = None,
    n_threads: int | None = None,
    n_threads_batch: int | None = None,
    kv_type: str = "f16",
    activations: str = "auto",
    backend: str = "auto",
    pack: Literal["auto", "write", False] = "auto",
    speculate: Literal["auto", False] = "auto",
    draft: str | os.PathLike[str] | None = None,
    pooling: Pooling | None = None,
    prefixes: bool = True,
    progress: LoadProgress | None = None,
) -> Model:
    """Make a model ready from a GGUF file.

    Args:
        path_or_name: path of a GGUF file (of a split set, its first), a catalogue name such as
            "smollm2", or "hf:owner/repo:QUANT". What is not on disk yet is downloaded.
        n_ctx: longest sequence in tokens, prompt and answer together. None takes the length the
            model was trained for; one that has learned a vector for each position serves no more.
            Memory is used for the tokens there are, not for n_ctx.
        n_threads: 1 to 512. None takes what the process's CPU affinity and quota allow.
        n_threads_batch: 1 to 512, for reading prompts (steps of more than 8 tokens). None takes
            n_threads. Answers are the same whatever the counts.
        kv_type: how keys and values are kept: "f16"; "f32", in twice the memory, for comparisons;
            "q8_0", in little more than half of it; or "q4_0", in 28 %, which answers can show.
        activations: "fine" rounds the activations of every matrix to 15 bits, which stays as close
            to the float32 model as its weights allow and takes up to twice as long for a prompt;
            "auto" does so where it costs little.
        backend: "auto" (the fastest that runs here), "native", "jit" or "reference".
        pack: "auto" maps the model's pack, the laid-out weights that `edgeinfer pack` keeps in the
            cache, if there is one; "write" writes it first if there is none; False leaves packs
            alone. The answers are the same bit for bit.
        speculate: "auto" guesses ahead where an answer repeats what stood before, and checks
            several tokens in a step where that is found to be faster; False makes one token a step.
            The answers are the same bit for bit.
        draft: a much smaller model of the same vocabulary, named as the model is, which guesses
            where nothing repeats, as far as that is found to be faster. It takes memory of its
            own; the answers are the same bit for bit.
        pooling: make a model that only reads of one that writes text, which saves the memory of its
            head, or change what one gives that reads: embeddings by "mean", "cls", the first token,
            or "last"; "none", a row for each token; "rank", the scores of a head that the file has
            and does not speak of. None takes what the file says.
        prefixes: read prompts on from the prefix files that `edgeinfer cache build` or
            `keep_prefix` made for this model, where one begins like them.
        progress: called as progress(stage, n_done, n_total) with bytes, from any thread; stage is
            "download", "pack", "weights" or "draft". What it raises ends the load.

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
    _check_load(n_ctx, n_threads, n_threads_batch, kv_type)
    _check_choice("pack", pack, PACK_CHOICES)
    _check_choice("speculate", speculate, SPECULATE_CHOICES)
    kernels = choose(backend)
    path = resolve(path_or_name, progress=_download_progress(progress))
    file = open_gguf(path)
    defaults = sampling_defaults(path_or_name, file.metadata)
    n_ctx = _context(file, n_ctx)
    program, pooling = _program(file, n_ctx, pooling)
    budget = page_budget(n_ctx, _most_page_bytes(program, kv_type))
    limits = Limits(
        n_ctx=n_ctx,
        n_batch=step_len(program, n_ctx),
        n_pages=budget.n_pages,
        n_threads=n_threads or 0,
        n_threads_batch=n_threads_batch or 0,
        kv_type=kv_type,
        activations=activations,
        n_snapshots=snapshot_budget(program.snapshot_bytes),
    )
    if draft is not None and not speculate:
        raise InvalidParameterError("draft: found one with speculate=False (need 'auto')")
    opened = None
    if draft is not None:
        download = _download_progress(progress)
        opened = open_draft(draft, file, program, limits, kernels, progress=download)
    packed = _packed(file, kernels, pack, progress)
    draft_bytes = opened.layout_bytes if opened is not None else 0
    if packed is None:
        check_room(file, program, kernels, beside=draft_bytes)
    elif opened is not None and draft_bytes:
        check_room(opened.file, opened.program, kernels)
    cancel = Cancel()
    report = Report(progress, cancel)

    def compile_program() -> Executable:
        return report.run(
            lambda: kernels.compile(
                program,
                file.tensors,
                limits,
                progress=report if progress else None,
                cancel=cancel,
                packed=packed,
            )
        )

    def build_tokenizer() -> Tokenizer:
        tokenizer = tokenizer_from_metadata(file.metadata, where=str(path))
        tokenizer.prepare()
        return tokenizer

    executable, tokenizer = side_by_side(compile_program, build_tokenizer, cancel)
    step_cancel = Cancel()
    guesser = None
    if speculate and kernels.is_bit_exact and program.pooling is None:
        ready = None
        if opened is not None:
            ready = opened.make_ready(kernels, executable, progress, step_cancel)
        guesser = Speculation(n_ctx, ready)
    binding = _binding(file, program, executable, limits)
    engine = Engine(
        executable,
        limits,
        budget=replace(budget, page_bytes=executable.state_bytes // limits.n_pages),
        fingerprint=binding.digest().encode(),
        window=program.window,
        whole_sequences=program.takes_whole_sequences,
        guesser=guesser,
        cancel=step_cancel,
        stored=_prefixes(binding, executable) if prefixes else (),
    )
    load_s = time.perf_counter() - started_s
    return Model(
        file,
        tokenizer,
        engine,
        defaults,
        load_s=load_s,
        binding=binding,
        beside=[
            *([packed] if packed is not None else []),
            *(opened.files if opened is not None else []),
        ],
        pooling=pooling,
        gives_rows=program.pooling in (None, "none"),
    )


def _program(file: GgufFile, n_ctx: int, pooling: Pooling | None) -> tuple[Program, Pooling | None]:
    """Return the program, and how a model that reads pools.

    Rows of tokens that see none after them are pooled as they come, by the class users hold: so a
    step need not have room for all of a text.
    """
    program = build_program(file.metadata, file.tensors, n_ctx=n_ctx, pooling=pooling)
    if program.pooling not in ("mean", "cls") or program.looks_ahead:
        return program, program.pooling
    rows = build_program(file.metadata, file.tensors, n_ctx=n_ctx, pooling="none")
    return rows, program.pooling


def _prefixes(binding: Binding, executable: Executable) -> list[KvFile]:
    return find_prefixes(binding, PAGE_LEN, executable.page_bytes, executable.snapshot_bytes)


def _binding(file: GgufFile, program: Program, executable: Executable, limits: Limits) -> Binding:
    """Return all that decides the keys and values of tokens, and how they are laid out."""
    digest = blake2b(program.print().partition("\n")[2].encode(), digest_size=16)
    for constant in program.constants:
        digest.update(constant.values.tobytes())
    return Binding(
        model=fingerprint(file.parts).hex(),
        program=digest.hexdigest(),
        kv_type=limits.kv_type,
        activations=limits.activations,
        layout=executable.page_layout,
    )


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


def _check_load(
    n_ctx: int | None, n_threads: int | None, n_threads_batch: int | None, kv_type: str
) -> None:
    if kv_type not in KV_TYPES:
        known = ", ".join(KV_TYPES)
        raise InvalidParameterError(f"kv_type: found {kv_type!r} (need one of {known})")
    for name, found, most in (
        ("n_ctx", n_ctx, MOST),
        ("n_threads", n_threads, MOST_THREADS),
        ("n_threads_batch", n_threads_batch, MOST_THREADS),
    ):
        if found is None:
            continue
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
            raise InvalidParameterError(
                f"{name}: found {found!r} (need 1 to {most}, or None for the default)"
            )


def _check_choice(name: str, found: object, allowed: tuple[str | bool, ...]) -> None:
    if not any(found is one or (isinstance(found, str) and found == one) for one in allowed):
        *others, last = map(repr, allowed)
        raise InvalidParameterError(f"{name}: found {found!r} (need {', '.join(others)} or {last})")


def _packed(
    file: GgufFile, kernels: Backend, pack: str | bool, progress: LoadProgress | None
) -> Pack | None:
    """Return the model's packed matrices, if they are wanted and there."""
    if pack is False:
        return None
    packed = packing.find(file, kernels)
    if packed is None and pack == "write" and packing.layout_of(file, kernels) is not None:
        try:
            packing.write(file, kernels, progress=_staged(progress, "pack"))
        except ResourceError as error:
            log.warning("%s; loading without a pack", error)
            return None
        packed = packing.find(file, kernels)
    return packed


def _staged(progress: LoadProgress | None, stage: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda n_done, n_total: progress(stage, n_done, n_total)


def _context(file: GgufFile, n_ctx: int | None) -> int:
    trained = file.metadata.integer(".context_length", least=1, most=MOST)
    n_ctx = trained if n_ctx is None else n_ctx
    if n_ctx > trained and LEARNED_POSITIONS in file.tensors:
        log.warning("n_ctx %d: the model has learned %d positions and no more", n_ctx, trained)
        return trained
    if n_ctx > trained:
        log.warning("n_ctx %d is longer than the %d tokens of the model's training", n_ctx, trained)
    return n_ctx


def _most_page_bytes(program: Program, kv_type: str) -> int:
    """Return the bytes of a page of floats; no type of codes takes more than those of 16 bits."""
    kept = map(program.kv, set(program.kv_places.values()))
    widths = (kv.n_kv_heads * (kv.key_dim + kv.value_dim) for kv in kept)
    return (4 if kv_type == "f32" else 2) * PAGE_LEN * sum(widths)


def _download_progress(progress: LoadProgress | None) -> Callable[[int, int, str], None] | None:
    if progress is None:
        return None
    return lambda n_done, n_total, what: progress("download", n_done, n_total)
