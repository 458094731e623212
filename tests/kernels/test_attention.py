"""Native attention equals the reference for all a program may ask, and itself on every road.

A program of one attention over embedded queries, keys and values, whose result is shown as logits.
Keys and values are float16 numbers, so that only the order of float32 sums differs.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from edgeinfer.errors import InvalidParameterError, ModelFormatError
from edgeinfer.kernels.backend import KV_TYPES, PAGE_LEN, Batch, Executable, Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from edgeinfer.kernels.reference.backend import BACKEND as REFERENCE
from edgeinfer.program.builder import Builder
from edgeinfer.program.program import Program
from edgeinfer.program.values import Use, WeightRef
from edgeinfer.quant.formats import FORMATS
from edgeinfer.quant.tensor import Tensor
from tests.kernels.kl import one_sequence

pytest.importorskip("edgeinfer.kernels.native._native")

N_CTX = 600
N_IDS = 50
Floats = npt.NDArray[np.float32]


class Sizes(NamedTuple):
    """What the program says of itself."""

    n_vocab: int
    n_embd: int = 1
    n_layers: int = 1
    n_ctx: int = N_CTX
    n_ctx_train: int = N_CTX


class Asked(NamedTuple):
    """What a program asks of attention."""

    n_kv: int = 2
    group: int = 2
    key_dim: int = 32
    value_dim: int = 32
    window: int = 0
    prefix: bool = False
    sinks: bool = False
    slopes: bool = False
    more: dict[str, Any] = {}  # noqa: RUF012


CAUSAL = {
    "plain": Asked(),
    "heads of 16": Asked(key_dim=16, value_dim=16),
    "heads of 40": Asked(key_dim=40, value_dim=40, group=3),
    "heads of 80": Asked(key_dim=80, value_dim=80),
    "heads of 96": Asked(key_dim=96, value_dim=96, n_kv=1),
    "heads of 112": Asked(key_dim=112, value_dim=112, group=1),
    "heads of 192 and 128": Asked(key_dim=192, value_dim=128, n_kv=1, group=7),
    "latent": Asked(key_dim=576, value_dim=512, n_kv=1, group=3, prefix=True),
    "one of 64 heads": Asked(n_kv=1, group=64, key_dim=16, value_dim=16),
    "odd": Asked(n_kv=3, group=5, key_dim=13, value_dim=21),
    "window": Asked(window=70),
    "window of one": Asked(window=1),
    "past half of a symmetric window": Asked(window=33, more={"window_kind": "symmetric"}),
    "softcap": Asked(more={"softcap": 5.0}),
    "sinks": Asked(sinks=True, window=128),
    "slopes": Asked(slopes=True, n_kv=4, group=3),
    "all": Asked(sinks=True, slopes=True, window=90, group=8, more={"softcap": 3.0}),
}
AHEAD = {
    "full": Asked(more={"mask": "full"}),
    "full with slopes": Asked(slopes=True, more={"mask": "full"}),
    "symmetric": Asked(window=40, more={"mask": "full", "window_kind": "symmetric"}),
    "symmetric, sinks": Asked(
        window=3, sinks=True, group=5, more={"mask": "full", "window_kind": "symmetric"}
    ),
}
# Of the length of a head's result, what codes of keys, values and queries may cost.
ERRORS = {"q8_0": 0.02, "q4_0": 0.3}


def tensor(name: str, array: Floats) -> Tensor:
    return Tensor(name, array.shape, FORMATS["F32"], array.reshape(-1).view(np.uint8))


def written(asked: Asked) -> tuple[Program, dict[str, Tensor]]:
    """Return the program, and its tensors: a table each of queries, keys and values."""
    random = np.random.default_rng(5)
    heads = asked.n_kv * asked.group
    widths = {
        "q": heads * asked.key_dim,
        "k": asked.n_kv * asked.key_dim,
        "v": asked.n_kv * asked.value_dim,
    }
    tensors = {}
    for name, width in widths.items():
        table = random.standard_normal((N_IDS, width)).astype(np.float16).astype(np.float32)
        tensors[f"{name}.weight"] = tensor(f"{name}.weight", table)
    tensors["sinks"] = tensor("sinks", random.standard_normal(heads).astype(np.float32))
    b = Builder("test", tensors)
    q, k, v = (b.embed(name, N_IDS, width) for name, width in widths.items())
    dims = (asked.n_kv, asked.key_dim, asked.value_dim)
    kv = b.kv(*dims, window=asked.window, v_is_prefix=asked.prefix)
    b.kv_store(k, None if asked.prefix else v, kv)
    if asked.sinks:
        more = {"sinks": WeightRef("sinks", (heads,), Use.VECTOR)}
    else:
        more = {}
    slopes = b.constant("slopes", random.random(heads) / 20) if asked.slopes else None
    scale = 2 * asked.key_dim**-0.5
    out = b.attention(q, kv, heads, scale=scale, slopes=slopes, **more, **asked.more)
    b.output("logits", b.rows(out))
    return b.finish(Sizes(out.width)), tensors


def compiled(
    asked: Asked,
    backend: Any = BACKEND,
    n_threads: int = 2,
    kv_type: str = "f16",
    **more: Any,
) -> Executable:
    program, tensors = written(asked)
    limits = Limits(N_CTX, n_pages=40, n_batch=N_CTX, n_threads=n_threads, kv_type=kv_type)
    made: Executable = backend.compile(program, tensors, limits, **more)
    return made


def ids(n: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, N_IDS, n).tolist()


def run(executable: Executable, tokens: list[int], chunk: int = N_CTX) -> Floats:
    """Return the result of every token, run in steps of `chunk`."""
    parts = []
    for start in range(0, len(tokens), chunk):
        part = tokens[start : start + chunk]
        parts.append(executable.run(one_sequence(part, start, np.arange(len(part)))).copy())
    return np.concatenate(parts)


def same_bits(a: Floats, b: Floats) -> bool:
    return bool((a.view(np.uint32) == b.view(np.uint32)).all())


def together(first: list[int], second: list[int], third: list[int]) -> Batch:
    """One step of three whole sequences in interleaved pages; wanted is all of the second."""
    lengths = [len(first), len(second), len(third)]
    most = -(-max(lengths) // PAGE_LEN)
    return Batch(
        tokens=np.array(first + second + third, np.int32),
        positions=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        sequences=np.repeat(np.arange(3, dtype=np.int32), lengths),
        page_tables=np.arange(3 * most, dtype=np.int32).reshape(most, 3).T.copy(),
        wanted=np.arange(lengths[0], lengths[0] + lengths[1], dtype=np.int32),
    )


@pytest.mark.parametrize("case", [*CAUSAL, *AHEAD])
def test_native_equals_the_reference(case: str) -> None:
    asked = (CAUSAL | AHEAD)[case]
    tokens = ids(300)
    found, expected = (run(compiled(asked, b), tokens) for b in (BACKEND, REFERENCE))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kv_type", ERRORS)
@pytest.mark.parametrize("case", [*CAUSAL, *AHEAD])
def test_codes_of_keys_and_values_stay_near_the_reference(case: str, kv_type: str) -> None:
    asked = (CAUSAL | AHEAD)[case]
    tokens = ids(300)
    found = run(compiled(asked, kv_type=kv_type), tokens)
    expected = run(compiled(asked, REFERENCE), tokens)
    heads = (len(tokens), asked.n_kv * asked.group, -1)
    missed = np.linalg.norm((found - expected).reshape(heads), axis=2)
    length = np.linalg.norm(expected.reshape(heads), axis=2)
    assert 1e-4 < np.sqrt((missed**2).sum() / (length**2).sum()) < ERRORS[kv_type]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("case", CAUSAL)
def test_chunks_threads_and_instruction_sets_give_the_same(case: str, kv_type: str) -> None:
    asked = CAUSAL[case]
    tokens = ids(270)
    whole = run(compiled(asked, n_threads=1, kv_type=kv_type), tokens)
    several = compiled(asked, n_threads=4, kv_type=kv_type)
    for chunk in (269, 64, 7):
        assert same_bits(run(several, tokens, chunk), whole)
    for level in isa.levels():
        executable = compiled(asked, isa_name=level, kv_type=kv_type)
        assert same_bits(run(executable, tokens, 269), whole)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("case", AHEAD)
def test_company_and_instruction_sets_give_the_same_looking_ahead(case: str, kv_type: str) -> None:
    asked = AHEAD[case]
    first, second, third = ids(70, 2), ids(290, 3), ids(33, 4)
    alone = run(compiled(asked, n_threads=1, kv_type=kv_type), second)
    for level in isa.levels():
        executable = compiled(asked, isa_name=level, kv_type=kv_type)
        assert same_bits(executable.run(together(first, second, third)), alone)


@pytest.mark.parametrize("case", [*CAUSAL, *AHEAD])
def test_32_bits_of_what_16_hold_give_the_same(case: str) -> None:
    asked = (CAUSAL | AHEAD)[case]
    tokens = ids(300)
    assert same_bits(*(run(compiled(asked, kv_type=kv_type), tokens) for kv_type in ("f32", "f16")))


def test_keys_and_values_take_the_memory_of_their_type() -> None:
    """For each position and head 64 numbers, or their codes and the room of 4 scales."""
    found = {kv_type: compiled(Asked(), kv_type=kv_type).state_bytes for kv_type in KV_TYPES}
    sizes = {"f32": 64 * 4, "f16": 64 * 2, "q8_0": 64 + 2 * 4, "q4_0": 32 + 2 * 4}
    assert found == {kv_type: 40 * 64 * 2 * n_bytes for kv_type, n_bytes in sizes.items()}


def test_a_full_mask_has_no_window_of_the_past() -> None:
    with pytest.raises(ModelFormatError, match=r"mask: found full \(need causal in a window\)"):
        written(Asked(window=9, more={"mask": "full"}))


@pytest.mark.parametrize("backend", [BACKEND, REFERENCE])
def test_a_sequence_in_parts_cannot_look_ahead(backend: Any) -> None:
    executable = compiled(AHEAD["full"], backend)
    assert executable.run(one_sequence(ids(9), 0, [8])).shape[0] == 1
    with pytest.raises(
        InvalidParameterError, match=r"a start at 9 \(need 0: this model looks ahead"
    ):
        executable.run(one_sequence(ids(3), 9, [2]))
