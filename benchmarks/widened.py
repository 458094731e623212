"""Make a model with rows of whole blocks of 256, and the same function, out of one without.

    python -m benchmarks.widened smollm2-f16.gguf wide-f16.gguf

For `benchmarks.quantized_quality`: K-quants need rows of 256 values, which SmolLM2's 576 are not.
Some channels of the residual stream stand twice, each with 1/sqrt(2) of the value, so that its
length stays; the norms take back that the mean is now over more channels. Some KV heads stand
twice, their output halved. Channels, and units of the feed-forward net, are put in a random order:
values that were encoded in blocks before lie in others now. The result is a `llama` model in F16
that differs from the source by the rounding of the halves; there is no padding in it.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.writer.entries import Entry, entries_of, with_entries
from edgeinfer.writer.gguf import TensorPlan, plan, write

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

BLOCK = 256
EPSILON = ".attention.layer_norm_rms_epsilon"


@dataclass(frozen=True, slots=True)
class Copies:
    """Where the channels of a wider value come from, and how much of the source each bears."""

    source: Indices
    share: Floats


@dataclass(frozen=True, slots=True)
class Widening:
    """How each kind of value grows."""

    residual: Copies
    queries: Indices
    keys: Indices
    values: Indices
    outputs: Copies  # of all query heads
    units: Indices  # of the feed-forward net
    norm: float  # what its weights are multiplied with


def widening(metadata: Metadata, rng: np.random.Generator) -> Widening:
    """Choose what stands twice: as little as fills the last block."""
    count = {
        name: metadata.integer(f".{name}")
        for name in ("embedding_length", "feed_forward_length", "attention.head_count_kv")
    }
    width, n_kv = count["embedding_length"], count["attention.head_count_kv"]
    n_heads = metadata.integer(".attention.head_count")
    head_len, group = width // n_heads, n_heads // n_kv
    wider = -(-width // BLOCK) * BLOCK
    if wider > 2 * width or wider % (group * head_len):
        raise SystemExit(f"widened: found a width of {width} with {n_heads} heads: no copies fill")
    first, again = rng.permutation(width), rng.permutation(width)[: wider - width]
    source = rng.permutation(np.concatenate([first, again]))
    twice = np.isin(source, again)
    kv_heads = np.concatenate([np.arange(n_kv), np.arange(wider // (group * head_len) - n_kv)])
    order = np.stack([rng.permutation(head_len) for _ in range(n_kv)])
    queries = (kv_heads[:, None] * group + np.arange(group)).reshape(-1)
    outputs = (queries[:, None] * head_len + order[np.repeat(kv_heads, group)]).reshape(-1)
    halved = np.bincount(kv_heads)[np.repeat(kv_heads, group * head_len)]
    return Widening(
        residual=Copies(source, np.where(twice, math.sqrt(0.5), 1).astype(np.float32)),
        queries=(queries[:, None] * head_len + np.arange(head_len)).reshape(-1),
        keys=(kv_heads[:, None] * head_len + np.arange(head_len)).reshape(-1),
        values=(kv_heads[:, None] * head_len + order[kv_heads]).reshape(-1),
        outputs=Copies(outputs, (1 / halved).astype(np.float32)),
        units=rng.permutation(count["feed_forward_length"]),
        norm=math.sqrt(width / wider),
    )


def widened(name: str, x: Floats, by: Widening) -> Floats:
    """Return a tensor of the wider model."""
    source, share = by.residual.source, by.residual.share
    if x.ndim == 1:
        return x[source] * np.float32(by.norm)
    rows = {"attn_q": by.queries, "attn_k": by.keys, "attn_v": by.values}
    match name.split(".")[-2]:
        case "token_embd":
            return x[:, source] * share
        case "attn_q" | "attn_k" | "attn_v" as role:
            return x[rows[role]][:, source] * share
        case "ffn_gate" | "ffn_up":
            return x[by.units][:, source] * share
        case "attn_output":
            return x[source][:, by.outputs.source] * by.outputs.share * share[:, None]
        case "ffn_down":
            return x[source][:, by.units] * share[:, None]
    raise SystemExit(f"{name}: found a tensor that a plain llama model does not have")


def facts(metadata: Metadata, by: Widening) -> list[Entry]:
    """Return the metadata of the wider model."""
    wider = len(by.residual.source)
    head_len = metadata.integer(".embedding_length") // metadata.integer(".attention.head_count")
    counts = {"embedding_length": wider, "attention.head_count": wider // head_len}
    counts["attention.head_count_kv"] = len(by.values) // head_len
    changed = [Entry(metadata.full_key(f".{key}"), "u32", n) for key, n in counts.items()]
    epsilon = metadata.number(EPSILON) * by.norm**2
    changed.append(Entry(metadata.full_key(EPSILON), "f32", epsilon))
    return with_entries(entries_of(metadata), changed)


def main() -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=1, help="of the random order")
    args = parser.parse_args()
    with open_gguf(args.source) as file, args.target.open("xb") as target:
        by = widening(file.metadata, np.random.default_rng(args.seed))
        made = {
            name: widened(name, np.asarray(decode(tensor), np.float32), by)
            for name, tensor in file.tensors.items()
        }
        plans = [
            TensorPlan(name, x.shape, FORMATS["F16" if x.ndim == 2 else "F32"])
            for name, x in made.items()
        ]
        pieces = (
            x.astype("<f2" if x.ndim == 2 else "<f4").reshape(-1).view(np.uint8)
            for x in made.values()
        )
        write(plan(facts(file.metadata, by), plans), pieces, target.write)


if __name__ == "__main__":
    main()
