"""A file is read again beside its writing, and what is on the disk is what counts."""

import os
import threading

import pytest

from edgeinfer.errors import ResourceError
from edgeinfer.writer import rereading, workplace
from edgeinfer.writer.workplace import Targets

PIECE = os.urandom(10_000)


@pytest.fixture
def targets(tmp_path, monkeypatch):
    """A place whose files are read after a few thousand bytes."""
    monkeypatch.setattr(rereading, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(rereading, "READ_BYTES", 1 << 14)
    monkeypatch.setattr(workplace, "BEGIN_BYTES", 1 << 13)
    return Targets(tmp_path, ("out.gguf",))


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "edgeinfer-reread"]


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_long_file_is_read_meanwhile(targets, monkeypatch, is_direct):
    if not is_direct:
        monkeypatch.setattr(rereading, "DIRECT", 0)
    with workplace.workplace(targets) as place:
        with place.file("out.gguf", reread_every=1) as part:
            for _ in range(50):
                part.write(memoryview(PIECE))
            assert readers()
        part.verify()
        assert not readers()
        place.publish()
    assert targets.first.read_bytes() == 50 * PIECE


@pytest.mark.parametrize("at", [100, 499_999])
def test_a_byte_that_changed_on_the_disk_is_found(targets, at):
    with pytest.raises(ResourceError, match="reads back"), workplace.workplace(targets) as place:
        with place.file("out.gguf", reread_every=1) as part:
            for i in range(50):
                part.write(memoryview(PIECE))
                if i == at // len(PIECE):
                    with open(part.path, "r+b") as other:
                        other.seek(at)
                        other.write(bytes([PIECE[at % len(PIECE)] ^ 1]))
        part.verify()
    assert not readers()


def test_an_interruption_ends_the_reading(targets):
    with (
        pytest.raises(KeyboardInterrupt),
        workplace.workplace(targets) as place,
        place.file("out.gguf", reread_every=1) as part,
    ):
        for _ in range(50):
            part.write(memoryview(PIECE))
        raise KeyboardInterrupt
    assert not readers()


def test_an_error_of_the_disk_comes_out(targets, monkeypatch):
    def preadv(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(rereading.os, "preadv", preadv)
    with pytest.raises(ResourceError, match="Input/output"), workplace.workplace(targets) as place:
        with place.file("out.gguf", reread_every=1) as part:
            part.write(memoryview(PIECE))
        part.verify()


def test_of_a_part_of_the_chunks_the_first_and_the_last_are_read(targets):
    for at, is_found in ((0, True), (100_000, False), (3 << 16, True), (499_999, True)):
        with workplace.workplace(targets) as place:
            with place.file("out.gguf", reread_every=3) as part:
                part.write(memoryview(50 * PIECE))
            with open(part.path, "r+b") as other:
                other.seek(at)
                other.write(bytes([PIECE[at % len(PIECE)] ^ 1]))
                os.fsync(other.fileno())
            # What is read before the writing ends is not what is tried here.
            part._rereader = rereading.Rereader(part.path, 3)
            if is_found:
                with pytest.raises(ResourceError, match=f"from byte {at >> 16 << 16} on"):
                    part.verify()
            else:
                part.verify()
