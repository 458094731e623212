"""Name the pre-tokenizers: how each BPE model cuts text into words before merging inside them.

Goes in: the name in `tokenizer.ggml.pre`. Comes out: regular expressions, applied in order, each
isolating its matches, and the few switches that go with the name. The expressions are facts of the
models' published tokenizers, in the syntax of Oniguruma. An unknown name is an error: a wrong
expression gives wrong ids for every third text, and nothing else would show it. Left out are
superbpe, tiny_aya and cohere2moe, whose expressions take time quadratic in a run of digits.
"""

from dataclasses import dataclass

from edgeinfer.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How to cut text.

    Attributes:
        regexes: applied one after the other to what the one before left, matches isolated.
        ignore_merges: a word that is a token is taken whole, whatever the merges say.
        add_bos: the default of `tokenizer.ggml.add_bos_token`.
        add_sep: the default of `tokenizer.ggml.add_sep_token`.
        spaces_as_marks: spaces become U+2581 and bytes are tokens <0x00>..<0xFF> (Gemma 4), where
            the others map bytes to printable characters (GPT-2).
    """

    regexes: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    add_sep: bool = False
    spaces_as_marks: bool = False


_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
    rf"|{_SPACES}"
)


def _cased(digits: str, tail: str) -> str:
    """Words cut where lower case turns to upper, as in GPT-4o's vocabulary."""
    return (
        rf"{_LEAD}{_UPPER}*{_LOWER}+{tail}|{_LEAD}{_UPPER}+{_LOWER}*{tail}"
        rf"|{digits}|{_SYMBOLS_SLASH}|{_SPACES}"
    )


_GPT4O = _cased(r"\p{N}{1,3}", f"{_CONTRACTIONS}?")
_DEEPSEEK_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_DEEPSEEK_V3 = (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK_WORDS)
# The cased letters DeepSeek's first tokenizer lists, as code points: composed Greek letters do not
# survive editors that normalise text.
_DEEPSEEK_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA "
    "1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 "
    "1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB "
    "1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D "
    "212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 "
    "A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A "
    "FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)


def _char_class(ranges: str) -> str:
    return "".join("-".join(rf"\x{{{end}}}" for end in item.split("-")) for item in ranges.split())


_DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
_DEEPSEEK_LLM = (
    "[\r\n]",
    rf"\s?[{_char_class(_DEEPSEEK_LETTERS)}]+",
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_BAILING = (
    rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_LEAD}\p{{L}}+|\p{{N}}|{_SYMBOLS}"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|{_LEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_JAIS2 = (
    rf"{_CONTRACTIONS}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{_SYMBOLS}|\s*[\r\n]+"
    + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"|\s{1,2}(?!\S)|\s{1}"
)
_LINES = r"[^\n]+|[\n]+"

_ROWS: tuple[tuple[str, PreTokenizer], ...] = (
    ("default", PreTokenizer(_DEFAULT)),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    ("dbrx smaug-bpe glm4 chatglm-bpe", PreTokenizer((_LLAMA3,))),
    ("jais-2", PreTokenizer((_JAIS2,))),
    (
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
        "mpt olmo jais trillion granite-docling exaone4",
        PreTokenizer((_GPT2,)),
    ),
    ("jina-v1-en jina-v2-code roberta-bpe", PreTokenizer((_GPT2,), add_sep=True)),
    (
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    (
        "qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan grok-2 solar-open",
        PreTokenizer((_QWEN2,)),
    ),
    ("qwen35", PreTokenizer((_QWEN35,))),
    ("deepseek-llm", PreTokenizer(_DEEPSEEK_LLM)),
    ("deepseek-coder", PreTokenizer(_DEEPSEEK_CODER)),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", PreTokenizer(_DEEPSEEK_V3)),
    ("falcon", PreTokenizer(_FALCON)),
    ("tekken", PreTokenizer((_cased(r"\p{N}", ""),), ignore_merges=True, add_bos=True)),
    ("gpt-4o o200k llama4 kanana2 talkie minimax-m2", PreTokenizer((_GPT4O,))),
    ("granite-embed-multi-97m", PreTokenizer((_GPT4O,), ignore_merges=True)),
    ("bloom poro-chat gpt3-finnish", PreTokenizer((_BLOOM,))),
    ("viking", PreTokenizer((_BLOOM, r"\p{N}"))),
    ("chameleon", PreTokenizer(_CHAMELEON, add_bos=True)),
    ("bailingmoe bailingmoe2 llada-moe", PreTokenizer((_BAILING,))),
    ("seed-coder", PreTokenizer((_SEED,))),
    ("laguna", PreTokenizer((_LINES, _QWEN2))),
    ("exaone-moe", PreTokenizer((_EXAONE_MOE,))),
    ("gemma4", PreTokenizer((_LINES,), add_bos=True, spaces_as_marks=True)),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: row for names, row in _ROWS for name in names.split()
}


def pre_tokenizer(name: str | None, where: str) -> PreTokenizer:
    """Return the pre-tokenizer of a name.

    Raises:
        UnsupportedModelError: the name is unknown, or the file gives none.
    """
    if name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    found = "none" if name is None else repr(name)
    raise UnsupportedModelError(
        f"{where}: key 'tokenizer.ggml.pre': found {found} "
        f"(known: {', '.join(sorted(PRE_TOKENIZERS))}); a guess would give wrong tokens, so "
        "convert the model again with a current converter or update edgeinfer"
    )
