"""Tell what a model would take, and whether this machine has it, from the header of its file.

Shapes go in, bytes and a verdict come out. Reads no matrix; measures nothing.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgeinfer.arch import build_program
from edgeinfer.engine.pages import PAGE_LEN, pages_for
from edgeinfer.engine.state import PER_SEQUENCE
from edgeinfer.errors import InvalidParameterError, ResourceError, UnsupportedModelError
from edgeinfer.kernels.backend import (
    KV_TYPES,
    MOST,
    Backend,
    Footprint,
    Limits,
    choose,
    step_len,
)
from edgeinfer.kernels.memory import memory_bytes
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.mapped import display
from edgeinfer.loader.resolve import resolve
from edgeinfer.program.program import Program
from edgeinfer.program.work import kv_bytes, macs_per_token, weight_bytes
from edgeinfer.text.agreement import n_common_tokens

log = logging.getLogger(__name__)

Verdict = Literal["fits", "slow", "cannot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a model takes in memory, in bytes, and what this machine has.

    weights_bytes: the matrices as they are laid out. kv_bytes_per_token: keys and values of one
    token, by KV type. kv_bytes: those of `n_sequences` contexts of `n_ctx` tokens in `kv_type`.
    state_bytes: recurrent state of the sequences, before a step and after it. scratch_bytes: the
    values of a step. draft_bytes: all of these of a draft, 0 without one. n_bytes: all together;
    the interpreter and the vocabulary come on top. available_bytes: what this process may still
    take.

    verdict: "fits", "slow" (weights would be read from disk again and again) or "cannot", and
    reason says why in a sentence. n_ctx_fits: the longest context that fits, 0 if none does.

    writes: whether it writes text; encoders and rerankers only read.

    token_bytes, token_bytes_full: what one token of an answer reads, with an empty and with a full
    context; the memory's speed divided by it bounds the tokens a second. token_macs: what
    one token of a prompt multiplies.
    """

    path: Path
    arch: str
    backend: str
    n_params: int
    n_ctx: int
    n_ctx_train: int
    n_sequences: int
    kv_type: str
    weights_bytes: int
    kv_bytes_per_token: Mapping[str, int]
    kv_bytes: int
    state_bytes: int
    scratch_bytes: int
    draft_bytes: int
    n_bytes: int
    available_bytes: int
    n_ctx_fits: int
    verdict: Verdict
    reason: str
    writes: bool
    token_bytes: int
    token_bytes_full: int
    token_macs: int


def estimate(
    path_or_name: str | os.PathLike[str],
    *,
    n_ctx: int | None = None,
    n_sequences: int = 1,
    n_threads: int | None = None,
    kv_type: str = "f16",
    activations: str = "auto",
    backend: str = "auto",
    draft: str | os.PathLike[str] | None = None,
) -> Estimate:
    """Tell what `load` and full contexts would take, before a weight is read.

    Args:
        path_or_name: as `load` takes it; what is not on disk yet is downloaded.
        n_ctx: tokens of a sequence. None takes the length the model was trained for.
        n_sequences: sequences of that length at the same time, 1 or more.
        n_threads, kv_type, activations, backend, draft: as `load` takes them.

    Raises what `load` raises for the file and the arguments.

    Example:
        >>> edgeinfer.estimate("model.gguf", n_ctx=4096).verdict
        'fits'
    """
    for name, found in (("n_ctx", n_ctx), ("n_sequences", n_sequences)):
        if found is not None and (not isinstance(found, int) or not 1 <= found <= MOST):
            raise InvalidParameterError(f"{name}: found {found!r} (need 1 to {MOST})")
    kernels = choose(backend)
    with open_gguf(resolve(path_or_name)) as file:
        trained = file.metadata.integer(".context_length", least=1, most=MOST)
        n_ctx = n_ctx or trained
        program = build_program(file.metadata, file.tensors, n_ctx=n_ctx)
        limits = Limits(
            n_ctx=n_ctx,
            n_pages=1,
            n_batch=step_len(program, n_ctx),
            n_threads=n_threads or 0,
            kv_type=kv_type,
            activations=activations,
        )
        beside = None
        if draft is not None:
            beside = _draft_needs(resolve(draft), file, kernels, limits, n_sequences)
        return _estimate(file, program, kernels, limits, n_sequences, beside)


def check_room(file: GgufFile, program: Program, kernels: Backend, *, beside: int = 0) -> None:
    """Raise ResourceError if laying the weights out, and `beside` bytes, takes more than there is.

    Beyond what is free at the moment a warning is logged: others may give theirs back.
    """
    formats = {tensor.format.name for tensor in file.tensors.values()}
    if kernels.layout(formats) is None:
        return
    available, total = memory_bytes()
    needed = sum(file.tensors[name].n_bytes for name in program.weights()) + beside
    if needed <= available:
        return
    message = (
        f"{display(file.path)}: its weights take {_size(needed)}, and {_size(available)} of "
        f"{_size(total)} are available; `edgeinfer pack` lays them out in a file, from which they "
        "are read as they are needed, or choose a smaller quantization"
    )
    if needed > total + _swap_bytes():
        raise ResourceError(message)
    log.warning("%s", message)


def _swap_bytes() -> int:
    import psutil

    return int(psutil.swap_memory().free)


def _draft_needs(
    path: Path, file: GgufFile, kernels: Backend, limits: Limits, n_sequences: int
) -> "_Needs":
    with open_gguf(path) as draft:
        n_common_tokens(file.metadata, draft.metadata, where=display(draft.path))
        program = build_program(draft.metadata, draft.tensors, n_ctx=limits.n_ctx)
        footprint = kernels.measure(program, draft.tensors, limits)
        return _needs(program, footprint, limits, n_sequences)


def _needs(program: Program, footprint: Footprint, limits: Limits, n_sequences: int) -> "_Needs":
    return _Needs(
        weights=footprint.weights_bytes,
        page=footprint.page_bytes,
        state=n_sequences * PER_SEQUENCE * program.snapshot_bytes,
        scratch=_scratch_bytes(program, footprint, limits),
        n_sequences=n_sequences,
    )


def _estimate(
    file: GgufFile,
    program: Program,
    kernels: Backend,
    limits: Limits,
    n_sequences: int,
    draft: "_Needs | None",
) -> Estimate:
    footprint = kernels.measure(program, file.tensors, limits)
    by_type = _kv_by_type(file, program, kernels, limits)
    kv_per_token = footprint.page_bytes // PAGE_LEN
    own = _needs(program, footprint, limits, n_sequences)
    needs = own if draft is None else own.beside(draft)
    available, _ = memory_bytes()
    formats = {tensor.format.name for tensor in file.tensors.values()}
    packs = kernels.layout(formats) is not None
    can_drop = footprint.weights_are_mapped or packs
    verdict, reason = needs.verdict(limits.n_ctx, available, can_drop=can_drop, packs=packs)
    token_weights = weight_bytes(program, file.tensors)
    f16_per_token = sum(2 * kv.n_kv_heads * (kv.key_dim + kv.value_dim) for kv in program.kvs)
    kv_read = kv_bytes(program, limits.n_ctx) * kv_per_token // max(1, f16_per_token)
    return Estimate(
        path=file.path,
        arch=program.arch,
        backend=kernels.name,
        n_params=sum(tensor.n_rows * tensor.n_columns for tensor in file.tensors.values()),
        n_ctx=limits.n_ctx,
        n_ctx_train=program.n_ctx_train,
        n_sequences=n_sequences,
        kv_type=limits.kv_type,
        weights_bytes=footprint.weights_bytes,
        kv_bytes_per_token=by_type,
        kv_bytes=own.kv(limits.n_ctx),
        state_bytes=own.state,
        scratch_bytes=own.scratch,
        draft_bytes=draft.total(limits.n_ctx) if draft is not None else 0,
        n_bytes=needs.total(limits.n_ctx),
        available_bytes=available,
        n_ctx_fits=needs.longest(program.n_ctx_train, available),
        verdict=verdict,
        reason=reason,
        writes=program.pooling is None,
        token_bytes=token_weights + program.snapshot_bytes,
        token_bytes_full=token_weights + program.snapshot_bytes + kv_read,
        token_macs=macs_per_token(program),
    )


@dataclass(frozen=True, slots=True)
class _Needs:
    """Bytes that a model takes whatever the context, and those of a page."""

    weights: int
    page: int
    state: int
    scratch: int
    n_sequences: int

    def beside(self, other: "_Needs") -> "_Needs":
        """Return what both take together, each with its own context."""
        return _Needs(
            weights=self.weights + other.weights,
            page=self.page + other.page,
            state=self.state + other.state,
            scratch=self.scratch + other.scratch,
            n_sequences=self.n_sequences,
        )

    def kv(self, n_ctx: int) -> int:
        return self.n_sequences * pages_for(n_ctx) * self.page

    def total(self, n_ctx: int) -> int:
        return self.weights + self.kv(n_ctx) + self.state + self.scratch

    def longest(self, most: int, available: int) -> int:
        """Return the longest context, of at most `most`, that fits."""
        left = available - self.total(0)
        if left < 0:
            return 0
        per_page = self.n_sequences * self.page
        return min(most, left // per_page * PAGE_LEN) if per_page else most

    def verdict(
        self, n_ctx: int, available: int, *, can_drop: bool, packs: bool
    ) -> tuple[Verdict, str]:
        """Judge by what must be there at once, and by what the system may drop and read again."""
        found = f"needs {_size(self.total(n_ctx))}, and {_size(available)} are available"
        if self.total(n_ctx) <= available:
            return "fits", found
        longest = self.longest(n_ctx, available)
        shorter = f"; a context of {longest:,} tokens fits" if longest else ""
        if can_drop and self.total(n_ctx) - self.weights <= available:
            first = "; run `edgeinfer pack` first" if packs else ""
            return "slow", f"{found}: weights are read from disk for every token{first}{shorter}"
        return "cannot", found + (shorter or "; choose a smaller model or a smaller quantization")


def _kv_by_type(
    file: GgufFile, program: Program, kernels: Backend, limits: Limits
) -> dict[str, int]:
    """Return the bytes of a token's keys and values for each type the backend has."""
    found = {}
    for kv_type in KV_TYPES:
        try:
            measured = kernels.measure(program, file.tensors, replace(limits, kv_type=kv_type))
        except UnsupportedModelError:
            continue
        found[kv_type] = measured.page_bytes // PAGE_LEN
    return found


def _scratch_bytes(program: Program, footprint: Footprint, limits: Limits) -> int:
    """Return what a step of n_batch tokens touches; of the rows of the result that is the last."""
    untouched = (limits.n_batch - 1) * program.n_out * 4
    return max(0, footprint.work_bytes - untouched)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
