"""Find or write the model files of real shapes and random weights that `SHAPE:RECIPE` names.

Such a file says how fast a model of that shape is and how much memory it takes, nothing else.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import ROOT
from edgeinfer.loader.resolve import resolve

SHAPES = ("1b", "3b", "7b", "moe")
RECIPES = ("q4_k_m", "q8_0", "q4_0", "f16")
DONOR = "smollm2"  # gives the tokenizer


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `model_file` reads."""
    folder = Path(tempfile.gettempdir(), "edgeinfer-synthetic")
    parser.add_argument("--folder", type=Path, default=folder, help="of synthetic models")
    parser.add_argument(
        "--synthetic-tool",
        type=Path,
        default=ROOT.parent / "shared" / "tools" / "make_synthetic_gguf.py",
        help="the script that writes one: SCRIPT DONOR OUT --shape SHAPE --recipe RECIPE",
    )


def model_file(name: str, options: argparse.Namespace) -> Path:
    """Return the file of a model: a path, a catalogue name, or SHAPE:RECIPE, written if absent."""
    shape, _, recipe = name.partition(":")
    if shape not in SHAPES or recipe not in RECIPES:
        return resolve(name)
    path: Path = options.folder / f"{shape}-{recipe}.gguf"
    if not path.exists():
        print(f"{name}: writing {path}", file=sys.stderr)
        options.folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        tool, donor = str(options.synthetic_tool), str(resolve(DONOR))
        command = [sys.executable, tool, donor, str(unfinished)]
        subprocess.run([*command, "--shape", shape, "--recipe", recipe], check=True)
        unfinished.rename(path)
    return path
