"""GBNF means what it means to llama.cpp; what is none is refused with its line and column."""

import pytest

from edgeinfer.errors import GrammarError
from edgeinfer.text.gbnf import gbnf_to_lark
from edgeinfer.text.grammar import Grammar
from tests.text.spelling import accepts

JSON = r"""
# a value, and white space around its parts
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
CHESS = """
root ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move " " move "\\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"""


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "y", "yesno", "yes\n"]),
        ('root ::= "a"* "b"+ "c"?', ["b", "aabbc"], ["a", "bcc", "ac"]),
        ('root ::= ("a"*)*', ["", "aaa"], ["b"]),
        ('root ::= "a" | ', ["a", ""], ["aa"]),
        ('root ::= ("ab" | "c"){2}', ["abc", "cc"], ["c", "ccc"]),
        ('root ::= "a"{2,}', ["aa", "aaaaa"], ["a"]),
        ('root ::= "a"{1,3}', ["a", "aaa"], ["", "aaaa"]),
        ('root ::= "x" "a"{0} "a"{0,0}', ["x"], ["xa"]),
        ("root ::= [a-c-]+", ["a-c"], ["d", ""]),
        ("root ::= [^a-c\\n]", ["d", "é"], ["a", "\n"]),
        ("root ::= .", ["\n", "/", "🔥"], ["", "ab"]),
        (r'root ::= "\u00e9\x41\U0001F525\"\\\n/"', ['éA🔥"\\\n/'], ["e"]),
        ("root ::= [🔥-🙃]+", ["🔥🙂"], ["😀x", "é"]),
        (r"root ::= [\]\[]+", ["[]"], ["\\"]),
        ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["(x", "()"]),
        ('root ::= root "+" "x" | "x"', ["x", "x+x+x"], ["x+"]),
        ('root ::= fooBar foo-bar foo_bar\nfooBar ::= "1"\nfoo-bar ::= "2"\nfoo_bar ::= "3"',
         ["123"], ["12"]),
        ('root ::= start\nstart ::= "s"', ["s"], ["start"]),
        ('root ::= # why\n  "a" # or\n  | "b"\n\n\n', ["a", "b"], ["ab"]),
        ('root ::= (\n "a"\n "b"\n)\r\n', ["ab"], ["a"]),
        ('root ::= "a"\nunused ::= unused', ["a"], [""]),
        (JSON, ['{}', '{"a": [1, -2.5e3, {"b": null}], "é\\n": "x"}'], ['[1]', '{"a":   1}', "{"]),
        (CHESS, ["1. e4 e5\n2. Nf3 Nc6\n"], ["1. e4\n", "1. e9 e5\n"]),
    ],
)  # fmt: skip
def test_a_grammar_accepts_its_texts_and_no_others(source, right, wrong):
    grammar = Grammar.from_gbnf(source)

    assert [text for text in right if not accepts(grammar, text)] == []
    assert [text for text in wrong if accepts(grammar, text)] == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "found no rules"),
        ("# only a remark", "found no rules"),
        ("root ::=", "rule 'root': found nothing"),
        ('x ::= "a"', "no rule 'root'"),
        ('root ::= "a" thing', "line 1, column 14: found 'thing'"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: found rule 'root' again"),
        ('root ::= "a', "line 1, column 10"),
        ("root ::= [a", "line 1, column 10"),
        ("root ::= []", "line 1, column 10"),
        ("root ::= [z-a]", r"found \[z-a\]"),
        (r'root ::= "\q"', "line 1, column 11"),
        (r'root ::= "\ud800"', "need a Unicode character"),
        ('root ::= ("a"', "without its"),
        ('root ::= "a" )', "line 1, column 14"),
        ('root ::= * "a"', r"found '\*'"),
        ('root ::= "a"\n  "b"', "line 2, column 3"),
        ('root ::= "a"{3,1}', r"found \{3,1\}"),
        ('root ::= "a"{,2}', "line 1, column 13"),
        ('root ::= "a"{0,9223372036854775808}', "need counts of 0 to 1000000"),
        ("root ::= <think>", "found '<think>'"),
        ('root = "a"', "line 1"),
        ("::= x", "line 1"),
        ("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "nested deeper than 50"),
    ],
)
def test_what_is_no_gbnf_is_refused(source, message):
    with pytest.raises(GrammarError, match=message):
        gbnf_to_lark(source)


def test_rules_without_recursion_are_terminals():
    lark = gbnf_to_lark('root ::= list\nlist ::= "(" (item | list)* ")"\nitem ::= [a-z]')

    assert lark.splitlines() == [
        "start: r0",
        "r0: r1",
        "r1: /\\x{28}/ ((R2 | r1))* /\\x{29}/",
        "R2: /[\\x{61}-\\x{7A}]/",
    ]
