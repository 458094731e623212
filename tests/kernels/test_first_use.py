"""The first threads to ask what the compiled module has all get the whole answer."""

import subprocess
import sys

import pytest

pytest.importorskip("edgeinfer.kernels.native._native")

ASK_AT_ONCE = """
import threading
from edgeinfer.kernels.native._native import ffi, lib

n, found, start = 8, [], threading.Barrier(8)

def ask():
    start.wait()
    found.append((ffi.string(lib.ei_isa_levels()), ffi.string(lib.ei_format_names())))

threads = [threading.Thread(target=ask) for _ in range(n)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
whole = ffi.string(lib.ei_isa_levels()), ffi.string(lib.ei_format_names())
assert found == [whole] * n, found
"""


def test_threads_that_ask_at_once_see_no_half_of_a_list():
    """C runs without the interpreter's lock, so the lists are made under one of their own."""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", ASK_AT_ONCE], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
