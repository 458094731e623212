"""Write down what a file lost as metadata of its own: the report card that it then bears."""

import math
from hashlib import sha256

from edgeinfer.evaluating.divergence import Divergence
from edgeinfer.evaluating.measured import Measured
from edgeinfer.writer.entries import REPORT, Entry

_UNKNOWN = Measured(math.nan, math.nan)
# Stands for the figures while a file is planned: all of them take as many bytes, whatever they are.
UNMEASURED = Divergence(
    kld=_UNKNOWN,
    median=math.nan,
    p90=math.nan,
    p99=math.nan,
    p999=math.nan,
    max=math.nan,
    top1_agreement=_UNKNOWN,
    dp=_UNKNOWN,
    rms_dp=_UNKNOWN,
    ppl_reference=_UNKNOWN,
    ppl=_UNKNOWN,
    ln_ppl_ratio=_UNKNOWN,
    n_tokens=0,
    n_chunks=0,
    n_ctx=0,
)


def report_card(
    found: Divergence, *, reference: str, recipe: str, dataset: str, text: str
) -> list[Entry]:
    """Return the figures of a divergence as metadata under `edgeinfer.report`.

    Args:
        found: what was measured; NaN stands for an error that one token leaves unknown.
        reference: the name of the file that counted as right.
        recipe: what the formats were chosen by.
        dataset: the name of the text.
        text: the text, whose SHA-256 is written down.
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
    texts = {
        "reference": reference,
        "recipe": recipe,
        "dataset": dataset,
        "text_sha256": sha256(text.encode()).hexdigest(),
    }
    counts = {"n_tokens": found.n_tokens, "n_chunks": found.n_chunks, "n_ctx": found.n_ctx}
    return [
        *(Entry(REPORT + name, "str", one) for name, one in texts.items()),
        *(Entry(REPORT + name, "u32", count) for name, count in counts.items()),
        *(Entry(REPORT + name, "f32", number) for name, number in numbers.items()),
    ]
