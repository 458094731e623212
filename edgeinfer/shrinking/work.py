"""Meet a goal with a source that is open: find formats, write the copy, measure it, publish it."""

import math
from dataclasses import dataclass

from edgeinfer.errors import InvalidParameterError
from edgeinfer.evaluating.card import report_card
from edgeinfer.evaluating.divergence import Divergence
from edgeinfer.quant.recipe import Recipe, recipe_named
from edgeinfer.quantizing.copying import Copy, Splitting, check_target
from edgeinfer.quantizing.goal import START, formats_within, noises, usual_costs
from edgeinfer.quantizing.job import Job
from edgeinfer.quantizing.search import Fit, Options, fit_cost
from edgeinfer.shrinking.attempts import Attempt, Attempts, Card, write
from edgeinfer.shrinking.meter import Meter, Progress
from edgeinfer.shrinking.narrowing import smallest_within
from edgeinfer.shrinking.report import QuantizeReport, tensor_reports
from edgeinfer.shrinking.sensitivity import measured_costs
from edgeinfer.writer.entries import Entry
from edgeinfer.writer.workplace import workplace


@dataclass(frozen=True, slots=True)
class Goal:
    """What decides the formats: a recipe, a size, or a divergence."""

    recipe: str | None
    max_bytes: int | None
    max_kld: float | None

    def check(self, splitting: Splitting, *, pure: bool) -> None:
        """Raise InvalidParameterError unless there is one, and it can be."""
        given = [
            name for name in ("recipe", "max_bytes", "max_kld") if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise InvalidParameterError(
                f"recipe, max_bytes and max_kld: found {' and '.join(given) or 'none'} (need one)"
            )
        if self.max_kld is not None and not 0 < self.max_kld < math.inf:
            raise InvalidParameterError(f"max_kld: found {self.max_kld} (need more than 0)")
        if self.recipe is None and splitting != Splitting():
            raise InvalidParameterError(f"{given[0]} and a split set: found both (need one)")
        if self.recipe is None and pure:
            raise InvalidParameterError(f"{given[0]} and pure: found both (need one)")

    @property
    def start(self) -> Recipe:
        """The recipe, or where the search for formats begins."""
        return START if self.recipe is None else recipe_named(self.recipe)

    def __str__(self) -> str:
        if self.recipe is not None:
            return self.start.name
        return f"{self.max_bytes} bytes" if self.max_kld is None else f"kld {self.max_kld:g}"


@dataclass(frozen=True, slots=True)
class Sample:
    """A text to measure on, its name, and how many windows of it to read."""

    text: str
    name: str
    chunks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job, its goal, and how to go about it."""

    job: Job
    goal: Goal
    sample: Sample | None  # what to measure on, where something is to be
    has_report: bool
    overwrite: bool
    dry_run: bool
    progress: Progress

    def run(self) -> QuantizeReport:
        """Write the copy, unless it is a dry run; it appears whole or not at all."""
        copy = self.job.copy()
        if not self.dry_run:
            check_target(copy, overwrite=self.overwrite)
        if self.sample is not None and not (self.dry_run and self.goal.recipe):
            return self._measured(copy, self.sample)
        if self.goal.max_bytes is not None:
            costs = usual_costs(noises(copy, self.job.n_threads))
            copy = self.job.copy(formats_within(copy, costs, self.goal.max_bytes).formats)
        if not self.dry_run:
            with workplace(copy.targets) as place:
                write(self.job, place, copy, self.progress)
                place.publish(overwrite=self.overwrite)
        return self._report(copy)

    def _measured(self, start: Copy, sample: Sample) -> QuantizeReport:
        """Do the same where a text is read: by the source first, then by what comes of it."""
        name = start.targets.names[0]
        with (
            workplace(start.targets) as place,
            Meter(
                self.job.file.path,
                sample.text,
                place.folder / f"{name}.predictions",
                chunks=sample.chunks,
                n_threads=self.job.n_threads,
                progress=self.progress,
            ) as meter,
        ):
            attempts = Attempts(self.job, place, meter, self._card(sample), self.progress)
            if self.goal.recipe is not None:
                attempt, fit = attempts.try_out(None), None
            else:
                noise = noises(start, self.job.n_threads)
                scratch = place.folder / f"{name}.probe"
                costs = measured_costs(self.job, noise, meter, scratch, self.progress)
                if self.dry_run:
                    fit = self._predicted(attempts, costs)
                    return self._report(self.job.copy(fit.formats), fit=fit)
                attempt, fit = self._searched(attempts, costs)
            place.publish(overwrite=self.overwrite)
            return self._report(attempt.copy, fit=fit, found=attempt.divergence)

    def _predicted(self, attempts: Attempts, costs: Options) -> Fit:
        if self.goal.max_kld is not None:
            return fit_cost(costs, self.goal.max_kld)
        assert self.goal.max_bytes is not None
        return formats_within(attempts.planned(None), costs, self.goal.max_bytes)

    def _searched(self, attempts: Attempts, costs: Options) -> tuple[Attempt, Fit]:
        """Return the copy that meets the goal, written and measured, and what it should cost."""
        if self.goal.max_kld is None:
            fit = self._predicted(attempts, costs)
            return attempts.try_out(fit.formats), fit
        attempt, fit = smallest_within(costs, self.goal.max_kld, attempts.try_out)
        attempts.restore(attempt)
        return attempt, fit

    def _card(self, sample: Sample) -> Card | None:
        if not self.has_report:
            return None
        reference = self.job.file.path.name

        def card(found: Divergence) -> list[Entry]:
            return report_card(
                found,
                reference=reference,
                recipe=str(self.goal),
                dataset=sample.name,
                text=sample.text,
            )

        return card

    def _report(
        self, copy: Copy, *, fit: Fit | None = None, found: Divergence | None = None
    ) -> QuantizeReport:
        return QuantizeReport(
            recipe=str(self.goal),
            files=copy.paths,
            source_bytes=self.job.file.n_bytes,
            n_bytes=copy.n_bytes,
            tensors=tensor_reports(copy.chosen, self.job.importance),
            divergence=found,
            predicted_kld=fit.cost if fit is not None else None,
        )
