"""Write the mixer of Mamba-2: behind a convolution a state a head, which decays and is added to."""

from edgeinfer.arch.shared.decoder import Mixed, Mixer
from edgeinfer.arch.shared.state_sizes import StateSizes
from edgeinfer.program.builder import Builder
from edgeinfer.program.values import Value


def mamba2(sizes: StateSizes, eps: float) -> Mixer:
    """Return the mixer; what the state gives is gated, then normed if the file has `ssm_norm`."""

    def mix(b: Builder, x: Value, layer: str) -> Mixed:
        inner, shared = sizes.inner, sizes.groups * sizes.state
        parts = b.linear(x, f"{layer}.ssm_in", 2 * inner + 2 * shared + sizes.heads)
        gate, u, dt = b.split(parts, inner, inner + 2 * shared, sizes.heads)
        u = b.act(b.conv1d(u, f"{layer}.ssm_conv1d", sizes.n_taps), "silu")
        u, write, read = b.split(u, inner, shared, shared)
        y = b.ssm_scan(u, write, read, dt, layer, heads=sizes.heads, groups=sizes.groups)
        y = b.gated(gate, y, "silu")
        if b.has(f"{layer}.ssm_norm.weight"):
            y = b.rms_norm(y, f"{layer}.ssm_norm", eps, groups=sizes.groups, own=True)
        return [(y, "ssm_out")]

    return mix
