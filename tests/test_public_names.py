import ast
import subprocess
import sys
from pathlib import Path

import pytest

import edgeinfer
from edgeinfer import errors

SOURCE = Path(edgeinfer.__file__)
# What `import edgeinfer` and `edgeinfer --help` may not pull in: each costs 20 to 225 ms.
HEAVY = {
    *(
        "cffi",
        "gguf",
        "huggingface_hub",
        "jinja2",
        "llguidance",
        "numba",
        "numpy",
        "prompt_toolkit",
        "psutil",
    ),
    *("rich", "sentencepiece", "tokenizers", "torch", "transformers"),
}


def test_public_names_are_these_and_sorted() -> None:
    assert edgeinfer.__all__ == [
        "BackendError",
        "CancelledError",
        "Completion",
        "ContextOverflowError",
        "EdgeInferError",
        "Estimate",
        "Grammar",
        "GrammarError",
        "InvalidParameterError",
        "MissingTensorError",
        "Model",
        "ModelClosedError",
        "ModelFormatError",
        "ModelNotFoundError",
        "NonFiniteError",
        "QuantizeReport",
        "Ranked",
        "ResourceError",
        "Session",
        "SessionError",
        "TemplateError",
        "Tokenizer",
        "UnsupportedModelError",
        "__version__",
        "estimate",
        "load",
        "load_tokenizer",
        "quantize",
    ]
    assert edgeinfer.__all__ == sorted(edgeinfer.__all__)
    assert dir(edgeinfer) == edgeinfer.__all__


def test_type_checkers_see_what_is_imported_at_first_use() -> None:
    (block,) = (node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {name.name: node.module for node in imports for name in node.names} == edgeinfer._HOME


@pytest.mark.parametrize("name", edgeinfer.__all__)
def test_public_name_exists(name: str) -> None:
    assert getattr(edgeinfer, name) is getattr(edgeinfer, name)


def test_every_error_is_public() -> None:
    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EdgeInferError)
    }

    assert tree <= set(edgeinfer.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'edgeinfer' has no attribute 'lode'"):
        edgeinfer.lode  # noqa: B018


def loaded_by(statement: str) -> set[str]:
    """Run a statement in a fresh Python; return the top-level names of what it imported."""
    code = (
        f"import sys\ntry:\n    {statement}\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_is_light() -> None:
    loaded = loaded_by("import edgeinfer")

    assert "edgeinfer" in loaded
    assert loaded & (HEAVY | {"typer", "typing", "dataclasses"}) == set()


def test_resolving_a_path_is_light() -> None:
    loaded = loaded_by(f"from edgeinfer.loader.resolve import resolve; resolve({__file__!r})")

    assert loaded & (HEAVY | {"subprocess", "zipfile"}) == set()


def test_help_is_light() -> None:
    loaded = loaded_by(
        "from edgeinfer.cli.__main__ import main; sys.argv = ['edgeinfer', '--help']; main()"
    )

    assert "typer" in loaded
    assert loaded & HEAVY == set()
