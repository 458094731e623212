"""Benchmarks: names of rows, turns of the sides, what is remembered between runs."""

import json
from typing import Any

import pytest

from benchmarks import comparison
from benchmarks.comparison import DEFAULT, Comparison
from benchmarks.journal import Journal, OutOfTimeError
from benchmarks.measuring import N_BATCH, Row, measure, parse_row


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("pp512", Row("pp", 512)),
        ("tg64@8k", Row("tg", 64, 8192)),
        ("tg64 @ d2048", Row("tg", 64, 2048)),
        ("tg16x8", Row("tg", 16, 0, 8)),
    ],
)
def test_names_of_rows_are_read_and_written(text: str, row: Row) -> None:
    assert parse_row(text) == row
    assert parse_row(row.name) == row


@pytest.mark.parametrize("text", ["", "pp", "xx5", "pp0", "tg4x0", "pp8x2", "tg4x2@9", "tg4.5"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="row: found"):
        parse_row(text)


class Steps:
    """A runner that records."""

    n_vocab = 9

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []

    def fill(self, depth: int, tokens: list[int]) -> None:
        assert len(tokens) == depth

    def step(self, tokens: list[list[int]], position: int) -> None:
        self.steps.append((len(tokens), len(tokens[0]), position))

    def restore(self) -> None:
        self.steps.append((0, 0, 0))


def test_a_prompt_is_read_in_steps_and_an_answer_written_by_all_sequences() -> None:
    runner = Steps()
    assert measure(runner, Row("pp", N_BATCH + 3), 1) > 0
    assert runner.steps == [(1, 64, 0), (0, 0, 0), (1, N_BATCH, 0), (1, 3, N_BATCH), (0, 0, 0)]
    runner = Steps()
    measure(runner, Row("tg", 2, 7), 2)
    assert runner.steps == [(1, 1, 7), (1, 1, 8), (0, 0, 0)] * 3
    runner = Steps()
    measure(runner, Row("tg", 1, 0, 3), 1)
    assert runner.steps == [(3, 1, 0), (0, 0, 0)] * 2


class Sides:
    """Stands for the child processes: edgeinfer 10 t/s, half of that when something burns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[str] = []
        self.burns: list[str] = []
        monkeypatch.setattr(comparison, "run_side", self.run)
        monkeypatch.setattr(comparison, "burning", self.burning)
        self._burn = 0

    def burning(self, way: str | None) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def burn() -> Any:
            self._burn += bool(way)
            yield
            self._burn -= bool(way)

        return burn()

    def run(self, python: str, module: str, job: dict[str, Any]) -> dict[str, Any]:
        slow = 0.5 if self._burn else 1.0
        if module == "side_edgeinfer":
            self.runs.append("edgeinfer" if self._burn or slow == 1.0 else "")
            needed = {"bound_by": "memory", "per_token": 3.0}
            return {
                "rates": dict.fromkeys(job["rows"], 10.0 * slow),
                "roofs": {"memory": 40.0, "int8": 1.0},
                "needed": dict.fromkeys(job["rows"], needed),
                "version": "v",
                "isa": "scalar",
            }
        options = next(iter(job["options"].values()))
        self.runs.append("default" if options == DEFAULT else "peer")
        rate = 5.0 if options["flash"] and not options["repack"] else 4.0
        return {
            "rates": dict.fromkeys(job["options"], rate * slow / 2 if self._burn else rate),
            "peer_version": "p",
            "peer_features": "f",
        }


def compare(journal: Journal, **more: Any) -> Comparison:
    rows = [parse_row("tg4"), parse_row("tg4x2")]
    return Comparison(journal, "python", "m", file="f", rows=rows, n_threads=1, **more)


def test_the_peer_runs_with_its_best_options_and_as_it_comes(monkeypatch) -> None:
    sides = Sides(monkeypatch)
    results = compare(Journal()).results(3)
    assert [result["test"] for result in results] == ["tg4", "tg4x2"]
    for result in results:
        assert result["peer_options"]["flash"]
        assert not result["peer_options"]["repack"]
        assert (result["ratio"], result["default_ratio"]) == (2.0, 2.5)
        assert (result["bound_by"], result["roof"], result["share"]) == ("memory", 40.0, 0.75)
        assert "kept" not in result
    assert sides.runs[-9:] == [
        *("edgeinfer", "peer", "default"),
        *("peer", "default", "edgeinfer"),
        *("default", "edgeinfer", "peer"),
    ]


def test_a_default_that_turns_out_faster_is_the_best(monkeypatch) -> None:
    sides = Sides(monkeypatch)
    comparison_ = compare(Journal())
    monkeypatch.setattr(comparison_, "_best_options", lambda: {
        name: {"flash": False, "repack": False, "unified": False} for name in ("tg4", "tg4x2")
    })  # fmt: skip
    run = sides.run

    def faster(python: str, module: str, job: dict[str, Any]) -> dict[str, Any]:
        answer = run(python, module, job)
        if sides.runs[-1] == "default":
            answer["rates"] = dict.fromkeys(job["options"], 8.0)
        return answer

    monkeypatch.setattr(comparison, "run_side", faster)
    result = comparison_.results(1)[0]
    assert (result["ratio"], result["default_ratio"], result["peer"]["best"]) == (1.25, 1.25, 8.0)


def test_a_busy_process_runs_beside_every_side_but_the_quiet_one(monkeypatch) -> None:
    Sides(monkeypatch)
    result = compare(Journal(), burn="free").results(2)[0]
    assert result["ratio"] == 5.0 / 1.25
    assert (result["quiet"], result["kept"]) == (10.0, 0.5)


def test_a_run_cut_short_goes_on_where_it_stopped(monkeypatch, tmp_path) -> None:
    path = tmp_path / "journal"
    sides = Sides(monkeypatch)
    whole = compare(Journal(path)).results(2)
    n_runs = len(sides.runs)
    assert compare(Journal(path, minutes=0)).results(2) == whole
    assert len(sides.runs) == n_runs
    lines = path.read_text().splitlines()
    assert len(lines) == n_runs == len({json.loads(line)["key"] for line in lines})
    path.write_text("".join(f"{line}\n" for line in lines[:-2]))
    with pytest.raises(OutOfTimeError):
        compare(Journal(path, minutes=0)).results(2)
    assert compare(Journal(path)).results(2) == whole
    assert len(sides.runs) == n_runs + 2
