"""`edgeinfer pack`: its packs are what loading uses, and it says what it does."""

from pathlib import Path
from typing import Any

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.kernels.backend import choose
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.packing import find, path_of_pack
from tests.arch import tiny
from tests.gguf_writer import write_gguf

pytest.importorskip("edgeinfer.kernels.native._native")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGEINFER_PACK_MAX_BYTES", raising=False)
    return write_gguf(tmp_path / "tiny.gguf", *tiny.llama())


def packs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "packs").glob("*.pack"))


def matrices(model: Path) -> Any:
    with open_gguf(model) as file:
        return find(file, choose("native"))


def test_the_path_is_printed_and_loading_finds_it(model, tmp_path, capsys):
    assert matrices(model) is None
    assert main(["pack", str(model)]) == 0
    assert capsys.readouterr().out == f"{packs(tmp_path)[0]}\n"
    assert "blk.1.ffn_down.weight" in matrices(model)
    with open_gguf(model) as file:
        assert path_of_pack(file, choose("native")) == packs(tmp_path)[0]


def test_a_changed_model_has_no_pack_until_it_is_packed_again(model, tmp_path, capsys):
    assert main(["pack", str(model)]) == 0
    (before,) = packs(tmp_path)
    data = model.read_bytes()
    model.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert matrices(model) is None
    assert main(["pack", "--list"]) == 0
    assert "outdated" in capsys.readouterr().out
    assert main(["pack", str(model)]) == 0
    assert matrices(model) is not None
    assert packs(tmp_path) != [before]
    assert len(packs(tmp_path)) == 1


def test_a_dry_run_writes_nothing(model, tmp_path, capsys):
    assert main(["pack", str(model), "--dry-run"]) == 0
    assert "would write" in capsys.readouterr().out
    assert packs(tmp_path) == []
    main(["pack", str(model)])
    assert main(["pack", str(model), "--dry-run"]) == 0
    assert "is there already" in capsys.readouterr().out
    assert main(["pack", str(model), "--remove", "--dry-run"]) == 0
    assert "would remove" in capsys.readouterr().out
    assert len(packs(tmp_path)) == 1


def test_list_and_remove(model, tmp_path, capsys):
    main(["pack", str(model)])
    capsys.readouterr()
    assert main(["pack", "--list"]) == 0
    line, total = capsys.readouterr().out.splitlines()
    assert "ready" in line and line.endswith(str(model))
    assert "of 34.4 GB" in total
    assert main(["pack", str(model), "--remove"]) == 0
    assert capsys.readouterr().out == f"removed {packs_path(tmp_path)}\n"
    assert packs(tmp_path) == []
    assert main(["pack", str(model), "--remove"]) == 0
    assert "no pack of" in capsys.readouterr().out


def packs_path(tmp_path: Path) -> Path:
    with open_gguf(tmp_path / "tiny.gguf") as file:
        path = path_of_pack(file, choose("native"))
    assert path is not None
    return path


def test_verify_finds_one_flipped_bit(model, tmp_path, capsys):
    assert main(["pack", str(model), "--verify"]) == 3
    assert "has no pack" in capsys.readouterr().err
    main(["pack", str(model)])
    assert main(["pack", str(model), "--verify"]) == 0
    (path,) = packs(tmp_path)
    with path.open("r+b") as file:
        file.seek(-5, 2)
        byte = file.read(1)[0]
        file.seek(-5, 2)
        file.write(bytes([byte ^ 4]))
    assert main(["pack", str(model), "--verify"]) == 3
    assert "differs from the model's" in capsys.readouterr().err


def test_a_damaged_pack_is_told_and_not_used(model, tmp_path, capsys, caplog):
    main(["pack", str(model)])
    (path,) = packs(tmp_path)
    with path.open("r+b") as file:
        file.seek(50)
        file.write(b"\0\0")
    assert matrices(model) is None
    assert "checksum of the header is wrong" in caplog.text
    assert main(["pack", "--list"]) == 0
    assert "damaged" in capsys.readouterr().out
    assert main(["pack", str(model)]) == 0
    assert matrices(model) is not None


def test_the_cap_is_an_option(model, capsys):
    assert main(["pack", str(model), "--max-bytes", "1000"]) == 4
    assert "need at most 1000" in capsys.readouterr().err
    assert main(["pack", str(model), "--max-bytes", "-1"]) == 2


def test_one_task_at_a_time(model, capsys):
    assert main(["pack", str(model), "--list", "--remove"]) == 2
    assert "need one of them" in capsys.readouterr().err
