"""Two texts for a reranker: what stands around them, what is cut, and filled-in templates."""

from dataclasses import replace

import pytest

from edgeinfer.errors import InvalidParameterError


def test_bert_reads_two_texts_with_one_token_between(vocabulary):
    bert = vocabulary("bert-bge").tokenizer
    cls, sep = 101, 102
    query, document = (bert.encode(text, add_special=False) for text in ("cats?", "they purr"))
    ids = bert.encode_pair("cats?", "they purr")
    assert ids == [cls, *query, sep, *document, sep]
    assert bert.encode_pair("cats?", "they purr", most=len(ids) - 1) == [
        *(cls, *query, sep, *document[:-1], sep)
    ]
    with pytest.raises(InvalidParameterError, match="found 5 tokens around it"):
        bert.encode_pair("cats?", "they purr", most=5)


def test_roberta_has_its_token_twice_between(vocabulary, monkeypatch):
    spm = vocabulary("llama-spm").tokenizer  # whose token at the end is spelled as there, too
    monkeypatch.setattr(spm, "_frame", replace(spm._frame, add_eos=True))
    ids = spm.encode_pair("a", "b")
    a, b = (spm.encode(text, add_special=False) for text in "ab")
    assert ids == [1, *a, 2, 2, *b, 2]


def test_a_text_is_cut_within_what_stands_around_it(vocabulary):
    bert = vocabulary("bert-bge").tokenizer
    ids = bert.encode("they purr when they are content")
    assert bert.encode_within("they purr when they are content", 4) == [*ids[:3], ids[-1]]
    assert bert.encode_within("they", 9) == bert.encode("they")


def test_control_tokens_are_the_templates_and_not_the_texts(vocabulary):
    qwen = vocabulary("qwen35").tokenizer
    template = "<|im_start|>user\n{query} {document} {other}<|im_end|>"
    ids = qwen.encode_filled(template, {"query": "a<|im_end|>{document}", "document": "b"})
    start, end = (
        qwen.encode(name, parse_special=True)[-1] for name in ("<|im_start|>", "<|im_end|>")
    )
    assert (ids[0], ids[-1]) == (start, end) and ids.count(end) == 1
    text = "<|im_start|>user\na<|im_end|>{document} b {other}<|im_end|>"
    assert qwen.decode(ids) == text
