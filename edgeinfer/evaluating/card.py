"""Write down what a file lost as metadata of its own: the report card that it then bears."""

import math

from edgeinfer.evaluating.divergence import Divergence
from edgeinfer.evaluating.measured import Measured
from edgeinfer.writer.entries import Entry

PREFIX = "edgeinfer.report."


def report_card(found: Divergence, *, reference: str, dataset: str) -> list[Entry]:
    """Return the figures of a divergence as metadata under `edgeinfer.report`.

    `reference` and `dataset` name what it was measured against and on.
    """
    measured: dict[str, Measured] = {
        "kld": found.kld,
        "top1_agreement": found.top1_agreement,
        "ppl": found.ppl,
        "ppl_reference": found.ppl_reference,
        "rms_dp": found.rms_dp,
    }
    numbers = {"kld_median": found.median, "kld_99": found.p99, "kld_max": found.max}
    for name, one in measured.items():
        numbers |= {name: one.value, f"{name}_error": one.error}
    return [
        Entry(PREFIX + "reference", "str", reference),
        Entry(PREFIX + "dataset", "str", dataset),
        Entry(PREFIX + "n_tokens", "u32", found.n_tokens),
        Entry(PREFIX + "n_ctx", "u32", found.n_ctx),
        *(
            Entry(PREFIX + name, "f32", number)
            for name, number in numbers.items()
            if math.isfinite(number)
        ),
    ]
