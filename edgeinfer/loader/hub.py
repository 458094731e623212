"""Find a GGUF file of a Hugging Face repository, in the hub's own cache first, then by download.

The cache is the one huggingface_hub keeps for all programs, so HF_HOME, HF_TOKEN and
HF_HUB_OFFLINE mean what they mean elsewhere.
"""

import re
from pathlib import Path

from edgeinfer.errors import ModelNotFoundError, ResourceError
from edgeinfer.loader.cache import Progress

NAME = re.compile(r"hf:(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(?::(?P<quant>[\w][\w.-]*))?")
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
# Companions of a model: vision projectors, importance matrices.
NOT_A_MODEL = re.compile(r"(^|[-._/])(mmproj|imatrix)([-._]|$)", re.IGNORECASE)


def pull_from_hub(name: str, progress: Progress) -> Path:
    """Return the local file (the first, of a split model) that `hf:owner/repo:QUANT` means.

    Raises ModelNotFoundError when the name is malformed, the repository is not there or holds
    no file, or more than one, of this quantization; ResourceError when huggingface_hub is not
    installed or the hub cannot be reached.
    """
    match = NAME.fullmatch(name)
    if match is None:
        raise ModelNotFoundError(f"{name}: malformed name (need hf:owner/repo:QUANT)")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise ResourceError(
            f"{name}: needs huggingface_hub; run `pip install 'edgeinfer[hub]'`, "
            "or give the path of a GGUF file"
        ) from error
    repo, quant = match["repo"], match["quant"]
    path = _cached(repo, quant)
    if path is not None:
        return path
    try:
        files = huggingface_hub.HfApi().list_repo_files(repo)
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"{name}: the hub has no repository {repo} this user may read; "
            "check the name, or log in with `hf auth login` if it is private or gated"
        ) from error
    except Exception as error:
        raise _unreachable(name, error) from error
    chosen = choose(name, files, quant)
    for file in chosen:
        # The hub's client draws its own bar and tells no sizes.
        progress(0, 0, f"downloading {file}")
        try:
            huggingface_hub.hf_hub_download(repo, file)
        except Exception as error:
            raise _unreachable(name, error) from error
    path = _cached(repo, quant)
    if path is None:
        raise ResourceError(f"{name}: the hub's cache lacks {chosen[0]} after its download")
    return path


def _unreachable(name: str, error: Exception) -> ResourceError:
    """Word any failure of the hub's client: which errors it raises depends on its HTTP library."""
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return ResourceError(
        f"{name}: could not be downloaded from the hub: {reason[0]}; "
        "check the network, HF_TOKEN and HF_HUB_OFFLINE, or give the path of a GGUF file"
    )


def choose(name: str, files: list[str], quant: str | None) -> list[str]:
    """Pick the files of one model: a single one, or all shards of a split one, in order.

    Raises ModelNotFoundError listing what the repository has unless exactly one model fits.
    """
    models = _models(files)
    fitting = {m: f for m, f in models.items() if quant is None or _has_quant(m, quant)}
    if len(fitting) != 1:
        found = "no" if not fitting else f"{len(fitting)}"
        raise ModelNotFoundError(
            f"{name}: found {found} GGUF models of this name (need exactly one); "
            f"the repository has: {', '.join(sorted(models)) or 'no GGUF file'}"
        )
    (chosen,) = fitting.values()
    return chosen


def _models(files: list[str]) -> dict[str, list[str]]:
    """Group GGUF files by model: the shards of a split one share its name."""
    models: dict[str, list[str]] = {}
    for file in sorted(files):
        if file.lower().endswith(".gguf") and not NOT_A_MODEL.search(file):
            models.setdefault(SHARD.sub(".gguf", file), []).append(file)
    return models


def _has_quant(file: str, quant: str) -> bool:
    """Tell whether Q4_K_M stands as a word of its own in the file's name (Q4_K does not)."""
    stem = file.rsplit("/", 1)[-1][: -len(".gguf")]
    return re.search(rf"(^|[-.]){re.escape(quant)}($|[-.])", stem, re.IGNORECASE) is not None


def _cached(repo: str, quant: str | None) -> Path | None:
    """Look into the hub's cache without network; a split model counts when all shards are there."""
    import huggingface_hub
    from huggingface_hub import errors

    try:
        folder = Path(huggingface_hub.snapshot_download(repo, local_files_only=True))
        files = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
        chosen = choose(repo, files, quant)
    except (errors.LocalEntryNotFoundError, ModelNotFoundError):
        return None
    shard = SHARD.search(chosen[0])
    if len(chosen) != (int(shard[2]) if shard else 1):
        return None
    return folder / chosen[0]
