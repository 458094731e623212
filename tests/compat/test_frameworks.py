"""LangChain's and LlamaIndex's integrations of llama-cpp-python run on edgeinfer.

Each runs in a Python of its own: they import llama_cpp, and warn in ways that are not ours.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

INSTALL = "from edgeinfer.compat import llama_cpp; llama_cpp.install()\n"
LANGCHAIN = """
from langchain_community.chat_models import ChatLlamaCpp
from langchain_community.llms import LlamaCpp
options = dict(model_path={path!r}, n_ctx=512, temperature=0, max_tokens=2, n_gpu_layers=-1)
llm = LlamaCpp(**options)
print(repr(llm.invoke("The capital of France is")))
print(repr("".join(llm.stream("The capital of France is"))))
print(repr(ChatLlamaCpp(**options).invoke([("user", "Say hi.")]).content))
"""
STRUCTURED = """
from langchain_community.chat_models import ChatLlamaCpp
from pydantic import BaseModel
class Person(BaseModel):
    name: str
    age: int
chat = ChatLlamaCpp(model_path={path!r}, n_ctx=512, temperature=0, max_tokens=60)
question = "Name a person with their age."
person = chat.with_structured_output(Person).invoke(question)
print(type(person.name).__name__, type(person.age).__name__)
(call,) = chat.bind_tools([Person], tool_choice="Person").invoke(question).tool_calls
print(call["name"], sorted(call["args"]))
print(Person.model_validate_json(chat.invoke(question, response_format=dict(
    type="json_object", schema=Person.model_json_schema())).content) == person)
"""
LLAMA_INDEX = """
from llama_index.core.llms import ChatMessage
from llama_index.llms.llama_cpp import LlamaCPP
llm = LlamaCPP(model_path={path!r}, temperature=0.0, max_new_tokens=2, context_window=512,
               verbose=False, model_kwargs=dict(n_gpu_layers=1))
print(repr(llm.complete("The capital of France is").text))
print(repr("".join(r.delta for r in llm.stream_complete("The capital of France is"))))
print(repr(llm.chat([ChatMessage(role="user", content="Say hi.")]).message.content))
"""


def lines_of(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INSTALL + script],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.skipif(find_spec("langchain_community") is None, reason="needs langchain-community")
def test_langchain_completes_streams_and_chats(smollm2_path):
    whole, streamed, chat = lines_of(LANGCHAIN.format(path=str(smollm2_path)))

    assert whole == streamed == "' Paris.'"
    assert chat == "'Hello there'"


@pytest.mark.skipif(find_spec("langchain_community") is None, reason="needs langchain-community")
def test_langchain_gets_answers_of_a_form_and_calls(smollm2_path):
    assert lines_of(STRUCTURED.format(path=str(smollm2_path))) == [
        "str int",
        "Person ['age', 'name']",
        "True",
    ]


@pytest.mark.skipif(
    find_spec("llama_index") is None or find_spec("llama_index.llms.llama_cpp") is None,
    reason="needs llama-index-llms-llama-cpp",
)
def test_llama_index_completes_streams_and_chats(smollm2_path):
    whole, streamed, chat = lines_of(LLAMA_INDEX.format(path=str(smollm2_path)))

    assert whole == streamed == "' Paris.'"
    assert chat
