"""The checksum: the same however bytes are cut, another for every accident."""

import random

import pytest

from edgeinfer.writer.checksum import PAGE_BYTES, Checksum

DATA = random.Random(1).randbytes(5 * PAGE_BYTES + 123)


def checksum(*pieces: bytes) -> tuple[int, int]:
    taken = Checksum()
    for piece in pieces:
        taken.update(memoryview(piece))
    return taken.n_bytes, taken.value


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_of_the_bytes_has_the_same_checksum(seed: int) -> None:
    cuts = sorted(random.Random(seed).choices(range(len(DATA) + 1), k=9))
    pieces = [DATA[a:b] for a, b in zip([0, *cuts], [*cuts, len(DATA)], strict=True)]
    assert checksum(*pieces) == checksum(DATA)


def test_every_changed_bit_shows() -> None:
    for at in random.Random(2).choices(range(len(DATA)), k=200):
        changed = bytearray(DATA)
        changed[at] ^= 1 << at % 8
        assert checksum(bytes(changed))[1] != checksum(DATA)[1]


def test_pages_in_another_order_missing_or_zeroed_show() -> None:
    first, second, rest = DATA[:PAGE_BYTES], DATA[PAGE_BYTES : 2 * PAGE_BYTES], DATA[8192:]
    of_all = checksum(DATA)
    assert checksum(second, first, rest)[1] != of_all[1]
    assert checksum(first, rest) != of_all
    assert checksum(first, bytes(PAGE_BYTES), rest)[1] != of_all[1]
    assert checksum(first, first, rest)[1] != of_all[1]
    assert checksum(DATA, b"\0") != of_all
