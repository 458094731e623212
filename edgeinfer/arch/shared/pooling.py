"""Write the results of models that read: rows of tokens, an embedding, or scores of a sequence."""

from dataclasses import dataclass

from edgeinfer.errors import MissingTensorError, UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops import Fn
from edgeinfer.program.ops_rowwise import PoolKind
from edgeinfer.program.program import POOLINGS, Pooling
from edgeinfer.program.values import Rows, Value

TYPE, TYPE_OF_SCORES = ".pooling_type", ".classifier.pooling_type"
CAUSAL, LABELS = ".attention.causal", ".classifier.output_labels"
YES_OR_NO = ["yes", "no"]
DENSE = ("dense_2", "dense_3")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model that reads gives.

    Attributes:
        pooling: what it says of itself.
        kind: how a sequence becomes a row; None for the rows that are wanted, which suffices where
            tokens see only those before them and the last one counts.
        shares: whether the scores are shares of 1, as those of yes and no are.
    """

    pooling: Pooling
    kind: PoolKind | None
    shares: bool = False


def read_pooling(
    m: Metadata, *, causal: bool, default: Pooling | None = None, scores_of: PoolKind | None = None
) -> Reading | None:
    """Read what a model gives; None: it writes text.

    `default` is for files that do not say it; `scores_of` what they are of where no key does, by
    default the first token, of causal models the last one. Raises ModelFormatError for an unknown
    kind, UnsupportedModelError for a model that looks ahead and says nothing.
    """
    found = m.integer(TYPE, None, least=0, most=len(POOLINGS) - 1)
    pooling = default if found is None else POOLINGS[found]
    if pooling is None:
        if not causal:
            raise UnsupportedModelError(
                f"{m.where}: key '{m.full_key(CAUSAL)}': found false without "
                f"'{m.full_key(TYPE)}' (need true, or a model of embeddings): text cannot be "
                "written by a model that looks ahead"
            )
        return None
    of: Pooling = pooling
    if pooling == "rank":
        usual = POOLINGS.index(scores_of or ("last" if causal else "cls"))
        of = POOLINGS[m.integer(TYPE_OF_SCORES, usual, least=1, most=3)]
    kinds: dict[Pooling, PoolKind | None] = {"mean": "mean", "cls": "cls"}
    kind = kinds.get(of, "last" if of == "last" and not causal else None)
    labels = m.strings(LABELS, None)
    answers = labels is not None and len(labels) == 2 and list(labels) == YES_OR_NO
    return Reading(pooling, kind, causal and answers)


def give(b: Builder, x: Value, reading: Reading, *, fn: Fn = "tanh", eps: float = 0.0) -> None:
    """Write the result, of rows that went through the last norm.

    `fn` and `eps` are those of the head that gives scores.
    """
    if reading.kind is not None:
        x = b.pool(x, reading.kind)
    elif x.rows is Rows.TOKENS:
        x = b.rows(x)
    if reading.pooling == "rank":
        scores = _scores(b, x, fn, eps)
        b.output("scores", b.softmax(scores) if reading.shares else scores, pooling="rank")
        return
    for name in DENSE:
        if b.has(f"{name}.weight"):
            x = b.linear(x, name, b.n_rows(f"{name}.weight"))
    b.output("embedding", x, pooling=reading.pooling)


def _scores(b: Builder, x: Value, fn: Fn, eps: float) -> Value:
    if not b.has("cls.weight") and not b.has("cls.output.weight"):
        raise MissingTensorError(
            f"tensors 'cls.weight' and 'cls.output.weight' are missing (need one): architecture "
            f"'{b.arch}' says that it gives scores"
        )
    if b.has("cls.weight"):
        x = b.act(b.linear(x, "cls", b.n_rows("cls.weight")), fn)
        if b.has("cls.norm.weight"):
            x = b.layer_norm(x, "cls.norm", eps)
    if b.has("cls.output.weight"):
        x = b.linear(x, "cls.output", b.n_rows("cls.output.weight"))
    return x
