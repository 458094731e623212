"""Compare what `--max-size` finds, at a recipe's size, with the recipe: KL from the source.

    python -m benchmarks.sized_quality model-f16.gguf -f text.txt -f other.txt [--measure third.txt]

For each recipe its file, one of at most its size, and with --measure one whose sensitivities were
measured on that text, of which the others should hold nothing.
"""

import argparse
import tempfile
from pathlib import Path

import edgeinfer
from edgeinfer.evaluating import Measured, divergence
from edgeinfer.evaluating.window_model import WindowModel
from edgeinfer.quant.recipe import RECIPES

RECIPES_ASKED = ("Q3_K_M", "Q4_K_M", "Q5_K_M")


def main() -> None:
    """Print a row for each recipe and text."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--file", "-f", type=Path, action="append", required=True)
    parser.add_argument("--measure", type=Path, help="a text to measure sensitivities on")
    parser.add_argument("--recipes", nargs="+", default=RECIPES_ASKED, choices=list(RECIPES))
    parser.add_argument("--chunks", type=int, help="most windows of each text to read")
    parser.add_argument("--threads", "-t", type=int, default=2)
    args = parser.parse_args()
    print("| recipe | MB | text | KL, recipe | KL, by size | ratio | KL, measured | ratio |")
    print("|:--|--:|:--|--:|--:|--:|--:|--:|")
    with (
        tempfile.TemporaryDirectory() as folder,
        WindowModel(args.source, n_threads=args.threads) as source,
    ):
        for recipe in args.recipes:
            files = _files(args, recipe, Path(folder))
            for text in args.file:
                found = [_lost(source, path, text, args) for path in files]
                print(_row(recipe, files[0].stat().st_size, text.name, found), flush=True)


def _files(args: argparse.Namespace, recipe: str, folder: Path) -> list[Path]:
    """Write the files to compare, the recipe's first."""
    files = [folder / f"{name}.gguf" for name in ("recipe", "size", "measured")]
    options = {"n_threads": args.threads, "overwrite": True}
    edgeinfer.quantize(args.source, files[0], recipe, **options)
    n_bytes = files[0].stat().st_size
    edgeinfer.quantize(args.source, files[1], max_bytes=n_bytes, **options)
    if args.measure is None:
        return files[:2]
    text = args.measure.read_text(encoding="utf-8")
    sample = {"text": text, "chunks": args.chunks}
    edgeinfer.quantize(args.source, files[2], max_bytes=n_bytes, **sample, **options)
    return files


def _lost(source: WindowModel, path: Path, text: Path, args: argparse.Namespace) -> Measured:
    with WindowModel(path, n_threads=args.threads) as model:
        return divergence(source, model, text.read_text(encoding="utf-8"), chunks=args.chunks).kld


def _row(recipe: str, n_bytes: int, name: str, found: list[Measured]) -> str:
    cells = [recipe, f"{n_bytes / 1e6:.1f}", name, f"{found[0].value:.5f} ± {found[0].error:.5f}"]
    for one in found[1:]:
        cells += [f"{one.value:.5f} ± {one.error:.5f}", f"{one.value / found[0].value:.3f}"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
