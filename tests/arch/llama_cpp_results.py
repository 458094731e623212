"""Compute embeddings and scores with llama-cpp-python: python llama_cpp_results.py FOLDER NAME...

Of each model FOLDER/NAME/f32.gguf and the two sequences in FOLDER/NAME.npz; they go to
FOLDER/NAME.npy.
"""

import sys
from pathlib import Path

import numpy as np
from llama_cpp import Llama, llama_get_embeddings_seq
from readers import N_LONG

folder, names = Path(sys.argv[1]), sys.argv[2:]
for name in names:
    arrays = np.load(folder / f"{name}.npz")
    tokens = arrays["tokens"].tolist()
    model = Llama(
        str(folder / name / "f32.gguf"),
        n_ctx=256,
        n_batch=256,
        n_ubatch=256,
        n_threads=1,
        embedding=True,
        verbose=False,
    )
    found = []
    for part in (tokens[:N_LONG], tokens[N_LONG:]):
        model._batch.reset()
        model._batch.add_sequence(part, 0, True)
        model._ctx.kv_cache_clear()
        model._ctx.decode(model._batch)
        rows = llama_get_embeddings_seq(model._ctx.ctx, 0)
        found.append(rows[: arrays["results"].shape[1]])
    np.save(folder / f"{name}.npy", np.array(found, np.float32))
    model.close()
