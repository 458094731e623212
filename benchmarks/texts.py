"""Write the texts that quantized models are measured on, the same on every machine.

    python -m benchmarks.texts FOLDER

`docs.txt` is this project's documentation; `topics.txt` and `other.txt` are every second topic of
Python's reference each, so that what `edgeinfer imatrix` reads is not what is measured on.
"""

import argparse
from pathlib import Path
from pydoc_data.topics import topics

from benchmarks.measuring import ROOT


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    parts = [topics[name] for name in sorted(topics)]
    texts = {"docs": [page.read_text(encoding="utf-8") for page in pages]}
    texts |= {"topics": parts[::2], "other": parts[1::2]}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text("\n\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
