"""Return the metadata of OLMo 2 and 3, of which the latter has windows."""

from edgeinfer.convert.config import FULL, SLIDING, Config
from edgeinfer.convert.keys import Keys, base_keys, every, window_keys
from edgeinfer.convert.rotation import rope_keys, rope_of


def olmo2_keys(c: Config) -> Keys:
    """Return the keys of a model without windows."""
    return _keys(c, theta=10000.0)


def olmo3_keys(c: Config) -> Keys:
    """Return the same with windows; the heads of windowed layers turn as they were trained to."""
    both = c.raw.get("rope_parameters")
    if isinstance(both, dict) and isinstance(both.get(SLIDING), dict):
        whole, local = (rope_of(c, kind, theta=500000.0) for kind in (FULL, SLIDING))
        if (local.kind, local.theta) != ("default", whole.theta):
            found = f"{local.kind} of theta {local.theta} in windowed layers"
            raise c.error("rope_parameters", f"{found} (need default of {whole.theta})")
    windowed = [kind == SLIDING for kind in c.layer_types(every(c, 4))]
    return [*_keys(c, theta=500000.0), *window_keys(c, windowed, default=4096)]


def _keys(c: Config, *, theta: float) -> Keys:
    c.expect("hidden_act", "silu")
    return base_keys(c) + rope_keys(c, rope_of(c, theta=theta))
