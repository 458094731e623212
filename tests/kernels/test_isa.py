"""The level of the kernels: the fastest, or the one asked for, if it exists."""

from pathlib import Path

import pytest

from edgeinfer.arch import build_program
from edgeinfer.errors import InvalidParameterError
from edgeinfer.kernels.backend import Limits
from edgeinfer.kernels.native import isa
from edgeinfer.kernels.native.backend import BACKEND
from tests.arch import tiny

pytestmark = pytest.mark.skipif(isa.why_unavailable() is not None, reason="nothing is compiled")


@pytest.fixture(autouse=True)
def nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(isa.ENVIRONMENT, raising=False)


def test_the_last_level_is_taken_and_plain_c_is_always_there() -> None:
    assert isa.levels()[0] == "scalar"
    assert isa.chosen() == isa.levels()[-1]


@pytest.mark.parametrize("level", isa.levels() if isa.why_unavailable() is None else ())
def test_each_level_can_be_asked_for(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isa.chosen(level) == level
    monkeypatch.setenv(isa.ENVIRONMENT, level)
    assert isa.chosen() == level


@pytest.mark.parametrize("name", ["mmx", "AVX2", "avx", " scalar"])
def test_another_name_is_an_error_that_lists_the_levels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ", ".join(isa.levels())
    with pytest.raises(InvalidParameterError, match=f"isa_name: found '{name}'.*one of {known}"):
        isa.chosen(name)
    monkeypatch.setenv(isa.ENVIRONMENT, name)
    with pytest.raises(InvalidParameterError, match=f"EDGEINFER_ISA: found '{name}'.*{known}"):
        isa.chosen()


def test_a_model_compiled_for_another_name_says_so(tmp_path: Path) -> None:
    with tiny.open_model(tmp_path, *tiny.llama()) as file:
        program = build_program(file.metadata, file.tensors, n_ctx=64)
        with pytest.raises(InvalidParameterError, match="isa_name: found 'mmx'"):
            limits = Limits(n_ctx=64, n_pages=1, n_batch=8)
            BACKEND.compile(program, file.tensors, limits, isa_name="mmx")
