"""Compile programs for kernels made by numba and run steps on them; knows no op."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from edgeinfer.errors import BackendError, UnsupportedModelError
from edgeinfer.kernels.backend import Backend, Cancel, Executable, Limits, Progress
from edgeinfer.program.program import Program
from edgeinfer.quant.packed import MatrixToPack, PackedMatrix
from edgeinfer.quant.tensor import Tensor


class JitBackend:
    """The backend of kernels compiled on this machine, at first use, by numba."""

    name = "jit"

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
    ) -> Executable:
        """Compile what kernels the program needs, once a machine; weights stay in the file.

        Raises UnsupportedModelError for an op, a format or a KV type that is not there.
        """
        if limits.kv_type != "f16":
            raise UnsupportedModelError(
                f"jit backend: kv_type: found {limits.kv_type!r} (need 'f16')"
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

    def layout(self, formats: Iterable[str]) -> str | None:
        """Return None: weights are used as they lie in the file."""
        return None

    def matrices(self, program: Program, tensors: Mapping[str, Tensor]) -> list[MatrixToPack]:
        """Return nothing; see `layout`."""
        return []


BACKEND: Backend = JitBackend()
