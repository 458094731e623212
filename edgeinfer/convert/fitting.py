"""Try whether keys and tensors that were made fit each other: a program must come of them.

Shapes that a configuration does not have, and layers without some of their tensors, show here and
not when the file is loaded.
"""

from collections.abc import Mapping
from dataclasses import replace

from edgeinfer.arch import build_program
from edgeinfer.arch.shared.rotation import FACTOR_TENSORS
from edgeinfer.convert.keys import Keys
from edgeinfer.convert.source import CheckpointRows
from edgeinfer.loader.metadata import Metadata
from edgeinfer.quant.tensor import Tensor


def check_fit(keys: Keys, rows: CheckpointRows, where: str) -> None:
    """Raise ModelFormatError or UnsupportedModelError unless these make a model that runs."""
    metadata = Metadata({entry.key: entry.value for entry in keys}, where=where)
    build_program(metadata, _shapes(rows), n_ctx=1)


def _shapes(rows: CheckpointRows) -> Mapping[str, Tensor]:
    """Return the tensors, of which those have data that building a program reads."""
    tensors = dict(rows.tensors)
    for name in tensors.keys() & set(FACTOR_TENSORS):
        row = rows.read(tensors[name], slice(0, 1))
        tensors[name] = replace(row, shape=tensors[name].shape)
    return tensors
