"""A long run of one character takes time in proportion to its length, and no stack."""

import subprocess
import sys
from pathlib import Path

import pytest

RUNS = {
    "letters": "A",
    "spaces": " ",
    "lines": "\n",
    "accents": "é",
    "emoji": "👩\u200d",
    "two letters": "us",
    "marker": "<|im_end|>",
    "marker start": "<",
    "digits": "7",
    "lower block": "▁",
}
SCRIPT = """
import sys, threading, time
from edgeinfer.text.tokenizer import load_tokenizer
threading.stack_size(256 << 10)
path, *runs = sys.argv[1:]
tokenizer = load_tokenizer(path)

def seconds(text):
    began = time.process_time()
    ids = tokenizer.encode(text, add_special=False)
    taken = time.process_time() - began
    assert len(text) < 1e5 or tokenizer.decode(ids) == text
    return taken

def check():
    for run in runs:
        short = seconds((run * (25_000 // len(run) + 1))[:25_000])
        long = seconds((run * (400_000 // len(run) + 1))[:400_000])
        # 16 times the text; quadratic time would be 256 times.
        assert long < 64 * short + 0.5, (run, short, long)
    print("linear")

thread = threading.Thread(target=check)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_time_is_linear(name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(f"{name}_path")

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), *RUNS.values()],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=Path(__file__).parents[2],
    )

    assert (done.returncode, done.stdout) == (0, "linear\n"), done.stderr
