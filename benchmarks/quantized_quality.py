"""Measure what quantizing loses, beside llama.cpp's quantizer: KL from the source for each recipe.

    python -m benchmarks.quantized_quality model-f16.gguf -f text.txt --peer-python PATH

Both sides quantize the same file; edgeinfer runs both results, with fine activations, and compares
them with the source token by token (`edgeinfer.evaluating.divergence`).
"""

import argparse
import tempfile
from pathlib import Path

import edgeinfer
from benchmarks.quantized_files import run
from edgeinfer.evaluating import Divergence, divergence
from edgeinfer.quant.recipe import RECIPES

RECIPES_ASKED = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")


def main() -> None:
    """Print a row for each recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--file", "-f", type=Path, required=True, help="the text to predict")
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--recipes", nargs="+", default=RECIPES_ASKED, choices=list(RECIPES))
    parser.add_argument("--chunks", type=int)
    parser.add_argument("--threads", "-t", type=int, default=2)
    args = parser.parse_args()
    text = args.file.read_text(encoding="utf-8")
    print("| recipe | MB | KL, ours | KL, the peer's | ratio | same top 1, ours | the peer's |")
    print("|:--|--:|--:|--:|--:|--:|--:|")
    with (
        tempfile.TemporaryDirectory() as folder,
        edgeinfer.load(
            args.source, n_ctx=512, n_threads=args.threads, activations="fine"
        ) as source,
    ):
        for recipe in args.recipes:
            files = Path(folder) / "ours.gguf", Path(folder) / "peer.gguf"
            edgeinfer.quantize(
                args.source, files[0], recipe, n_threads=args.threads, overwrite=True
            )
            run(_peer_command(args, recipe, files[1]))
            ours, peer = (_lost(source, path, text, args) for path in files)
            print(_row(recipe, files[0].stat().st_size, ours, peer), flush=True)


def _peer_command(args: argparse.Namespace, recipe: str, target: Path) -> list[str]:
    file_type = str(RECIPES[recipe].file_type)
    command = [args.peer_python, "benchmarks/quantize_peer.py", str(args.source.absolute())]
    return [*command, str(target), file_type, str(args.threads)]


def _lost(source: edgeinfer.Model, path: Path, text: str, args: argparse.Namespace) -> Divergence:
    options = {"n_ctx": 512, "n_threads": args.threads, "activations": "fine"}
    with edgeinfer.load(path, **options) as model:
        return divergence(source, model, text, chunks=args.chunks)


def _row(recipe: str, n_bytes: int, ours: Divergence, peer: Divergence) -> str:
    cells = [
        recipe,
        f"{n_bytes / 1e6:.1f}",
        *(f"{side.kld.value:.5f} ± {side.kld.error:.5f}" for side in (ours, peer)),
        f"{ours.kld.value / peer.kld.value:.3f}",
        *(f"{side.top1_agreement.value:.1%}" for side in (ours, peer)),
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
