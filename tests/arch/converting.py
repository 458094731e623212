"""Convert the models of this folder's tests."""

from pathlib import Path

from edgeinfer.convert import convert


def converted(folder: Path, outtype: str) -> Path:
    """Return the file of a model's folder, written at the first call."""
    path = folder / f"{outtype}.gguf"
    if not path.exists():
        # llama.cpp looks for certain tokens in what has "phi3" in its name.
        convert(folder, path, outtype=outtype, metadata={"general.name": "tiny"})
    return path
