"""Lay out what `edgeinfer eval` measured, as a person reads it."""

import json
import math
from typing import TYPE_CHECKING, Any

from edgeinfer.cli.progress import amount

if TYPE_CHECKING:
    from edgeinfer.evaluating import Choice, Divergence, Perplexity
    from edgeinfer.evaluating.plot import Plotted


def json_of(value: Any) -> str:
    """Return JSON, with null for what is no number or infinite: JSON has neither."""
    return json.dumps(_finite(value), indent=1)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def ppl_lines(result: "Perplexity") -> list[str]:
    """Return perplexity as a person reads it."""
    return [f"ppl   {result.ppl}", f"nll   {result.nll}", f"top1  {result.top1}", over(result)]


def top1_lines(result: "Perplexity") -> list[str]:
    """Return the share of right first guesses as a person reads it."""
    return [f"top1  {result.top1}", over(result)]


def kld_lines(result: "Divergence") -> list[str]:
    """Return the divergence as a person reads it."""
    rows = [
        ("kld", f"{result.kld.value:.6f} ± {result.kld.error:.6f}"),
        ("  median", f"{result.median:.6f}"),
        ("  90 %", f"{result.p90:.6f}"),
        ("  99 %", f"{result.p99:.6f}"),
        ("  99.9 %", f"{result.p999:.6f}"),
        ("  most", f"{result.max:.6f}"),
        ("same top 1", f"{result.top1_agreement}"),
        ("rms of dp", f"{result.rms_dp}"),
        ("mean of dp", f"{result.dp}"),
        ("ppl", f"{result.ppl}"),
        ("ppl, reference", f"{result.ppl_reference}"),
        ("ln of their ratio", f"{result.ln_ppl_ratio}"),
    ]
    return [f"{name:<18}{value}" for name, value in rows] + [over(result)]


def over(result: "Perplexity | Divergence") -> str:
    """Say what was measured on."""
    windows = "window" if result.n_chunks == 1 else "windows"
    return f"over {result.n_tokens} tokens in {result.n_chunks} {windows} of {result.n_ctx}"


def choice_lines(result: "Choice") -> list[str]:
    """Return the shares of right choices as a person reads them."""
    return [
        f"right, by the token      {result.accuracy_norm}",
        f"right, by whole endings  {result.accuracy}",
        f"over {result.n_tasks} tasks",
    ]


def plot_lines(result: "Plotted") -> list[str]:
    """Return the points of a plot, smallest first, and where it is."""
    points = sorted(result.points, key=lambda point: point.n_bytes)
    width = max(len(point.name) for point in points)
    return [
        *(
            f"{point.name:<{width}}  {amount(point.n_bytes, 'B'):>9}  "
            f"kld {point.kld.value:.6f} ± {point.kld.error:.6f}"
            for point in points
        ),
        result.file,
    ]
