"""`edgeinfer doctor`: every finding is there, and a broken part is a finding itself."""

import json

import pytest

from edgeinfer.cli import machine
from edgeinfer.cli.__main__ import main
from edgeinfer.kernels import cpus as cpus_of_process

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


def test_memory_bandwidth_is_measured(capsys, monkeypatch):
    native = pytest.importorskip("edgeinfer.kernels.native._native", reason="nothing is compiled")
    monkeypatch.setattr("edgeinfer.kernels.native.machine.READ_BYTES", 8 << 20)
    memory = report(capsys)[1]["memory"]
    assert memory["read_bytes_per_s"] > 0
    assert memory["read_threads"] == native.lib.ei_default_threads()


def test_without_kernels_nothing_is_measured(capsys, monkeypatch):
    monkeypatch.setattr("edgeinfer.kernels.native.isa.why_unavailable", lambda: "no compiler")
    found = report(capsys)[1]
    assert found["threads"]["default"] is None
    assert "read_bytes_per_s" not in found["memory"]


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
    monkeypatch.setattr(cpus_of_process, "CGROUP", tmp_path)
    monkeypatch.setattr(cpus_of_process, "OWN_GROUPS", tmp_path / "self")
    assert machine.quota_cpus() == cpus
