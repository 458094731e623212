"""Find the one file of a Hugging Face repository that a pattern means, and fetch it."""

import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from edgeinfer.compat.llama_cpp.errors import LlamaValueError
from edgeinfer.errors import ResourceError


def fetch(
    repo_id: str,
    filename: str | None,
    additional_files: Sequence[str] | None = None,
    *,
    local_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Return the local path of the file `filename` matches; further patterns are fetched too.

    Raises LlamaValueError where a pattern matches no file or several, ResourceError where the hub
    or its client is not there.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        raise ResourceError(
            "Llama.from_pretrained: needs huggingface_hub: pip install 'edgeinfer[hub]'"
        ) from error
    options: dict[str, Any] = {"local_dir": local_dir, "cache_dir": cache_dir}
    try:
        files = huggingface_hub.HfApi().list_repo_files(repo_id)
    except Exception as error:  # which kinds there are depends on the client's HTTP library
        raise ResourceError(f"{repo_id}: the hub did not list its files: {error}") from error
    wanted = [_only(repo_id, files, pattern) for pattern in (filename, *(additional_files or ()))]
    try:
        paths = [huggingface_hub.hf_hub_download(repo_id, name, **options) for name in wanted]
    except Exception as error:
        raise ResourceError(f"{repo_id}: could not be downloaded: {error}") from error
    return Path(paths[0])


def _only(repo_id: str, files: Sequence[str], pattern: str | None) -> str:
    found = [name for name in files if pattern is not None and fnmatch(name, pattern)]
    if len(found) != 1:
        shown = ", ".join(found or files) or "no file"
        raise LlamaValueError(
            f"{repo_id}: found {len(found)} files that match {pattern!r} (need exactly one); "
            f"{'they are' if found else 'there are'}: {shown}"
        )
    return found[0]
