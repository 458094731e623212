"""One row a family: a tiny model of it that transformers can make, with every feature on.

Sizes differ pairwise, windows are shorter than the text, and the text is longer than the context
that a scaled RoPE was trained for. Imports are relative: the models are made by a script beside.
"""

from . import dense, gemma, hybrids, sparse
from .row import N_VOCAB, SIZES, Row

ROWS: dict[str, Row] = {**dense.ROWS, **gemma.ROWS, **sparse.ROWS, **hybrids.ROWS}

__all__ = ["N_VOCAB", "ROWS", "SIZES", "Row"]
