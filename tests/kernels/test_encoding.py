"""What encoders need of a backend: learned positions, whole sequences, one row for each of them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.backend import Limits
from edgeinfer.kernels.jit.backend import BACKEND as JIT
from edgeinfer.kernels.native.backend import BACKEND as NATIVE
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels.kl import one_sequence

pytest.importorskip("edgeinfer.kernels.native._native")

N_IDS, N_CTX, WIDTH = 50, 64, 24
LIMITS = Limits(n_ctx=N_CTX, n_pages=4, n_batch=N_CTX, n_threads=2)
BACKENDS = [NATIVE, JIT, REFERENCE]
Floats = npt.NDArray[np.float32]


class Sizes(NamedTuple):
    """What a program says of itself."""

    n_ctx: int = N_CTX
    n_vocab: int = N_IDS
    n_embd: int = WIDTH
    n_layers: int = 1
    n_ctx_train: int = N_CTX


def tensors_of(**arrays: Floats) -> dict[str, Tensor]:
    return {
        f"{name}.weight": Tensor(
            f"{name}.weight", array.shape, FORMATS["F32"], array.reshape(-1).view(np.uint8)
        )
        for name, array in arrays.items()
    }


def table(n_rows: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((n_rows, WIDTH)).astype(np.float32)


TOKENS, POSITIONS, TYPES = table(N_IDS, 1), table(N_CTX, 2), table(3, 3)


def embedded(n_ctx: int = N_CTX) -> tuple[Program, dict[str, Tensor]]:
    """Return a program that adds the embeddings of token, position and type 2, and its tensors."""
    tensors = tensors_of(token_embd=TOKENS, position_embd=POSITIONS, token_types=TYPES)
    b = Builder("test", tensors)
    x = b.add(
        b.embed("token_embd", N_IDS, WIDTH),
        b.embed("position_embd", N_CTX, WIDTH, ids="pos", scale=3.0),
    )
    x = b.add(x, b.embed("token_types", 3, WIDTH, ids="row", row=2))
    b.output("logits", b.rows(x))
    return b.finish(Sizes(n_ctx=n_ctx, n_vocab=WIDTH)), tensors


@pytest.mark.parametrize("backend", BACKENDS)
def test_positions_and_types_are_looked_up(backend: Any) -> None:
    executable = backend.compile(*embedded(), LIMITS)
    ids = [7, 0, 23]
    found = executable.run(one_sequence(ids, 61, [0, 1, 2])).copy()
    executable.close()
    expected = TOKENS[ids] + POSITIONS[61:64] * np.float32(3) + TYPES[2]
    assert (found == expected).all()


def test_a_program_serves_no_position_without_a_row() -> None:
    with pytest.raises(InvalidParameterError, match=r"n_ctx: found 65 \(need at most 64\)"):
        embedded(N_CTX + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_limits_keep_to_the_positions_there_are(backend: Any) -> None:
    limits = Limits(n_ctx=N_CTX + 1, n_pages=4)
    for do in (backend.compile, backend.measure):
        with pytest.raises(InvalidParameterError, match=r"n_ctx: found 65 \(need at most 64\)"):
            do(*embedded(), limits)
