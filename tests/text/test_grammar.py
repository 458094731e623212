"""Schemas, expressions and grammars hold answers to their form; hostile ones are refused, fast."""

import itertools
import json
import sys

import numpy as np
import pytest

from edgeinfer.errors import GrammarError, ModelClosedError, ResourceError
from edgeinfer.text.grammar import Grammar
from edgeinfer.text.matching import Grammars
from tests.text.spelling import END, PIECES, Spelling, accepts, allowed

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
COUNT = itertools.count()
GRAMMARS = Grammars(Spelling(), len(PIECES))


def nested(depth):
    return '{"type":"array","items":' * depth + '{"type":"string"}' + "}" * depth


def chain(n, link):
    defs = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(n)}
    return {"$defs": defs | {f"d{n}": {"type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "text",
    ['{"name":"é🔥","age":-3}', '{ "name": "a", "age": 1 }', '{\n  "name": "",\n  "age": 0\n}'],
)
def test_a_document_of_the_schema_is_accepted_however_it_is_laid_out(text):
    assert accepts(Grammar.from_json_schema(PERSON), text)
    assert accepts(Grammar.from_json_schema(json.dumps(PERSON)), text)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"a"}', '{"age":1,"name":"a"}', '{"name":"a","age":1.5}', '{"name":"a","age":01}',
        '{"name":"a","age":1,"x":0}', '{"name":"123456789","age":1}', "[]", "",
        '{"name":"a","age":1}\n', ' {"name":"a","age":1}',
        '{"name":  "a","age":1}', '{"name":\n\n"a","age":1}',
        '{"name":\n' + " " * 21 + '"a","age":1}',
    ],
)  # fmt: skip
def test_other_documents_and_runs_of_white_space_are_not(text):
    assert not accepts(Grammar.from_json_schema(PERSON), text)


def test_a_schema_of_properties_or_items_means_objects_or_arrays():
    grammar = Grammar.from_json_schema(
        {"properties": {"a": {"anyOf": [{"items": {}}, {"type": "null"}]}}, "required": ["a"]}
    )

    assert accepts(grammar, '{"a": [1]}')
    assert accepts(grammar, '{"a": null}')
    assert not accepts(grammar, "1")
    assert not accepts(grammar, '{"a": 1}')


def test_any_json_is_an_object():
    grammar = Grammar.any_json()

    assert accepts(grammar, '{"a": [1, {"b": null}], "c": "é\\n"}')
    assert not accepts(grammar, "[1]")
    assert not accepts(grammar, '{"a": \n\n\n1}')


def test_a_class_that_describes_itself_is_a_schema():
    class Person:
        @classmethod
        def model_json_schema(cls):
            return PERSON

    assert Grammar.from_json_schema(Person) == Grammar.from_json_schema(PERSON)


@pytest.mark.parametrize(
    ("regex", "right", "wrong"),
    [
        (r"\d{3}-\d{4}", "555-1234", "555-12345"),
        (r"a/b\/c", "a/b/c", "a/b\\/c"),
        ("a\nb", "a\nb", "ab"),
        (r"(?i)yes|no", "YES", "y"),
        (r"[^\n]*", "", "a\n"),
        (r"\p{Greek}+", "αβ", "ab"),
    ],
)
def test_a_regular_expression_matches_the_whole_answer(regex, right, wrong):
    grammar = Grammar.from_regex(regex)

    assert accepts(grammar, right)
    assert not accepts(grammar, wrong)


def test_the_two_notations_are_told_apart():
    assert Grammar.from_text('# x\nroot ::= "a"').kind == "gbnf"
    assert Grammar.from_text('start: "::="').kind == "lark"
    assert accepts(Grammar.from_text('start: thing+\nthing: "a" | %json {"type": "null"}'), "anull")


def test_options_in_a_grammar_stay():
    grammar = Grammar.from_lark('%llguidance {"allow_invalid_utf8": true}\nstart: "a"')

    assert grammar.source.count("%llguidance") == 1
    assert '"allow_invalid_utf8": true' in grammar.source


def test_a_text_that_spells_a_directive_is_text():
    described = {"type": "null", "description": "%llguidance and %json"}

    assert accepts(Grammar.from_json_schema(described), "null")
    assert accepts(Grammar.from_regex("%llguidance"), "%llguidance")
    assert accepts(Grammar.from_lark('start: "%json" | "%llguidance {}"'), "%json")


def test_a_file_is_read(tmp_path):
    path = tmp_path / "answer.gbnf"
    path.write_text('\ufeffroot ::= "é"', encoding="utf-8")

    assert accepts(Grammar.from_file(path), "é")
    path.write_bytes(b'root ::= "\xff"')
    with pytest.raises(GrammarError, match="not UTF-8"):
        Grammar.from_file(path)
    with pytest.raises(GrammarError, match="No such file"):
        Grammar.from_file(tmp_path / "none")


def test_the_end_may_come_only_where_the_answer_is_complete():
    matcher = GRAMMARS.matcher(Grammar.from_regex("ab+"))

    assert not allowed(matcher)[END]
    for byte in b"ab":
        matcher.accept(byte)
    assert allowed(matcher)[END]
    assert not matcher.is_done
    matcher.accept(END)
    assert matcher.is_done


def test_control_tokens_and_empty_pieces_never_come_as_text():
    matcher = GRAMMARS.matcher(Grammar.from_regex("(?s:.)+"))

    assert not allowed(matcher)[END:].any()
    assert allowed(matcher)[:0x80].all()


def test_every_token_that_fits_may_come_not_one_spelling_only():
    matcher = GRAMMARS.matcher(Grammar.from_regex("the end"))

    pieces = {PIECES[i] for i in np.flatnonzero(allowed(matcher))}
    assert pieces == {b"t", b"the"}


def test_parts_of_a_character_lead_to_whole_ones():
    matcher = GRAMMARS.matcher(Grammar.from_gbnf("root ::= [🔥-🙃]"))
    for token in (PIECES.index("🔥".encode()[:2]), *"🔥".encode()[2:]):
        assert allowed(matcher)[token]
        matcher.accept(token)

    assert matcher.is_done


@pytest.mark.parametrize("n_vocab", [len(PIECES) + 40, 100])
def test_rows_of_another_length_than_the_vocabulary(n_vocab):
    matcher = Grammars(Spelling(), n_vocab).matcher(Grammar.from_regex("[a-z]+"))

    found = allowed(matcher)
    assert n_vocab <= len(found) < n_vocab + 8
    assert np.flatnonzero(found).max() < min(n_vocab, len(PIECES))
    assert found[ord("a")]


def test_a_vocabulary_without_an_end():
    matcher = Grammars(Spelling(stop_ids=()), len(PIECES)).matcher(Grammar.from_regex("ab?"))
    matcher.accept(ord("a"))

    assert np.flatnonzero(allowed(matcher)).tolist() == [ord("b")]
    matcher.accept(ord("b"))
    assert matcher.is_done


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "need a JSON object"),
        ("false", "need a JSON object"),
        (7, "found int"),
        ('{"type": "number", "minimum": NaN}', "json_schema"),
        ({"a": {1, 2}}, "cannot be written"),
        ({"type": "strnig"}, "strnig"),
        ({"not": {}}, "#/not: not offered"),
        ({"properties": {"not": {"a/b": 1, "if": {}, "then": {}}}}, "#/properties/not/if"),
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems"),
        ({"x-guidance": {"lenient": True}, "not": {}}, "#/not"),
        ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, "#/oneOf: not offered"),
        ({"type": "string", "format": "klingon"}, "klingon"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": r"(a)\1"}, "backreferences"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "Unsatisfiable"),
        ({"enum": []}, "Unsatisfiable"),
        ({"type": "array", "minItems": 2**70}, "minItems"),
        ({"$ref": "https://example.org/schema.json"}, r"#/\$ref: found 'https"),
        ({"$ref": "#/$defs/none"}, r"#/\$ref"),
        ({"properties": {"a": {"$ref": "#/anyOf/7"}}, "anyOf": [{}]}, r"#/properties/a/\$ref"),
        ({"$ref": "#"}, "none of the model's tokens"),
        (chain(2, lambda ref: ref) | {"$ref": "#/$defs/x"}, r"\$ref"),
        (nested(101), "100 levels"),
        (nested(10_000), "nested deeper"),
        (nested(100_000), "characters"),
        (chain(900, lambda ref: {"type": "object", "properties": {"a": ref}}), "levels deep"),
        (chain(5000, lambda ref: {"allOf": [ref, {"type": "string"}]}), "found"),
        ({"properties": {f"p{i}": {} for i in range(1001)}}, "found 1001 keys"),
        ({"type": "integer", "multipleOf": 999_983}, "#/multipleOf: found 999983"),
        ({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}, "#/allOf/0/multipleOf"),
        ({"anyOf": [{"multipleOf": n} for n in range(1, 10**4)]}, "least common multiple"),
        ({"allOf": [{"pattern": f"^[ab]*a[ab]{{{n}}}$"} for n in range(35)]}, "11 patterns"),
        (
            chain(35, lambda ref: {"pattern": f"^[ab]*a[ab]{{{next(COUNT)}}}$", **ref}),
            "11 patterns",
        ),
        ({"type": "number", "multipleOf": 1e-300}, "too many digits"),
        ({"type": "integer", "multipleOf": -999_983}, "#/multipleOf"),
        ({"type": "integer", "multipleOf": 0}, "multiple of"),
        ({"enum": list(range(100_000))}, "more than 50000 values"),
        ({"k" * 9000: {"l" * 9000: {"anyOf": [{}] * 20_000 + [{"$ref": "#/x"}]}}}, "kkkk\\.\\.\\."),
        ({"anyOf": [{"$ref": f"#/{'anyOf/' * (i % 9)}{i}"} for i in range(900)]}, r"\$ref"),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_refused(schema, message):
    with pytest.raises(GrammarError, match=message):
        GRAMMARS.matcher(Grammar.from_json_schema(schema))


@pytest.mark.parametrize(
    "schema",
    [
        nested(60),
        chain(200, lambda ref: {"type": "object", "properties": {"a": ref}}),
        {"enum": [f"v{i}" for i in range(10_000)]},
        {"properties": {f"p{i}": {"type": "string"} for i in range(500)}},
        {"type": "string", "pattern": "^((a{1000}){1000}){1000}$"},
        {"type": "array", "minItems": 10**9},
        {"properties": {"$ref": {"type": "string"}, "enum": {"type": "null"}}},
        {"enum": [{"$ref": "x"}]},
        {"anyOf": [{"pattern": f"^a{{{n}}}$"} for n in range(40)]},
        {"allOf": [{"properties": {f"p{n}": {"type": "null"}}} for n in range(20)]},
        {"anyOf": [{"type": "number", "multipleOf": n} for n in (0.01, 0.25, 5, 64, 1_000_000)]},
        {"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        {"title": "T", "description": "d", "type": "string", "examples": ["a"], "x-own": 1},
    ],
)
def test_a_large_schema_within_the_limits_compiles(schema):
    assert GRAMMARS.matcher(Grammar.from_json_schema(schema)).allowed().any()


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        ("", "found 0 characters"),
        ("a" * 300_000, "need 1 to 262144"),
        ("(", "unclosed group"),
        ("(" * 1000 + "a" + ")" * 1000, "nested parentheses"),
        ("(?<=a)b", "look-around"),
        (r"[^\x00-\U0010FFFF]", "none of the model's tokens"),
        ("a{0,9223372036854775808}", "regex: "),
        (5, "found int"),
    ],
)
def test_an_expression_that_cannot_be_kept_to_is_refused(regex, message):
    with pytest.raises(GrammarError, match=message):
        GRAMMARS.matcher(Grammar.from_regex(regex))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('start: "a', "line 1, column"),
        ('\nstart: "b"\n  | foo', "line 2, column 8: unknown name"),
        ("start: a\na: b\nb: a", "none of the model's tokens"),
        ('start: a\na: a "x"', "none of the model's tokens"),
        ('start: "' + "x" * 300_000 + '"', "characters"),
        ("start: " + "(" * 60_000 + '"a"' + ")" * 60_000, "levels of groups"),
        ("start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(5000)) + 'r5000: "a"',
         "levels"),
        ("start: R0\n" + "".join(f"R{i}: (((R{i + 1})))\n" for i in range(300)) + 'R300: "a"',
         "levels"),
        ("start: %json " + json.dumps(chain(900, lambda ref: {"properties": {"a": ref}})),
         "levels"),
        ("start: %json [1]", "JSON"),
        ('start: %json {"a": NaN}', "line 1"),
        ("start: X\nX: " + " & ".join(f"/[ab]*a[ab]{{{n}}}/" for n in range(35)), "found 34 of &"),
        ('start: %json {"not": {}}', "not"),
        ("%llguidance [\nstart: /a/", "no JSON object"),
        ("start" + "\n" * 200_000, "line 1"),
        ("start" + "[ " * 100_000, "line 1"),
    ],
)  # fmt: skip
def test_a_grammar_that_cannot_be_kept_to_is_refused(text, message):
    with pytest.raises(GrammarError, match=message):
        GRAMMARS.matcher(Grammar.from_lark(text))


@pytest.mark.parametrize(
    "text",
    [
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(5000)) + 'r5000 ::= "a"',
        "root ::= root",
    ],
)  # fmt: skip
def test_a_translated_grammar_is_held_to_the_same_limits(text):
    with pytest.raises(GrammarError):
        GRAMMARS.matcher(Grammar.from_gbnf(text))


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.from_regex("((a|b)*c(a|b){30}){1000}"),
        Grammar.from_regex("(a{1000}){1000}"),
        Grammar.from_lark('start: s\ns: (("a" | "a")*)*'),
        Grammar.from_lark("start: x\nx: " + '"a"? ' * 300 + '"b"'),
        Grammar.from_gbnf('root ::= ("a"{1000}){1000} root?'),
    ],
)
def test_an_ambiguous_grammar_gives_masks_or_a_grammar_error(grammar):
    matcher = GRAMMARS.matcher(grammar)
    try:
        for _ in range(50):
            matcher.accept(int(np.flatnonzero(allowed(matcher))[0]))
    except GrammarError as error:
        assert "simplify" in str(error)
    assert matcher.is_done or allowed(matcher).any()


def test_without_the_library_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)

    with pytest.raises(ResourceError, match=r"pip install 'edgeinfer\[grammar\]'"):
        Grammars(Spelling(), len(PIECES)).matcher(Grammar.any_json())


def test_closed_grammars_say_so():
    grammars = Grammars(Spelling(), len(PIECES))
    grammars.close()

    with pytest.raises(ModelClosedError):
        grammars.matcher(Grammar.any_json())
