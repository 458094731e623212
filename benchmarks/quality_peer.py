"""Predict a text with llama-cpp-python: `quality_peer.py FILE TEXT N_CTX CHUNKS THREADS`.

The counterpart of `edgeinfer.evaluating` for `benchmarks.quality`, with the same windows; runs
under the peer's Python. Prints the negative log-likelihood of each token as a JSON list.
"""

import json
import sys
from pathlib import Path

import numpy as np
from llama_cpp import Llama


def main() -> None:
    """Read window after window, each from an empty context."""
    path, text = sys.argv[1], Path(sys.argv[2]).read_bytes()
    n_ctx, chunks, threads = map(int, sys.argv[3:])
    model = Llama(
        path,
        n_ctx=n_ctx,
        n_batch=n_ctx,
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=True,
        verbose=False,
    )
    ids = model.tokenize(text, add_bos=True, special=False)
    adds_bos = model._model.add_bos_token()
    found: list[float] = []
    for start in range(0, min(chunks, len(ids) // n_ctx) * n_ctx, n_ctx):
        window = ids[start : start + n_ctx]
        if adds_bos:
            window[0] = model.token_bos()
        model.reset()
        model.eval(window)
        for at in range(n_ctx // 2, n_ctx - 1):
            row = model.scores[at].astype(np.float64)
            row -= row.max()
            found.append(float(np.log(np.exp(row).sum()) - row[window[at + 1]]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
