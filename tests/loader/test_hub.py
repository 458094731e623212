import sys
from pathlib import Path

import pytest

from edgeinfer.errors import ModelNotFoundError, ResourceError
from edgeinfer.loader.hub import choose
from edgeinfer.loader.resolve import resolve

FILES = [
    "README.md",
    "m-Q4_K_M.gguf",
    "m-Q4_K_S.gguf",
    "m.Q8_0.gguf",
    "mmproj-Q4_K_M.gguf",
    "big/m-F16-00002-of-00002.gguf",
    "big/m-F16-00001-of-00002.gguf",
]


@pytest.mark.parametrize(
    ("quant", "chosen"),
    [
        ("Q4_K_M", ["m-Q4_K_M.gguf"]),
        ("q8_0", ["m.Q8_0.gguf"]),
        ("F16", ["big/m-F16-00001-of-00002.gguf", "big/m-F16-00002-of-00002.gguf"]),
    ],
)
def test_quantization_chooses_one_model(quant: str, chosen: list[str]) -> None:
    assert choose("hf:o/r", FILES, quant) == chosen


@pytest.mark.parametrize("quant", ["Q4_K", "Q5_0", None])
def test_no_single_model_lists_what_there_is(quant: str | None) -> None:
    with pytest.raises(ModelNotFoundError, match=r"big/m-F16\.gguf, m-Q4_K_M\.gguf, .*m\.Q8_0"):
        choose("hf:o/r", FILES, quant)


@pytest.mark.parametrize("name", ["hf:", "hf:repo", "hf:../x/y:Q8_0", "hf:o/r:", "hf:o/r:a/b"])
def test_malformed_name_is_not_found(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="need hf:owner/repo:QUANT"):
        resolve(name)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(ResourceError, match=r"edgeinfer\[hub\]"):
        resolve("hf:o/r:Q8_0")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds o/r, with a network that fails at once."""
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def unreachable(*_: object, **__: object) -> list[str]:
        raise ConnectionError("the network is down")

    monkeypatch.setattr(hub.HfApi, "list_repo_files", unreachable)
    snapshot = tmp_path / "models--o--r" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    refs = tmp_path / "models--o--r" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    return snapshot


def test_cached_file_needs_no_network(hub_cache: Path) -> None:
    (hub_cache / "m-Q8_0.gguf").write_bytes(b"GGUF")

    assert resolve("hf:o/r:Q8_0") == hub_cache / "m-Q8_0.gguf"


def test_half_cached_split_model_is_not_taken(hub_cache: Path) -> None:
    (hub_cache / "m-Q8_0-00001-of-00002.gguf").write_bytes(b"GGUF")

    with pytest.raises(ResourceError, match="the network is down"):
        resolve("hf:o/r:Q8_0")


def test_unreachable_hub_is_a_resource_error(hub_cache: Path) -> None:
    with pytest.raises(ResourceError, match="the network is down"):
        resolve("hf:other/repo:Q8_0")
