"""Tell a model's content from every other by a fingerprint that takes milliseconds, not minutes.

It binds, of every file of the model: its size, its modification time to the nanosecond, all of its
header (metadata, names, shapes, types, offsets) and 64 samples of 4 KB spread over its weights.
A file of the same name, a file rewritten in place, another quantization, a fine-tune: each differs
in one of those. Copies that keep the time (`cp -p`) are the same model and do match. What could
slip through is a change of weights between the samples by someone who then resets the time.
"""

import os
from collections.abc import Sequence
from hashlib import blake2b

from edgeinfer.errors import ResourceError
from edgeinfer.loader.gguf import Part
from edgeinfer.loader.mapped import display, identity_of

N_SAMPLES = 64
SAMPLE_BYTES = 4096
DIGEST_BYTES = 32
READ_BYTES = 1 << 20


def fingerprint(parts: Sequence[Part]) -> bytes:
    """Return the fingerprint of a model's files, 32 bytes.

    Raises ResourceError if a file cannot be read or is no longer the one that was opened.
    """
    digest = blake2b(digest_size=DIGEST_BYTES, person=b"edgeinfer-model")
    for part in parts:
        digest.update(f"{part.identity.n_bytes} {part.identity.mtime_ns} ".encode())
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
        for at in sample_offsets(part.data_start, part.identity.n_bytes):
            digest.update(os.pread(file.fileno(), SAMPLE_BYTES, at))


def sample_offsets(start: int, end: int) -> list[int]:
    """Return where the samples of the bytes from `start` to `end` begin; the last ends them."""
    last = max(end - SAMPLE_BYTES, start)
    return sorted({start + (last - start) * i // (N_SAMPLES - 1) for i in range(N_SAMPLES)})
