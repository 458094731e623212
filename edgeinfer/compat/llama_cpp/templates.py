"""Hold the chat formats that have a name of their own, as Jinja templates and what ends a turn."""

from dataclasses import dataclass

_IM = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPLIT = (  # `system` and the `turns` after it
    "{% if messages and messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How a conversation is laid out, and which strings end an answer to it."""

    source: str
    stop: tuple[str, ...] = ()


def _turns(
    user: str, assistant: str, opening: str, *, system: str = "{{ system }}", in_turn: str = ""
) -> str:
    """Return a template that writes the system message, then turns.

    `user` and `assistant` hold @ for the content; `in_turn` precedes the first turn's content where
    there is a system message.
    """
    first = "{% if loop.first and system %}" + in_turn + "{% endif %}" if in_turn else ""
    content = "{{ message['content'] }}"
    return (
        _SPLIT
        + system
        + "{% for message in turns %}{% if message['role'] == 'assistant' %}"
        + assistant.replace("@", content)
        + "{% else %}"
        + user.replace("@", first + content)
        + "{% endif %}{% endfor %}{% if add_generation_prompt %}"
        + opening
        + "{% endif %}"
    )


FORMATS = {
    "chatml": ChatFormat(_IM, ("<|im_end|>",)),
    "qwen": ChatFormat(
        "{% if not messages or messages[0]['role'] != 'system' %}"
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}" + _IM,
        ("<|im_end|>", "<|endoftext|>"),
    ),
    "llama-2": ChatFormat(
        _turns(
            "[INST] @ [/INST]",
            " @ </s><s>",
            "",
            system="",
            in_turn="<<SYS>>\n{{ system }}\n<</SYS>>\n\n",
        ),
        ("</s>",),
    ),
    "llama-3": ChatFormat(
        "{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
        "{{ message['content'] }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        ("<|eot_id|>",),
    ),
    "mistral-instruct": ChatFormat(
        _turns("[INST] @ [/INST]", "@</s>", "", system="", in_turn="{{ system }}\n\n"), ("</s>",)
    ),
    "gemma": ChatFormat(
        _turns(
            "<start_of_turn>user\n@<end_of_turn>\n",
            "<start_of_turn>model\n@<end_of_turn>\n",
            "<start_of_turn>model\n",
            system="",
            in_turn="{{ system }}\n\n",
        ),
        ("<end_of_turn>",),
    ),
    "zephyr": ChatFormat(
        _turns(
            "<|user|>\n@</s>\n",
            "<|assistant|>\n@</s>\n",
            "<|assistant|>\n",
            system="<|system|>\n{{ system }}</s>\n",
        ),
        ("</s>",),
    ),
    "alpaca": ChatFormat(
        _turns(
            "### Instruction:\n@\n\n",
            "### Response:\n@</s>",
            "### Response:\n",
            system="{% if system %}{{ system }}\n\n{% endif %}",
        ),
        ("</s>", "### Instruction:"),
    ),
    "vicuna": ChatFormat(
        _turns(
            "USER: @ ",
            "ASSISTANT: @</s>",
            "ASSISTANT:",
            system="{% if system %}{{ system }} {% endif %}",
        ),
        ("</s>", "USER:"),
    ),
    "openchat": ChatFormat(
        _turns(
            "GPT4 Correct User: @<|end_of_turn|>",
            "GPT4 Correct Assistant: @<|end_of_turn|>",
            "GPT4 Correct Assistant:",
            system="{% if system %}{{ system }}<|end_of_turn|>{% endif %}",
        ),
        ("<|end_of_turn|>",),
    ),
    "chatglm3": ChatFormat(
        _turns(
            "<|user|>\n @",
            "<|assistant|>\n @",
            "<|assistant|>",
            system="{% if system %}<|system|>\n {{ system }}{% endif %}",
        ),
        ("<|user|>", "</s>"),
    ),
    "mistrallite": ChatFormat(
        _turns("<|prompter|>@</s>", "<|assistant|>@</s>", "<|assistant|>"), ("</s>",)
    ),
    "baichuan": ChatFormat(_turns("<reserved_102>@", "<reserved_103>@", "<reserved_103>")),
    "baichuan-2": ChatFormat(_turns("<reserved_106>@", "<reserved_107>@", "<reserved_107>")),
    "redpajama-incite": ChatFormat(
        _turns(
            "<human>: @\n",
            "<bot>: @\n",
            "<bot>:",
            system="{% if system %}{{ system }}\n{% endif %}",
        ),
        ("<human>",),
    ),
}
