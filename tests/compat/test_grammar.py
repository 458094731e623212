"""`LlamaGrammar`, `response_format` and forced calls, as llama-cpp-python has them."""

import json
import re

import pytest

from edgeinfer.compat.llama_cpp import Llama, LlamaGrammar
from edgeinfer.compat.llama_cpp.llama_chat_format import (
    ChatFormatterResponse,
    chat_formatter_to_chat_completion_handler,
    get_chat_completion_handler,
)
from edgeinfer.errors import GrammarError

HI = [{"role": "user", "content": "Name a person with their age."}]
GREEDY = {"temperature": 0, "max_tokens": 60}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}},
    {
        "type": "function",
        "function": {"name": "UserDetail", "description": "A user.", "parameters": PERSON},
    },
]
CHOICE = {"type": "function", "function": {"name": "UserDetail"}}
OBJECT = {"type": "json_object", "schema": PERSON}


@pytest.fixture(scope="module")
def llm(smollm2_path):
    llm = Llama(str(smollm2_path), n_ctx=512, seed=1, verbose=False)
    yield llm
    llm.close()


def is_person(text):
    person = json.loads(text)
    assert set(person) == {"name", "age"}
    assert isinstance(person["name"], str) and isinstance(person["age"], int)
    return True


def test_a_completion_keeps_to_a_grammar(llm, tmp_path):
    source = 'root ::= " yes" | " no"'
    (tmp_path / "answer.gbnf").write_text(source)
    for grammar in (
        LlamaGrammar.from_string(source, verbose=False),
        LlamaGrammar.from_file(tmp_path / "answer.gbnf"),
    ):
        answer = llm("Is Paris in France?", grammar=grammar, **GREEDY)
        assert answer["choices"][0]["text"] in (" yes", " no")
        assert answer["choices"][0]["finish_reason"] == "stop"
    pieces = llm("Is Paris in France?", grammar=grammar, stream=True, **GREEDY)
    assert "".join(p["choices"][0]["text"] for p in pieces) == answer["choices"][0]["text"]


def test_a_completion_keeps_to_a_json_schema(llm):
    grammar = LlamaGrammar.from_json_schema(json.dumps(PERSON))

    for seed in range(3):
        answer = llm("A person: ", grammar=grammar, temperature=1.5, seed=seed, max_tokens=80)
        assert is_person(answer["choices"][0]["text"])


def test_an_answer_cut_short_says_so(llm):
    grammar = LlamaGrammar.from_json_schema(json.dumps(PERSON))

    answer = llm("A person: ", grammar=grammar, temperature=0, max_tokens=3)

    assert answer["choices"][0]["finish_reason"] == "length"


def test_json_mode_with_and_without_a_schema(llm):
    answer = llm.create_chat_completion(HI, response_format=OBJECT, **GREEDY)
    assert is_person(answer["choices"][0]["message"]["content"])

    answer = llm.create_chat_completion(
        HI, response_format={"type": "json_object"}, temperature=0, max_tokens=200
    )
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"]), dict)


def test_text_as_response_format_changes_nothing(llm):
    plain = llm.create_chat_completion(HI, **GREEDY)
    text = llm.create_chat_completion(HI, response_format={"type": "text"}, **GREEDY)

    assert text["choices"] == plain["choices"]


@pytest.mark.parametrize(
    "asked",
    [
        {"tools": TOOLS, "tool_choice": CHOICE},
        {
            "functions": [tool["function"] for tool in TOOLS],
            "function_call": {"name": "UserDetail"},
        },
    ],
)
@pytest.mark.parametrize("chat_format", [None, "chatml", "chatml-function-calling"])
def test_a_forced_call_is_answered_by_its_arguments(llm, monkeypatch, chat_format, asked):
    monkeypatch.setattr(llm, "chat_format", chat_format)

    answer = llm.create_chat_completion(HI, **asked, **GREEDY)

    (choice,) = answer["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert set(message) == {"role", "content", "function_call", "tool_calls"}
    assert (message["role"], message["content"]) == ("assistant", None)
    (call,) = message["tool_calls"]
    assert set(call) == {"id", "type", "function"}
    assert call["id"].startswith("call__0_UserDetail_cmpl-")
    assert (call["type"], call["function"]["name"]) == ("function", "UserDetail")
    assert is_person(call["function"]["arguments"])
    assert message["function_call"] == call["function"]
    assert answer["usage"]["completion_tokens"] > 5


def test_a_forced_call_streams_its_arguments(llm):
    asked = {"tools": TOOLS, "tool_choice": CHOICE, **GREEDY}
    whole = llm.create_chat_completion(HI, **asked)["choices"][0]["message"]

    first, *middle, last = llm.create_chat_completion(HI, stream=True, **asked)

    nothing = {"content": None, "function_call": None, "tool_calls": None}
    assert first["choices"][0]["delta"] == {"role": "assistant", **nothing}
    assert last["choices"][0]["delta"] == {"role": None, **nothing}
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    deltas = [piece["choices"][0]["delta"] for piece in middle]
    calls = [delta["tool_calls"][0] for delta in deltas]
    assert {call["index"] for call in calls} == {0}
    assert len({call["id"] for call in calls}) == 1
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert arguments == whole["function_call"]["arguments"]
    assert all(delta["function_call"] == delta["tool_calls"][0]["function"] for delta in deltas)


def test_a_formatter_of_the_callers_has_forced_calls_and_json_too(llm):
    handler = chat_formatter_to_chat_completion_handler(
        lambda *, messages, **kwargs: ChatFormatterResponse(messages[-1]["content"])
    )

    forced = handler(llama=llm, messages=HI, tools=TOOLS, tool_choice=CHOICE, **GREEDY)
    answer = handler(llama=llm, messages=HI, response_format=OBJECT, **GREEDY)
    pieces = handler(llama=llm, messages=HI, tools=TOOLS, tool_choice=CHOICE, stream=True, **GREEDY)

    arguments = forced["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert is_person(arguments)
    assert is_person(answer["choices"][0]["message"]["content"])
    calls = [piece["choices"][0]["delta"]["tool_calls"] for piece in pieces]
    assert "".join(call[0]["function"]["arguments"] for call in calls if call) == arguments


@pytest.mark.parametrize(
    ("tools", "choice"), [(TOOLS, "UserDetail"), (TOOLS[1:], "required"), (TOOLS, CHOICE)]
)
def test_a_function_is_named_in_several_ways(llm, tools, choice):
    answer = llm.create_chat_completion(HI, tools=tools, tool_choice=choice, **GREEDY)

    assert answer["choices"][0]["message"]["function_call"]["name"] == "UserDetail"


def test_a_call_cut_short_says_so(llm):
    answer = llm.create_chat_completion(
        HI, tools=TOOLS, tool_choice=CHOICE, temperature=0, max_tokens=3
    )

    assert answer["choices"][0]["finish_reason"] == "length"


def test_the_format_of_function_calls_names_the_functions_and_the_call(llm, monkeypatch):
    seen = {}

    def keep(messages, **options):
        template = llm.edgeinfer.tokenizer.with_template_source(options["template"])
        variables = options.get("template_variables") or {}
        tools = {"tools": options["tools"]} if "tools" in options else {}
        seen["text"] = template.chat_template.render(messages, **tools, **variables)
        raise ValueError("enough")

    monkeypatch.setattr(llm.edgeinfer, "stream_chat", keep)
    handler = get_chat_completion_handler("chatml-function-calling")
    with pytest.raises(ValueError, match="enough"):
        handler(llama=llm, messages=HI, tools=TOOLS, tool_choice=CHOICE)
    assert "functions.other:\n" in seen["text"]
    assert seen["text"].endswith("<|im_start|>assistant\nfunctions.UserDetail:\n")
    with pytest.raises(ValueError, match="enough"):
        handler(llama=llm, messages=HI, tools=TOOLS, tool_choice="none")
    assert seen["text"] == (
        "<|im_start|>user\nName a person with their age.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_model_may_not_be_left_to_choose_in_that_format(llm):
    handler = get_chat_completion_handler("chatml-function-calling")

    with pytest.raises(NotImplementedError, match="need a function"):
        handler(llama=llm, messages=HI, tools=TOOLS, tool_choice="auto")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "x"}}}, "'other', 'UserDetail'"),
        ({"tool_choice": CHOICE}, "there are none"),
        ({"tools": TOOLS, "tool_choice": "required"}, "need 'auto', 'none', or the name"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function"}},
            "the name of one of the tools: 'other'",
        ),
        ({"tools": TOOLS, "tool_choice": CHOICE, "response_format": OBJECT}, "give one of them"),
        ({"response_format": {"type": "xml"}}, "need a dict whose type is"),
        ({"grammar": "root"}, "need a LlamaGrammar"),
        (
            {
                "grammar": LlamaGrammar.from_string('root ::= "a"'),
                "response_format": {"type": "json_object"},
            },
            "found response_format, too",
        ),
        ({"response_format": {"type": "json_object", "schema": {"not": {}}}}, "#/not"),
    ],
)
def test_what_cannot_be_kept_to_is_refused(llm, asked, message):
    with pytest.raises((ValueError, NotImplementedError), match=re.escape(message)):
        llm.create_chat_completion(HI, **asked, **GREEDY)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LlamaGrammar.from_string("root ::= thing"),
        lambda: LlamaGrammar.from_string(""),
        lambda: LlamaGrammar.from_json_schema("{"),
        lambda: LlamaGrammar.from_file("/no/such/file"),
    ],
)
def test_a_broken_grammar_is_a_value_error_and_a_grammar_error(make):
    with pytest.raises(ValueError) as found:
        make()
    assert isinstance(found.value, GrammarError)


def test_generate_keeps_to_a_grammar_token_by_token(llm):
    grammar = LlamaGrammar.from_string('root ::= " a" [0-9]{3} "!"')
    tokens = llm.tokenize(b"Code:")

    ids = []
    for id in llm.generate(tokens, temp=1.5, grammar=grammar):
        if id == llm.token_eos() or len(ids) == 20:
            break
        ids.append(id)

    assert re.fullmatch(rb" a\d{3}!", llm.detokenize(ids))
    llm.reset()
    llm.eval(tokens)
    assert llm.detokenize([llm.sample(temp=1.5, grammar=grammar)]).startswith(b" ")
