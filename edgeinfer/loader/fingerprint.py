"""Tell a model's content from every other by a fingerprint that takes milliseconds, not minutes.

It binds, of every file of the model: its size, all of its header (metadata, names, shapes, types,
offsets) and a sample of 4 KB from the middle of every tensor, of a large one more. Another
quantization, a fine-tune, a merged adapter: each differs in one of those, while a copy or a second
download is the same model. Times of files may be bound as well, for what is kept on this disk: a
file whose weights were edited in place between the samples is then another one, and so is a copy.
"""

import os
from collections.abc import Sequence
from hashlib import blake2b

from edgeinfer.errors import ResourceError
from edgeinfer.loader.gguf import Part
from edgeinfer.loader.mapped import display, identity_of

SAMPLE_BYTES = 4096
SAMPLED_BYTES = 64 << 20  # of a tensor, for each of its samples
DIGEST_BYTES = 32
READ_BYTES = 1 << 20


def fingerprint(parts: Sequence[Part], *, with_times: bool = False) -> bytes:
    """Return the fingerprint of a model's files, 32 bytes; `with_times`: of these very files.

    Raises ResourceError if a file cannot be read or is no longer the one that was opened.
    """
    digest = blake2b(digest_size=DIGEST_BYTES, person=b"edgeinfer-model")
    for part in parts:
        digest.update(f"{part.identity.n_bytes} ".encode())
        if with_times:
            digest.update(f"{part.identity.mtime_ns} ".encode())
        try:
            _add_content(digest, part)
        except OSError as error:
            raise ResourceError(
                f"{display(part.path)}: cannot read the file: {error.strerror or error}"
            ) from None
    return digest.digest()


def _add_content(digest: blake2b, part: Part) -> None:
    with open(part.path, "rb", buffering=0) as file:
        if identity_of(os.fstat(file.fileno())) != part.identity:
            raise ResourceError(
                f"{display(part.path)}: the model file changed on disk since it was opened; "
                "load the model again"
            )
        for at in range(0, part.data_start, READ_BYTES):
            n_bytes = min(READ_BYTES, part.data_start - at)
            digest.update(os.pread(file.fileno(), n_bytes, at))
        for start, n_bytes in part.extents:
            for at in sample_offsets(start, n_bytes):
                n_sampled = min(SAMPLE_BYTES, start + n_bytes - at)
                digest.update(os.pread(file.fileno(), n_sampled, at))


def sample_offsets(start: int, n_bytes: int) -> list[int]:
    """Return where the samples of a tensor's bytes begin: in the middles of equal stretches."""
    n_samples = -(-n_bytes // SAMPLED_BYTES)
    room = max(0, n_bytes - SAMPLE_BYTES)
    return [start + room * (2 * i + 1) // (2 * n_samples) for i in range(n_samples)]
