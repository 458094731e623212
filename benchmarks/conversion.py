"""Convert a folder of transformers and copy the same bytes, in turns: what the conversion costs.

    python -m benchmarks.conversion FOLDER --make 32    # llama's 7b shape, random weights, 13.5 GB
    python -m benchmarks.conversion FOLDER --repeat 3

Each run begins with the source out of the page cache and ends when its bytes are on the disk; ours
reads a quarter of them again besides. The copy is `dd bs=4M conv=fsync`, file by file.
"""

import argparse
import json
import os
import shutil
import statistics
import struct
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measuring import ROOT

N_EMBD, N_FF, N_VOCAB, N_HEADS = 4096, 11008, 32000, 32
LAYERS_A_SHARD = 4
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": N_EMBD,
    "intermediate_size": N_FF,
    "max_position_embeddings": 4096,
    "num_attention_heads": N_HEADS,
    "num_key_value_heads": N_HEADS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": N_VOCAB,
}
LAYER = {
    "input_layernorm": (N_EMBD,),
    "post_attention_layernorm": (N_EMBD,),
    **{f"self_attn.{name}_proj": (N_EMBD, N_EMBD) for name in "qkvo"},
    **{f"mlp.{name}_proj": (N_FF, N_EMBD) for name in ("gate", "up")},
    "mlp.down_proj": (N_EMBD, N_FF),
}
OTHERS = {
    "model.embed_tokens": (N_VOCAB, N_EMBD),
    "lm_head": (N_VOCAB, N_EMBD),
    "model.norm": (N_EMBD,),
}


class Cost(NamedTuple):
    """What a process took; memory is the largest it had of its own and of mapped files."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def main() -> None:
    """Make a folder, or measure one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", type=int, metavar="LAYERS", help="write the folder and end")
    parser.add_argument("--outtype", default="auto")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=2)
    given = parser.parse_args()
    if given.make is not None:
        make(given.folder, given.make)
    else:
        measure(given.folder, given.outtype, given.repeat, given.threads)


def measure(folder: Path, outtype: str, n_turns: int, n_threads: int) -> None:
    """Print what each turn took, and the medians of the ratios."""
    sources = sorted(folder.glob("*.safetensors"))
    target = folder / "measured.gguf"
    copies = folder / "copies"
    command = ["edgeinfer.cli", "convert", str(folder), "-o", str(target), "--outtype", outtype]
    ratios = []
    for turn in range(n_turns):
        copies.mkdir()
        copied = run(sources, *(_copying(path, copies / path.name) for path in sources))
        shutil.rmtree(copies)
        ours = run(sources, [sys.executable, "-m", *command, "--threads", str(n_threads)])
        size = target.stat().st_size
        target.unlink()
        n_bytes = sum(path.stat().st_size for path in sources)
        for name, cost, n in (("copy", copied, n_bytes), ("convert", ours, size)):
            print(
                f"{name:8} {n / 1e6:8.0f} MB  {cost.wall_s:7.1f} s  {n / cost.wall_s / 1e6:6.0f} "
                f"MB/s  cpu {cost.cpu_s:6.1f} s  peak {cost.peak_mb:5.0f} MB",
                flush=True,
            )
        ratios.append((size / ours.wall_s) / (n_bytes / copied.wall_s))
        print(f"turn {turn + 1}: {ratios[-1]:.2f} of the copy's speed", flush=True)
    print(f"median: {statistics.median(ratios):.2f} of the copy's speed")


def _copying(source: Path, target: Path) -> list[str]:
    return ["dd", f"if={source}", f"of={target}", "bs=4M", "conv=fsync", "status=none"]


def run(sources: list[Path], *commands: list[str]) -> Cost:
    """Run commands one after another, the source out of the page cache."""
    for path in sources:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    start_s, cpu_s, peak_kb = time.perf_counter(), 0.0, 0
    for command in commands:
        pid = os.posix_spawnp(
            command[0],
            command,
            environment,
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
        _, status, usage = os.wait4(pid, 0)
        if status:
            sys.exit(f"{' '.join(command)}: status {status}")
        cpu_s += usage.ru_utime + usage.ru_stime
        peak_kb = max(peak_kb, usage.ru_maxrss)
    return Cost(time.perf_counter() - start_s, cpu_s, peak_kb / 1e3)


def make(folder: Path, n_layers: int) -> None:
    """Write a folder of the 7b shape with random weights in BF16."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": n_layers}))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    shards: list[dict[str, tuple[int, ...]]] = [OTHERS]
    for i in range(n_layers):
        if i % LAYERS_A_SHARD == 0:
            shards.append({})
        shards[-1] |= {f"model.layers.{i}.{name}": shape for name, shape in LAYER.items()}
    rng = np.random.default_rng(1)
    values = (0.02 * rng.standard_normal(1 << 24)).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        weight_map |= {f"{tensor}.weight": name for tensor in tensors}
        _write_shard(folder / name, tensors, bits, rng)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def _write_shard(
    path: Path,
    tensors: dict[str, tuple[int, ...]],
    bits: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Write tensors whose values are the same random ones, from other places on."""
    header, at = {}, 0
    for name, shape in tensors.items():
        end = at + 2 * int(np.prod(shape))
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    raw = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        while at:
            first = int(rng.integers(0, 1 << 20))
            part = bits[first : first + at // 2]
            file.write(part.data)
            at -= part.nbytes


def _tokenizer() -> dict[str, Any]:
    """Return a byte-level BPE without merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [*map(chr, printable), *(chr(256 + i) for i in range(256 - len(printable)))]
    return {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "model": {
            "type": "BPE",
            "vocab": {letter: i for i, letter in enumerate(letters)},
            "merges": [],
        },
    }


if __name__ == "__main__":
    main()
