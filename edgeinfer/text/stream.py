"""Turn ids into text as they come, one by one: whole characters only, nothing of a stop string.

Goes in: token ids. Comes out: text that is final. Knows no model and no engine.
"""

import codecs
from collections.abc import Sequence

from edgeinfer.errors import InvalidParameterError
from edgeinfer.text.tokenizer import PieceJoiner, Tokenizer


class TextStream:
    """Incremental text of one answer.

    The chunks joined are `tokenizer.decode(ids, special=not skip_special, at_start=at_start)`, cut
    before the stop string that is complete first. Text that may yet become a stop string is held
    back; the cost of a token does not grow with the text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        skip_special: bool = True,
        at_start: bool = False,
    ) -> None:
        """Begin a text.

        Args:
            tokenizer: the model's.
            stop: strings that end the text; none empty.
            skip_special: leave control tokens out of the text.
            at_start: the text begins with the first id; by default it continues a prompt, and a
                space before its first word is kept.

        Raises:
            InvalidParameterError: a stop string is empty, or `stop` is a bare string.
        """
        if isinstance(stop, str) or any(not isinstance(s, str) or not s for s in stop):
            raise InvalidParameterError(f"stop: found {stop!r} (need a list of non-empty strings)")
        self._joiner = PieceJoiner(tokenizer, skip_special=skip_special, at_start=at_start)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(stop)
        self._longest = max(map(len, self._stop), default=0)
        self._held = ""
        self._stopped_by: str | None = None

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the text, None as long as none did."""
        return self._stopped_by

    def push(self, token_id: int) -> str:
        """Take one id; return the text that is final with it, often "".

        Raises:
            InvalidParameterError: the id is out of range.
        """
        if self._stopped_by is not None:
            return ""
        return self._release(self._decoder.decode(self._joiner.push(token_id)))

    def finish(self) -> str:
        """Return what was held back; an unfinished character becomes U+FFFD."""
        if self._stopped_by is not None:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text + held

    def _release(self, text: str) -> str:
        if not self._stop:
            return text
        pending = self._held + text
        ends = [
            (at + len(stop), at, stop) for stop in self._stop if (at := pending.find(stop)) >= 0
        ]
        if ends:
            _, at, self._stopped_by = min(ends)
            self._held = ""
            return pending[:at]
        keep = self._undecided(pending)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def _undecided(self, pending: str) -> int:
        """Return the length of the longest ending that begins a stop string."""
        for length in range(min(len(pending), self._longest - 1), 0, -1):
            ending = pending[-length:]
            if any(stop.startswith(ending) for stop in self._stop):
                return length
        return 0
