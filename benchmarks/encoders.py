"""Compare the encoders with llama-cpp-python's: what each format loses, and the time it takes.

    python -m benchmarks.encoders --peer-python PATH

Matrices of several kinds of values (random ones, and real weights read from two models) go through
the peer's quantizer as one file, every tensor to one format, and through ours. Errors are RMS, in
shares of the values' own RMS. CPU seconds are those of one thread; the peer's include reading and
writing the file.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import run_side
from edgeinfer.kernels.native.encode import encode
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.resolve import resolve
from edgeinfer.quant.decode import decode
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from edgeinfer.writer.entries import Entry
from edgeinfer.writer.gguf import TensorPlan, plan, write

Floats = npt.NDArray[np.float32]

# The peer's file types whose tensors, "pure", are all of the format.
FILE_TYPES = {
    **{name: name for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL")},
    **{name: name for name in ("Q2_K", "Q6_K", "IQ4_XS")},
    **{name: f"{name}_S" for name in ("Q3_K", "Q4_K", "Q5_K")},
}
# Kind of values -> the name of a tensor that the peer does not take for a special one.
KINDS = {
    "normal": "blk.0.attn_q.weight",
    "heavy tails": "blk.0.attn_k.weight",
    "smollm2": "blk.0.ffn_up.weight",
    "gemma3-270m": "blk.0.ffn_gate.weight",
}
REAL = "blk.8.ffn_down.weight"
N_ROWS, N_COLUMNS = 512, 1024


def matrices() -> dict[str, Floats]:
    """Return (512, 1024) values of every kind."""
    rng, shape = np.random.default_rng(1), (N_ROWS, N_COLUMNS)
    made = {
        "normal": rng.standard_normal(shape, np.float32) * np.float32(0.02),
        "heavy tails": (rng.standard_t(3, shape) * 0.02).astype(np.float32),
    }
    for name in ("smollm2", "gemma3-270m"):
        with open_gguf(resolve(name)) as file:
            rows = decode(file.tensors[REAL], slice(N_ROWS))
        made[name] = np.ascontiguousarray(rows[:, :N_COLUMNS])
    return made


def write_source(path: Path, made: Mapping[str, Floats]) -> None:
    """Write the file that the peer quantizes: a model of one layer, as far as it looks."""
    counts = {"block_count": 1, "context_length": 128, "embedding_length": N_COLUMNS}
    counts |= {"feed_forward_length": N_ROWS, "attention.head_count": 8, "vocab_size": N_ROWS}
    entries = [Entry("general.architecture", "str", "llama")]
    entries += [Entry(f"llama.{name}", "u32", count) for name, count in counts.items()]
    entries.append(Entry("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5))
    first = next(iter(made.values()))
    tensors = {"token_embd.weight": first} | {KINDS[kind]: x for kind, x in made.items()}
    plans = [TensorPlan(name, x.shape, FORMATS["F32"]) for name, x in tensors.items()]
    with path.open("wb") as file:
        write(plan(entries, plans), iter([x.view(np.uint8) for x in tensors.values()]), file.write)


def error(rows: Floats, encoded: Floats) -> float:
    """Return the RMS of the error, a share of the rows'."""
    return float(np.sqrt(np.square(encoded - rows).mean() / np.square(rows).mean()))


def ours(name: str, rows: Floats) -> tuple[float, float]:
    """Return our error and CPU seconds."""
    start_s = time.thread_time()
    data = encode(name, rows)
    spent_s = time.thread_time() - start_s
    return error(rows, decode(Tensor("", rows.shape, FORMATS[name], data.reshape(-1)))), spent_s


def report(
    made: Mapping[str, Floats], folder: Path, peer_cpu_s: Mapping[str, float]
) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| format | {' | '.join(made)} | ns a value |"
    yield "|:--|" + "--:|" * (len(made) + 1)
    for name in FILE_TYPES:
        cells, spent_s = [], 0.0
        with open_gguf(folder / f"{name}.gguf") as file:
            for kind, rows in made.items():
                tensor = file.tensors[KINDS[kind]]
                if tensor.format.name != name:
                    sys.exit(f"the peer made {tensor.format.name} of {tensor.name}, not {name}")
                mine, seconds = ours(name, rows)
                peers = error(rows, decode(tensor))
                spent_s += seconds
                ratio = mine / peers if peers else float(mine > 0)
                cells.append(f"{mine:.5f} / {peers:.5f} = {ratio:.3f}")
        each = N_ROWS * N_COLUMNS
        times = f"{spent_s / len(made) / each * 1e9:.1f} / "
        times += f"{peer_cpu_s[name] / (len(made) + 1) / each * 1e9:.1f}"
        yield f"| {name} | " + " | ".join(cells) + f" | {times} |"


def main() -> None:
    """Print a table of errors and times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer-python", default=sys.executable, help="one that has llama_cpp")
    args = parser.parse_args()
    made = matrices()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_source(folder / "source.gguf", made)
        job = {"source": str(folder / "source.gguf"), "folder": name, "threads": 1}
        done = run_side(args.peer_python, "side_peer_encoders", job | {"formats": FILE_TYPES})
        print(f"peer: {done['peer_version']}\n")
        for line in report(made, folder, done["cpu_s"]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
