"""List every tensor format a GGUF file can carry, one row each: name, id, block size, block bytes.

Facts are those of GGUF's type list (ggml's `ggml_type`); the tests check each row against the
`gguf` package. Q8_1 and Q8_K are missing on purpose: they are formats of activations, no file
stores them. Knows no file and no decoding.
"""

from dataclasses import dataclass

from edgeinfer.errors import ModelFormatError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Format:
    """How a row of numbers is stored: blocks of `block_size` values in `block_bytes` bytes."""

    name: str
    ggml_id: int
    block_size: int
    block_bytes: int

    def row_bytes(self, n_columns: int) -> int:
        """Return the bytes of one row.

        Raises ModelFormatError if `n_columns` is not a positive multiple of the block size.
        """
        n_blocks, rest = divmod(n_columns, self.block_size)
        if rest or n_blocks <= 0:
            raise ModelFormatError(
                f"row length {n_columns} (need a positive multiple of {self.block_size}, "
                f"the block size of {self.name})"
            )
        return n_blocks * self.block_bytes


_ROWS = (
    Format("F32", 0, 1, 4),
    Format("F16", 1, 1, 2),
    Format("Q4_0", 2, 32, 18),
    Format("Q4_1", 3, 32, 20),
    Format("Q5_0", 6, 32, 22),
    Format("Q5_1", 7, 32, 24),
    Format("Q8_0", 8, 32, 34),
    Format("Q2_K", 10, 256, 84),
    Format("Q3_K", 11, 256, 110),
    Format("Q4_K", 12, 256, 144),
    Format("Q5_K", 13, 256, 176),
    Format("Q6_K", 14, 256, 210),
    Format("IQ2_XXS", 16, 256, 66),
    Format("IQ2_XS", 17, 256, 74),
    Format("IQ3_XXS", 18, 256, 98),
    Format("IQ1_S", 19, 256, 50),
    Format("IQ4_NL", 20, 32, 18),
    Format("IQ3_S", 21, 256, 110),
    Format("IQ2_S", 22, 256, 82),
    Format("IQ4_XS", 23, 256, 136),
    Format("I8", 24, 1, 1),
    Format("I16", 25, 1, 2),
    Format("I32", 26, 1, 4),
    Format("I64", 27, 1, 8),
    Format("F64", 28, 1, 8),
    Format("IQ1_M", 29, 256, 56),
    Format("BF16", 30, 1, 2),
    Format("TQ1_0", 34, 256, 54),
    Format("TQ2_0", 35, 256, 66),
    Format("MXFP4", 39, 32, 17),
    Format("NVFP4", 40, 64, 36),
    Format("Q1_0", 41, 128, 18),
)

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}

_BY_ID: dict[int, Format] = {row.ggml_id: row for row in _ROWS}

# Ids that once had a meaning; ggml took them out and never uses them again.
_REMOVED: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


def by_id(ggml_id: int) -> Format:
    """Return the format with this GGML type id.

    Raises UnsupportedModelError, naming the id, if there is none.
    """
    found = _BY_ID.get(ggml_id)
    if found is not None:
        return found
    if ggml_id in _REMOVED:
        raise UnsupportedModelError(
            f"type {_REMOVED[ggml_id]} (id {ggml_id}) was removed from GGUF; "
            "get a current quantization of this model"
        )
    raise UnsupportedModelError(
        f"unknown type id {ggml_id} (known: {', '.join(FORMATS)}); "
        "the file is damaged or newer than this edgeinfer"
    )
