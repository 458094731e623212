"""`edgeinfer cache`: builds what loading finds, lists it, clears it, says what is missing."""

from pathlib import Path

import pytest

from edgeinfer.cli.__main__ import main
from edgeinfer.model import load

TEXT = "You are a careful assistant of a small shop that sells paper boats. " * 8


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2_path: Path) -> Path:
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGEINFER_PREFIX_MAX_BYTES", raising=False)
    path = tmp_path / "system.txt"
    path.write_text(TEXT)
    return path


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "prefixes").glob("*.prefix"))


def test_what_is_built_is_found_listed_and_cleared(system, smollm2_path, tmp_path, capsys):
    model = str(smollm2_path)
    assert main(["cache", "build", model, "-f", str(system), "-c", "512"]) == 0
    assert capsys.readouterr().out == f"{files(tmp_path)[0]}\n"
    with load(model, n_ctx=1024) as loaded:
        messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": "Hi"}]
        usage = loaded.chat(messages, max_tokens=1).usage
        assert 0 < usage.prompt_tokens - usage.cached_tokens < 10
    assert main(["cache", "list"]) == 0
    listed = capsys.readouterr().out
    assert model in listed and f"{usage.cached_tokens} tokens" in listed
    assert main(["cache", "clear", model]) == 0
    assert files(tmp_path) == []


def test_a_plain_text_serves_run(system, smollm2_path, tmp_path, capsys):
    model = str(smollm2_path)
    assert main(["cache", "build", model, "-f", str(system), "-c", "512", "--plain"]) == 0
    (path,) = files(tmp_path)
    with load(model, n_ctx=512) as loaded:
        usage = loaded.generate(TEXT + "Now", max_tokens=1).usage
        assert usage.prompt_tokens - usage.cached_tokens < 5
    path.write_bytes(b"damaged")
    capsys.readouterr()
    assert main(["cache", "list"]) == 0
    assert "damaged" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "smollm2"], "-f FILE"),
        (["build", "-f", "SYSTEM"], "no MODEL"),
        (["build", "smollm2", "-f", "none.txt"], "none.txt: No such file"),
        (["list", "--max-bytes", "-1"], "need 0 or more"),
        (["shrink"], "not one of"),
    ],
)
def test_what_is_missing_is_said(system, capsys, arguments, message):
    arguments = [str(system) if word == "SYSTEM" else word for word in arguments]
    assert main(["cache", *arguments]) == 2
    assert message in capsys.readouterr().err
