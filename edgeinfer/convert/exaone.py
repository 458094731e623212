"""Return the metadata of EXAONE 4, of which the larger models have windows."""

from edgeinfer.convert.config import SLIDING, Config
from edgeinfer.convert.keys import Keys, base_keys, every, window_keys
from edgeinfer.convert.rotation import rope_keys, rope_of

WINDOW = 4096  # where nothing is said; null says that there is none


def exaone4_keys(c: Config) -> Keys:
    """Return the keys; every fourth layer is global where the layers are not listed."""
    c.expect("hidden_act", "silu")
    keys = base_keys(c) + rope_keys(c, rope_of(c, theta=10000.0))
    if c.raw.get("sliding_window", WINDOW) is None:
        return keys
    types = None
    if c.raw.get("layer_types") is None:
        # Beside a list of layers this may be a text, as "LLLG".
        types = every(c, c.values.integer("sliding_window_pattern", 4, least=2))
    windowed = [kind == SLIDING for kind in c.layer_types(types)]
    return [*keys, *window_keys(c, windowed, default=WINDOW)]
