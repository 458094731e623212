"""Tell PyInstaller where the hook is that freezes edgeinfer whole."""

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folder of `hook-edgeinfer.py`, for the entry point that PyInstaller reads."""
    return [str(Path(__file__).parent)]
