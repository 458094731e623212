"""Hold a source open with what is wanted of it, and plan copies: by the recipe, or otherwise.

A copy is planned as often as formats or metadata change; nothing is written here.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.imatrix import read_imatrix
from edgeinfer.loader.mapped import display
from edgeinfer.quant.imatrix import Imatrix
from edgeinfer.quant.recipe import QUANTIZATION_VERSION, Facts
from edgeinfer.quantizing.choices import Choices, Chosen, choose, facts_of
from edgeinfer.quantizing.conversion import Floats
from edgeinfer.quantizing.copying import Copy, Splitting, plan_copy
from edgeinfer.quantizing.goal import nearest_recipe
from edgeinfer.quantizing.importance import entries_about, importance_for
from edgeinfer.writer.entries import REPORT, Entry, entries_of, with_entries


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A source that is open, and what is to become of it."""

    file: GgufFile
    target: Path
    choices: Choices
    splitting: Splitting
    n_threads: int
    facts: Facts
    imatrix: Imatrix | None
    importance: Mapping[str, Floats]

    def copy(self, assigned: Mapping[str, str] | None = None, report: Sequence[Entry] = ()) -> Copy:
        """Plan a copy.

        Args:
            assigned: formats, by name, that hold before the recipe where the caller left it free.
            report: metadata about the copy; what the source says of itself is left out.
        """
        chosen = self.chosen(assigned)
        recipe = self.choices.recipe if assigned is None else nearest_recipe(chosen)
        kept = [e for e in entries_of(self.file.metadata) if not e.key.startswith(REPORT)]
        changed = (
            Entry("general.quantization_version", "u32", QUANTIZATION_VERSION),
            Entry("general.file_type", "u32", recipe.file_type),
            *(entries_about(self.imatrix) if self.imatrix is not None else ()),
            *report,
        )
        entries = with_entries(kept, changed)
        return plan_copy(self.file, self.target, entries, chosen, self.importance, self.splitting)

    def chosen(self, assigned: Mapping[str, str] | None = None) -> list[Chosen]:
        """Return what each tensor becomes. Raises as `choose`."""
        choices = self.choices if assigned is None else replace(self.choices, assigned=assigned)
        return choose(self.file.tensors, self.facts, choices, where=display(self.file.path))


@contextmanager
def open_job(
    source: Path,
    target: Path,
    choices: Choices,
    *,
    splitting: Splitting,
    imatrix: Path | None,
    n_threads: int,
) -> Iterator[Job]:
    """Yield the job; the source is closed at the end.

    Raises as `open_gguf`, `read_imatrix` and `choose`.
    """
    known = read_imatrix(imatrix) if imatrix is not None else None
    with open_gguf(source) as file:
        facts = facts_of(file.metadata, file.tensors, has_importance=known is not None)
        job = Job(file, target, choices, splitting, n_threads, facts, known, {})
        if known is not None:
            job = replace(job, importance=importance_for(job.chosen(), known))
        yield job
