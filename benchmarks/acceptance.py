"""Measure everything the project promises about speed and print it beside the aims.

    python -m benchmarks.acceptance --peer-python PATH --journal FILE --minutes 8    # until exit 0
    python -m benchmarks.acceptance --peer-python PATH --journal FILE --only 7b moe -t 1

Groups run one after the other; a group's rows are printed as soon as it is done. A run that
`--minutes` ends (exit code 75), or that is killed, goes on where the journal stops. For the rows of
AVX2 alone give `--peer-avx2-python` a peer that was built so; on a CPU that has no more, any is.
What the columns mean: `benchmarks/models.py`, `benchmarks/comparison.py`.
"""

import argparse
import sys
from typing import Any, NamedTuple

from benchmarks import synthetic
from benchmarks.comparison import Comparison, chosen, roof_text, rows_of
from benchmarks.journal import Journal, OutOfTimeError
from benchmarks.models import CUT_SHORT, add_options
from edgeinfer.cli.machine import cpu_name


class Aim(NamedTuple):
    """What a row must reach at least; None: no aim."""

    test: str
    ratio: float | None
    default_ratio: float | None = None
    share: float | None = None  # of the roof
    kept: float | None = None  # of our own rate without the busy process


class Group(NamedTuple):
    """Rows that one comparison measures."""

    name: str
    model: str
    aims: tuple[Aim, ...]
    isa: str | None = None
    burn: str | None = None


GROUPS = (
    Group(
        "smollm2",
        "smollm2",
        (Aim("pp512", 6.0, share=0.45), Aim("tg64", 2.1, share=0.70)),
    ),
    Group(
        "gemma",
        "gemma3-270m",
        (Aim("pp512", 2.8, share=0.45), Aim("tg64", 1.7, share=0.85)),
    ),
    Group(
        "1b",
        "1b:q4_k_m",
        (
            Aim("pp512", 1.6, 2.4, share=0.65),
            Aim("tg64", 1.15, share=0.90),
            Aim("tg32x8", 2.2),
            Aim("tg32@8k", 2.8),
        ),
    ),
    Group("1b-q8_0", "1b:q8_0", (Aim("pp512", 2.6, share=0.65),)),
    Group("1b-q4_0", "1b:q4_0", (Aim("pp512", 2.6, share=0.65),)),
    Group("moe", "moe:q4_k_m", (Aim("pp512", 2.2), Aim("tg32", 1.2))),
    Group("7b", "7b:q4_k_m", (Aim("tg32", 1.15, share=0.90),)),
    Group("avx2", "1b:q4_k_m", (Aim("pp512", 1.3), Aim("tg64", 1.0)), isa="avx2"),
    Group("1b-long", "1b:q4_k_m", (Aim("pp4096", 2.5),)),
    *(
        Group(
            f"core-taken-{burn}",
            "1b:q4_k_m",
            (Aim("pp128", 4.0, kept=0.45), Aim("tg16", 4.0, kept=0.45)),
            burn=burn,
        )
        for burn in ("pinned", "free")
    ),
)


def main() -> None:
    """Print the table, a group at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [group.name for group in GROUPS]
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    parser.add_argument("--peer-avx2-python", help="a peer built for AVX2 only")
    add_options(parser)
    options = parser.parse_args()
    journal = Journal(options.journal, options.minutes)
    print(f"{cpu_name()}, {options.threads} threads, {options.rounds} rounds\n")
    print(
        "| group | test | edgeinfer t/s | peer t/s | ratio | lowest | highest | aim "
        "| of the default | aim | of the roof | aim | of undisturbed | aim | peer with |"
    )
    print(
        "|:------|:-----|--------------:|---------:|------:|-------:|--------:|----:|---------------:"
        "|----:|------------:|----:|---------------:|----:|:----------|",
        flush=True,
    )
    for group in (group for group in GROUPS if group.name in options.only):
        try:
            results = measure(group, journal, options)
        except OutOfTimeError:
            print(f"{group.name}: the time is over; the same command goes on", file=sys.stderr)
            sys.exit(CUT_SHORT)
        for aim, result in zip(group.aims, results, strict=True):
            print(line(group.name, aim, result), flush=True)


def measure(group: Group, journal: Journal, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a result for each aim of the group."""
    python = (group.isa == "avx2" and options.peer_avx2_python) or options.peer_python
    comparison = Comparison(
        journal,
        python,
        group.model,
        file=str(synthetic.model_file(group.model, options)),
        rows=rows_of([aim.test for aim in group.aims]),
        n_threads=options.threads,
        repeats=options.repeats,
        isa=group.isa,
        burn=group.burn,
    )
    return comparison.results(options.rounds)


def line(name: str, aim: Aim, result: dict[str, Any]) -> str:
    """Return a row of the table; what an aim says and was not reached is marked."""
    share = roof_text(result) if not result["burn"] else ""
    kept = f"{result['kept']:.0%}" if result["burn"] else ""
    cells = [
        name,
        result["test"],
        f"{result['edgeinfer']['median']:.1f}",
        f"{result['peer']['median']:.1f}",
        f"**{result['ratio']:.2f}**",
        f"{min(result['ratios']):.2f}",
        f"{max(result['ratios']):.2f}",
        aimed(aim.ratio, result["ratio"], "{:g}"),
        f"{result['default_ratio']:.2f}",
        aimed(aim.default_ratio, result["default_ratio"], "{:g}"),
        share,
        aimed(aim.share, result["share"], "{:.0%}"),
        kept,
        aimed(aim.kept, result.get("kept", 0.0), "{:.0%}"),
        chosen(result["peer_options"]),
    ]
    return f"| {' | '.join(cells)} |"


def aimed(aim: float | None, found: float, form: str) -> str:
    """Return the aim, and whether it was missed."""
    if aim is None:
        return ""
    return form.format(aim) + ("" if found >= aim else " missed")


if __name__ == "__main__":
    main()
