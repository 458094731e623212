"""Take a core away: a busy process of lower rights to nothing, pinned to one CPU or free.

with burning("pinned"): ...     # the last CPU this process may use; "free": wherever it likes
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

WAYS = ("pinned", "free")


@contextmanager
def burning(way: str | None) -> Iterator[None]:
    """Keep a busy loop running in a process of its own; None: nothing."""
    if way is None:
        yield
        return
    code = "while True: pass"
    if way == "pinned":
        cpu = max(os.sched_getaffinity(0))
        code = f"import os\nos.sched_setaffinity(0, [{cpu}])\n{code}"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()
