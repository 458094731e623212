"""Write importance matrices in llama.cpp's GGUF form, whole or not at all.

The form is that of `loader/imatrix.py`. Tensors stand in the order of their names, so that equal
sums make equal files. Knows nothing of how the sums came about.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgeinfer.loader.imatrix import COUNTS, KIND, ORIGIN, SQUARES
from edgeinfer.loader.strings import StringArray
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.imatrix import Imatrix
from edgeinfer.writer.entries import Entry
from edgeinfer.writer.gguf import Bytes, TensorPlan, plan, write
from edgeinfer.writer.workplace import Targets, workplace


def write_imatrix(path: Path, imatrix: Imatrix) -> None:
    """Write a file, in place of the one that may be there.

    Sums are kept in float32, as the form wants them. Raises ResourceError if they cannot be
    written; what was there is then still there.
    """
    entries = [
        Entry("general.type", "str", KIND),
        Entry("imatrix.datasets", "str[]", StringArray.from_strings(imatrix.datasets)),
        Entry("imatrix.chunk_count", "u32", imatrix.n_chunks),
        Entry("imatrix.chunk_size", "u32", imatrix.chunk_size),
    ]
    if imatrix.origin:
        entries.append(Entry(ORIGIN, "str", imatrix.origin))
    arrays = dict(_arrays(imatrix))
    tensors = [TensorPlan(name, array.shape, FORMATS["F32"]) for name, array in arrays.items()]
    targets = Targets(path.absolute().parent, (path.name,))
    pieces: Iterator[Bytes] = (array.view(np.uint8) for array in arrays.values())
    with workplace(targets) as place:
        with place.file(path.name) as file:
            write(plan(entries, tensors), pieces, file.write)
        place.publish()


def _arrays(imatrix: Imatrix) -> Iterator[tuple[str, np.ndarray]]:
    for name in sorted(imatrix.sums):
        sums = imatrix.sums[name]
        yield name + SQUARES, np.ascontiguousarray(sums.squares, "<f4")
        yield name + COUNTS, np.ascontiguousarray(sums.counts[:, np.newaxis], "<f4")
