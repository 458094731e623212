"""Numbers that nothing counts to are refused by every integer flag, in the flag's name."""

import pytest

from edgeinfer.cli.__main__ import main
from tests.arch import tiny
from tests.gguf_writer import write_gguf

HUGE = str(10**21)


@pytest.mark.parametrize(
    ("command", "flag", "most"),
    [
        (["run", "-p", "x"], "--n-predict", 2**31 - 1),
        (["chat"], "--n-predict", 2**31 - 1),
        (["rank", "x", "-q", "x"], "--top-n", 2**31 - 1),
        (["eval", "ppl"], "--chunks", 2**31 - 1),
        (["quantize", "none.gguf", "Q8_0"], "--chunks", 2**31 - 1),
        (["imatrix"], "--chunks", 2**31 - 1),
        (["imatrix"], "--output-frequency", 2**31 - 1),
        (["pack"], "--max-bytes", 2**63 - 1),
        (["cache", "build"], "--max-bytes", 2**63 - 1),
    ],
)
def test_a_number_that_nothing_counts_to_is_refused(
    models, model_file, capsys, command, flag, most
):
    n_words = 2 if command[0] in ("eval", "cache") else 1
    args = [*command[:n_words], model_file, *command[n_words:]]
    assert main([*args, flag, HUGE]) == 2
    assert f"{flag}: found {HUGE} (need at most {most})" in capsys.readouterr().err
    assert not models


@pytest.mark.parametrize("n_threads", [HUGE, "513", "-3"])
def test_quantize_and_convert_have_as_many_threads_as_a_model(tmp_path, capsys, n_threads):
    """A negative one came to be an internal error."""
    source = write_gguf(tmp_path / "tiny.gguf", *tiny.llama())
    target = tmp_path / "out.gguf"
    assert main(["quantize", str(source), str(target), "Q8_0", "-t", n_threads]) == 2
    need = f"--threads: found {n_threads} (need 1 to 512, or leave it out for the default)"
    assert need in capsys.readouterr().err
    if n_threads != "-3":  # convert's flag has a least value of its own
        assert main(["convert", str(tmp_path), "-t", n_threads]) == 2
        assert need in capsys.readouterr().err
    assert not target.exists()
