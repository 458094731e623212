"""Prefix files of the cache: a model finds its own, as many as it may open, and no damaged one."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeinfer.loader import prefixes
from edgeinfer.loader.kv_file import Binding, Header

BINDING = Binding("m", "p", "f16", "auto", "native-1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path))
    monkeypatch.delenv(prefixes.ENVIRONMENT, raising=False)
    return tmp_path / "prefixes"


def written(n: int, binding: Binding = BINDING, page_len: int = 64) -> Path:
    """Write the file of n tokens, used n seconds after the epoch."""
    header = Header(binding, "/m.gguf", "", tuple(range(n)), n, page_len, 128)
    pages = [np.full(128, n, np.uint8)]
    path = prefixes.write_prefix(header, lambda: iter(pages), most_bytes=1 << 30)
    os.utime(path, (n, n))
    return path


def found(binding: Binding = BINDING) -> list[int]:
    return [len(file.tokens) for file in prefixes.find(binding, 64, 128)]


def test_a_model_finds_its_own_and_the_last_used_first() -> None:
    written(10), written(20), written(30, replace(BINDING, kv_type="q8_0"))
    assert found() == [20, 10]
    assert found(replace(BINDING, model="other")) == []
    assert {kept.header.n_stored for kept in prefixes.kept() if kept.header} == {10, 20, 30}


def test_one_that_is_there_is_not_written_again() -> None:
    assert written(10).stat().st_ino == written(10).stat().st_ino


def test_a_damaged_one_is_told_and_written_again(caplog: pytest.LogCaptureFixture) -> None:
    path = written(10)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert found() == []
    assert "going on without it" in caplog.text
    assert written(10).read_bytes() == whole


def test_one_of_other_pages_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    written(10, page_len=32)
    assert found() == []
    assert "found pages of 32 positions" in caplog.text


def test_no_more_are_opened_than_descriptors_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST_OPEN", 2)
    written(10), written(20), written(30)
    assert found() == [30, 20]
