"""`edgeinfer bench`: which steps it runs and what it reports; a counting executable runs them."""

import json
import statistics

import numpy as np
import pytest

from edgeinfer.cli.__main__ import main
from tests.arch import tiny
from tests.arch.test_encoders import N_POSITIONS, bert
from tests.gguf_writer import write_gguf


class CountingExecutable:
    n_vocab = 1000
    weights_bytes = 0
    state_bytes = 0

    def __init__(self, limits):
        self.limits = limits
        self.n_threads = limits.n_threads or 2
        self.n_threads_batch = limits.n_threads_batch or self.n_threads
        self.steps = []
        self.closed = False

    def run(self, batch, *, cancel=None):
        from edgeinfer.kernels.backend import check_batch

        check_batch(batch, self.limits, self.n_vocab)
        self.steps.append((len(batch.tokens), int(batch.positions[0]), batch.wanted.tolist()))
        return np.zeros((len(batch.wanted), self.n_vocab), np.float32)

    def close(self):
        self.closed = True


class Backend:
    name = "reference"

    def __init__(self):
        self.made = []

    def layout(self, formats):
        return None

    def compile(self, program, tensors, limits, *, progress=None, packed=None):
        self.made.append(CountingExecutable(limits))
        return self.made[-1]


@pytest.fixture
def executables(monkeypatch):
    backend = Backend()
    monkeypatch.setattr("edgeinfer.kernels.backend.choose", lambda name: backend)
    return backend.made


def bench(smollm2_path, capsys, *args):
    assert main(["bench", str(smollm2_path), "--json", *args]) == 0
    return json.loads(capsys.readouterr().out)


def test_objects_of_the_json_list(executables, smollm2_path, capsys):
    results = bench(smollm2_path, capsys, "-p", "512", "-n", "128", "-r", "3", "-t", "2")
    assert [result["test"] for result in results] == ["pp512", "tg128"]
    for result in results:
        assert len(result["samples"]) == 3
        assert result["tokens_per_s"] == pytest.approx(statistics.fmean(result["samples"]))
        assert result["stddev"] == pytest.approx(statistics.stdev(result["samples"]))
        assert result["n_threads"] == 2
        assert result["backend"] == "reference"
        assert result["n_params"] == 134_515_008
        assert result["model_bytes"] == 98_362_432
        assert {"model", "isa", "cpu", "build"} <= result.keys()
        assert (result["roof"], result["share"]) == (None, None)  # not the native backend's
    assert executables[0].closed


def test_prompt_runs_whole_and_anew_with_one_row_of_logits(executables, smollm2_path, capsys):
    bench(smollm2_path, capsys, "-p", "512", "-n", "0", "-r", "2")
    assert executables[0].steps == [(512, 0, [511])] * 3


def test_long_prompt_runs_in_steps_of_the_batch_size(executables, smollm2_path, capsys):
    bench(smollm2_path, capsys, "-p", "100", "-n", "0", "-r", "1", "-b", "64")
    assert executables[0].steps == [(64, 0, [63]), (36, 64, [35])] * 2


def test_answer_runs_token_by_token_after_a_short_warm_up(executables, smollm2_path, capsys):
    bench(smollm2_path, capsys, "-p", "0", "-n", "10", "-r", "2")
    run = [(1, position, [0]) for position in range(10)]
    assert executables[0].steps == run[:8] + run + run


def test_depth_is_read_before_each_repeat(executables, smollm2_path, capsys):
    results = bench(smollm2_path, capsys, "-p", "0", "-n", "1", "-r", "2", "-d", "70")
    assert executables[0].steps == [(70, 0, [69]), (1, 70, [0])] * 3
    assert results[0]["n_depth"] == 70


def test_lists_measure_every_combination(executables, smollm2_path, capsys):
    results = bench(smollm2_path, capsys, "-p", "8,16", "-n", "4", "-r", "1", "-t", "1,2")
    found = [(result["n_threads"], result["test"]) for result in results]
    assert found == [(t, test) for t in (1, 2) for test in ("pp8", "pp16", "tg4")]
    assert [executable.limits.n_ctx for executable in executables] == [16, 16]


def test_prompts_may_have_a_thread_count_of_their_own(executables, smollm2_path, capsys):
    results = bench(smollm2_path, capsys, "-p", "8", "-n", "4", "-r", "1", "-t", "1,2", "-tb", "3")
    assert [result["n_threads"] for result in results] == [3, 1, 3, 2]


def test_table_is_in_the_words_of_the_field(executables, smollm2_path, capsys):
    assert main(["bench", str(smollm2_path), "-p", "8", "-n", "4", "-r", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        "model", "size", "params", "backend", "threads", "test", "t/s", "of the roof",
    ]  # fmt: skip
    assert "| pp8 " in lines[4]
    assert "| tg4 " in lines[5]
    assert " ± " in lines[4]
    assert len({len(line) for line in lines[2:]}) == 1


def test_executable_is_closed_when_a_step_fails(executables, smollm2_path, monkeypatch):
    def fail(self, batch, *, cancel=None):
        raise MemoryError

    monkeypatch.setattr(CountingExecutable, "run", fail)
    assert main(["bench", str(smollm2_path), "-p", "8"]) == 4
    assert executables[0].closed


def test_share_of_the_roof_counts_the_work_of_the_program(
    executables, smollm2_path, capsys, monkeypatch
):
    from edgeinfer.kernels.native import isa, machine

    monkeypatch.setattr(isa, "why_unavailable", lambda: None)
    monkeypatch.setattr(isa, "levels", lambda: ("scalar",))
    monkeypatch.delenv(isa.ENVIRONMENT, raising=False)
    monkeypatch.setattr(machine, "int8_peak", lambda level, n_threads: 5e9)
    monkeypatch.setattr(machine, "read_bandwidth", lambda n_threads: 4e9)
    monkeypatch.setattr(Backend, "name", "native")
    prompt, answer = bench(smollm2_path, capsys, "-p", "8", "-n", "4", "-r", "1", "-d", "2")
    last_layer = 576 * 576 + 3 * 576 * 1536  # of which only the last token meets all
    macs = 106_168_320 - last_layer
    assert (prompt["bound_by"], prompt["roof"]) == ("int8", 5e9)
    assert prompt["share"] == pytest.approx(prompt["tokens_per_s"] * macs / 5e9)
    assert (answer["bound_by"], answer["roof"]) == ("memory", 4e9)
    n_bytes = 66_355_200 + 30_081_024 + 30 * 4 * 2 * 3 * 64 * 2
    assert answer["share"] == pytest.approx(answer["tokens_per_s"] * n_bytes / 4e9)


def test_a_model_that_only_reads_is_measured_at_reading(executables, tmp_path, capsys):
    """Its prompts are as long as the positions it has learned, unless others are asked for."""
    path = write_gguf(tmp_path / "encoder.gguf", *bert())
    results = bench(path, capsys, "-r", "1")
    assert [result["test"] for result in results] == [f"pp{N_POSITIONS}"]
    assert results[0]["only_reads"]
    assert main(["bench", str(path), "-r", "1"]) == 0
    assert "; this model writes no text: reading alone is measured\n" in capsys.readouterr().out
    for wrong, need in (
        (["-n", "4"], "writes no text (need -n 0)"),
        (["-p", "0"], "only reads (need -p above 0)"),
        (["-p", "33"], f"found 33 tokens together (need at most {N_POSITIONS}"),
        (["-p", "3", "-d", "30"], f"found 33 tokens together (need at most {N_POSITIONS}"),
    ):
        assert main(["bench", str(path), *wrong]) == 2
        assert need in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "need"),
    [
        (["-p", "99999999999"], "-p, -n, -d: found 99999999999 tokens together (need at most"),
        (["-d", "16777216"], "-p, -n, -d: found 16777728 tokens together (need at most 16777216)"),
        (["-b", "4294967296"], "--batch-size: found 4294967296 (need 1 to 2147483647)"),
        (["-t", "1,513"], "--threads: found 513 (need 0 to 512)"),
        (["-tb", "513"], "--threads-batch: found 513 (need 0 to 512)"),
    ],
)
def test_what_is_out_of_range_is_said_by_its_flag(executables, smollm2_path, capsys, wrong, need):
    assert main(["bench", str(smollm2_path), *wrong]) == 2
    assert need in capsys.readouterr().err


def test_a_pack_is_used_as_run_uses_it_and_named(tmp_path, capsys, monkeypatch):
    pytest.importorskip("edgeinfer.kernels.native._native")
    from edgeinfer.kernels.native.backend import NativeBackend

    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "cache"))
    given = []
    compile_program = NativeBackend.compile

    def watched(*args, packed=None, **options):
        given.append(packed)
        return compile_program(*args, packed=packed, **options)

    monkeypatch.setattr(NativeBackend, "compile", watched)
    path = write_gguf(tmp_path / "tiny.gguf", *tiny.llama())
    args = ["-p", "4", "-n", "0", "-r", "1", "--backend", "native"]
    assert not bench(path, capsys, *args)[0]["packed"]
    assert main(["pack", str(path)]) == 0
    capsys.readouterr()
    assert bench(path, capsys, *args)[0]["packed"]
    assert main(["bench", str(path), *args]) == 0
    assert "; weights mapped from the pack\n" in capsys.readouterr().out
    assert given[0] is None and "blk.1.ffn_down.weight" in given[1]
