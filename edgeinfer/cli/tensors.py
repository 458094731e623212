"""Lay out a tensor on a line, as the commands that write model files print it with -v."""

from edgeinfer.cli.progress import amount


def tensor_line(name: str, shape: tuple[int, ...], formats: str, n_bytes: int) -> str:
    """Return name, shape as GGUF has it, formats ("F16" or "F16 -> Q4_K") and size."""
    dims = " x ".join(map(str, reversed(shape)))
    return f"{name:<40} {dims:>20}  {formats:<24} {amount(n_bytes, 'B'):>9}"
