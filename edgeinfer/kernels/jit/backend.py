"""Compile programs for kernels made by numba and run steps on them; knows no op."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

import numpy as np

from edgeinfer.errors import BackendError, UnsupportedModelError
from edgeinfer.kernels.backend import (
    PAGE_LEN,
    Backend,
    Cancel,
    Executable,
    Footprint,
    Limits,
    Progress,
    check_limits,
)
from edgeinfer.kernels.jit.memory import KV_NUMBERS
from edgeinfer.program.program import Program
from edgeinfer.quant.imatrix import Sums
from edgeinfer.quant.packed import MatrixToPack, PackedMatrix
from edgeinfer.quant.tensor import Tensor


class JitBackend:
    """The backend of kernels compiled on this machine, at first use, by numba."""

    name = "jit"
    is_bit_exact = True

    def why_unavailable(self) -> str | None:
        """Return what is missing, or None."""
        if find_spec("numba") is None:
            return "numba is not installed: pip install 'edgeinfer[numba]'"
        return None

    def compile(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        limits: Limits,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        packed: Mapping[str, PackedMatrix] | None = None,
        observe: Mapping[str, Sums] | None = None,
    ) -> Executable:
        """Compile what kernels the program needs, once a machine; weights stay in the file.

        Raises UnsupportedModelError for an op, a format or a KV type that is not there.
        """
        check_limits(program, limits)
        _check_kv_type(limits)
        if observe:
            raise UnsupportedModelError(
                "jit backend: cannot observe activations (use 'native' or 'reference')"
            )
        try:
            from edgeinfer.kernels.jit.executable import JitExecutable
        except ImportError as error:  # such as a NumPy that this numba does not take
            raise BackendError(
                f"jit backend: numba is installed but cannot be imported: {error}; "
                "pip install -U 'edgeinfer[numba]', or choose the backend 'reference'"
            ) from error
        made = JitExecutable(program, tensors, limits)
        if progress is not None:
            progress(made.weights_bytes, made.weights_bytes)
        return made

    def measure(self, program: Program, tensors: Mapping[str, Tensor], limits: Limits) -> Footprint:
        """Count weights where they lie, pages, and values as if none shared its memory."""
        check_limits(program, limits)
        _check_kv_type(limits)
        size = np.dtype(KV_NUMBERS[limits.kv_type]).itemsize
        widths = [value.width for op in program.ops for value in op.writes()]
        return Footprint(
            weights_bytes=sum(tensors[name].n_bytes for name in program.weights()),
            weights_are_mapped=True,
            table_bytes=0,
            page_bytes=sum(
                size * PAGE_LEN * kv.n_kv_heads * (kv.key_dim + kv.value_dim)
                for kv in map(program.kv, set(program.kv_places.values()))
            ),
            work_bytes=4 * limits.n_batch * sum(widths),
        )

    def layout(self, formats: Iterable[str]) -> str | None:
        """Return None: weights are used as they lie in the file."""
        return None

    def matrices(self, program: Program, tensors: Mapping[str, Tensor]) -> list[MatrixToPack]:
        """Return nothing; see `layout`."""
        return []


def _check_kv_type(limits: Limits) -> None:
    if limits.kv_type not in KV_NUMBERS:
        raise UnsupportedModelError(
            f"jit backend: kv_type: found {limits.kv_type!r} (need one of {', '.join(KV_NUMBERS)})"
        )


BACKEND: Backend = JitBackend()
