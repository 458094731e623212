"""Standard input for tests: bytes, behind the interface of sys.stdin."""

import io


class Stdin(io.TextIOWrapper):
    """Holds `data`; claims to be a terminal if told so."""

    def __init__(self, data: bytes, *, is_tty: bool = False) -> None:
        super().__init__(io.BytesIO(data))
        self._is_tty = is_tty

    def isatty(self) -> bool:
        return self._is_tty
