"""Kill a process that quantizes at random moments, and look at what it leaves.

python -m tests.quantizing.kills --kills 50
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edgeinfer import quantize
from tests.arch import tiny
from tests.gguf_writer import write_gguf

RECIPES = ("F16", "BF16")

# Writes the same file again and again, each time another recipe, until it is killed.
WRITER = """
import itertools, sys
from edgeinfer import quantize
source, target, *recipes = sys.argv[1:]
for recipe in itertools.cycle(recipes):
    quantize(source, target, recipe, overwrite=True)
    print("again", flush=True)
"""


def kill_writers(folder: Path, n_kills: int, *, seed: int = 0, longest_s: float = 0.5) -> int:
    """Kill `n_kills` writers, each at a random moment; check the files after each.

    Returns:
        how many of them left a temporary folder, which the next one removed.
    """
    metadata, arrays = tiny.llama(n_embd=512, n_ff=1024, bias=False)
    source = write_gguf(folder / "in.gguf", metadata, arrays)
    before = source.read_bytes()
    target = folder / "out.gguf"
    whole = set()
    for recipe in RECIPES:
        quantize(source, target, recipe, overwrite=True)
        whole.add(target.read_bytes())
    moments = random.Random(seed)
    n_left = 0
    for _ in range(n_kills):
        pid = _kill_one(source, target, moments.uniform(0, longest_s))
        assert target.read_bytes() in whole, "a file that is not whole has the target's name"
        assert source.read_bytes() == before, "the source was changed"
        names = {path.name for path in folder.iterdir()} - {"in.gguf", "out.gguf"}
        assert names <= {f"out.gguf.part-{pid}"}, names
        n_left += len(names)
    quantize(source, target, RECIPES[0], overwrite=True)
    assert {path.name for path in folder.iterdir()} == {"in.gguf", "out.gguf"}
    return n_left


def _kill_one(source: Path, target: Path, after_s: float) -> int:
    command = [sys.executable, "-c", WRITER, str(source), str(target), *RECIPES]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"again\n"
        time.sleep(after_s)
        assert process.poll() is None
        process.kill()
    return process.pid


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        n_left = kill_writers(Path(folder), args.kills, seed=args.seed)
    print(f"seed {args.seed}: {args.kills} kills, {n_left} while a copy was on its way: all whole")


if __name__ == "__main__":
    main()
