"""Errors of commands name flags."""

from dataclasses import dataclass

import pytest

from edgeinfer.cli.wording import in_flags


@dataclass
class Param:
    name: str
    opts: list[str]


PARAMS = [
    Param("n_ctx", ["--ctx-size", "--ctx", "-c"]),
    Param("seed", ["--seed", "-s"]),
    Param("max_size", ["--max-size"]),
    Param("temperature", ["--temp"]),
    Param("model", ["model"]),
]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("n_ctx: found -1", "--ctx-size: found -1"),
        ("temperature: found -1.0", "--temp: found -1.0"),
        (
            "text: found 3 tokens; give a smaller n_ctx",
            "text: found 3 tokens; give a smaller --ctx-size",
        ),
        (
            "seed: found -5 (need 1, or None for any)",
            "--seed: found -5 (need 1, or leave it out for any)",
        ),
        (
            "n_ctx: found 0 (need 1 to 8, or None)",
            "--ctx-size: found 0 (need 1 to 8, or leave it out)",
        ),
        ("max_bytes: found 5", "--max-size: found 5"),
        ("model: what temperature is", "model: what temperature is"),
        ("a seed: of a file", "a seed: of a file"),
        ("/tmp/n_ctx.gguf: no such file", "/tmp/n_ctx.gguf: no such file"),
        ("key 'llama.n_ctx': found 'n_ctx'", "key 'llama.n_ctx': found 'n_ctx'"),
        ("/tmp/n_ctx/a: no such file", "/tmp/n_ctx/a: no such file"),
        ("my_n_ctx and n_ctx2", "my_n_ctx and n_ctx2"),
    ],
)
def test_the_librarys_names_become_flags_and_nothing_else_does(said, expected):
    assert in_flags(said, PARAMS) == expected
