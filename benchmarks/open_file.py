"""Print how long it takes to open model files and to read their vocabularies.

    python -m benchmarks.open_file                      # smollm2 and gemma3-270m, pulled if absent
    python -m benchmarks.open_file model.gguf --repeat 20

Each time is the best and the median of the repeats, in ms, files in the page cache and NumPy
already imported: `open` maps the file and reads all metadata and tensor records; `tokens` makes a
Python list of the token strings; `bytes` the same of bytes.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.resolve import resolve


def timed(call: Callable[[], object], repeat: int) -> str:
    """Return "best median" of the call's times in ms."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return f"{min(times):8.1f} {statistics.median(times):8.1f}"


def main() -> None:
    """Print one line a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["smollm2", "gemma3-270m"])
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    print(f"{'model':14} {'n_tokens':>9} {'open':>8} {'median':>8} "
          f"{'tokens':>8} {'median':>8} {'bytes':>8} {'median':>8}")  # fmt: skip
    for model in options.models:
        path = resolve(model)
        with open_gguf(path) as file:
            tokens = file.metadata.strings("tokenizer.ggml.tokens")
            print(
                f"{model[-14:]:14} {len(tokens):9}",
                timed(lambda path=path: open_gguf(path), options.repeat),  # type: ignore[misc]
                timed(tokens.tolist, options.repeat),
                timed(tokens.tobytes_list, options.repeat),
            )


if __name__ == "__main__":
    main()
