"""A vocabulary of single bytes and a few longer pieces, and a way to hold texts to grammars."""

import numpy as np

from edgeinfer.text.matching import Grammars

PIECES = [bytes([byte]) for byte in range(256)]
PIECES += [b'{"', b'":', b", ", b'"}', b"null", b"the", "🔥".encode()[:2], "é".encode(), b"<end>"]
PIECES += [b"", b"<bos>"]
END = PIECES.index(b"<end>")


class Spelling:
    """A tokenizer of those pieces, as far as grammars ask one."""

    n_vocab = len(PIECES)
    bos_id = END + 2

    def __init__(self, stop_ids=(END,)):
        self.stop_ids = frozenset(stop_ids)

    def pieces(self):
        return PIECES

    def is_control(self, token_id):
        return token_id >= END


def allowed(matcher):
    """Return which ids may come next, as a list of truth values."""
    return np.unpackbits(matcher.allowed(), bitorder="little").astype(bool)


def accepts(grammar, text):
    """Return whether a text, byte by byte, is a whole answer to the grammar."""
    matcher = Grammars(Spelling(), len(PIECES)).matcher(grammar)
    for byte in text.encode():
        if matcher.is_done or not allowed(matcher)[byte]:
            return False
        matcher.accept(byte)
    return matcher.is_done or bool(allowed(matcher)[END])
