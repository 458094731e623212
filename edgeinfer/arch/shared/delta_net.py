"""Write decoders of attention among gated delta-nets; what their MLP is, is an argument."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from edgeinfer.arch.shared.blocks import Heads, attend, heads_of, moe_block, shared_mlp
from edgeinfer.arch.shared.decoder import Mixed, Mixer, Mlp, Style, decoder
from edgeinfer.arch.shared.experts import read_experts
from edgeinfer.arch.shared.hyper import MAX_WIDTH, Hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.arch.shared.state_sizes import read_state
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
from edgeinfer.program.ops_mixing import HeadMap
from edgeinfer.program.values import Use, Value, WeightRef
from edgeinfer.quant.tensor import Tensor

L2_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Net:
    """Sizes of a gated delta-net."""

    k_heads: int
    v_heads: int
    key_dim: int
    value_dim: int
    n_taps: int

    @property
    def n_keys(self) -> int:
        """Elements of all key heads."""
        return self.k_heads * self.key_dim

    @property
    def n_values(self) -> int:
        """Elements of all value heads."""
        return self.v_heads * self.value_dim

    @property
    def n_mixed(self) -> int:
        """Elements that go through the convolution: queries, keys, values."""
        return 2 * self.n_keys + self.n_values


Projected = tuple[Value, Value, Value, Value | None]


@dataclass(frozen=True, slots=True)
class Form:
    """What files of a family hold of a delta-net, and which key head a value head uses.

    `project` returns queries, keys and values in one; for each value head what becomes its decay
    and how much it learns; and the gate, where it is not `attn_gate`, which is read last.
    """

    project: Callable[[Builder, Value, str, Net], Projected]
    map: HeadMap


def _separate(b: Builder, x: Value, layer: str, net: Net) -> Projected:
    return (
        b.linear(x, f"{layer}.attn_qkv", net.n_mixed),
        b.linear(x, f"{layer}.ssm_alpha", net.v_heads),
        b.linear(x, f"{layer}.ssm_beta", net.v_heads),
        None,
    )


def _by_key_head(b: Builder, x: Value, layer: str, net: Net) -> Projected:
    """Take rows apart that stand key head by key head, with those of its value heads."""
    n_own, gate = net.v_heads // net.k_heads, None
    if b.has(f"{layer}.ssm_in.weight"):
        own = n_own * net.value_dim
        whole = b.linear(x, f"{layer}.ssm_in", net.n_mixed + net.n_values)
        q, k, rest = b.split(whole, net.key_dim, net.key_dim, 2 * own, groups=net.k_heads)
        v, gate = b.split(rest, own, own, groups=net.k_heads)
        mixed = b.concat(q, k, v)
    else:
        mixed = b.linear(x, f"{layer}.attn_qkv", net.n_mixed)
    both = b.linear(x, f"{layer}.ssm_ba", 2 * net.v_heads)
    beta, a = b.split(both, n_own, n_own, groups=net.k_heads)
    return mixed, a, beta, gate


TILED, GROUPED = Form(_separate, "tiled"), Form(_by_key_head, "grouped")


def delta_decoder(
    b: Builder,
    m: Metadata,
    tensors: Mapping[str, Tensor],
    hp: Hyper,
    mlp: Mlp,
    *,
    form: Form = TILED,
) -> None:
    """Write a decoder whose layers attend or recur, then apply an MLP, each added to what came in.

    Raises ModelFormatError naming the key at fault.
    """
    if m.integer(".nextn_predict_layers", 0, least=0):
        raise UnsupportedModelError(
            f"{m.where}: key '{m.full_key('.nextn_predict_layers')}': found layers that predict "
            "several tokens (need 0): convert the model without them"
        )
    rope = scaled_table(m, tensors, hp, rope_dims(m, hp.key_dim))
    net, recurrent = _net(m), _recurrent(m, hp.n_layers)

    def recur(b: Builder, x: Value, layer: str) -> Mixed:
        return [(_delta_net(b, x, layer, net, form, hp.eps), "ssm_out")]

    def attend_in(il: int) -> Mixer:
        heads = replace(heads_of(hp, il, rope), qk_norm="heads")
        return lambda b, x, layer: [(_gated_attention(b, x, layer, heads), "attn_output")]

    plan = [recur if recurrent[il] else attend_in(il) for il in range(hp.n_layers)]
    decoder(b, hp, plan, mlp, Style(ffn_norm="post_attention_norm"))


def gated_experts(m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper) -> Mlp:
    """Return an MLP of experts and one more that all rows meet, as far as its gate lets them."""
    experts = read_experts(m, tensors, hp)
    key = ".expert_shared_feed_forward_length"
    n_shared = m.integer(key, experts.n_ff, least=1, most=MAX_WIDTH)

    def mlp(b: Builder, x: Value, il: int) -> Value:
        layer = f"blk.{il}"
        chosen = moe_block(b, x, layer, experts, "silu")
        shared = shared_mlp(b, x, layer, n_shared, "silu")
        gate = b.linear(x, f"{layer}.ffn_gate_inp_shexp", 1)
        return b.add(chosen, b.gated(gate, shared, "sigmoid"))

    return mlp


def _gated_attention(b: Builder, x: Value, layer: str, heads: Heads) -> Value:
    """Attend; each head of the queries' matrix brings the gate of its output behind it."""
    n, dim, n_kv = heads.n_heads, heads.key_dim, heads.n_kv_heads
    q, gate = b.split(b.linear(x, f"{layer}.attn_q", 2 * n * dim), dim, dim, groups=n)
    k = b.linear(x, f"{layer}.attn_k", n_kv * dim)
    v = b.linear(x, f"{layer}.attn_v", n_kv * heads.value_dim)
    return b.gated(gate, attend(b, q, k, v, layer, heads), "sigmoid")


def _delta_net(b: Builder, x: Value, layer: str, net: Net, form: Form, eps: float) -> Value:
    """Return what the state gives, normed per head and gated, before `ssm_out`."""
    mixed, a, beta, gate = form.project(b, x, layer, net)
    u = b.act(b.conv1d(mixed, f"{layer}.ssm_conv1d", net.n_taps), "silu")
    q, k, v = b.split(u, net.n_keys, net.n_keys, net.n_values)
    q, k = (b.l2_norm(part, L2_EPS, groups=net.k_heads) for part in (q, k))
    a = b.add(a, _row(b, f"{layer}.ssm_dt.bias", net))
    g = b.mul(b.act(a, "softplus"), _row(b, f"{layer}.ssm_a", net))
    beta = b.act(beta, "sigmoid")
    y = b.delta_net(q, k, v, g, beta, k_heads=net.k_heads, v_heads=net.v_heads, map=form.map)
    y = b.rms_norm(y, f"{layer}.ssm_norm", eps, groups=net.v_heads)
    return b.gated(gate or b.linear(x, f"{layer}.attn_gate", net.n_values), y, "silu")


def _row(b: Builder, name: str, net: Net) -> WeightRef:
    return WeightRef(name, (net.v_heads,), Use.VECTOR)


def _net(m: Metadata) -> Net:
    sizes = read_state(m)
    return Net(
        k_heads=sizes.groups,
        v_heads=sizes.heads,
        key_dim=sizes.state,
        value_dim=sizes.inner // sizes.heads,
        n_taps=sizes.n_taps,
    )


def _recurrent(m: Metadata, n_layers: int) -> tuple[bool, ...]:
    """Read which layers do not attend: an array, or all but every p-th."""
    found = m.per_layer(".attention.recurrent_layers", n_layers, None, least=0, most=1)
    if found is not None:
        return tuple(map(bool, found))
    period = m.integer(".full_attention_interval", 4, least=1)
    return tuple((il + 1) % period > 0 for il in range(n_layers))
