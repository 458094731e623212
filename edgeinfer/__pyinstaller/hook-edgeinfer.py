"""Name what PyInstaller's analysis does not see: modules that are imported by their names.

Architectures, backends and commands are. The backend jit stays out, and numba with it: it is for
machines without the compiled kernels, and a frozen app brings those.
"""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = [
    "_cffi_backend",
    *collect_submodules(
        "edgeinfer", filter=lambda name: not name.startswith("edgeinfer.kernels.jit")
    ),
]
excludedimports = ["numba", "llvmlite"]
