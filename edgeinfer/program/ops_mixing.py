"""Define the ops that look along a sequence: rotation, KV, attention and the recurrent ones."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from edgeinfer.program.op import Op
from edgeinfer.program.values import ConstantRef, Rows, Value, WeightRef

Pairing = Literal["half", "interleaved"]
Mask = Literal["causal", "full"]
WindowKind = Literal["past", "symmetric"]
ConvMask = Literal["causal", "centered"]
HeadMap = Literal["tiled", "grouped"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rope(Op):
    """Turn the first n = 2 * len(inv_freq) elements of each head by position-dependent angles.

    angle_i = pos[axis_i] * inv_freq_i; c, s = mscale * cos, mscale * sin; a pair (a, b) becomes
    (a c - b s, a s + b c). half: (x_i, x_(i + n/2)); interleaved: (x_2i, x_(2i+1)).
    Angles are computed in float64.
    """

    NAME: ClassVar[str] = "rope"
    x: Value
    inv_freq: ConstantRef
    out: Value
    heads: int
    pairing: Pairing
    mscale: float = 1.0
    axis: ConstantRef | None = None

    def __post_init__(self) -> None:
        self.need_choice("pairing", self.pairing, Pairing)
        self.need(self.x.rows is not Rows.SEQUENCES, "rows of x", self.x.rows.value, "T or R")
        self.need_finite(mscale=self.mscale)
        self.need_groups(self.x, self.heads, "heads")
        head_dim, n_rot = self.x.width // self.heads, 2 * self.inv_freq.length
        self.need(2 <= n_rot <= head_dim, "rotated dims", n_rot, f"2 to {head_dim}")
        if self.axis is not None:
            need = str(self.inv_freq.length)
            self.need(self.axis.length == self.inv_freq.length, "axis", self.axis.length, need)
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KvStore(Op):
    """Append keys (and values) at each token's slot of a KV; without v, values are a key prefix."""

    NAME: ClassVar[str] = "kv_store"
    WRITES: ClassVar[tuple[str, ...]] = ()
    k: Value
    v: Value | None
    kv: int

    def __post_init__(self) -> None:
        for value in self.reads():
            self.need(value.rows is Rows.TOKENS, "rows", value.rows.value, "T")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attention(Op):
    """out = softmax(scale q.k) v over the visible positions of a KV; heads share KV heads in runs.

    s = scale * (q.k); s = cap * tanh(s / cap) where softcap > 0; s -= slope_h * abs(q - p); mask;
    m = max(max s, sink_h); e = exp(s - m); out = sum(e v) / (sum(e) + exp(sink_h - m)).
    causal: p <= q. A window W > 0 shows 0 <= q - p < W (past) or abs(q - p) <= W (symmetric).
    The queries may be those of the wanted rows alone.
    """

    NAME: ClassVar[str] = "attention"
    q: Value
    out: Value
    kv: int
    heads: int
    scale: float
    softcap: float = 0.0
    mask: Mask = "causal"
    window: int = 0
    window_kind: WindowKind = "past"
    sinks: WeightRef | None = None
    slopes: ConstantRef | None = None

    def __post_init__(self) -> None:
        self.need_choice("mask", self.mask, Mask)
        self.need_choice("window_kind", self.window_kind, WindowKind)
        self.need_finite(scale=self.scale, softcap=self.softcap)
        self.need(self.scale > 0, "scale", self.scale, "above 0")
        self.need(self.softcap >= 0, "softcap", self.softcap, "0 or more")
        self.need(self.window >= 0, "window", self.window, "0 or more")
        looks_back = self.window > 0 and self.window_kind == "past"
        self.need(not looks_back or self.mask == "causal", "mask", self.mask, "causal in a window")
        self.need_groups(self.q, self.heads, "heads")
        self.need_groups(self.out, self.heads, "heads")
        self.need_shape("sinks", self.sinks, (self.heads,))
        if self.slopes is not None:
            self.need(
                self.slopes.length == self.heads, "slopes", self.slopes.length, str(self.heads)
            )
        self.need(self.q.rows is not Rows.SEQUENCES, "rows of q", self.q.rows.value, "T or R")
        self.need_same_rows(self.q, self.out)

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """How many positions behind and ahead of its own a token sees at most; None: all."""
        full = self.mask == "full"
        if self.window and self.window_kind == "symmetric":
            return self.window, self.window if full else 0
        if self.window:
            return self.window - 1, 0
        return None, None if full else 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Conv1d(Op):
    """Depthwise over time: out_t = sum_j weight[:, j] * x_(t - K + 1 + j) + bias, zeros before.

    centered: (K - 1) / 2 taps on each side within the step, without state.
    """

    NAME: ClassVar[str] = "conv1d"
    x: Value
    weight: WeightRef
    bias: WeightRef | None
    out: Value
    conv: int
    mask: ConvMask = "causal"

    def __post_init__(self) -> None:
        self.need_choice("mask", self.mask, ConvMask)
        shape = self.weight.shape
        holds = len(shape) == 2 and shape[0] == self.x.width and shape[1] >= 2
        self.need(holds, "shape of weight", shape, f"({self.x.width}, 2 or more)")
        if self.mask == "centered":
            self.need(shape[1] % 2 == 1, "taps", shape[1], "an odd number")
        self.need_shape("bias", self.bias, (self.x.width,))
        self.need(self.x.rows is Rows.TOKENS, "rows of x", self.x.rows.value, "T")
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SsmScan(Op):
    """The Mamba-2 recurrence. Head j uses group j / (heads / groups) of b and c.

    t = softplus(dt_j + dt_bias_j); S_j = S_j exp(a_j t) + (t x_j) outer b; out_j = S_j c + d_j x_j.
    a is negative, as the file holds it.
    """

    NAME: ClassVar[str] = "ssm_scan"
    x: Value
    b: Value
    c: Value
    dt: Value
    a: WeightRef
    d: WeightRef
    dt_bias: WeightRef
    out: Value
    ssm: int
    heads: int
    groups: int
    state: int

    def __post_init__(self) -> None:
        self.need_groups(self.x, self.heads, "heads")
        self.need(self.state >= 1, "state", self.state, "1 or more")
        holds = self.groups >= 1 and self.heads % self.groups == 0
        self.need(holds, "groups", self.groups, f"1 or more, dividing the heads {self.heads}")
        for what, value in (("b", self.b), ("c", self.c)):
            self.need_width(what, value, self.groups * self.state)
        self.need_width("dt", self.dt, self.heads)
        for what, ref in (("a", self.a), ("d", self.d), ("dt_bias", self.dt_bias)):
            self.need_shape(what, ref, (self.heads,), (self.heads, 1))
        self.need(self.x.rows is Rows.TOKENS, "rows of x", self.x.rows.value, "T")
        self.need_same_rows(self.x, self.b, self.c, self.dt)
        self.need_like(self.out, self.x)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeltaNet(Op):
    """The gated delta rule; value head h uses key head h % k_heads (tiled) or h / ratio (grouped).

    q *= key_dim^-0.5; S *= exp(g); r = (v - k^T S) * beta; S += k outer r; out = q^T S.
    q and k are L2-normalized already, g is -exp(A) * softplus(..) already.
    """

    NAME: ClassVar[str] = "delta_net"
    q: Value
    k: Value
    v: Value
    g: Value
    beta: Value
    out: Value
    delta: int
    k_heads: int
    v_heads: int
    map: HeadMap = "tiled"

    def __post_init__(self) -> None:
        self.need_choice("map", self.map, HeadMap)
        self.need_groups(self.q, self.k_heads, "k_heads")
        self.need_width("k", self.k, self.q.width)
        self.need_groups(self.v, self.v_heads, "v_heads")
        need = f"a multiple of the key heads {self.k_heads}"
        self.need(self.v_heads % self.k_heads == 0, "v_heads", self.v_heads, need)
        self.need_width("g", self.g, self.v_heads)
        self.need_width("beta", self.beta, self.v_heads)
        self.need(self.q.rows is Rows.TOKENS, "rows of q", self.q.rows.value, "T")
        self.need_same_rows(self.q, self.k, self.v, self.g, self.beta)
        self.need_like(self.out, self.v)
