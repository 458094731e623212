"""Write a copy where it is not seen yet, measure it, and write down in it what was measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgeinfer.evaluating.card import UNMEASURED
from edgeinfer.evaluating.divergence import Divergence
from edgeinfer.quantizing.copying import Copy, write_copy
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.quantizing.job import Job
from edgeinfer.shrinking.meter import Meter, Progress
from edgeinfer.writer.entries import Entry
from edgeinfer.writer.publishing import rewrite_heads
from edgeinfer.writer.workplace import Workplace

Assigned = Mapping[str, str] | None
Card = Callable[[Divergence], Sequence[Entry]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A copy with some formats, and how far it is from the source."""

    assigned: Assigned
    copy: Copy
    divergence: Divergence


class Attempts:
    """Where copies are tried: each is written over the one before, and nothing is published."""

    def __init__(
        self, job: Job, place: Workplace, meter: Meter, card: Card | None, progress: Progress
    ) -> None:
        self.meter = meter
        self._job, self._place, self._card, self._progress = job, place, card, progress
        self._written: Attempt | None = None

    def try_out(self, assigned: Assigned) -> Attempt:
        """Write the copy with these formats, and measure it."""
        copy = self.planned(assigned)
        write(self._job, self._place, copy, self._progress)
        path = self._place.folder / self._place.targets.names[0]
        found = self.meter.divergence_of(path, self._progress)
        rewrite_heads(self._place, copy.plans, self.planned(assigned, found).plans)
        self._written = Attempt(assigned, copy, found)
        return self._written

    def restore(self, attempt: Attempt) -> None:
        """Have the file of an earlier attempt: the same bytes again, which need no measuring."""
        if attempt is not self._written:
            copy = self.planned(attempt.assigned, attempt.divergence)
            write(self._job, self._place, copy, self._progress)
            self._written = attempt

    def planned(self, assigned: Assigned, found: Divergence = UNMEASURED) -> Copy:
        """Plan a copy that bears what was measured; it takes as many bytes before that is known."""
        return self._job.copy(assigned, report=self._card(found) if self._card is not None else ())


def write(job: Job, place: Workplace, copy: Copy, progress: Progress) -> None:
    """Write a planned copy."""
    formats = {c.format.name for c in copy.chosen if c.format is not c.tensor.format}

    def on_bytes(done: int, total: int) -> None:
        progress("quantizing", done, total)

    write_copy(copy, place, encoder(formats, job.file.tensors), job.n_threads, on_bytes)
