"""Run both sides of one model by turns and say how they compare, row by row.

Each round runs each side once, in a process of its own that loads the model and measures every
row; the order turns from round to round, so that a machine that slows down slows all. Sides:
`edgeinfer`; `peer` with the options that were best for each row in a round before; `default`, the
peer as it comes, in the other rows (in a round where that is faster it is the best); and where a
busy process runs beside all of them `quiet`, edgeinfer without it.
"""

import statistics
import sys
from itertools import product
from typing import Any

from benchmarks.burner import burning
from benchmarks.journal import Journal
from benchmarks.measuring import Row, parse_row, run_side

Options = dict[str, dict[str, bool]]  # of the peer, by row name
SWITCHES = ("flash", "repack", "unified")
# What llama.cpp does when nobody says: its automatic flash attention is on for CPUs.
DEFAULT = {"flash": True, "repack": True, "unified": False}


class Comparison:
    """The two sides of one model in one state of the machine."""

    def __init__(
        self,
        journal: Journal,
        peer_python: str,
        model: str,
        *,
        file: str,
        rows: list[Row],
        n_threads: int,
        repeats: int = 1,
        isa: str | None = None,
        burn: str | None = None,
    ) -> None:
        self.model, self.rows = model, rows
        self._journal, self._peer_python = journal, peer_python
        self._burn = burn
        self._job: dict[str, Any] = {
            "model": file,
            "n_threads": n_threads,
            "repeats": repeats,
            "isa": isa,
            "rows": [row.name for row in rows],
        }

    def results(self, n_rounds: int) -> list[dict[str, Any]]:
        """Return one object a row. Raises OutOfTimeError; asked again, it goes on from there."""
        best = self._best_options()
        rounds = [self._round(i, best, n_rounds) for i in range(n_rounds)]
        return [self._result(row, best[row.name], rounds) for row in self.rows]

    def _best_options(self) -> Options:
        """Find the options with which the peer is fastest, row by row, nothing else running."""
        best_rates: dict[str, float] = {}
        best: Options = {}
        for values in product((False, True), repeat=len(SWITCHES)):
            options = dict(zip(SWITCHES, values, strict=True))
            rows = [row for row in self.rows if row.n_sequences > 1 or not options["unified"]]
            if not rows:
                continue
            self._say(f"peer with {chosen(options)}")
            given = {row.name: options for row in rows}
            for name, rate in self._peer("choose", 0, given, None)["rates"].items():
                if rate > best_rates.get(name, 0.0):
                    best_rates[name], best[name] = rate, options
        return best

    def _round(self, i: int, best: Options, n_rounds: int) -> dict[str, Any]:
        """Return the answer of each side."""
        others = {row.name: DEFAULT for row in self.rows if best[row.name] != DEFAULT}
        sides = {
            "edgeinfer": lambda: self._ours("edgeinfer", i, self._burn),
            "peer": lambda: self._peer("peer", i, best, self._burn),
        }
        if others:
            sides["default"] = lambda: self._peer("default", i, others, self._burn)
        if self._burn:
            sides["quiet"] = lambda: self._ours("quiet", i, None)
        names = list(sides)
        turn = i % len(names)
        found = {}
        for name in names[turn:] + names[:turn]:
            self._say(f"round {i + 1} of {n_rounds}, {name}")
            found[name] = sides[name]()
        return found

    def _ours(self, side: str, i: int, burn: str | None) -> dict[str, Any]:
        return self._run(side, i, sys.executable, "side_edgeinfer", self._job, burn)

    def _peer(self, side: str, i: int, options: Options, burn: str | None) -> dict[str, Any]:
        job = self._job | {"rows": list(options), "options": options}
        return self._run(side, i, self._peer_python, "side_peer", job, burn)

    def _run(
        self, side: str, i: int, python: str, module: str, job: dict[str, Any], burn: str | None
    ) -> dict[str, Any]:
        def measure() -> dict[str, Any]:
            with burning(burn):
                return run_side(python, module, job)

        key = job | {"side": side, "round": i, "burn": burn, "python": python}
        return self._journal.answer(key, measure)

    def _say(self, text: str) -> None:
        print(f"{self.model}: {text}", file=sys.stderr, flush=True)

    def _result(
        self, row: Row, options: dict[str, bool], rounds: list[dict[str, Any]]
    ) -> dict[str, Any]:
        def rates(side: str) -> list[float]:
            sides = (found[side if side in found else "peer"]["rates"] for found in rounds)
            return [each[row.name] for each in sides]

        default = (
            "default" if row.name in rounds[0].get("default", {"rates": {}})["rates"] else "peer"
        )
        ours, peers, defaults = rates("edgeinfer"), rates("peer"), rates(default)
        peers = [max(pair) for pair in zip(peers, defaults, strict=True)]
        ratios = [a / b for a, b in zip(ours, peers, strict=True)]
        mine = [found["edgeinfer"] for found in rounds]
        result = {
            "model": self.model,
            "test": row.name,
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "default_ratio": statistics.median(a / b for a, b in zip(ours, defaults, strict=True)),
            "edgeinfer": {"median": statistics.median(ours), "best": max(ours)},
            "peer": {"median": statistics.median(peers), "best": max(peers)},
            "default": {"median": statistics.median(defaults), "best": max(defaults)},
            "peer_options": options,
            **roof_of(row.name, mine),
            "burn": self._burn,
            "n_threads": self._job["n_threads"],
            "version": mine[0]["version"],
            "isa": mine[0]["isa"],
            "peer_version": rounds[0]["peer"]["peer_version"],
            "peer_features": rounds[0]["peer"]["peer_features"],
        }
        if self._burn:
            quiet = rates("quiet")
            kept = [a / b for a, b in zip(ours, quiet, strict=True)]
            result |= {"quiet": statistics.median(quiet), "kept": statistics.median(kept)}
        return result


def roof_of(name: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what bounds a row, the median of that roof, and the median of the shares reached."""
    bound_by = answers[0]["needed"][name]["bound_by"]
    shares = [
        answer["rates"][name] * answer["needed"][name]["per_token"] / answer["roofs"][bound_by]
        for answer in answers
    ]
    roof = statistics.median(answer["roofs"][bound_by] for answer in answers)
    return {"bound_by": bound_by, "roof": roof, "share": statistics.median(shares)}


def chosen(options: dict[str, bool]) -> str:
    """Return the options that are on, in words."""
    return " + ".join(name for name, on in options.items() if on) or "neither"


def roof_text(result: dict[str, Any]) -> str:
    """Return "61 % of 143 GMAC/s" or the like."""
    unit = "GMAC/s" if result["bound_by"] == "int8" else "GB/s"
    return f"{result['share']:.0%} of {result['roof'] / 1e9:.0f} {unit}"


def rows_of(names: list[str]) -> list[Row]:
    """Return the rows of the names, each once."""
    return [parse_row(name) for name in dict.fromkeys(names)]
