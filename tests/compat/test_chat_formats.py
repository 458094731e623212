"""Chat formats by name, by template, by function of the caller's."""

import pytest

from edgeinfer.compat.llama_cpp import Llama, llama_chat_format
from edgeinfer.compat.llama_cpp.llama_chat_format import (
    ChatFormatterResponse,
    Jinja2ChatFormatter,
    get_chat_completion_handler,
    hf_tokenizer_config_to_chat_formatter,
    register_chat_completion_handler,
    register_chat_format,
)
from edgeinfer.compat.llama_cpp.templates import FORMATS, ChatFormat
from edgeinfer.text.chat import ChatTemplate

CHAT = [
    {"role": "system", "content": "SYS"},
    {"role": "user", "content": "U1"},
    {"role": "assistant", "content": "A1"},
    {"role": "user", "content": "U2"},
]
LAID_OUT = {
    "chatml": "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n"
    "<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama-2": "[INST] <<SYS>>\nSYS\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST]",
    "llama-3": "<|start_header_id|>system<|end_header_id|>\n\nSYS<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral-instruct": "[INST] SYS\n\nU1 [/INST]A1</s>[INST] U2 [/INST]",
    "gemma": "<start_of_turn>user\nSYS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
    "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n",
    "zephyr": "<|system|>\nSYS</s>\n<|user|>\nU1</s>\n<|assistant|>\nA1</s>\n<|user|>\nU2</s>\n"
    "<|assistant|>\n",
    "alpaca": "SYS\n\n### Instruction:\nU1\n\n### Response:\nA1</s>### Instruction:\nU2\n\n"
    "### Response:\n",
    "vicuna": "SYS USER: U1 ASSISTANT: A1</s>USER: U2 ASSISTANT:",
    "openchat": "SYS<|end_of_turn|>GPT4 Correct User: U1<|end_of_turn|>"
    "GPT4 Correct Assistant: A1<|end_of_turn|>GPT4 Correct User: U2<|end_of_turn|>"
    "GPT4 Correct Assistant:",
    "chatglm3": "<|system|>\n SYS<|user|>\n U1<|assistant|>\n A1<|user|>\n U2<|assistant|>",
    "mistrallite": "SYS<|prompter|>U1</s><|assistant|>A1</s><|prompter|>U2</s><|assistant|>",
    "baichuan": "SYS<reserved_102>U1<reserved_103>A1<reserved_102>U2<reserved_103>",
    "baichuan-2": "SYS<reserved_106>U1<reserved_107>A1<reserved_106>U2<reserved_107>",
    "redpajama-incite": "SYS\n<human>: U1\n<bot>: A1\n<human>: U2\n<bot>:",
}
LAID_OUT["qwen"] = LAID_OUT["chatml"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_named_format_lays_out_system_and_turns(name):
    assert ChatTemplate(FORMATS[name].source).render(CHAT) == LAID_OUT[name]


@pytest.mark.parametrize("name", FORMATS)
def test_a_conversation_without_system_message_is_laid_out(name):
    text = ChatTemplate(FORMATS[name].source).render(CHAT[1:])

    assert "SYS" not in text
    assert "U1" in text
    default = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    assert text.startswith(default) == (name == "qwen")


@pytest.fixture(scope="module")
def llm(smollm2_path):
    llm = Llama(str(smollm2_path), n_ctx=512)
    yield llm
    llm.close()


@pytest.fixture
def formats(monkeypatch):
    monkeypatch.setattr(llama_chat_format, "_registered", {})


def answer(llm, chat_format=None, handler=None, **options):
    llm.chat_format, llm.chat_handler = chat_format, handler
    messages = options.pop("messages", CHAT[:2])
    return llm.create_chat_completion(messages, temperature=0, max_tokens=5, **options)


def test_the_named_format_is_used(llm):
    by_name = answer(llm, "chatml")

    prompt = ChatTemplate(FORMATS["chatml"].source).render(CHAT[:2])
    plain = llm.create_completion(prompt, temperature=0, max_tokens=5, stop=["<|im_end|>"])
    assert by_name["choices"][0]["message"]["content"] == plain["choices"][0]["text"]
    assert by_name["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


@pytest.mark.usefixtures("formats")
def test_a_registered_formatter_is_used_with_its_stops(llm):
    @register_chat_format("mine")
    def mine(messages, **kwargs):
        return ChatFormatterResponse(
            prompt="The capital of " + messages[-1]["content"], stop=".", added_special=True
        )

    messages = [{"role": "user", "content": "France is"}]

    found = answer(llm, "mine", messages=messages)
    pieces = list(answer(llm, "mine", messages=messages, stream=True))

    assert found["object"] == "chat.completion"
    assert found["id"].startswith("chatcmpl-")
    assert found["choices"][0]["message"] == {"role": "assistant", "content": " Paris"}
    assert found["choices"][0]["finish_reason"] == "stop"
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    assert deltas == [{"role": "assistant"}, {"content": " Paris"}, {}]
    assert pieces[-1]["choices"][0]["finish_reason"] == "stop"
    scored = answer(llm, "mine", messages=messages, logprobs=True, top_logprobs=2)
    entry = scored["choices"][0]["logprobs"]["content"][0]
    assert (entry["token"], len(entry["top_logprobs"])) == (" Paris", 2)


@pytest.mark.usefixtures("formats")
def test_a_registered_handler_gets_the_model_and_the_arguments(llm):
    @register_chat_completion_handler("whole")
    def whole(llama, messages, temperature, **options):
        return {"llama": llama, "messages": messages, "temperature": temperature}

    assert answer(llm, "whole") == {"llama": llm, "messages": CHAT[:2], "temperature": 0}
    assert answer(llm, None, handler=whole)["llama"] is llm
    assert get_chat_completion_handler("whole") is whole
    with pytest.raises(ValueError, match="registered already"):
        register_chat_completion_handler("chatml")(whole)


def test_a_template_makes_a_handler(llm):
    source = "{{ bos_token }}{{ messages[-1]['content'] }} of {{ tools[0] }} is"
    formatter = Jinja2ChatFormatter(source, eos_token="<|im_end|>", bos_token="<|im_start|>")

    made = formatter(messages=[{"role": "user", "content": "The capital"}], tools=["France"])

    assert made.prompt == "<|im_start|>The capital of France is"
    assert (made.stop, made.added_special) == (["<|im_end|>"], True)
    config = {"chat_template": source, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    other = hf_tokenizer_config_to_chat_formatter(config)
    assert (other.bos_token, other.eos_token) == ("<s>", "</s>")
    found = answer(
        llm,
        handler=formatter.to_chat_handler(),
        messages=[{"role": "user", "content": "The capital"}],
        tools=["France"],
    )
    assert "Paris" in found["choices"][0]["message"]["content"]
    with pytest.raises(ValueError, match="no chat_template"):
        hf_tokenizer_config_to_chat_formatter({})


def test_stop_ids_of_a_template_end_the_answer(llm):
    formatter = Jinja2ChatFormatter(
        "The capital of France is", eos_token="", bos_token="", stop_token_ids=[7042]
    )

    found = answer(llm, handler=formatter.to_chat_handler())

    assert found["choices"][0]["message"]["content"] == " Paris"
    assert found["choices"][0]["finish_reason"] == "stop"


def test_tools_reach_the_template_unless_none_is_to_be_called(llm, monkeypatch):
    given = []

    def stream_chat(messages, **options):
        given.append({n: options[n] for n in ("tools", "template_variables") if n in options})
        raise ValueError("enough")

    monkeypatch.setattr(llm.edgeinfer, "stream_chat", stream_chat)
    tool = {"type": "function", "function": {"name": "f"}}
    for options in (
        {"tools": [tool]},
        {"tools": [tool], "tool_choice": "none"},
        {"functions": [{"name": "f"}]},
    ):
        with pytest.raises(ValueError, match="enough"):
            answer(llm, **options)

    assert given == [
        {"tools": [tool]},
        {},
        {"template_variables": {"functions": [{"name": "f"}]}},
    ]


def test_a_conversation_the_template_refuses_is_a_value_error(llm, monkeypatch):
    refusing = "{{ raise_exception('roles must alternate') }}"
    monkeypatch.setitem(FORMATS, "refusing", ChatFormat(refusing))
    with pytest.raises(ValueError, match="roles must alternate"):
        answer(llm, "refusing")
