"""Make a draft ready: a smaller model of the same vocabulary that guesses for another one.

Name -> file -> tensors -> program -> executable, as for the model itself; no tokenizer is built.
"""

import os
from dataclasses import dataclass, replace

from edgeinfer import packing
from edgeinfer.arch import build_program
from edgeinfer.compiling import LoadProgress, Report, side_by_side
from edgeinfer.engine.budget import page_budget
from edgeinfer.engine.draft import Draft
from edgeinfer.engine.holdings import Holdings
from edgeinfer.engine.pages import PagePool
from edgeinfer.engine.prefix import PrefixCache
from edgeinfer.errors import InvalidParameterError, UnsupportedModelError
from edgeinfer.kernels.backend import Backend, Cancel, Executable, Footprint, Limits
from edgeinfer.loader.cache import Progress as DownloadProgress
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.mapped import display
from edgeinfer.loader.pack_file import Pack
from edgeinfer.loader.resolve import resolve
from edgeinfer.program.program import Program
from edgeinfer.program.work import weight_bytes
from edgeinfer.text.agreement import n_common_tokens


@dataclass(frozen=True, slots=True)
class OpenedDraft:
    """A draft that suits its model, before its weights are read."""

    file: GgufFile
    program: Program
    limits: Limits
    footprint: Footprint
    packed: Pack | None
    n_vocab: int  # ids that mean the same to both
    cost: float  # bytes that a token of it reads, by those of the model

    @property
    def files(self) -> list[GgufFile | Pack]:
        """What is mapped, to be held as long as the draft is in use."""
        return [self.file, *([self.packed] if self.packed is not None else [])]

    @property
    def layout_bytes(self) -> int:
        """Memory that laying its weights out takes."""
        return 0 if self.packed is not None else self.footprint.weights_bytes

    def make_ready(
        self,
        kernels: Backend,
        executable: Executable,
        progress: LoadProgress | None,
        step_cancel: Cancel,
    ) -> Draft:
        """Lay its weights out, unless there is a pack, and return it over pages of its own.

        What fails or is stopped here closes `executable`, the model's. `step_cancel` is the flag
        that stops its steps. Raises what `Backend.compile` raises.
        """
        cancel = Cancel()
        report = Report(progress, cancel, stage="draft")

        def compile_program() -> Executable:
            return kernels.compile(
                self.program,
                self.file.tensors,
                self.limits,
                progress=report if progress else None,
                cancel=cancel,
                packed=self.packed,
            )

        try:
            own, _ = side_by_side(lambda: report.run(compile_program), lambda: None, cancel)
        except BaseException:
            executable.close()
            raise
        budget = page_budget(self.limits.n_ctx, self.footprint.page_bytes)
        pool = PagePool(self.limits.n_pages, has_room=budget.has_room)
        prefixes = PrefixCache(pool)
        holdings = Holdings(pool, prefixes, n_kept=budget.n_kept, window=self.program.window)
        return Draft(
            own, self.limits, holdings, n_vocab=self.n_vocab, cost=self.cost, cancel=step_cancel
        )


def open_draft(
    path_or_name: str | os.PathLike[str],
    file: GgufFile,
    program: Program,
    limits: Limits,
    kernels: Backend,
    *,
    progress: DownloadProgress | None = None,
) -> OpenedDraft:
    """Open the draft of a model that is given by its file, its program and its limits.

    Raises what opening a model raises, UnsupportedModelError for a draft that cannot take guesses
    back, InvalidParameterError for one of another vocabulary.
    """
    if not kernels.is_bit_exact:
        raise InvalidParameterError(
            f"draft: backend {kernels.name!r}: guesses could change its answers (need 'native' or "
            "'jit'); leave `draft` out"
        )
    draft_file = open_gguf(resolve(path_or_name, progress=progress))
    where = display(draft_file.path)
    n_vocab = n_common_tokens(file.metadata, draft_file.metadata, where=where)
    trained = draft_file.metadata.integer(".context_length", least=1)
    n_ctx = min(limits.n_ctx, trained)
    draft_program = build_program(draft_file.metadata, draft_file.tensors, n_ctx=n_ctx)
    if draft_program.recurrent:
        raise UnsupportedModelError(
            f"draft: {where}: found recurrent state, where a wrong guess would remain (need keys "
            "and values alone); take another draft"
        )
    if draft_program.takes_whole_sequences:
        raise UnsupportedModelError(
            f"draft: {where}: found a model that reads whole texts only (need one that continues "
            "them); take another draft"
        )
    own = replace(limits, n_ctx=n_ctx, n_pages=1)
    footprint = kernels.measure(draft_program, draft_file.tensors, own)
    n_pages = page_budget(n_ctx, footprint.page_bytes).n_pages
    read_bytes = weight_bytes(program, file.tensors)
    return OpenedDraft(
        file=draft_file,
        program=draft_program,
        limits=replace(own, n_pages=n_pages),
        footprint=footprint,
        packed=packing.find(draft_file, kernels),
        n_vocab=min(n_vocab, program.n_vocab, draft_program.n_vocab),
        cost=weight_bytes(draft_program, draft_file.tensors) / max(1, read_bytes),
    )
