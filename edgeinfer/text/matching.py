"""Hold an answer to a grammar token by token, for one model's vocabulary; llguidance does the work.

Goes in: a Grammar and the bytes of each token. Comes out: which ids may come next.
"""

import json
import re
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from edgeinfer.errors import GrammarError, ModelClosedError, ResourceError
from edgeinfer.text.grammar import Grammar
from edgeinfer.text.schema import pointer_to

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from edgeinfer.text.tokenizer import Tokenizer

# A state of the library's automaton takes 1 to 2 kB; the other limits are its own, about 15 ms.
MOST_STATES: Final = 50_000


class Grammars:
    """Compile grammars for a vocabulary; from several threads, too.

    The library's table of tokens is built at the first use: up to 1.3 s for 262,144 of them.
    """

    def __init__(self, tokenizer: "Tokenizer", n_vocab: int) -> None:
        """Take the length of a row of logits, which may differ from the tokenizer's."""
        self._tokenizer: Tokenizer | None = tokenizer
        self._n_vocab = n_vocab
        self._table: LLTokenizer | None = None
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> "Matcher":
        """Return what holds one answer to a grammar.

        Raises:
            GrammarError: it is broken or too large, asks for what is not offered, or allows
                nothing.
            ResourceError: llguidance is not installed.
        """
        library = _library()
        limits = library.LLParserLimits(max_lexer_states=MOST_STATES, verbose_errors=False)
        table = self._prepared(library)
        made = library.LLMatcher(table, grammar.source, log_level=0, limits=limits)
        if made.is_error():
            raise _compile_error(grammar, made.get_error())
        for warning in made.get_grammar_warnings():
            raise _compile_error(grammar, warning)
        return Matcher(made, grammar.kind, self._n_vocab)

    def close(self) -> None:
        """Forget the table of tokens; matchers that are in use keep it."""
        self._table = self._tokenizer = None

    def _prepared(self, library: Any) -> "LLTokenizer":
        with self._lock:
            if self._tokenizer is None:
                raise ModelClosedError("model is closed; load it again")
            if self._table is None:
                self._table = _table(library, self._tokenizer)
            return self._table


class Matcher:
    """Which tokens may come next in one answer; used by one thread at a time."""

    def __init__(self, matcher: "LLMatcher", kind: str, n_vocab: int) -> None:
        """Begin an answer. Raises GrammarError where none can begin."""
        self._matcher = matcher
        self._kind = kind
        self._n_vocab = n_vocab
        self._bits = np.zeros(-(-n_vocab // 8), np.uint8)
        self._is_fresh = False
        self.allowed()

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete, and nothing can follow."""
        is_stopped: bool = self._matcher.is_stopped()
        return is_stopped

    def allowed(self) -> npt.NDArray[np.uint8]:
        """Return which ids may come next, a bit each, the lowest first; the array is its own.

        Those that end an answer are among them where it is complete.
        Raises GrammarError where no token may come, or where finding out takes too much.
        """
        if not self._is_fresh:
            found = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)[: len(self._bits)]
            self._check()
            self._bits[: len(found)] = found
            if self._n_vocab % 8:
                self._bits[-1] &= (1 << self._n_vocab % 8) - 1
            if not self._bits.any():
                raise self._dead_end()
            self._is_fresh = True
        return self._bits

    def accept(self, token: int) -> None:
        """Take the id that has come, one of those allowed."""
        self._is_fresh = False
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if not self._matcher.is_error():
            return
        error = self._matcher.get_error().partition("\n")[0]
        if error.startswith("NoExtension"):
            raise self._dead_end()
        raise GrammarError(f"{self._kind}: {error}; simplify it")

    def _dead_end(self) -> GrammarError:
        return GrammarError(
            f"{self._kind}: none of the model's tokens can come next (need rules that end, and "
            "characters that the model knows)"
        )


class _Vocabulary:
    """The bytes of each token; such as stand for no text can be named, and are no text."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self.tokens = tokenizer.pieces()
        controls = (id for id in range(len(self.tokens)) if tokenizer.is_control(id))
        self.stop_ids = sorted(tokenizer.stop_ids)
        if not self.stop_ids:  # the library needs one; beyond the logits, it never comes
            self.stop_ids = [len(self.tokens)]
            self.tokens = [*self.tokens, b"<end of text>"]
        self.special_token_ids = sorted({*controls, *self.stop_ids})
        self.eos_token_id = self.stop_ids[0]
        self.bos_token_id = tokenizer.bos_id

    def __call__(self, text: bytes) -> list[int]:
        raise NotImplementedError("the model chooses its tokens")


def _table(library: Any, tokenizer: "Tokenizer") -> "LLTokenizer":
    vocabulary = _Vocabulary(tokenizer)
    wrapped = library.TokenizerWrapper(vocabulary)
    table: LLTokenizer = library.LLTokenizer(wrapped, eos_token=vocabulary.stop_ids)
    return table


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise ResourceError(
            "grammar: needs llguidance; run `pip install 'edgeinfer[grammar]'`, or leave out "
            "grammar, json_schema, regex and response_format"
        ) from error
    return llguidance


def _compile_error(grammar: Grammar, message: str) -> GrammarError:
    """Return the library's error in terms of what the user gave."""
    if grammar.kind == "json_schema":
        return GrammarError(_about_schema(grammar, message))
    if grammar.kind == "regex":
        reason = re.search(r"error: (.*)", message)
        return GrammarError(f"regex: {reason[1] if reason else message.partition(chr(10))[0]}")
    first = message.partition("\n")[0]
    place = re.match(r"(?:at )?(\d+)\((\d+)\): ", first)
    if place is None:
        return GrammarError(f"grammar: {first}")
    what = first[place.end() :]
    if grammar.kind == "gbnf":  # its lines are not those of the translation
        return GrammarError(f"grammar: {what}")
    line = max(1, int(place[1]) - 1)  # the header is ours
    return GrammarError(f"grammar: line {line}, column {place[2]}: {what}")


def _about_schema(grammar: Grammar, message: str) -> str:
    first = re.sub(r"^at \d+\(\d+\): |failed to compile JSON schema: ", "", message)
    keys = re.search(r"Unimplemented keys: (\[.*?\])", first)
    schema = json.loads(grammar.schema)
    if first.startswith("oneOf"):
        place = pointer_to(schema, "oneOf") or "oneOf"
        return f"json_schema: {place}: not offered where two may hold at once (anyOf is)"
    if keys is None:
        reason = re.search(r"error: (.*)", first)
        return f"json_schema: {reason[1] if reason else first.partition(chr(10))[0].rstrip()}"
    places = [pointer_to(schema, key) or key for key in json.loads(keys[1])]
    return f"json_schema: {', '.join(places)}: not offered (leave it out, and check the answer)"
