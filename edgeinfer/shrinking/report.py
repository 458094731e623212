"""Say what quantizing did, or would do: each tensor's formats and bytes."""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeinfer.evaluating.divergence import Divergence
from edgeinfer.quantizing.choices import Chosen


@dataclass(frozen=True, slots=True)
class TensorReport:
    """One tensor: its formats before and after, and the one wanted if rows did not allow it."""

    name: str
    shape: tuple[int, ...]
    source_format: str
    format: str
    wanted: str
    source_bytes: int
    n_bytes: int
    used_importance: bool

    @property
    def is_fallback(self) -> bool:
        """Whether the rows are no multiple of the wanted format's block."""
        return self.format != self.wanted


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """What `quantize` wrote, or with `dry_run` would write.

    `recipe` is its name, or the goal that stood in its place. `files` are the paths, `n_bytes` what
    they take together, `source_bytes` what the source takes. `divergence` is how far the file is
    from the source, where that was measured, and `predicted_kld` what the search expected.
    """

    recipe: str
    files: tuple[Path, ...]
    source_bytes: int
    n_bytes: int
    tensors: tuple[TensorReport, ...]
    divergence: Divergence | None = None
    predicted_kld: float | None = None

    @property
    def fallbacks(self) -> tuple[TensorReport, ...]:
        """The tensors that did not become what was wanted."""
        return tuple(tensor for tensor in self.tensors if tensor.is_fallback)

    @property
    def encoded(self) -> tuple[TensorReport, ...]:
        """The tensors that have another format than before."""
        return tuple(tensor for tensor in self.tensors if tensor.format != tensor.source_format)

    @property
    def bits_per_weight(self) -> float:
        """Bits a value takes on average, over all tensors."""
        n_values = sum(math.prod(tensor.shape) for tensor in self.tensors)
        return 8 * sum(tensor.n_bytes for tensor in self.tensors) / max(n_values, 1)

    def bytes_by_format(self) -> dict[str, tuple[int, int]]:
        """Return for each format the number of tensors and their bytes, the most bytes first."""
        found: dict[str, tuple[int, int]] = {}
        for tensor in self.tensors:
            count, n_bytes = found.get(tensor.format, (0, 0))
            found[tensor.format] = (count + 1, n_bytes + tensor.n_bytes)
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def tensor_reports(
    chosen: Sequence[Chosen], with_importance: Container[str]
) -> tuple[TensorReport, ...]:
    """Return the reports of what was chosen."""
    return tuple(
        TensorReport(
            name=c.tensor.name,
            shape=c.tensor.shape,
            source_format=c.tensor.format.name,
            format=c.format.name,
            wanted=c.wanted.name,
            source_bytes=c.tensor.n_bytes,
            n_bytes=c.n_bytes,
            used_importance=c.tensor.name in with_importance,
        )
        for c in chosen
    )
