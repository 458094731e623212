"""Find the name of a tokenizer.json's pre-tokenizer by what it does to a text.

Tokenizers spell one rule in many ways, so the cuts are compared, not the expressions: the name is
that of the row of text/pretokenizers.py that cuts a text full of such cases in the same places.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from edgeinfer.convert.tokens.foreign import Cuts, own_cuts
from edgeinfer.errors import UnsupportedModelError
from edgeinfer.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer as Engine

# What the rules differ in: contractions in either case, letters with marks, cases inside a word,
# digits of several scripts and lengths, symbols before letters, lines and slashes, kinds of spaces,
# scripts without spaces, and the sentinels and separators that single rules name.
PROBE = (
    "I'm you'RE we'll THEY'D it's 'Tis don't stop'n \u2019s  two   three    four\u00a0hard\u3000"
    "wide\t\ttab 1 12 123 1234 12345678 3.14 1,000,000 x1y22z333 \u0661\u0662\u0663\u0664 \u00bd "
    "\u2163 camelCase HTTPServer iOS McDonald ABc aBC \u01c5ungla \u0391\u03b2\u0393 \u0416\u0443 "
    "na\u00efve cafe\u0301 e\u0301a\u0300 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29 "
    "\u6f22\u5b57\u304b\u306a\u30ab\u30ca\ud55c\uae00 \u4f60\u597d\uff0c\u4e16\u754c\u3002 "
    "a.b a, b! ?? ... -- -> == #tag @name $5 50% (x) [y] {z} <a> `c` ~d ^e |f \\g _h 'q' \"r\" "
    "!word #word _word /word :word .Word ,123 $abc a/b//c ///\n//\r\n!!/\n!\n/ \n \n\n  \n\n\n x"
    "\r\n\r\ny\r z \u00ab\u00bb \u2026 \u2014 \u3001 \u060c \u06d4 \u0964 \U0001f600\U0001f600 "
    "\u2764\ufe0f \u00a9 \u20ac9 <sentinel:12> IMGIMGABCDZ  a    b  c        d                 e"
    + " " * 40
    + "f"
    + " " * 600
    + "g \u2028 \u0085 \u200b end  \n"
)


def name_of(raw: Any, *, ignore_merges: bool, where: str) -> str:
    """Return the name that `tokenizer.ggml.pre` gets.

    Args:
        raw: the "pre_tokenizer" of a tokenizer.json of byte-level BPE.
        ignore_merges: the model's setting of this name.

    Raises:
        ModelFormatError: the library refuses it.
        UnsupportedModelError: no known pre-tokenizer does the same, or it takes too long.
    """
    where = f"{where}: pre_tokenizer"
    found = own_cuts(raw, PROBE, where)
    for name, cuts in known_cuts().items():
        if cuts == found and PRE_TOKENIZERS[name].ignore_merges == ignore_merges:
            return name
    raise UnsupportedModelError(
        f"{where}: cuts texts as no known one does, ignore_merges {ignore_merges} "
        "(a guess would give wrong tokens); update edgeinfer"
    )


@cache
def known_cuts() -> dict[str, Cuts]:
    """Return where each byte-level pre-tokenizer cuts the probe, the first name of each rule."""
    cuts, seen = {}, set()
    for name, row in PRE_TOKENIZERS.items():
        if row.spaces_as_marks or (row.regexes, row.ignore_merges) in seen:
            continue
        seen.add((row.regexes, row.ignore_merges))
        cuts[name] = _cuts(_engine(row))
    return cuts


def _engine(row: PreTokenizer) -> "Engine":
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    cuts: list[Split | ByteLevel] = [Split(Regex(regex), "isolated") for regex in row.regexes]
    return Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])


def _cuts(engine: "Engine") -> Cuts:
    return tuple(engine.pre_tokenize_str(PROBE))
