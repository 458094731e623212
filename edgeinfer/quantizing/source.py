"""Read rows of a model's tensors by plain reads of its files, which are known not to change."""

from dataclasses import replace

from edgeinfer.loader.gguf import GgufFile
from edgeinfer.loader.unmapped import UnmappedFile
from edgeinfer.quant.tensor import Tensor


class SourceRows:
    """The rows of an opened model file; safe to use from several threads."""

    def __init__(self, file: GgufFile) -> None:
        """Open the files once more. Raises ResourceError if one is not what `file` mapped."""
        self._files: list[UnmappedFile] = []
        self._places: dict[str, tuple[UnmappedFile, int]] = {}
        tensors = iter(file.tensors.values())
        try:
            for part in file.parts:
                opened = UnmappedFile(part.path, part.identity)
                self._files.append(opened)
                for start, _ in part.extents:
                    self._places[next(tensors).name] = (opened, start)
        except BaseException:
            self.close()
            raise

    def read(self, tensor: Tensor, rows: slice) -> Tensor:
        """Return some rows, from `rows.start` to `rows.stop`, as a tensor of their own.

        Raises ResourceError if the file is not what it was when it was opened.
        """
        file, start = self._places[tensor.name]
        n_rows = rows.stop - rows.start
        data = file.read(start + rows.start * tensor.row_bytes, n_rows * tensor.row_bytes)
        return replace(tensor, shape=(n_rows, tensor.n_columns), data=data)

    def close(self) -> None:
        """Close the files; safe to call twice."""
        for file in self._files:
            file.close()

    def __enter__(self) -> "SourceRows":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
