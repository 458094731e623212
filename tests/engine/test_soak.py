"""A few seconds of the soak that `make soak` runs for ten minutes."""

import pytest

from tests.engine.soak import soak

pytest.importorskip("edgeinfer.kernels.native._native")


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_everything_holds_while_callers_disturb_the_engine(tmp_path, arch):
    state, _ = soak(tmp_path, 3.0, arch)

    assert state.counts["read: length"] > 0
    assert state.counts["await: length"] > 0
    assert state.counts["cancel: cancelled"] > 0
