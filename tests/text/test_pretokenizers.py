"""Every named pre-tokenizer compiles, loses nothing of a text, and stays linear on long runs."""

import time

import pytest

from edgeinfer.text.bpe import _byte_characters
from edgeinfer.text.pretokenizers import PRE_TOKENIZERS

from .conftest import made

LETTERS = list(_byte_characters())
TEXTS = (
    "Hello, y'all! WE'LL see 3.14159 and 1234567 €uros…",
    " \t\n\r\n  x\u00a0y\u3000z   ",
    "我想在apple工作 カタカナ 한국어 नमस्ते ไทย Ελληνικά \u1f7d",
    "def f(x):\n\treturn x[1:-1] != '''a''' # <sentinel:12> IMGIMGABZ\n",
    "👩‍👩‍👧 ✅ ½ ² Ⅳ \u0301",
)


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS.keys() - {"gemma4"}))
def test_words_join_to_the_text(name: str) -> None:
    tokenizer = made(
        model="gpt2",
        pre=name,
        tokens=LETTERS,
        merges=["a b"],
        add_bos_token=False,
        add_sep_token=False,
    )

    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert len(tokenizer.encode(text)) == len(text.encode())


# One name for each list of expressions.
DISTINCT = {row.regexes: name for name, row in PRE_TOKENIZERS.items()}


@pytest.mark.parametrize("name", sorted(DISTINCT.values()))
def test_long_runs_take_linear_time(name: str) -> None:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Sequence, Split

    cut = Sequence([Split(Regex(r), "isolated") for r in PRE_TOKENIZERS[name].regexes])

    def once(text: str) -> float:
        began = time.thread_time()
        cut.pre_tokenize_str(text)
        return time.thread_time() - began

    def seconds(text: str) -> float:
        """The least of three: what a virtual machine's host takes counts as the thread's time."""
        return min(once(text) for _ in range(3))

    for run in ("A", "a", " ", "\n", "é", "7", "!", "a ", " \n", "\u0301"):
        # Ten times the text; quadratic time would be a hundred times.
        assert seconds(run * (20_000 // len(run))) < 40 * seconds(run * (2_000 // len(run))) + 0.2


def test_gemma4_marks_spaces_and_falls_back_to_bytes() -> None:
    tokens = [*(f"<0x{byte:02X}>" for byte in range(256)), "a", "▁", "▁a", "<bos>"]
    types = [6] * 256 + [1, 1, 1, 3]
    import numpy as np

    tokenizer = made(
        model="gemma4",
        tokens=tokens,
        token_type=np.array(types, np.int32),
        merges=["▁ a"],
        bos_token_id=259,
    )

    assert tokenizer.encode("a a é") == [259, 256, 258, 257, 0xC3, 0xA9]
    assert tokenizer.decode([256, 258, 257, 0xC3, 0xA9]) == "a a é"
