"""Measure how much a model suffers from noise in its matrices, some of them at a time.

The matrices of a role in a part of the layers are given few bits, all else stays as it is, and the
divergence from the source is measured. It is shared out among them by their noise: what a format
costs a matrix is then its noise times divergence over noise. Costs add up well enough to choose by;
what comes of a choice has to be measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.roles import layer_of, role_of
from edgeinfer.quantizing.conversion import converted, pieces_of
from edgeinfer.quantizing.encoding import encoder
from edgeinfer.quantizing.job import Job
from edgeinfer.quantizing.search import Option, Options, weighed
from edgeinfer.quantizing.source import SourceRows
from edgeinfer.shrinking.meter import Meter, Progress
from edgeinfer.writer.gguf import TensorPlan, plan, write
from edgeinfer.writer.workplace import PartFile

PROBE_NOISE = 2e-3  # at least: that of 4 bits, between what good files and small ones are made of
PART_ENDS = (0.25, 0.75, 1.0)  # of the layers: most depends on the first and the last ones


def measured_costs(
    job: Job, noise: Options, meter: Meter, scratch: Path, progress: Progress
) -> dict[str, list[Option]]:
    """Return what each format costs each matrix, in nats of divergence on the meter's text.

    `scratch` is a file that may be written.
    """
    costs: dict[str, list[Option]] = {}
    groups = groups_of(noise)
    for done, names in enumerate(groups):
        progress("trying matrices", done, len(groups))
        probes = {name: probe_of(noise[name]) for name in names}
        total = sum(probe.cost for probe in probes.values())
        weight = 0.0
        if total > 0:
            formats = {name: probe.format for name, probe in probes.items()}
            with probe_file(job, formats, scratch) as file:
                weight = meter.divergence_with(file.tensors).kld.value / total
        costs |= {name: weighed(noise[name], max(weight, 0.0)) for name in names}
    progress("trying matrices", len(groups), len(groups))
    return costs


def groups_of(names: Sequence[str] | Mapping[str, object]) -> list[list[str]]:
    """Return the names that are tried together: of one role, in one part of the layers."""
    n_layers = 1 + max(map(layer_of, names), default=0)
    groups: dict[tuple[str, int], list[str]] = {}
    for name in names:
        share = (layer_of(name) + 0.5) / n_layers
        part = next(i for i, end in enumerate(PART_ENDS) if share < end)
        groups.setdefault((role_of(name), part), []).append(name)
    return list(groups.values())


def probe_of(options: Sequence[Option]) -> Option:
    """Return the best of the formats with noise enough to be seen, or the noisiest."""
    return next((option for option in options if option.cost >= PROBE_NOISE), options[-1])


@contextmanager
def probe_file(job: Job, formats: Mapping[str, str], path: Path) -> Iterator[GgufFile]:
    """Write some of the source's tensors in other formats; yield the file, which goes at the end.

    In a file, so that it takes no memory: the pages of what models lay out are given back.
    """
    tensors = job.file.tensors
    plans = [TensorPlan(name, tensors[name].shape, FORMATS[to]) for name, to in formats.items()]
    pieces = (
        piece
        for name, to in formats.items()
        for piece in pieces_of(tensors[name], FORMATS[to], job.importance.get(name))
    )
    encode = encoder(formats.values(), tensors)
    try:
        with (
            SourceRows(job.file) as source,
            closing(converted(source, pieces, encode, n_threads=job.n_threads)) as ready,
            closing(PartFile(path)) as part,
        ):
            write(plan([], plans), (data for _, data in ready), part.write)
        with open_gguf(path) as probe:
            yield probe
    finally:
        path.unlink(missing_ok=True)
