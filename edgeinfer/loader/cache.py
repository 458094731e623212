"""Keep pulled files: the cache folder, one writer at a time, whole files only.

A file appears under its name only when all of it is there. Until then its bytes lie in the folder
`NAME.part-PID`; a killed process leaves one behind, the next writer of NAME removes it.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgeinfer.errors import ResourceError

Progress = Callable[[int, int, str], None]
"""Called with (bytes done, bytes in all or 0 for unknown, what is being done)."""

LOCK_POLL_S = 0.1


def cache_folder() -> Path:
    """Return the folder of pulled models; it may not exist yet.

    EDGEINFER_CACHE names it; without that it is the platform's cache folder of this user.
    """
    chosen = os.environ.get("EDGEINFER_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData/Local") / "edgeinfer"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/edgeinfer"
    # The XDG specification: a relative path there is to be ignored.
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "edgeinfer"


@contextmanager
def only_writer(target: Path, on_wait: Callable[[], None]) -> Iterator[Path]:
    """Hold the lock of `target`; yield an empty work folder beside it, removed at the end.

    The system drops the lock of a killed process. `on_wait` is called once if another
    process is writing. Raises ResourceError when the folder cannot be written.
    """
    part = target.with_name(f"{target.name}.part-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = open(target.with_name(f"{target.name}.lock"), "a+b")  # noqa: SIM115
    except OSError as error:
        raise ResourceError(
            f"{target.parent}: the model cache cannot be written: {error.strerror}; "
            "set EDGEINFER_CACHE to a folder that can"
        ) from error
    with lock:
        _wait_for_lock(lock.fileno(), on_wait)
        _remove_leftovers(target)
        try:
            part.mkdir()
            yield part
        finally:
            remove(part)


def is_being_written(target: Path) -> bool:
    """Tell whether a process holds the lock of `target`, this one included."""
    try:
        lock = open(target.with_name(f"{target.name}.lock"), "r+b")  # noqa: SIM115
    except OSError:
        return False
    with lock:
        return not try_lock(lock.fileno())


def remove(path: Path) -> None:
    """Remove a file or a folder with all it holds; being gone already is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def publish(whole: Path, target: Path) -> None:
    """Rename a finished, synced file into place."""
    os.replace(whole, target)
    if sys.platform != "win32":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _wait_for_lock(descriptor: int, on_wait: Callable[[], None]) -> None:
    waited = False
    while not try_lock(descriptor):
        if not waited:
            on_wait()
            waited = True
        time.sleep(LOCK_POLL_S)


def try_lock(descriptor: int) -> bool:
    """Take the lock if it is free; a file system without locks counts as free.

    Two writers are then possible, each with its own part file, and the last rename wins:
    the same bytes.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_leftovers(target: Path) -> None:
    prefix = f"{target.name}.part-"
    for path in target.parent.iterdir():
        pid = path.name.removeprefix(prefix)
        if path.name.startswith(prefix) and pid.isdecimal() and not is_running(int(pid)):
            remove(path)


def is_running(pid: int) -> bool:
    """Tell whether another process has this id."""
    import psutil

    return pid != os.getpid() and bool(psutil.pid_exists(pid))
