#!/usr/bin/env python3
"""Ask llama.cpp's quantizer what each recipe makes of each tensor; write what it says as JSON.

    PYTHONPATH=. python benchmarks/recipe_choices.py tests/quantizing/recipe_choices.json

Needs llama-cpp-python and NumPy, and 200 MB in the folder of temporary files.
"""

import argparse
import ctypes
import json
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

from edgeinfer.loader.gguf import open_gguf
from edgeinfer.quant.recipe import RECIPES
from tests.gguf_writer import write_gguf
from tests.quantizing.choice_models import MODELS, ChoiceModel, in_runs


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as folder:
        found = {name: _choices(model, Path(folder)) for name, model in MODELS.items()}
    rows = (
        f' "{name}": {{\n'
        + ",\n".join(f'  "{recipe}": {json.dumps(runs)}' for recipe, runs in choices.items())
        + "\n }"
        for name, choices in found.items()
    )
    args.output.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def _choices(model: ChoiceModel, folder: Path) -> dict[str, dict[str, str]]:
    source = folder / "in.gguf"
    tensors = {
        name: np.full(shape, 0.5, np.float32 if len(shape) == 1 else np.float16)
        for name, shape in model.shapes().items()
    }
    write_gguf(source, model.metadata(), tensors)
    return {name: _formats(source, folder / "out.gguf", name) for name in RECIPES}


def _formats(source: Path, target: Path, recipe: str) -> dict[str, str]:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = RECIPES[recipe].file_type
    params.nthread = 1
    status = llama_cpp.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(params)
    )
    if status:
        raise SystemExit(f"{recipe}: the quantizer failed with {status}")
    with open_gguf(source) as before, open_gguf(target) as after:
        return in_runs({name: after.tensors[name].format.name for name in before.tensors})


@llama_cpp.llama_log_callback
def _silent(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    pass


if __name__ == "__main__":
    main()
