"""A model behind the `Llama` of compat, shared by the tests of a file."""

import pytest

from edgeinfer.compat.llama_cpp import Llama


@pytest.fixture(scope="module")
def llm(smollm2_path):
    llm = Llama(str(smollm2_path), n_ctx=512, seed=1, n_gpu_layers=-1, verbose=False)
    yield llm
    llm.close()
