"""Define the ops of a mixture of experts: choose experts, run them, sum their answers."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from edgeinfer.program.op import Op
from edgeinfer.program.values import Value, WeightRef

Score = Literal["softmax", "sigmoid", "softmax_topk", "sqrt_softplus"]
GroupScore = Literal["max", "top2"]


@dataclass(frozen=True, slots=True)
class Groups:
    """How many groups experts are in, of how many the best may be chosen, and what is best."""

    n: int = 1
    n_used: int = 1
    score: GroupScore = "top2"


ONE_GROUP = Groups()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Route(Op):
    """Choose k of E experts for each row, and their weights.

    p = score(logits) (softmax_topk: p = logits). c = p + bias only chooses. With groups > 1 the
    best `groups_used` groups by `group_score` (max of c, or the sum of its two largest) stay, the
    others' c is -inf. ids = top k of c, ties to the lower id; w = p[ids] (softmax_topk: softmax
    over the k). norm: w /= max(sum(w) + norm_eps, norm_min). Then w *= by, and w *= scale[ids].
    """

    NAME: ClassVar[str] = "route"
    WRITES: ClassVar[tuple[str, ...]] = ("ids", "w")
    logits: Value
    ids: Value
    w: Value
    bias: WeightRef | None = None
    scale: WeightRef | None = None
    score: Score = "softmax"
    norm: bool = False
    norm_eps: float = 0.0
    norm_min: float = 0.0
    by: float = 1.0
    groups: int = 1
    groups_used: int = 1
    group_score: GroupScore = "top2"

    def __post_init__(self) -> None:
        n_experts, k = self.logits.width, self.ids.width
        self.need_choice("score", self.score, Score)
        self.need_choice("group_score", self.group_score, GroupScore)
        self.need_finite(by=self.by, norm_eps=self.norm_eps, norm_min=self.norm_min)
        self.need(self.ids.is_ids, "ids", "float values", "ids")
        self.need_groups(self.logits, self.groups)
        self.need(
            1 <= self.groups_used <= self.groups,
            "groups_used",
            self.groups_used,
            f"1 to {self.groups}",
        )
        n_left = n_experts // self.groups * self.groups_used
        self.need(k <= n_left, "experts used", k, f"1 to {n_left}")
        n_summed = 2 if self.group_score == "top2" and self.groups > 1 else 1
        self.need(n_experts // self.groups >= n_summed, "experts a group", n_experts, "2 or more")
        self.need_width("w", self.w, k)
        self.need_shape("bias", self.bias, (n_experts,))
        self.need_shape("scale", self.scale, (n_experts,))
        self.need_same_rows(self.logits, self.ids, self.w)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ExpertLinear(Op):
    """Slot j of the k: out_j = scale[id_j] * (x_j weight[id_j]^T) + bias[id_j].

    weight is `[E, o, i]`; an x of width i serves all k slots, one of width k*i gives each its own.
    """

    NAME: ClassVar[str] = "expert_linear"
    x: Value
    ids: Value
    weight: WeightRef
    out: Value
    bias: WeightRef | None = None
    scale: WeightRef | None = None

    def __post_init__(self) -> None:
        shape = self.weight.shape
        self.need(len(shape) == 3, "shape of weight", shape, "3 dimensions")
        n_experts, n_out, n_in = shape
        k = self.ids.width
        self.need(self.ids.is_ids, "ids", "float values", "ids")
        self.need(
            self.x.width in (n_in, k * n_in), "width of x", self.x.width, f"{n_in} or {k * n_in}"
        )
        self.need_width("out", self.out, k * n_out)
        self.need_shape("bias", self.bias, (n_experts, n_out))
        self.need_shape("scale", self.scale, (n_experts,))
        self.need_same_rows(self.x, self.ids, self.out)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Combine(Op):
    """out = sum over the k slots of w_j * y_j, in rank order."""

    NAME: ClassVar[str] = "combine"
    y: Value
    w: Value
    out: Value

    def __post_init__(self) -> None:
        self.need_width("y", self.y, self.w.width * self.out.width)
        self.need_same_rows(self.y, self.w, self.out)
