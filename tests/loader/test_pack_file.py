"""A pack file comes back as it was written; anything else is refused with a typed error."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from edgeinfer.errors import ModelFormatError, ResourceError
from edgeinfer.loader import pack_file
from edgeinfer.loader.mapped import release
from edgeinfer.loader.pack_file import HUGE_PAGE, Header, Place, map_pack, plan, read_header, write
from edgeinfer.quant.packed import MatrixKey, MatrixToPack

MARK = bytes(range(32))


def matrix(name: str, n_bytes: int, *, piece: int = 1000) -> MatrixToPack:
    """A matrix of random bytes that come in pieces."""
    data = np.random.default_rng(n_bytes).integers(0, 256, n_bytes, dtype=np.uint8)
    starts = range(0, n_bytes, piece)
    key = MatrixKey(name, "Q8_0", 3, 16 + n_bytes, 32)
    return MatrixToPack(key, n_bytes, lambda: iter([data[at : at + piece] for at in starts]))


MATRICES = [
    matrix("blk.0.ffn_up.weight", 4096),
    matrix("größe", 70),
    matrix("one byte", 1),
    matrix("larger than one write", pack_file.WRITE_BYTES + 777, piece=3 << 20),
    matrix("last", 128),
]


def small(tmp_path: Path) -> tuple[Path, Header]:
    """Write a pack of the two small matrices, for the tests that break it."""
    header = plan(MATRICES[:2], fingerprint=MARK, layout="x", source="/models/m.gguf")
    path = tmp_path / "small.pack"
    write(path, header, MATRICES[:2])
    return path, header


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def with_header(tmp_path: Path, header: Header) -> Path:
    """Write a pack whose header is sound in form and checksum, whatever it claims."""
    path = tmp_path / "made.pack"
    path.write_bytes(pack_file._encode(header))
    os.truncate(path, header.n_bytes)
    return path


def test_matrices_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.pack"
    header = plan(MATRICES, fingerprint=MARK, layout="x-1", source="/m\udcff.gguf")
    seen: list[tuple[int, int]] = []
    write(path, header, MATRICES, lambda done, total: seen.append((done, total)))

    found, packed = map_pack(path)

    assert found == header
    assert found == read_header(path)
    assert list(packed) == [m.key.name for m in MATRICES]
    for m in MATRICES:
        assert packed[m.key.name].key == m.key
        assert (packed[m.key.name].data == np.concatenate(list(m.pieces()))).all()
        assert packed[m.key.name].data.ctypes.data % 64 == 0
        assert not packed[m.key.name].data.flags.writeable
    assert header.data_start % HUGE_PAGE == 0
    assert seen[-1] == (header.n_bytes - header.data_start,) * 2
    assert seen == sorted(seen)


def test_a_pack_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.pack"
    write(path, plan([], fingerprint=MARK, layout="", source=""), [])
    assert map_pack(path)[1] == {}


def test_an_existing_file_is_never_written_into(tmp_path: Path) -> None:
    path, header = small(tmp_path)
    with pytest.raises(FileExistsError):
        write(path, header, MATRICES[:2])


def test_any_damaged_byte_of_the_header_is_found(tmp_path: Path) -> None:
    path, header = small(tmp_path)
    sound = path.read_bytes()[: len(pack_file._encode(header))]
    for at, byte in enumerate(sound):
        for bad in {byte ^ 1, byte ^ 0x80, 0, 255} - {byte}:
            overwrite(path, at, bytes([bad]))
            with pytest.raises(ModelFormatError, match=r"small\.pack"):
                map_pack(path)
        overwrite(path, at, bytes([byte]))
    assert read_header(path) == header


@pytest.mark.parametrize("n_bytes", [0, 1, 103, 104, 200, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 99])
def test_a_truncated_file_is_found_before_it_is_mapped(tmp_path: Path, n_bytes: int) -> None:
    path, _ = small(tmp_path)
    os.truncate(path, n_bytes)
    with pytest.raises(ModelFormatError, match=r"small\.pack"):
        map_pack(path)


def test_a_longer_file_is_found(tmp_path: Path) -> None:
    path, header = small(tmp_path)
    os.truncate(path, header.n_bytes + 1)
    with pytest.raises(ModelFormatError, match="bytes"):
        map_pack(path)


def test_pages_of_a_view_are_given_back_and_come_again(tmp_path: Path) -> None:
    path = tmp_path / "large.pack"
    write(path, plan(MATRICES, fingerprint=MARK, layout="x", source="s"), MATRICES)
    data = map_pack(path)[1]["larger than one write"].data
    before = data.copy()
    resident = resident_bytes()
    release(data)
    release(before)  # memory of our own is left alone
    assert resident_bytes() < resident - len(data) // 2
    assert (data == before).all()
    assert before.any()


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


KEY = MatrixKey("w", "F32", 1, 16, 1)
SIZE = HUGE_PAGE + 4096
MOST = 1 << 64


@pytest.mark.parametrize(
    "places",
    [
        [Place(KEY, 0, 4097)],
        [Place(KEY, 4096, 1)],
        [Place(KEY, 64, MOST - 64)],
        [Place(KEY, MOST - 64, 64)],
        [Place(KEY, MOST - 64, MOST - 64)],
        [Place(KEY, 8, 64)],
        [Place(KEY, 0, 128), Place(replace(KEY, name="v"), 64, 64)],
        [Place(KEY, 0, 64), Place(KEY, 64, 64)],
    ],
    ids=str,
)
def test_matrices_outside_the_file_or_one_another_are_refused(
    tmp_path: Path, places: list[Place]
) -> None:
    path = with_header(tmp_path, Header(MARK, "x", "s", tuple(places), HUGE_PAGE, SIZE))
    with pytest.raises(ModelFormatError, match="matrix"):
        map_pack(path)


@pytest.mark.parametrize("data_start", [0, 64, HUGE_PAGE + 64, 2 * HUGE_PAGE, MOST - HUGE_PAGE])
def test_data_must_begin_inside_the_file_at_a_huge_page(tmp_path: Path, data_start: int) -> None:
    path = with_header(tmp_path, Header(MARK, "x", "s", (), data_start, SIZE))
    with pytest.raises(ModelFormatError, match=r"found (data|a header)"):
        map_pack(path)


@pytest.mark.parametrize("n_matrices", [0, 2, 2**32 - 1])
def test_a_wrong_count_of_matrices_is_refused(
    tmp_path: Path, n_matrices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum is made to fit, so the count alone is wrong."""
    header = Header(MARK, "x", "s", (Place(KEY, 0, 64),), HUGE_PAGE, SIZE)
    body = pack_file._encode(header)[pack_file._PREFIX.size :]
    n_bytes = pack_file._PREFIX.size + len(body)

    def prefix(checksum: bytes) -> bytes:
        counts = (pack_file.VERSION, n_matrices, n_bytes, HUGE_PAGE, SIZE)
        return pack_file._PREFIX.pack(pack_file.MAGIC, *counts, MARK, checksum)

    path = tmp_path / "made.pack"
    path.write_bytes(prefix(pack_file._checksum(prefix(bytes(32)), body)) + body)
    os.truncate(path, SIZE)
    with pytest.raises(ModelFormatError, match="pack header: found"):
        map_pack(path)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    path, _ = small(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ModelFormatError, match="regular"):
        map_pack(tmp_path / "fifo")
    with pytest.raises(ModelFormatError, match="regular"):
        map_pack(tmp_path)
    with pytest.raises(OSError):
        map_pack(tmp_path / "link")


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path, _ = small(tmp_path)
    path.chmod(0o646)
    with pytest.raises(ModelFormatError, match="mode 646"):
        map_pack(path)


def test_a_pack_that_is_shortened_in_use_is_told_and_one_that_is_removed_is_not(
    tmp_path: Path,
) -> None:
    path, header = small(tmp_path)
    packed = map_pack(path)[1]
    packed.check_unchanged()
    os.truncate(path, header.n_bytes - 1)
    with pytest.raises(ResourceError, match=r"small\.pack: the pack was shortened"):
        packed.check_unchanged()
    os.truncate(path, header.n_bytes)
    path.unlink()
    packed.check_unchanged()
    packed.close()
    packed.close()
    packed.check_unchanged()
