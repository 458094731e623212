"""A model's fingerprint changes with the file, and only with it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.errors import ResourceError
from edgeinfer.loader.fingerprint import (
    SAMPLE_BYTES,
    SAMPLED_BYTES,
    fingerprint,
    sample_offsets,
)
from edgeinfer.loader.gguf import open_gguf

TENSORS = {
    "w": np.zeros((64, 4096), np.float32),
    "b": np.zeros(64, np.float32),
    "v": np.zeros((8, 4096), np.float32),
}


@pytest.fixture
def model(tiny_gguf: Callable[..., Path]) -> Path:
    return tiny_gguf({"general.architecture": "llama", "general.name": "a"}, TENSORS)


def mark(path: Path, *, with_times: bool = False) -> bytes:
    with open_gguf(path) as file:
        return fingerprint(file.parts, with_times=with_times)


def change(path: Path, at: int) -> None:
    """Change one byte and put the time back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_it_is_the_content_that_counts_not_name_or_place_or_time(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = Path(shutil.copyfile(model, tmp_path / "elsewhere" / "b.gguf"))
    os.utime(copy, ns=(1, 1))
    assert mark(copy) == mark(model) == mark(model)


def test_with_times_another_time_is_another_file(model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy2(model, tmp_path / "b.gguf"))
    before = mark(model, with_times=True)
    assert before == mark(copy, with_times=True) != mark(model)
    status = model.stat()
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert mark(model, with_times=True) != before


def test_another_header_of_the_same_size_and_time(model: Path) -> None:
    before = mark(model)
    change(model, model.read_bytes().index(b"general.name") + len("general.name") + 12)
    assert mark(model) != before


def test_other_weights_of_any_tensor(model: Path) -> None:
    before = mark(model)
    with open_gguf(model) as file:
        extents = file.parts[0].extents
    assert len(extents) == len(TENSORS)
    for start, n_bytes in extents:
        at = start + n_bytes // 2
        change(model, at)
        assert mark(model) != before
        change(model, at)
        assert mark(model) == before


def test_more_weights(model: Path, tiny_gguf: Callable[..., Path]) -> None:
    before = mark(model)
    status = model.stat()
    grown = tiny_gguf(
        {"general.architecture": "llama", "general.name": "a"},
        {"w": np.zeros((65, 4096), np.float32)},
    )
    os.utime(grown, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert mark(grown) != before


def test_a_file_that_changed_since_it_was_opened_has_none(model: Path) -> None:
    with open_gguf(model) as file:
        model.write_bytes(model.read_bytes())
        os.utime(model)
        with pytest.raises(ResourceError, match="changed on disk"):
            fingerprint(file.parts)
        model.unlink()
        with pytest.raises(ResourceError, match="cannot read"):
            fingerprint(file.parts)


@pytest.mark.parametrize("n_bytes", [1, 4095, 4096, 10_000, SAMPLED_BYTES, 1 << 30])
def test_samples_are_spread_over_a_tensor(n_bytes: int) -> None:
    offsets = sample_offsets(100, n_bytes)
    assert len(offsets) == max(1, n_bytes // SAMPLED_BYTES)
    assert all(100 <= at < 100 + n_bytes for at in offsets)
    if n_bytes > SAMPLE_BYTES:
        before, after = offsets[0] - 100, 100 + n_bytes - (offsets[-1] + SAMPLE_BYTES)
        assert 0 <= after - before <= 1
