"""Vocabularies of eight real models, unpacked once, with the ids a peer's own tests expect."""

import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.strings import StringArray
from edgeinfer.text.tokenizer import Tokenizer, load_tokenizer, tokenizer_from_metadata

VOCABULARIES = (
    "bert-bge",
    "deepseek-llm",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "phi-3",
    "qwen35",
    "starcoder",
)
_SEPARATOR = "\n__ggml_vocab_test__\n"


@dataclass(frozen=True)
class Case:
    """A vocabulary, its test strings, the ids expected for each."""

    tokenizer: Tokenizer
    texts: list[str]
    expected: list[list[int]]


@pytest.fixture(scope="session")
def vocabulary(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """A function from a name of VOCABULARIES to its case."""
    folder = tmp_path_factory.mktemp("vocabs")
    cases: dict[str, Case] = {}

    def get(name: str) -> Case:
        if name not in cases:
            source = shared_dir / "vocabs"
            path = folder / f"{name}.gguf"
            path.write_bytes(lzma.decompress((source / f"{name}.gguf.xz").read_bytes()))
            strings = (source / f"{name}.inp").read_bytes().decode()
            lines = (source / f"{name}.out").read_text().splitlines()
            cases[name] = Case(
                load_tokenizer(path),
                strings.split(_SEPARATOR)[:-1],
                [[int(word) for word in line.split()] for line in lines],
            )
        return cases[name]

    return get


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture(scope="session")
def gemma3(gemma3_path: Path) -> Tokenizer:
    return load_tokenizer(gemma3_path)


@pytest.fixture(scope="session")
def reference(shared_dir: Path) -> Callable[[str], dict[str, Any]]:
    """A function from "smollm2" or "gemma3" to its reference file."""

    def get(name: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((shared_dir / "reference" / f"{name}.json").read_text())
        return loaded

    return get


def spm(tokens: list[str] | None = None, **keys: Any) -> Tokenizer:
    """Build an SPM tokenizer: <unk>, <s>, </s>, 256 bytes, then the tokens given, by rising id."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *(tokens or [])]
    types = np.array([2, 3, 3, *[6] * 256, *[1] * len(tokens or [])], np.int32)
    scores = -np.arange(len(texts), dtype=np.float32)
    return made(**{"model": "llama", "tokens": texts, "token_type": types, "scores": scores} | keys)


def made(**keys: Any) -> Tokenizer:
    """Build a tokenizer from `tokenizer.ggml.` keys; lists of str become arrays of strings."""
    values = {
        f"tokenizer.ggml.{key}": StringArray.from_strings(value)
        if isinstance(value, list) and (not value or isinstance(value[0], str | bytes))
        else value
        for key, value in keys.items()
    }
    values["general.architecture"] = "llama"
    if "template" in keys:
        values["tokenizer.chat_template"] = values.pop("tokenizer.ggml.template")
    return tokenizer_from_metadata(Metadata(values, where="made.gguf"), where="made.gguf")
