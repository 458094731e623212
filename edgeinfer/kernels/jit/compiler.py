"""Compile kernels with numba: functions go in, machine code kept in the user's cache comes out.

A kernel takes integers (addresses, counts) and floats (float32), returns nothing, and runs without
the GIL. Knows no kernel. The cache folder is named after the source of all kernels: numba itself
looks at the file of a function only, not at those of the functions it calls.
"""

import hashlib
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import config

from edgeinfer.loader.cache import cache_folder

NUMBA_TYPES: dict[Any, Any] = {int: numba.int64, float: numba.float32}
OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "fastmath": False}
F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)


def inlined(fn: F) -> F:
    """Make a function usable inside kernels, where it becomes part of its caller."""
    made: F = numba.njit(forceinline=True, **OPTIONS)(fn)
    return made


class Kernel:
    """A function with its signature, compiled when it is first asked for.

    As a callback it is no Python callable but an address that other kernels call.
    """

    def __init__(self, fn: Callable[..., None], *, is_callback: bool = False) -> None:
        self.name = fn.__name__
        self._fn = fn
        self._is_callback = is_callback
        self._made: Any = None

    @property
    def is_made(self) -> bool:
        """Whether it was compiled or loaded in this process."""
        return self._made is not None

    @property
    def compiled(self) -> Callable[..., None]:
        """The machine code, to be called with integers and floats."""
        if self._made is None:
            self._make()
        made: Callable[..., None] = self._made
        return made

    @property
    def address(self) -> int:
        """The address of a callback."""
        if self._made is None:
            self._make()
        return int(self._made.address)

    def is_cached(self, folder: Path) -> bool:
        """Whether the cache holds code for it, if maybe for another CPU."""
        return any(folder.rglob(f"{Path(inspect.getfile(self._fn)).stem}.{self.name}-*.nbi"))

    def _make(self) -> None:
        kinds = [NUMBA_TYPES[p.annotation] for p in inspect.signature(self._fn).parameters.values()]
        signature = numba.void(*kinds)
        with _cache_in(_folder()) as cache:
            if self._is_callback:
                self._made = numba.cfunc(signature, cache=cache, error_model="numpy")(self._fn)
            else:
                self._made = numba.njit(signature, cache=cache, **OPTIONS)(self._fn)


def kernel(fn: Callable[..., None]) -> Kernel:
    """Declare a kernel: its parameters are annotated `int` or `float`."""
    return Kernel(fn)


def callback(fn: Callable[..., None]) -> Kernel:
    """Declare a kernel that other kernels call by its address."""
    return Kernel(fn, is_callback=True)


def make_ready(kernels: Iterable[Kernel]) -> None:
    """Compile or load kernels, and say so where it takes long."""
    wanted = [k for k in dict.fromkeys(kernels) if not k.is_made]
    folder = _folder()
    missing = [k for k in wanted if folder is None or not k.is_cached(folder)]
    started_s = time.perf_counter()
    if missing:
        names = ", ".join(k.name for k in missing)
        once = "once" if folder else "at every start (the cache folder is not writable)"
        log.warning("compiling kernels, %s: %s", once, names)
    for each in wanted:
        each._make()
    if missing:
        log.warning("%d kernels compiled in %.1f s", len(missing), time.perf_counter() - started_s)


def _folder() -> Path | None:
    """Return the folder of the compiled kernels, or None if it cannot be written."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    for source in sorted((*here.glob("*.py"), here.parent / "backend.py", *_tables(here))):
        digest.update(source.read_bytes())
    folder = cache_folder() / "jit" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / "probe"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError:
        return None
    return folder


def _tables(here: Path) -> Iterable[Path]:
    """Return the files whose tables become part of kernels."""
    return (here.parents[1] / "quant").glob("*.py")


@contextmanager
def _cache_in(folder: Path | None) -> Iterator[bool]:
    """Let numba keep what is declared meanwhile in a folder; yield whether it can."""
    former = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        yield folder is not None
    finally:
        config.CACHE_DIR = former
