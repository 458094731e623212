"""Write decoders of attention among gated delta-nets; what their MLP is, is an argument."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgeinfer.arch.shared.blocks import Heads, attend, heads_of
from edgeinfer.arch.shared.decoder import Mixed, Mixer, Mlp, Style, decoder
from edgeinfer.arch.shared.hyper import Hyper
from edgeinfer.arch.shared.rotation import rope_dims, scaled_table
from edgeinfer.arch.shared.state_sizes import read_state
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.loader.metadata import Metadata
from edgeinfer.program.builder import Builder
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


def delta_decoder(
    b: Builder, m: Metadata, tensors: Mapping[str, Tensor], hp: Hyper, mlp: Mlp
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
        return [(_delta_net(b, x, layer, net, hp.eps), "ssm_out")]

    def attend_in(il: int) -> Mixer:
        heads = replace(heads_of(hp, il, rope), qk_norm="heads")
        return lambda b, x, layer: [(_gated_attention(b, x, layer, heads), "attn_output")]

    plan = [recur if recurrent[il] else attend_in(il) for il in range(hp.n_layers)]
    decoder(b, hp, plan, mlp, Style(ffn_norm="post_attention_norm"))


def _gated_attention(b: Builder, x: Value, layer: str, heads: Heads) -> Value:
    """Attend; each head of the queries' matrix brings the gate of its output behind it."""
    n, dim, n_kv = heads.n_heads, heads.key_dim, heads.n_kv_heads
    q, gate = b.split(b.linear(x, f"{layer}.attn_q", 2 * n * dim), dim, dim, groups=n)
    k = b.linear(x, f"{layer}.attn_k", n_kv * dim)
    v = b.linear(x, f"{layer}.attn_v", n_kv * heads.value_dim)
    return b.gated(gate, attend(b, q, k, v, layer, heads), "sigmoid")


def _delta_net(b: Builder, x: Value, layer: str, net: Net, eps: float) -> Value:
    """Return what the state gives, normed per head and gated, before `ssm_out`."""
    keys, values = net.k_heads * net.key_dim, net.v_heads * net.value_dim
    u = b.linear(x, f"{layer}.attn_qkv", 2 * keys + values)
    u = b.act(b.conv1d(u, f"{layer}.ssm_conv1d", net.n_taps), "silu")
    q, k, v = b.split(u, keys, keys, values)
    q, k = (b.l2_norm(part, L2_EPS, groups=net.k_heads) for part in (q, k))
    a = b.add(b.linear(x, f"{layer}.ssm_alpha", net.v_heads), _row(b, f"{layer}.ssm_dt.bias", net))
    g = b.mul(b.act(a, "softplus"), _row(b, f"{layer}.ssm_a", net))
    beta = b.act(b.linear(x, f"{layer}.ssm_beta", net.v_heads), "sigmoid")
    y = b.delta_net(q, k, v, g, beta, k_heads=net.k_heads, v_heads=net.v_heads)
    y = b.rms_norm(y, f"{layer}.ssm_norm", eps, groups=net.v_heads)
    return b.gated(b.linear(x, f"{layer}.attn_gate", values), y, "silu")


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
