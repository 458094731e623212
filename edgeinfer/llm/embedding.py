"""Turn texts into vectors, and documents into an order: what models that read are for.

A model that writes text gives embeddings, too: the rows its head reads, pooled.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from itertools import count
from typing import Unpack

import numpy as np
import numpy.typing as npt

from edgeinfer.arch.shared.pooling import LABELS, YES_OR_NO
from edgeinfer.arguments import EmbedOptions, RankOptions, ReadOptions, spelled_out
from edgeinfer.engine.handle import Handle
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import ContextOverflowError, InvalidParameterError
from edgeinfer.llm.answering import AnsweringModel
from edgeinfer.llm.passes import Pass, Passes, Tokens
from edgeinfer.llm.vectors import (
    Pooling,
    Ranked,
    Rows,
    checked_dimensions,
    checked_pooling,
    cut_and_normalized,
    likelihood,
)
from edgeinfer.request import seconds, standing, token_ids

STARTED_BETWEEN = 64  # texts between two looks at the file: one takes longer than a short text
RERANK_TEMPLATE = "tokenizer.chat_template.rerank"
QUERY, DOCUMENT = "query", "document"

Floats = npt.NDArray[np.float32]
Text = str | Iterable[int]
Texts = str | Iterable[Text]


class EmbeddingModel(AnsweringModel):
    """A model that gives embeddings and, if it has a head for them, scores."""

    @spelled_out(EmbedOptions)
    def embed(self, texts: Texts, **options: Unpack[EmbedOptions]) -> Floats:
        """Return the embedding of a text, float32 (width,), or one for each of several, (n, width).

        A text's vector is the same bit for bit whatever stands beside it, in any order. Prefixes
        such as "search_query: " that a model was trained with are the caller's to write.

        Args:
            texts: a text, or an iterable of texts or of lists of token ids as they are to be read.
            normalize: scale vectors to length 1 (the default), so that the dot product of two is
                their cosine.
            pooling: of a model that writes text, how the rows of its tokens become one: "mean",
                the default, "last" or "cls", the first. A model that only reads pools as its file
                says, or as `load` was told.
            dimensions: keep so many numbers of each, before they are scaled: for models trained
                to have the most important first (Matryoshka).
            truncate: cut the end of texts that are longer than n_ctx; else they are refused.
            priority: -1000 to 1000; a request of a higher one goes before others.
            timeout_s: seconds after which CancelledError is raised.
            progress: called as progress(n_done, n_total), in tokens, as texts are done.

        Raises:
            InvalidParameterError: an argument is out of its range, a text is empty and the model
                has no tokens around texts, or it ranks and does not embed.
            ContextOverflowError: a text is longer than n_ctx; the error says which.
            CancelledError: the time was up.
            NonFiniteError: the model computed NaN or infinity.

        Example:
            >>> vectors = model.embed(["a cat", "a dog", "a tax form"])
            >>> vectors @ vectors[0]
        """
        made = self._embedding(texts, options)
        made.passes.run()
        return made.result()

    @spelled_out(ReadOptions)
    def embed_tokens(self, texts: Texts, **options: Unpack[ReadOptions]) -> Floats | list[Floats]:
        """Return a row for each token of a text, (n_tokens, width), not pooled and not scaled.

        Of several texts a list of them; arguments and errors as `embed` has them.
        """
        made = self._token_rows(texts, options)
        made.passes.run()
        return made.rows()

    @spelled_out(RankOptions)
    def rank(
        self, query: str, documents: Iterable[str], **options: Unpack[RankOptions]
    ) -> list[Ranked]:
        """Return documents in the order of how well they answer a query, the best first.

        Args:
            query: what is looked for.
            documents: texts; `Ranked.index` counts in their order. Equal scores keep it.
            top_n: how many to return; None returns all.
            raw: give scores as the head has them. By default the one logit of a head becomes a
                share of 1; those that are shares already, of Qwen3 rerankers, stay.
            template: a text in which {query} and {document} are filled in, in place of the file's.
                Without one, the two are joined as encoders have learnt it.
            truncate ... progress: as `embed` has them; the end of a document is what is cut.

        Raises InvalidParameterError where the model has no head that ranks; others as `embed`.

        Example:
            >>> for place in model.rank("How do cats purr?", documents, top_n=3):
            ...     print(f"{place.score:.3f}", documents[place.index])
        """
        made = self._ranking(query, documents, options)
        made.passes.run()
        return made.ranked()

    def _embedding(self, texts: Texts, options: EmbedOptions) -> "_Embedding":
        self._check_open()
        if self._pooling == "rank":
            raise InvalidParameterError(
                f"{self.path.name}: this model ranks documents (need `rank`; or, for embeddings, "
                "load it with pooling='mean' or another)"
            )
        pooling = self._chosen_pooling(options.get("pooling"))
        dimensions = checked_dimensions(options.get("dimensions"), self._n_embedding)
        is_one, found = _listed(texts)
        tokens = [self._tokens_of(text, i, options) for i, text in enumerate(found)]
        passes = [Pass(ids, Rows(pooling)) for ids in tokens]
        normalize = options.get("normalize") is not False
        return _Embedding(self._passes(passes, options), passes, is_one, dimensions, normalize)

    def _token_rows(self, texts: Texts, options: ReadOptions) -> "_Embedding":
        self._check_open()
        if not self._gives_rows:
            raise InvalidParameterError(
                f"{self.path.name}: this model pools the rows of its tokens (need a load with "
                "pooling='none')"
            )
        is_one, found = _listed(texts)
        tokens = [self._tokens_of(text, i, options) for i, text in enumerate(found)]
        passes = [Pass(ids, Rows(None)) for ids in tokens]
        return _Embedding(self._passes(passes, options), passes, is_one, self._n_embedding, False)

    def _ranking(self, query: str, documents: Iterable[str], options: RankOptions) -> "_Ranking":
        self._check_open()
        n_scores = self._engine.executable.n_out
        answers = n_scores == 2 and list(self.metadata.strings(LABELS, ())) == YES_OR_NO
        if self._pooling != "rank" or (n_scores != 1 and not answers):
            raise InvalidParameterError(
                f"{self.path.name}: this model has no head that ranks (need a reranker; the dot "
                "products of what `embed` gives rank, too)"
            )
        if isinstance(documents, str):
            raise InvalidParameterError("documents: found a text (need a list of texts)")
        given = options.get("top_n")
        is_count = isinstance(given, int) and not isinstance(given, bool) and given >= 1
        if given is not None and not is_count:
            raise InvalidParameterError(f"top_n: found {given!r} (need 1 or more, or None)")
        pairs = [self._pair(query, text, i, options) for i, text in enumerate(documents)]
        passes = [Pass(ids, Rows("last")) for ids in pairs]
        is_logit = n_scores == 1 and not options.get("raw")
        return _Ranking(self._passes(passes, options), passes, is_logit, given)

    def _chosen_pooling(self, pooling: str | None) -> Pooling | None:
        """Return how rows are pooled here; a model that pools by itself gives one row."""
        wanted = checked_pooling(pooling)
        if not self._gives_rows:
            if wanted is not None and wanted != self._pooling:
                raise InvalidParameterError(
                    f"pooling: found {wanted!r} (need None or {self._pooling!r}, as the model was "
                    f"loaded; load it with pooling={wanted!r})"
                )
            return "last"
        own = self._pooling
        return wanted or (own if own == "cls" or own == "last" else "mean")

    @property
    def _n_embedding(self) -> int:
        executable = self._engine.executable
        return executable.n_hidden if self._pooling is None else executable.n_out

    def _passes(self, passes: list[Pass], options: ReadOptions) -> Passes:
        timeout_s = seconds("timeout_s", options.get("timeout_s"))
        priority = standing(options.get("priority"))
        n_started = count()

        def start(one: Pass, deadline_s: float | None) -> Handle:
            if next(n_started) % STARTED_BETWEEN == 0:
                self._check_ready()
            sequence = Sequence(
                one.tokens.tolist(),
                None,
                max_tokens=0,
                rows_from=one.rows.first_of(len(one.tokens)),
                hidden=self._pooling is None,
                priority=priority,
                deadline_s=deadline_s,
            )
            return self._driver.submit(sequence, at_end=self._check_contents)

        return Passes(passes, start, timeout_s=timeout_s, progress=options.get("progress"))

    def _tokens_of(self, text: Text, index: int, options: ReadOptions) -> Tokens:
        """Return the ids of one of the texts."""
        if not isinstance(text, str):
            if isinstance(text, int | bytes):
                raise InvalidParameterError(
                    f"texts: found {'bytes' if isinstance(text, bytes) else 'token ids'} (need "
                    "texts, or a list of token ids for each, in a list)"
                )
            tokens = token_ids(text)
            if options.get("truncate"):
                tokens = tokens[: self.n_ctx]
        elif options.get("truncate"):
            tokens = self.tokenizer.encode_within(text, self.n_ctx)
        else:
            tokens = self.tokenizer.encode(text)
        if not tokens:
            raise InvalidParameterError(
                f"texts[{index}]: found an empty text, and this model has no token around texts; "
                "give at least one character"
            )
        return self._checked(f"texts[{index}]", tokens)

    def _pair(self, query: str, document: str, index: int, options: RankOptions) -> Tokens:
        """Return the ids of a query and a document."""
        for name, text in (("query", query), (f"documents[{index}]", document)):
            if not isinstance(text, str):
                raise InvalidParameterError(f"{name}: found {type(text).__name__} (need a text)")
        template = options.get("template") or self.metadata.text(RERANK_TEMPLATE, None)
        if template is None:
            most = self.n_ctx if options.get("truncate") else None
            tokens = self.tokenizer.encode_pair(query, document, most=most)
        else:
            tokens = self._filled(template, query, document)
            while len(tokens) > self.n_ctx and document and options.get("truncate"):
                # a template's text and the document's may share a token, so its text is cut
                kept = self.tokenizer.encode(document, add_special=False)
                kept = kept[: max(0, len(kept) - (len(tokens) - self.n_ctx))]
                shorter = self.tokenizer.decode(kept)
                document = shorter if len(shorter) < len(document) else document[:-1]
                tokens = self._filled(template, query, document)
        return self._checked(f"query and documents[{index}]", tokens)

    def _filled(self, template: str, query: str, document: str) -> list[int]:
        for name in (QUERY, DOCUMENT):
            if f"{{{name}}}" not in template:
                raise InvalidParameterError(f"template: found no {{{name}}} in it (need it)")
        return self.tokenizer.encode_filled(template, {QUERY: query, DOCUMENT: document})

    def _checked(self, what: str, tokens: list[int]) -> Tokens:
        """Return ids that the model can read."""
        low, high = min(tokens), max(tokens)
        if low < 0 or high >= self.n_vocab:
            raise InvalidParameterError(
                f"{what}: token id: found {low if low < 0 else high} (need 0 to {self.n_vocab - 1})"
            )
        if len(tokens) > self.n_ctx:
            raise ContextOverflowError(
                f"{what}: found {len(tokens)} tokens (need at most {self.n_ctx}, the context); "
                "shorten it, pass truncate=True to cut its end, or load the model with a larger "
                "n_ctx"
            )
        return np.array(tokens, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class _Embedding:
    """Texts to be embedded, and what becomes of them."""

    passes: Passes
    each: Ids[Pass]
    is_one: bool
    dimensions: int
    normalize: bool

    def result(self) -> Floats:
        vectors = np.zeros((0, self.dimensions), np.float32)
        if self.each:
            vectors = np.stack([one.rows.made() for one in self.each])
        vectors = cut_and_normalized(vectors, self.dimensions, normalize=self.normalize)
        return vectors[0] if self.is_one else vectors

    def rows(self) -> Floats | list[Floats]:
        rows = [one.rows.made() for one in self.each]
        return rows[0] if self.is_one else rows


@dataclass(frozen=True, slots=True, eq=False)
class _Ranking:
    """Documents to be ranked, and their order."""

    passes: Passes
    each: Ids[Pass]
    is_logit: bool
    top_n: int | None

    def ranked(self) -> list[Ranked]:
        places = []
        for index, one in enumerate(self.each):
            score = float(one.rows.made()[0])
            score = likelihood(score) if self.is_logit else score
            places.append(Ranked(index, score, len(one.tokens)))
        return sorted(places, key=lambda place: -place.score)[: self.top_n]


def _listed(texts: Texts) -> tuple[bool, list[Text]]:
    """Return whether it is one text, and all of them."""
    return (True, [texts]) if isinstance(texts, str) else (False, list(texts))
