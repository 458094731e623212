"""A generator of bad files that knows the format: whatever it makes loads or ends in our error."""

import lzma
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgeinfer.errors import EdgeInferError
from edgeinfer.loader.gguf import GgufFile, open_gguf
from edgeinfer.loader.strings import StringArray
from edgeinfer.quant.decode import DECODERS, decode
from tests.gguf_writer import Field, Typed, gguf_fields, render

METADATA = {
    "general.architecture": "llama",
    "general.alignment": 32,
    "llama.block_count": 2,
    "llama.eps": 1e-5,
    "flag": True,
    "tokenizer.ggml.tokens": [f"tok{i}" for i in range(9)] + ["", "é", "x" * 300],
    "tokenizer.ggml.scores": [0.5] * 12,
    "tokenizer.ggml.token_type": [1] * 12,
    "flags": [True, False],
    "big": Typed("u64", 1 << 40),
    "none": Typed("str", []),
    "last": "text",
}
TENSORS = {
    "token_embd.weight": ("Q4_K", (4, 256)),
    "norm.weight": ("F32", (7,)),
    "blk.0.ffn_up.weight": ("Q8_0", (2, 3, 64)),
    "blk.0.attn_q.weight": ("IQ2_XXS", (1, 256)),
}
FIELDS = tuple(gguf_fields(METADATA, TENSORS))
NUMBERS = [i for i, field in enumerate(FIELDS) if field.kind != "bytes"]
SIZE = len(render(list(FIELDS)))

# Values near which mistakes live; "near" is within 2.
EDGES = [0, 4, 8, 12, 32, 64, 255, 256, SIZE, 1 << 15, 1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 61,
         1 << 62, 1 << 63, 1 << 64]  # fmt: skip
MEMORY_LIMIT = 4 << 20
SAME_PATH = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}

numbers = st.builds(lambda edge, near: edge + near, st.sampled_from(EDGES), st.integers(-2, 2))
values = numbers | st.integers(0, (1 << 64) - 1)
places = st.integers(0, len(FIELDS) - 1)
mutations = st.one_of(
    st.tuples(st.just("number"), st.sampled_from(NUMBERS), values),
    st.tuples(st.just("number"), st.sampled_from(NUMBERS), values),
    st.tuples(st.just("bytes"), places, st.binary(max_size=40)),
    st.tuples(st.just("byte"), places, st.integers(0, (1 << 16) - 1)),
    st.tuples(st.just("delete"), places, st.just(0)),
    st.tuples(st.just("repeat"), places, st.integers(1, 3)),
    st.tuples(st.just("swap"), places, places),
    st.tuples(st.just("repeat_run"), places, places),
    st.tuples(st.just("cut"), st.integers(0, SIZE), st.just(0)),
    st.tuples(st.just("insert"), st.integers(0, SIZE), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("append"), st.just(0), st.binary(max_size=80)),
)


def mutate(steps: list[tuple[str, int, int | bytes]]) -> bytes:
    """Apply the steps, those on fields first, then those on the bytes they make."""
    fields: list[Field] = list(FIELDS)
    for kind, place, value in steps:
        _mutate_fields(fields, kind, min(place, len(fields) - 1), value)
    raw = render(fields)
    for kind, place, value in steps:
        if kind == "cut":
            raw = raw[:place]
        elif kind == "insert":
            raw = raw[:place] + bytes(value) + raw[place:]
        elif kind == "append":
            raw += bytes(value)
    return raw


def _mutate_fields(fields: list[Field], kind: str, i: int, value: int | bytes) -> None:
    field = fields[i]
    if kind == "bytes" or (kind == "number" and field.kind != "bytes"):
        fields[i] = field.with_value(value)
    elif kind == "byte" and field.data:
        data = bytearray(field.data)
        data[value % len(data)] = value >> 8
        fields[i] = field.with_value(bytes(data))
    elif kind == "delete" and len(fields) > 1:
        del fields[i]
    elif kind == "repeat":
        fields[i:i] = [field] * value
    elif kind == "swap":
        j = min(value, len(fields) - 1)
        fields[i], fields[j] = fields[j], fields[i]
    elif kind == "repeat_run":
        fields[i:i] = fields[i : i + value % 40]


def use(file: GgufFile) -> None:
    """Touch all that a loaded file offers; its own errors are allowed, others are not."""
    for value in file.metadata.values():
        if isinstance(value, StringArray):
            value.tobytes_list()
            try:
                value.tolist()
            except EdgeInferError:
                continue
    for tensor in file.tensors.values():
        assert len(tensor.data) == tensor.n_bytes
        if tensor.format.name in DECODERS:
            decode(tensor)


def survives(path: Path, raw: bytes) -> bool:
    """Load the bytes as a file; return whether they loaded, fail on anything but our errors."""
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        with open_gguf(path) as file:
            use(file)
        return True
    except EdgeInferError as error:
        assert str(error).isprintable()
        assert error.exit_code in (3, 4)
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY_LIMIT + len(raw)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "mutant.gguf"


def test_unchanged_file_loads(path):
    assert survives(path, mutate([]))


@settings(max_examples=400, **SAME_PATH)
@given(st.lists(mutations, min_size=1, max_size=4))
@example([("number", NUMBERS[2], (1 << 64) - 1)])
def test_mutants_load_or_end_in_our_error(path, steps):
    survives(path, mutate(steps))


def test_every_number_of_the_file_at_every_edge(path):
    """Exhaustive where hypothesis samples: each number of the file beside each edge."""
    loaded = 0
    some_items = [i for i in NUMBERS if ".item[" not in FIELDS[i].name or i % 11 == 0]
    for i in some_items:
        for edge in EDGES:
            for near in (-1, 0, 1):
                loaded += survives(path, mutate([("number", i, edge + near)]))
    assert loaded  # some values are sound: a larger alignment, another type of the same size


def test_truncated_anywhere(path):
    """No prefix is taken for the whole, but for the last tensor's padding, which may be missing."""
    raw = mutate([])
    head = sum(len(field.data) for field in FIELDS if ".data" not in field.name)
    needed = len(raw) - len(FIELDS[-1].data)
    for n_bytes in [*range(head), *range(head, needed, 37), *range(needed - 2, len(raw))]:
        assert survives(path, raw[:n_bytes]) == (n_bytes >= needed)


@settings(max_examples=400, **SAME_PATH)
@given(st.binary(max_size=400))
def test_any_bytes_after_a_sound_header(path, tail):
    survives(path, render(list(FIELDS[:4])) + tail)


@pytest.fixture(scope="session")
def vocabulary(shared_dir) -> bytes:
    return lzma.decompress((shared_dir / "vocabs" / "llama-spm.gguf.xz").read_bytes())


def test_real_vocabulary_truncated(path, vocabulary):
    """Cut anywhere, a vocabulary of 32,000 tokens is refused, quickly and in constant memory."""
    with_padding = len(vocabulary)
    step = with_padding // 150
    for n_bytes in [*range(0, with_padding - 32, step), *range(80), with_padding - 33]:
        assert not survives(path, vocabulary[:n_bytes]), n_bytes


@settings(max_examples=60, **SAME_PATH)
@given(st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=9)), max_size=6))
def test_real_vocabulary_overwritten(path, vocabulary, patches):
    raw = bytearray(vocabulary)
    for place, patch in patches:
        start = int(place * (len(raw) - len(patch)))
        raw[start : start + len(patch)] = patch
    survives(path, bytes(raw))
