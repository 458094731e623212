"""Compute logits with llama-cpp-python: python llama_cpp_logits.py FOLDER NAME...

Of each model FOLDER/NAME/f32.gguf and the tokens in FOLDER/NAME.npz; they go to FOLDER/NAME.npy.
"""

import sys
from pathlib import Path

import numpy as np
from llama_cpp import GGML_TYPE_F32, Llama

folder, names = Path(sys.argv[1]), sys.argv[2:]
for name in names:
    tokens = np.load(folder / f"{name}.npz")["tokens"].tolist()
    model = Llama(
        str(folder / name / "f32.gguf"),
        n_ctx=256,
        n_threads=1,
        logits_all=True,
        type_k=GGML_TYPE_F32,
        type_v=GGML_TYPE_F32,
        verbose=False,
    )
    model.eval(tokens)
    np.save(folder / f"{name}.npy", model.scores[: len(tokens)])
    model.close()
