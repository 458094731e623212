"""`edgeinfer doctor`: every finding is there, and a broken part is a finding itself."""

import json

import pytest

from edgeinfer.cli import machine
from edgeinfer.cli.__main__ import main

NAMES = ["version", "packages", "cpu", "kernels", "backends", "threads", "memory", "cache"]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def report(capsys, *args):
    code = main(["doctor", "--json", *args])
    return code, json.loads(capsys.readouterr().out)


def test_findings(capsys):
    code, found = report(capsys, "--quick")
    assert code == 0
    assert [name for name in found if name != "optional"] == NAMES
    assert found["threads"]["default"] >= 1
    assert found["cpu"]["levels"][0] == "scalar"
    assert found["memory"]["total_bytes"] > found["memory"]["available_bytes"] > 0


def test_text_has_a_line_a_finding_and_no_long_ones(capsys):
    assert main(["doctor", "--quick"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")][:8] == NAMES


def test_models_in_the_cache_are_listed(capsys, cache):
    (cache / "models").mkdir(parents=True)
    (cache / "models" / "a.gguf").write_bytes(b"x" * 1234)
    _, found = report(capsys, "--quick")
    assert found["cache"]["models"] == {"models/a.gguf": 1234}
    assert found["cache"]["writable"]


def test_missing_kernels_say_why_and_how_to_get_them(capsys, monkeypatch):
    monkeypatch.setattr(machine, "chosen_isa", lambda: (None, "no compiler worked"))
    code, found = report(capsys, "--quick")
    assert code == 0
    assert not found["kernels"]["ok"]
    assert found["kernels"]["text"] == "no compiler worked"
    assert "gcc" in found["kernels"]["way_out"]


def test_no_backend_at_all_is_code_1(capsys, monkeypatch):
    monkeypatch.setattr("edgeinfer.kernels.backend.BACKENDS", ())
    assert report(capsys, "--quick")[0] == 1


def test_a_check_that_fails_is_a_finding(capsys, monkeypatch):
    def broken():
        raise OSError("no /proc here")

    monkeypatch.setattr(machine, "affinity", broken)
    code, found = report(capsys, "--quick")
    assert code == 0
    assert found["threads"]["text"] == "OSError: no /proc here"


def test_memory_bandwidth_is_measured(monkeypatch):
    monkeypatch.setattr(machine, "READ_BYTES", 1 << 20)
    assert machine.read_bandwidth(2) > 0


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "400000 100000", "a/cpu.max": "50000 100000"}, 0.5),
        ({"a/b/cpu.max": "nonsense"}, None),
    ],
)
def test_tightest_quota_of_all_groups_around_counts(files, cpus, monkeypatch, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "self").write_text("1:cpu:/x\n0::/a/b\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "self")
    assert machine.quota_cpus() == cpus


def test_default_threads_round_a_quota_to_nearest(monkeypatch):
    monkeypatch.setattr(machine, "affinity", lambda: (8, 8))
    for quota, n_threads in ((None, 8), (0.2, 1), (1.25, 1), (1.5, 2), (16.0, 8)):
        monkeypatch.setattr(machine, "quota_cpus", lambda quota=quota: quota)
        assert machine.default_threads() == n_threads
