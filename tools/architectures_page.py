"""Write the table of docs/architectures.md from the code: python tools/architectures_page.py.

Models come from the docstrings of `edgeinfer/arch`, what an architecture is from the first comments
there, classes from the converter's families, the proofs from the rows of tests/arch.
"""

import ast
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architectures.md"
BEGIN, END = "<!-- written by tools/architectures_page.py -->", "<!-- so far -->"
HEAD = (
    "| architecture | models | what it is | classes of transformers | proved |",
    "|---|---|---|---|---|",
)
# Classes whose configuration decides.
BY_CONFIGURATION = {
    "GraniteMoeHybridForCausalLM": ("granite", "granitehybrid", "granitemoe"),
    "NemotronHForCausalLM": ("nemotron_h", "nemotron_h_moe"),
    "NomicBertModel": ("nomic-bert", "nomic-bert-moe"),
}
_DOCSTRING = re.compile(r'Write the programs of architecture "([^"]+)": (.+)\.')


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text()))


def page(text: str) -> str:
    """Return the page with the table as the code has it."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{PAGE}: found no {BEGIN} before a {END}")
    return "\n".join([before + BEGIN, "", *HEAD, *map(_line, _names()), "", END + after])


def _names() -> tuple[str, ...]:
    from edgeinfer.arch import supported

    return supported()


def _line(name: str) -> str:
    models, difference = _described(name)
    cells = (f"`{name}`", models, difference, ", ".join(_classes(name)), "; ".join(_proofs(name)))
    return f"| {' | '.join(cells)} |"


def _described(name: str) -> tuple[str, str]:
    """Return which models an architecture is of, and what its first comment says."""
    path = ROOT / "edgeinfer" / "arch" / f"{name.replace('-', '_')}.py"
    source = path.read_text()
    found = _DOCSTRING.fullmatch(" ".join((ast.get_docstring(ast.parse(source)) or "").split()))
    comment = re.match(r"(?:# .*\n)+", source)
    if found is None or found[1] != name or comment is None:
        raise ValueError(
            f"{path}: need a first comment, and the docstring '... \"{name}\": MODELS.'"
        )
    lines = [line.removeprefix("# ") for line in comment[0].splitlines()]
    return found[2], " ".join(lines).removesuffix(".").replace("Beside ", "beside ", 1)


def _classes(name: str) -> list[str]:
    from edgeinfer.convert.families import FAMILIES
    from edgeinfer.convert.family import Family

    found = {
        title: (family.arch,) if isinstance(family, Family) else BY_CONFIGURATION[title]
        for title, family in FAMILIES.items()
    }
    return sorted(title for title, names in found.items() if name in names)


def _proofs(name: str) -> list[str]:
    """Return the variants that are proved; a star for those llama.cpp computes otherwise."""
    found = []
    for title, row in _rows().items():
        if row.arch == name:
            variant = title.removeprefix(name).removeprefix(", ").replace(",", " and") or "plain"
            found.append(variant + ("" if row.peer else "\\*"))
    return found


def _rows() -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    try:
        from tests.arch.families import ROWS
        from tests.arch.readers import READERS
    finally:
        sys.path.remove(str(ROOT))
    return {**ROWS, **READERS}


if __name__ == "__main__":
    main()
