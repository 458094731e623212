"""A KV file comes back as it was written; anything else is refused with a typed error."""

import os
import struct
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.errors import SessionError
from edgeinfer.loader import kv_file
from edgeinfer.loader.kv_file import Binding, Header, KvFile, write

PAGE_BYTES, STATE_BYTES = 4096, 1000
N_HEADER_AT = 36  # where a file says how long its header is
BINDING = Binding("m" * 64, "p" * 32, "f16", "auto", "native-1")
HEADER = Header(BINDING, "/models/größe.gguf", '[{"a": 1}]', tuple(range(150)), 140, 64, PAGE_BYTES)


def pages(n: int = 3) -> list[np.ndarray]:
    """Pages of random bytes; the last is zero behind its first quarter."""
    made = np.random.default_rng(n).integers(0, 256, (n, PAGE_BYTES), dtype=np.uint8)
    made[-1, PAGE_BYTES // 4 :] = 0
    return list(made)


WITH_STATE = replace(HEADER, state_bytes=STATE_BYTES)
STATE = np.random.default_rng(9).integers(0, 256, STATE_BYTES, dtype=np.uint8)


def written(folder: Path, header: Header = HEADER) -> Path:
    path = folder / "a.session"
    write(path, header, iter([*pages(), STATE][: header.n_parts]))
    return path


def read(path: Path, state_bytes: int = 0) -> None:
    """Read all that a file holds."""
    with KvFile(path) as file:
        file.need(BINDING, 64, PAGE_BYTES, state_bytes)
        file.check()


@pytest.mark.parametrize("header", [HEADER, WITH_STATE])
def test_tokens_pages_and_state_come_back(tmp_path: Path, header: Header) -> None:
    path = written(tmp_path, header)
    with KvFile(path) as file:
        assert replace(file.header, pages=(), n_bytes=0) == header
        assert header.state_bytes == 0 or (file.state() == STATE).all()
        assert list(file.tokens) == list(range(140))
        for index, page in enumerate(pages()):
            assert (file.page(index) == page).all()
    assert path.stat().st_mode & 0o077 == 0
    assert path.stat().st_size < kv_file.most_bytes(header) - PAGE_BYTES // 2


def test_a_state_of_another_length_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, WITH_STATE)
    read(path, STATE_BYTES)
    for wrong in (0, STATE_BYTES + 4):
        with pytest.raises(SessionError, match=rf"state of 1000 bytes \(need {wrong}\)"):
            read(path, wrong)


def test_a_file_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    write(path, Header(BINDING, "", "", (), 0, 64, PAGE_BYTES), iter([]))
    read(path)


def test_an_existing_file_is_never_written_into(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(FileExistsError):
        written(tmp_path)


def test_what_differs_is_named(tmp_path: Path) -> None:
    with KvFile(written(tmp_path)) as file:
        needed = replace(BINDING, kv_type="q8_0", adapter="a")
        with pytest.raises(SessionError) as caught:
            file.need(needed, 64, PAGE_BYTES)
        assert "kv_type: found f16 (need q8_0), adapter: found none (need a)" in str(caught.value)
        assert "layout" not in str(caught.value)
        for sizes in ((64, 8192), (32, PAGE_BYTES)):
            with pytest.raises(SessionError, match="pages of 64 positions in 4096 bytes"):
                file.need(BINDING, *sizes)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for n in [*range(0, 700, 23), *range(700, len(whole), 1997), len(whole) - 1]:
        path.write_bytes(whole[:n])
        with pytest.raises(SessionError):
            read(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(SessionError, match="written with"):
        read(path)


@pytest.mark.parametrize("header", [HEADER, WITH_STATE])
def test_every_changed_byte_is_refused(tmp_path: Path, header: Header) -> None:
    path = written(tmp_path, header)
    whole = path.read_bytes()
    for at in [*range(0, 1100, 9), *range(1100, len(whole), 997)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with pytest.raises(SessionError):
            read(path, header.state_bytes)


def signed(path: Path, whole: bytes, at: int, value: bytes) -> None:
    """Write a file with bytes replaced and the checksum of its header made right again."""
    data = bytearray(whole)
    data[at : at + len(value)] = value
    (n_header,) = struct.unpack_from("<Q", data, N_HEADER_AT)
    start = kv_file._CHECKSUM_AT
    data[start : start + 32] = bytes(32)
    data[start : start + 32] = sha256(data[: min(n_header, len(data))]).digest()
    path.write_bytes(data)


@pytest.mark.parametrize("header", [HEADER, WITH_STATE])
def test_lies_that_are_signed_are_refused_or_read(tmp_path: Path, header: Header) -> None:
    """Whatever a header claims, reading it ends in a typed error or in what was claimed."""
    path = written(tmp_path, header)
    whole = path.read_bytes()
    (n_header,) = struct.unpack_from("<Q", whole, N_HEADER_AT)
    rng, n_refused = np.random.default_rng(7), 0
    for _ in range(200):
        width = int(rng.choice([1, 2, 4, 8]))
        value = rng.choice([b"\xff" * 8, b"\0" * 8, rng.bytes(8)])[:width]
        signed(path, whole, int(rng.integers(8, n_header - width)), value)
        try:
            read(path, header.state_bytes)
        except SessionError:
            n_refused += 1
    assert n_refused > 60


def test_a_page_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    bomb = zlib.compress(bytes(1 << 20))
    header = Header(BINDING, "", "", (1, 2, 3), 3, 64, PAGE_BYTES)
    start = kv_file._header_bytes(header)
    page = kv_file.Page(start, len(bomb), sha256(bomb).digest())
    path.write_bytes(kv_file._encode(header, [page], start + len(bomb)) + bomb)
    with pytest.raises(SessionError, match=r"found 4097 bytes \(need 4096\)"):
        read(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text("hello, this is a text of some length")
    for name in ("fifo", "text"):
        with pytest.raises(SessionError):
            KvFile(tmp_path / name)
    with pytest.raises((SessionError, OSError)):
        KvFile(tmp_path)
    (tmp_path / "link").symlink_to(written(tmp_path))
    with pytest.raises(OSError):
        KvFile(tmp_path / "link")
