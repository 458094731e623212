"""benchmarks.widened: the wider model computes what the source does, in rows of whole blocks."""

import numpy as np
import pytest

from benchmarks.widened import EPSILON, facts, widened, widening
from edgeinfer.loader.metadata import Metadata

WIDTH, UNITS = 192, 64
SHAPES = {
    "attn_v": (WIDTH, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_up": (UNITS, WIDTH),
    "ffn_down": (WIDTH, UNITS),
}


@pytest.fixture
def metadata():
    counts = {"embedding_length": WIDTH, "feed_forward_length": UNITS}
    counts |= {"attention.head_count": 3, "attention.head_count_kv": 3}
    values = {f"llama.{key}": n for key, n in counts.items()}
    values |= {"general.architecture": "llama", f"llama{EPSILON}": 1e-2}
    return Metadata(values)


def normed(h: np.ndarray, w: np.ndarray, epsilon: float) -> np.ndarray:
    return h / np.sqrt(np.square(h).mean() + epsilon) * w


def test_a_wider_model_computes_the_same(metadata):
    rng = np.random.default_rng(1)
    by = widening(metadata, rng)
    source, share = by.residual.source, by.residual.share
    w = {role: rng.standard_normal(shape, np.float32) for role, shape in SHAPES.items()}
    wide = {role: widened(f"blk.0.{role}.weight", x, by) for role, x in w.items()}
    assert [wide[role].shape[1] for role in ("attn_v", "attn_output", "ffn_up")] == [256] * 3
    assert len(np.unique(source)) == WIDTH
    norm, h = rng.standard_normal((2, WIDTH)).astype(np.float32)
    wide_norm = widened("blk.0.attn_norm.weight", norm, by)
    epsilon = {entry.key: entry.value for entry in facts(metadata, by)}[f"llama{EPSILON}"]
    x, wide_x = normed(h, norm, 1e-2), normed(h[source] * share, wide_norm, epsilon)
    for first, second in (("attn_v", "attn_output"), ("ffn_up", "ffn_down")):
        want = w[second] @ (w[first] @ x)
        got = wide[second] @ (wide[first] @ wide_x)
        np.testing.assert_allclose(got, want[source] * share, rtol=1e-4, atol=1e-3)
