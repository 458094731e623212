"""Define the ops that treat each row alone: lookups, norms, products and elementwise functions."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from edgeinfer.program.op import Op
from edgeinfer.program.values import Rows, Value, WeightRef

EmbedIds = Literal["tokens", "pos", "row", "segments"]
PoolKind = Literal["mean", "cls", "last"]
Fn = Literal["silu", "gelu_tanh", "gelu_erf", "relu", "relu2", "sigmoid", "tanh", "softplus"]
GatedFn = Literal[Fn, "swiglu_oai"]
# Backends number the functions in this order.
FUNCTIONS: tuple[Fn, ...] = get_args(Fn)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Embed(Op):
    """out = scale * table[id], where id is the token, its position, or the fixed `row`.

    Or its segment: 0 up to the first token `separator` of its sequence and with it, 1 behind.
    A token or position at or beyond the table's rows is an error.
    """

    NAME: ClassVar[str] = "embed"
    table: WeightRef
    out: Value
    ids: EmbedIds = "tokens"
    row: int = 0
    scale: float = 1.0
    separator: int = 0

    def __post_init__(self) -> None:
        self.need_choice("ids", self.ids, EmbedIds)
        self.need_finite(scale=self.scale)
        self.need(self.scale > 0, "scale", self.scale, "above 0")
        self.need(len(self.table.shape) == 2, "shape of table", self.table.shape, "2 dimensions")
        n_rows, width = self.table.shape
        self.need(0 <= self.row < n_rows, "row", self.row, f"0 to {n_rows - 1}")
        self.need(self.separator >= 0, "separator", self.separator, "a token")
        if self.ids == "segments":
            self.need(n_rows >= 2, "rows of table", n_rows, "2 or more")
        self.need_width("out", self.out, width)
        self.need(self.out.rows is Rows.TOKENS, "rows of out", self.out.rows.value, "T")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SelectRows(Op):
    """out = the rows of x whose logits are wanted, in order."""

    NAME: ClassVar[str] = "rows"
    x: Value
    out: Value

    def __post_init__(self) -> None:
        self.need_width("out", self.out, self.x.width)
        self.need(self.x.rows is Rows.TOKENS, "rows of x", self.x.rows.value, "T")
        self.need(self.out.rows is Rows.WANTED, "rows of out", self.out.rows.value, "R")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pool(Op):
    """out = one row a sequence: the mean of its tokens summed in order, the first, or the last."""

    NAME: ClassVar[str] = "pool"
    x: Value
    out: Value
    kind: PoolKind

    def __post_init__(self) -> None:
        self.need_choice("kind", self.kind, PoolKind)
        self.need_width("out", self.out, self.x.width)
        self.need(self.x.rows is Rows.TOKENS, "rows of x", self.x.rows.value, "T")
        self.need(self.out.rows is Rows.SEQUENCES, "rows of out", self.out.rows.value, "S")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RmsNorm(Op):
    """Per group of n = width / groups: out = x * (1 / sqrt(sum(x^2) / n + eps)) * weight.

    The weight is final (no "+1") and has n elements, shared by the groups, or all of width.
    """

    NAME: ClassVar[str] = "rms_norm"
    x: Value
    weight: WeightRef | None
    out: Value
    eps: float
    groups: int = 1

    def __post_init__(self) -> None:
        self.need_finite(eps=self.eps)
        self.need(self.eps > 0, "eps", self.eps, "above 0")
        self.need_groups(self.x, self.groups)
        n = self.x.width // self.groups
        self.need_shape("weight", self.weight, (n,), (self.x.width,), (self.groups, n))
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LayerNorm(Op):
    """Per group: out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias."""

    NAME: ClassVar[str] = "layer_norm"
    x: Value
    weight: WeightRef | None
    bias: WeightRef | None
    out: Value
    eps: float
    groups: int = 1

    def __post_init__(self) -> None:
        self.need_finite(eps=self.eps)
        self.need(self.eps > 0, "eps", self.eps, "above 0")
        self.need_groups(self.x, self.groups)
        n = self.x.width // self.groups
        for what, ref in (("weight", self.weight), ("bias", self.bias)):
            self.need_shape(what, ref, (n,), (self.x.width,), (self.groups, n))
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class L2Norm(Op):
    """Per group: out = x / sqrt(sum(x^2) + eps)."""

    NAME: ClassVar[str] = "l2_norm"
    x: Value
    out: Value
    eps: float
    groups: int = 1

    def __post_init__(self) -> None:
        self.need_finite(eps=self.eps)
        self.need(self.eps > 0, "eps", self.eps, "above 0")
        self.need_groups(self.x, self.groups)
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Linear(Op):
    """out = scale * (x weight^T) + bias, with weight `[out.width, x.width]` and scale `[1]`."""

    NAME: ClassVar[str] = "linear"
    x: Value
    weight: WeightRef
    out: Value
    bias: WeightRef | None = None
    scale: WeightRef | None = None

    def __post_init__(self) -> None:
        self.need_shape("weight", self.weight, (self.out.width, self.x.width))
        self.need_shape("bias", self.bias, (self.out.width,))
        self.need_shape("scale", self.scale, (1,))
        self.need_same_rows(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HeadLinear(Op):
    """Per head h: out_h = x_h weight_h^T, with weight `[heads, o, i]`."""

    NAME: ClassVar[str] = "head_linear"
    x: Value
    weight: WeightRef
    out: Value

    def __post_init__(self) -> None:
        shape = self.weight.shape
        self.need(len(shape) == 3, "shape of weight", shape, "3 dimensions")
        n_heads, n_out, n_in = shape
        self.need_width("x", self.x, n_heads * n_in)
        self.need_width("out", self.out, n_heads * n_out)
        self.need_same_rows(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Split(Op):
    """Cut each of the `groups` groups of x into pieces; outs[m] joins piece m of all groups."""

    NAME: ClassVar[str] = "split"
    WRITES: ClassVar[tuple[str, ...]] = ("outs",)
    x: Value
    outs: tuple[Value, ...]
    sizes: tuple[int, ...]
    groups: int = 1

    def __post_init__(self) -> None:
        self.need_groups(self.x, self.groups)
        self.need(len(self.outs) == len(self.sizes), "outs", len(self.outs), str(len(self.sizes)))
        total = sum(self.sizes) * self.groups
        self.need(total == self.x.width, "sum of sizes", total, str(self.x.width))
        for size, out in zip(self.sizes, self.outs, strict=True):
            self.need(size >= 1, "sizes", size, "1 or more")
            self.need_width("outs", out, size * self.groups)
            self.need_same_rows(out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Concat(Op):
    """Join the groups of several values; where `repeat`, a one-group value serves every group."""

    NAME: ClassVar[str] = "concat"
    xs: tuple[Value, ...]
    out: Value
    repeat: tuple[bool, ...]
    groups: int = 1

    def __post_init__(self) -> None:
        self.need(len(self.xs) >= 1, "xs", len(self.xs), "1 or more")
        self.need(len(self.repeat) == len(self.xs), "repeat", self.repeat, "one flag a value")
        width = 0
        for x, repeated in zip(self.xs, self.repeat, strict=True):
            if not repeated:
                self.need_groups(x, self.groups)
            width += x.width * (self.groups if repeated else 1)
            self.need_same_rows(x, self.out)
        self.need_width("out", self.out, width)
        self.need_groups(self.out, self.groups)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Act(Op):
    """out = fn(x).

    gelu_tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); gelu_erf: 0.5 x (1 + erf(x/sqrt 2));
    relu2: max(x, 0)^2; softplus: ln(1 + e^x), and x itself above 20.
    """

    NAME: ClassVar[str] = "act"
    x: Value
    out: Value
    fn: Fn

    def __post_init__(self) -> None:
        self.need_choice("fn", self.fn, Fn)
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gated(Op):
    """out = fn(g) * u; a g narrower than u gates u.width / g.width neighbours with each element.

    swiglu_oai: g = min(g, limit), u = clamp(u, -limit, limit): g * sigmoid(alpha g) * (u + 1).
    """

    NAME: ClassVar[str] = "gated"
    g: Value
    u: Value
    out: Value
    fn: GatedFn
    alpha: float = 1.702
    limit: float = 7.0

    def __post_init__(self) -> None:
        self.need_choice("fn", self.fn, GatedFn)
        self.need_finite(alpha=self.alpha, limit=self.limit)
        self.need(self.limit > 0, "limit", self.limit, "above 0")
        self.need_groups(self.u, self.g.width, "width of g")
        self.need_like(self.out, self.u)
        self.need_same_rows(self.g, self.u)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Add(Op):
    """out = a + alpha * b (one multiply, then one add); b is a value like a, or a weight row."""

    NAME: ClassVar[str] = "add"
    a: Value
    b: Value | WeightRef
    out: Value
    alpha: float = 1.0

    def __post_init__(self) -> None:
        self.need_finite(alpha=self.alpha)
        if isinstance(self.b, Value):
            self.need_like(self.b, self.a)
        else:
            self.need(self.b.size == self.a.width, "size of b", self.b.size, str(self.a.width))
        self.need_like(self.out, self.a)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mul(Op):
    """out = a * b, element by element; b is a value like a, a weight row, or a weight of one."""

    NAME: ClassVar[str] = "mul"
    a: Value
    b: Value | WeightRef
    out: Value

    def __post_init__(self) -> None:
        if isinstance(self.b, Value):
            self.need_like(self.b, self.a)
        else:
            need = f"1 or {self.a.width}"
            self.need(self.b.size in (1, self.a.width), "size of b", self.b.size, need)
        self.need_like(self.out, self.a)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scale(Op):
    """out = by * x; then times 1 + beta ln(1 + floor(pos / length)) where `temp` = (beta, length);
    then cap * tanh(out / cap) where cap > 0.
    """

    NAME: ClassVar[str] = "scale"
    x: Value
    out: Value
    by: float = 1.0
    cap: float = 0.0
    temp: tuple[float, int] | None = None

    def __post_init__(self) -> None:
        self.need_finite(by=self.by, cap=self.cap)
        self.need(self.cap >= 0, "cap", self.cap, "0 or more")
        if self.temp is not None:
            self.need_finite(beta=self.temp[0])
            self.need(self.temp[1] >= 1, "length", self.temp[1], "1 or more")
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Softmax(Op):
    """out = softmax of each row, the maximum subtracted first."""

    NAME: ClassVar[str] = "softmax"
    x: Value
    out: Value

    def __post_init__(self) -> None:
        self.need_like(self.out, self.x)
