"""A draft has to mean the same tokens by the same ids; what differs is named."""

import numpy as np
import pytest

from edgeinfer.errors import InvalidParameterError
from edgeinfer.loader.gguf import open_gguf
from edgeinfer.loader.metadata import Metadata
from edgeinfer.loader.strings import StringArray
from edgeinfer.text.agreement import n_common_tokens

TOKENS = ["<s>", "</s>", "a", "b", "ab"]
NORMAL, CONTROL, UNUSED = 1, 3, 5


def vocabulary(tokens=TOKENS, *, types=None, kind="llama", **roles):
    roles = {"bos": 0, "eos": 1} | roles
    values = {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": StringArray.from_strings(tokens),
        "tokenizer.ggml.token_type": np.array(types or [NORMAL] * len(tokens), np.int32),
    } | {f"tokenizer.ggml.{name}_token_id": id for name, id in roles.items() if id is not None}
    return Metadata(values, where="made.gguf")


def n_common(draft, model=None):
    return n_common_tokens(model or vocabulary(), draft, where="small.gguf")


def test_equal_vocabularies_agree():
    assert n_common(vocabulary()) == len(TOKENS)


@pytest.mark.parametrize("is_draft_longer", [True, False])
def test_one_may_be_padded(is_draft_longer):
    padded = vocabulary([*TOKENS, "[PAD5]", "[PAD6]"], types=[NORMAL] * 5 + [UNUSED] * 2)

    draft, model = (padded, vocabulary()) if is_draft_longer else (vocabulary(), padded)

    assert n_common(draft, model) == len(TOKENS)


@pytest.mark.parametrize(
    ("draft", "named"),
    [
        (vocabulary(["<s>", "</s>", "a", "c", "ab"]), r"token 3: found 'c' \(need 'b'\)"),
        (vocabulary(["<s>", "</s>", "a", "bb", "a"]), r"token 3: found 'bb' \(need 'b'\)"),
        (vocabulary([*TOKENS, "x"]), "found 5 tokens, without 'x'"),
        (vocabulary(TOKENS[:4]), "found 4 tokens, without 'ab'"),
        (vocabulary(kind="gpt2"), r"tokenizer.ggml.model: found gpt2 \(need llama\)"),
        (vocabulary(eos=2), r"EOS token: found 2 \(need 1\)"),
        (vocabulary(bos=None), r"BOS token: found None \(need 0\)"),
    ],
    ids=["text", "lengths", "more", "fewer", "kind", "eos", "bos"],
)
def test_what_differs_is_named_with_the_way_out(draft, named):
    with pytest.raises(InvalidParameterError, match=named) as raised:
        n_common(draft)

    assert str(raised.value).startswith("draft: small.gguf: ")
    assert "leave `draft` out" in str(raised.value)


def test_two_models_of_different_families_do_not_agree(smollm2_path, gemma3_path):
    with open_gguf(smollm2_path) as one, open_gguf(gemma3_path) as other:
        assert n_common_tokens(one.metadata, one.metadata, where="itself") == 49152
        with pytest.raises(InvalidParameterError, match=r"tokenizer\.ggml\.model"):
            n_common_tokens(one.metadata, other.metadata, where="other.gguf")
