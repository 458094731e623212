"""Measure what quantizing loses, beside llama.cpp's quantizer: KL from the source for each recipe.

    python -m benchmarks.quantized_quality model-f16.gguf -f a.txt b.txt --peer-python PATH
    python -m benchmarks.quantized_quality model-f16.gguf -f a.txt --peer-python PATH --imatrix FILE

Both sides quantize the same file, without and, if there is one, with the same importance matrix;
edgeinfer runs both results, with fine activations, and compares them with the source token by
token. The ratio's error is that of the ratio: a token that is hard for one file is for the other.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import edgeinfer
from benchmarks.quantized_files import run
from edgeinfer.evaluating.measured import mean_of
from edgeinfer.evaluating.rows import compare
from edgeinfer.evaluating.windows import Windows, cut
from edgeinfer.loader.imatrix import read_imatrix
from edgeinfer.quant.recipe import RECIPES

Floats = npt.NDArray[np.float64]
Logits = npt.NDArray[np.float32]

RECIPES_ASKED = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")
N_CTX = 512


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """What a file loses: KL of each token, and whether the likeliest token is the source's."""

    kld: Floats
    same: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What the source predicts of some windows of each text."""

    texts: Sequence[Windows]
    rows: Sequence[Sequence[Logits]]

    @classmethod
    def read(cls, args: argparse.Namespace) -> "Source":
        """Run the source."""
        with load(args.source, args.threads) as model:
            contents = [path.read_text(encoding="utf-8") for path in args.files]
            texts = [cut(model.tokenizer, text, n_ctx=N_CTX, most=args.chunks) for text in contents]
            rows = [
                [predictions(model, windows, i) for i in range(len(windows.ids))]
                for windows in texts
            ]
        return cls(texts, rows)

    def lost(self, path: Path, n_threads: int) -> Lost:
        """Run a file and compare it."""
        with load(path, n_threads) as model:
            parts = [
                compare(rows, predictions(model, windows, i), windows.labels(i))
                for windows, by_window in zip(self.texts, self.rows, strict=True)
                for i, rows in enumerate(by_window)
            ]
        kld, same = ([getattr(part, name) for part in parts] for name in ("kld", "same"))
        return Lost(np.concatenate(kld), np.concatenate(same))


def load(path: Path, n_threads: int) -> edgeinfer.Model:
    """Load a model whose activations lose next to nothing."""
    return edgeinfer.load(path, n_ctx=N_CTX, n_threads=n_threads, activations="fine")


def predictions(model: edgeinfer.Model, windows: Windows, index: int) -> Logits:
    """Return the logits of the tokens of a window that count."""
    parts = model.stream_logits(windows.ids[index][:-1], first=windows.first)
    return np.concatenate([rows for _, rows in parts])


def main() -> None:
    """Print a row for each recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--files", "-f", type=Path, nargs="+", required=True, help="the texts")
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--imatrix", type=Path, help="made from another text")
    parser.add_argument("--recipes", nargs="+", default=RECIPES_ASKED, choices=list(RECIPES))
    parser.add_argument("--chunks", type=int, help="of each text")
    parser.add_argument("--threads", "-t", type=int, default=2)
    args = parser.parse_args()
    source = Source.read(args)
    print("| recipe | importance | MB | KL, ours | KL, the peer's | ratio | same top 1 | peer's |")
    print("|:--|:--|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in args.recipes:
            for imatrix in dict.fromkeys([None, args.imatrix]):
                files = quantized(args, recipe, imatrix, Path(folder))
                ours, peer = (source.lost(path, args.threads) for path in files)
                n_bytes = files[0].stat().st_size
                print(_row(recipe, imatrix, n_bytes, ours, peer), flush=True)


def quantized(
    args: argparse.Namespace, recipe: str, imatrix: Path | None, folder: Path
) -> tuple[Path, Path]:
    """Return our file and the peer's."""
    ours, peer, means = folder / "ours.gguf", folder / "peer.gguf", folder / "means.npz"
    edgeinfer.quantize(
        args.source, ours, recipe, imatrix=imatrix, n_threads=args.threads, overwrite=True
    )
    command = [args.peer_python, "benchmarks/quantize_peer.py", str(args.source.absolute())]
    command += [str(peer), str(RECIPES[recipe].file_type), str(args.threads)]
    if imatrix is not None:
        arrays: dict[str, Any] = dict(read_imatrix(imatrix).means())
        np.savez(means, **arrays)
        command.append(str(means))
    run(command)
    return ours, peer


def _row(recipe: str, imatrix: Path | None, n_bytes: int, ours: Lost, peer: Lost) -> str:
    ratio = ours.kld.mean() / peer.kld.mean()
    rest = ours.kld - ratio * peer.kld
    error = rest.std(ddof=1) / math.sqrt(len(rest)) / peer.kld.mean()
    means = (mean_of(side.kld) for side in (ours, peer))
    cells = [
        recipe,
        "yes" if imatrix else "no",
        f"{n_bytes / 1e6:.1f}",
        *(f"{mean.value:.5f} ± {mean.error:.5f}" for mean in means),
        f"{ratio:.3f} ± {error:.3f}",
        *(f"{side.same.mean():.1%}" for side in (ours, peer)),
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
