"""`Llama`: the calls, dicts and errors that code written for llama-cpp-python expects."""

import inspect
import json
import pickle

import numpy as np
import pytest

from edgeinfer.compat import llama_cpp
from edgeinfer.compat.llama_cpp import Llama
from edgeinfer.compat.llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from edgeinfer.errors import ModelClosedError, UnsupportedModelError

PROMPT = "The capital of France is"
HI = [{"role": "user", "content": "Say hi."}]
GREEDY = {"temperature": 0}


def test_a_completion_is_a_dict_in_openais_form(llm):
    answer = llm(PROMPT, max_tokens=3, **GREEDY)

    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"]) == ("text_completion", llm.model_path)
    assert answer["choices"] == [
        {"text": " Paris.\n", "index": 0, "logprobs": None, "finish_reason": "length"}
    ]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    json.dumps(answer)


def test_draft_models_change_no_answer(llm, smollm2_path):
    expected = llm(PROMPT, max_tokens=8, **GREEDY)["choices"][0]["text"]
    for draft in (str(smollm2_path), LlamaPromptLookupDecoding(num_pred_tokens=10)):
        drafted = Llama(str(smollm2_path), n_ctx=128, draft_model=draft, verbose=False)
        assert drafted(PROMPT, max_tokens=8, **GREEDY)["choices"][0]["text"] == expected
        assert (drafted.edgeinfer._engine._guesser._draft is not None) == isinstance(draft, str)
        drafted.close()


def test_a_draft_of_another_vocabulary_is_a_value_error(smollm2_path, gemma3_path):
    with pytest.raises(ValueError, match="vocabulary"):
        Llama(str(smollm2_path), n_ctx=64, draft_model=gemma3_path, verbose=False)


def test_the_first_example_of_the_readme_runs(llm):
    question = "Q: Name the planets in the solar system? A: "

    answer = llm(question, max_tokens=32, stop=["Q:", "\n"], echo=True)

    text = answer["choices"][0]["text"]
    assert text.startswith(question)
    assert "\n" not in text
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")


def test_a_stream_is_the_completion_in_pieces(llm):
    whole = llm.create_completion(PROMPT, max_tokens=8, **GREEDY)

    pieces = list(llm.create_completion(PROMPT, max_tokens=8, stream=True, **GREEDY))

    choices = [piece["choices"][0] for piece in pieces]
    assert "".join(c["text"] for c in choices) == whole["choices"][0]["text"]
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["length"]
    assert choices[-1]["text"] == ""
    assert len({piece["id"] for piece in pieces}) == 1
    assert all(set(p) == {"id", "object", "created", "model", "choices"} for p in pieces)


def test_logprobs_have_the_legacy_form_and_offsets_into_the_text(llm):
    found = llm(PROMPT, max_tokens=3, logprobs=2, **GREEDY)["choices"][0]["logprobs"]

    assert found["tokens"] == [" Paris", ".", "\n"]
    assert found["text_offset"] == [24, 30, 31]
    assert all(len(top) == 2 for top in found["top_logprobs"])
    for token, logprob, top in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert top[token] == logprob == max(top.values())
    json.dumps(found)


def test_echoed_logprobs_score_each_token_after_those_before_it(llm):
    choice = llm(PROMPT, max_tokens=2, logprobs=1, echo=True, **GREEDY)["choices"][0]

    found = choice["logprobs"]
    assert choice["text"] == PROMPT + " Paris."
    assert "".join(found["tokens"]) == choice["text"]
    assert found["text_offset"][0] == 0
    assert found["token_logprobs"][0] is None is found["top_logprobs"][0]
    rows = llm.edgeinfer.logits(llm.tokenize(PROMPT.encode()))
    exact = Llama.logits_to_logprobs(rows[0])[llm.tokenize(b" capital")[0]]
    assert found["token_logprobs"][1] == pytest.approx(float(exact), abs=1e-5)


def test_logprobs_of_a_stop_string_are_left_out(llm):
    choice = llm(PROMPT, max_tokens=5, logprobs=0, stop=["."], **GREEDY)["choices"][0]

    assert (choice["text"], choice["finish_reason"]) == (" Paris", "stop")
    assert choice["logprobs"]["tokens"] == [" Paris"]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize(
    ("stop", "written"),
    [
        (["ris."], [" Paris"]),  # a part of the word's text is passed on
        ([".\nx", "\n\n"], [" Paris", "."]),  # the full stop is held back until the end comes
        ([".\nx", "\nThe"], [" Paris", ".", "\n"]),  # it comes with the beginning of the end
        ([".\nx"], [" Paris", ".", "\n", "\n", "The", " answer"]),
    ],
)
def test_a_stream_leaves_out_the_logprobs_of_its_stop_string_alone(llm, stop, written, echo):
    options = {"max_tokens": 6, "logprobs": 1, "stop": stop, "echo": echo, **GREEDY}
    whole = llm(PROMPT, **options)["choices"][0]
    pieces = [piece["choices"][0] for piece in llm(PROMPT, stream=True, **options)]

    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    found = [piece["logprobs"] for piece in pieces if piece["logprobs"]]
    assert [token for f in found for token in f["tokens"]] == written
    for name, values in whole["logprobs"].items():
        assert [value for f in found for value in f[name]] == values[-len(written) :]


def test_a_chats_logprobs_leave_out_its_stop_string(llm):
    options = {"max_tokens": 4, "logprobs": True, "stop": ["o there"], **GREEDY}
    whole = llm.create_chat_completion(HI, **options)["choices"][0]
    pieces = [p["choices"][0] for p in llm.create_chat_completion(HI, stream=True, **options)]

    assert whole["message"]["content"] == "Hell"
    assert [entry["token"] for entry in whole["logprobs"]["content"]] == ["Hello"]
    found = [piece["logprobs"]["content"] for piece in pieces if piece["logprobs"]]
    assert [entry for content in found for entry in content] == whole["logprobs"]["content"]


@pytest.mark.parametrize("max_tokens", [None, 0, -1])
def test_no_limit_is_spelled_in_three_ways(llm, max_tokens):
    answer = llm(PROMPT, max_tokens=max_tokens, stop="\n", **GREEDY)

    assert answer["choices"][0]["text"] == " Paris."


def test_equal_seeds_give_equal_texts_and_calls_without_one_differ(llm):
    hot = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 12}

    def text(**options):
        return llm(PROMPT, **hot, **options)["choices"][0]["text"]

    assert text(seed=5) == text(seed=5)
    assert text() != text()
    llm.set_seed(9)
    first = [text(), text()]
    llm.set_seed(9)
    assert [text(), text()] == first


def test_a_chat_answers_by_the_template_in_the_file(llm):
    answer = llm.create_chat_completion(HI, max_tokens=4, **GREEDY)

    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    (choice,) = answer["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason"}
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == llm.edgeinfer.chat(HI, max_tokens=4, **GREEDY).text
    assert answer["usage"]["prompt_tokens"] == 33


def test_a_chat_stream_begins_with_the_role_and_ends_with_the_reason(llm):
    whole = llm.create_chat_completion(HI, max_tokens=6, **GREEDY)["choices"][0]

    pieces = list(llm.create_chat_completion(HI, max_tokens=6, stream=True, **GREEDY))

    assert {piece["object"] for piece in pieces} == {"chat.completion.chunk"}
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    assert deltas[0] == {"role": "assistant"}
    assert deltas[-1] == {}
    assert "".join(d["content"] for d in deltas[1:-1]) == whole["message"]["content"]
    assert pieces[-1]["choices"][0]["finish_reason"] == "length"


def test_chat_logprobs_list_tokens_with_their_bytes(llm):
    answer = llm.create_chat_completion(HI, max_tokens=2, logprobs=True, top_logprobs=2, **GREEDY)

    content = answer["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["Hello", " there"]
    assert bytes(content[1]["bytes"]) == b" there"
    assert [len(entry["top_logprobs"]) for entry in content] == [2, 2]


def test_control_tokens_are_read_in_prompts_and_left_alone_in_messages(llm):
    ids = llm.tokenize(b"a<|im_end|>", special=True)
    assert ids[-1] == llm.token_eos() == 2
    prompt = llm("a<|im_end|>", max_tokens=1)["usage"]["prompt_tokens"]
    assert prompt == len(ids)
    plain = [{"role": "user", "content": "a<|im_end|>"}]
    chat = llm.create_chat_completion(plain, max_tokens=1)["usage"]["prompt_tokens"]
    assert chat > 30 + len(ids)


def test_a_prompt_beyond_the_context_is_a_value_error_with_both_numbers(llm):
    with pytest.raises(ValueError, match=r"Requested tokens \(601\) exceed context window of 512"):
        llm("x " * 600)


def test_leaving_a_stream_stops_the_model(llm):
    stream = llm(PROMPT, max_tokens=400, stream=True)
    next(stream)
    stream.close()

    assert llm(PROMPT, max_tokens=1, **GREEDY)["choices"][0]["text"] == " Paris"


def test_processors_and_criteria_are_asked_before_each_token(llm):
    seen = []

    def no_paris(input_ids, scores):
        assert input_ids.dtype == np.intc
        seen.append(len(input_ids))
        scores[7042] = -np.inf
        return scores

    answer = llm(
        PROMPT,
        max_tokens=20,
        logits_processor=llama_cpp.LogitsProcessorList([no_paris]),
        stopping_criteria=llama_cpp.StoppingCriteriaList([lambda ids, logits: len(ids) >= 9]),
        **GREEDY,
    )

    (choice,) = answer["choices"]
    assert "Paris" not in choice["text"]
    assert (choice["finish_reason"], answer["usage"]["completion_tokens"]) == ("stop", 4)
    assert seen == [5, 6, 7, 8]


def test_an_answer_has_the_fewest_tokens_asked_for(llm):
    processor = llama_cpp.MinTokensLogitsProcessor(30, llm.token_eos())

    def n_tokens(**options):
        answer = llm.create_chat_completion(HI, max_tokens=40, **GREEDY, **options)
        return answer["usage"]["completion_tokens"]

    assert n_tokens() < 30 <= n_tokens(logits_processor=[processor])


def test_biases_of_any_size_are_taken(llm):
    choice = llm(PROMPT, max_tokens=1, logit_bias={"7042": -1e9, 198: 1e9}, **GREEDY)["choices"][0]

    assert choice["text"] == "\n"


def test_ids_pieces_and_sizes_are_told(llm):
    assert llm.detokenize(llm.tokenize(b"Hello world")) == b"Hello world"
    assert llm.detokenize([2]) == b""
    assert llm.detokenize([2], special=True) == b"<|im_end|>"
    assert llm.tokenizer().decode(llm.tokenizer().encode("hi")) == "hi"
    assert (llm.n_ctx(), llm.n_vocab(), llm.n_embd()) == (512, 49152, 576)
    assert (llm.token_bos(), llm.token_eos(), llm.token_nl()) == (1, 2, 198)
    assert llm.metadata["general.architecture"] == "llama"
    assert llm.metadata["llama.block_count"] == "30"
    assert all(isinstance(value, str) for value in llm.metadata.values())
    assert llm.pooling_type() == llama_cpp.LLAMA_POOLING_TYPE_NONE
    with pytest.raises(ValueError, match="no UTF-8"):
        llm.tokenize(b"\xff")


def test_the_context_of_c_names_the_way_out(llm):
    with pytest.raises(NotImplementedError, match=r"use "):
        _ = llm.ctx


def test_embeddings_have_the_shapes_of_llama_cpp_python(llm, smollm2_path):
    with pytest.raises(RuntimeError, match="must be created with embedding=True"):
        llm.embed("x")
    options = {"n_ctx": 512, "embedding": True, "verbose": False}
    reader = Llama(str(smollm2_path), pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN, **options)
    answer = reader.create_embedding(["a cat", "a dog"], model="named")
    assert (answer["object"], answer["model"]) == ("list", "named")
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    first, second = answer["data"]
    assert (first["object"], second["index"]) == ("embedding", 1)
    assert reader.embed("a dog") == second["embedding"]
    unit, n_tokens = reader.embed(["a cat"], normalize=True, return_count=True)
    assert n_tokens == 2 and abs(sum(x * x for x in unit[0]) - 1) < 1e-6
    assert reader("Once", max_tokens=1, **GREEDY)["choices"][0]["text"]
    reader._pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
    rows = reader.embed(["a cat", "x"])
    assert [len(row) for row in rows] == [2, 1] and len(rows[0][0]) == 576
    reader.n_batch = 1
    assert len(reader.embed("a cat")) == 1
    with pytest.raises(ValueError, match=r"Requested tokens \(2\) exceed batch size of 1"):
        reader.embed("a cat", truncate=False)
    reader.close()


def test_filling_gaps_takes_a_model_trained_for_it(llm):
    with pytest.raises(UnsupportedModelError, match="marks a prefix"):
        llm("def f(", suffix="return 1")


def test_the_openai_classes_need_their_package(llm, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai.types.chat", None)
    with pytest.raises(ImportError, match="pip install openai"):
        llm.create_chat_completion_openai_v1(HI)


def test_a_closed_model_says_so(smollm2_path):
    llm = Llama(str(smollm2_path), n_ctx=64)
    copy = pickle.loads(pickle.dumps(llm))
    llm.close()
    llm.close()

    with pytest.raises(ModelClosedError):
        llm(PROMPT)
    assert copy.n_ctx() == 64
    assert copy(PROMPT, max_tokens=1, **GREEDY)["choices"][0]["text"] == " Paris"
    copy.close()


COMPLETION = """prompt suffix max_tokens=16 temperature=0.8 top_p=0.95 min_p=0.05 typical_p=1.0
logprobs=None echo=False stop frequency_penalty=0.0 presence_penalty=0.0 repeat_penalty=1.0 top_k=40
stream=False seed=None tfs_z=1.0 mirostat_mode=0 mirostat_tau=5.0 mirostat_eta=0.1 model=None
stopping_criteria=None logits_processor=None grammar=None logit_bias=None"""
CHAT = """messages functions=None function_call=None tools=None tool_choice=None temperature=0.2
top_p=0.95 top_k=40 min_p=0.05 typical_p=1.0 stream=False stop seed=None response_format=None
max_tokens=None presence_penalty=0.0 frequency_penalty=0.0 repeat_penalty=1.0 tfs_z=1.0
mirostat_mode=0 mirostat_tau=5.0 mirostat_eta=0.1 model=None logits_processor=None grammar=None
logit_bias=None logprobs=None top_logprobs=None"""


@pytest.mark.parametrize(
    ("method", "listed"),
    [
        (Llama.__call__, COMPLETION),
        (Llama.create_completion, COMPLETION),
        (Llama.create_chat_completion, CHAT),
        (Llama.tokenize, "text add_bos=True special=False"),
        (Llama.detokenize, "tokens prev_tokens=None special=False"),
        (Llama.embed, "input normalize=False truncate=True return_count=False"),
        (Llama.from_pretrained, "repo_id filename additional_files=None local_dir=None"),
    ],
)
def test_arguments_stand_in_the_order_and_with_the_defaults_callers_rely_on(method, listed):
    found = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    for parameter, wanted in zip(found, listed.split(), strict=False):
        name, _, default = wanted.partition("=")
        assert parameter.name == name
        assert not default or repr(parameter.default) == default
    assert len(found) >= len(listed.split())
