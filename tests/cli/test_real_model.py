"""The command line over a real model and the compiled kernels."""

import json
import subprocess
import sys

import pytest

from edgeinfer.kernels.native import isa

pytestmark = pytest.mark.skipif(
    isa.why_unavailable() is not None, reason="needs the compiled kernels; the others take minutes"
)


def edgeinfer(*args, piped=""):
    done = subprocess.run(
        [sys.executable, "-m", "edgeinfer.cli", *args],
        input=piped,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_chat_knows_the_capital_of_france(smollm2_path):
    done = edgeinfer(
        "chat", str(smollm2_path), "--temp", "0", piped="What is the capital of France?\n"
    )
    assert "Paris" in done.stdout
    assert done.stderr == ""


def test_same_seed_same_text_and_another_seed_another(smollm2_path):
    texts = [
        json.loads(edgeinfer("run", str(smollm2_path), "-p", "Hello", "-n", "12", "-s", seed,
                             "--json").stdout)["text"]
        for seed in ("1", "1", "2")
    ]  # fmt: skip
    assert texts[0] == texts[1] != texts[2]


def test_bench_measures_what_it_is_asked_for(smollm2_path):
    done = edgeinfer("bench", str(smollm2_path), "-p", "16", "-n", "4", "-r", "2", "--json")
    results = json.loads(done.stdout)
    assert [result["test"] for result in results] == ["pp16", "tg4"]
    assert all(result["tokens_per_s"] > 0 for result in results)
    assert results[0]["isa"] == isa.chosen()
