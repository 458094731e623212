"""Choose the instruction set the kernels use; knows names only, the table behind each is C."""

import os

from edgeinfer.errors import BackendError, InvalidParameterError

ENVIRONMENT = "EDGEINFER_ISA"


def why_unavailable() -> str | None:
    """Return why the compiled module cannot be used here, or None if it can."""
    try:
        from edgeinfer.kernels.native import _native  # noqa: F401
    except ImportError as error:
        return (
            f"the compiled kernels are missing ({error}); installing with a C compiler makes them"
        )
    return None


def levels() -> tuple[str, ...]:
    """List the instruction sets this build and CPU can run, slowest first."""
    reason = why_unavailable()
    if reason is not None:
        raise BackendError(f"native kernels: {reason}")
    from edgeinfer.kernels.native._native import ffi, lib

    return tuple(ffi.string(lib.ei_isa_levels()).decode().split())


def chosen(name: str | None = None) -> str:
    """Return the level `name`, else the one EDGEINFER_ISA names, else the fastest.

    Raises InvalidParameterError listing the levels if the one asked for is not among them.
    """
    known = levels()
    forced = name or os.environ.get(ENVIRONMENT, "")
    if forced and forced not in known:
        where, way_out = ("isa_name", "omit it") if name else (ENVIRONMENT, "unset it")
        raise InvalidParameterError(
            f"{where}: found {forced!r} (need one of {', '.join(known)}, or {way_out})"
        )
    return forced or known[-1]
