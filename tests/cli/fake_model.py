"""A model without weights that answers by simple rules, for tests of the command line.

Run as a script it is the command line itself over such a model, for tests with pipes and terminals.
"""

import json
import os
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgeinfer.completion import Chunk, Completion, Timings, Usage
from edgeinfer.errors import (
    ContextOverflowError,
    InvalidParameterError,
    NonFiniteError,
    SessionError,
    TemplateError,
)
from edgeinfer.llm.vectors import Ranked

N_CTX = 2048


class FakeStream:
    """Answers "You said: <prompt>." word by word; some prompts make it slow, cut or broken."""

    def __init__(self, prompt, progress, settings):
        if prompt == "overflow":
            raise ContextOverflowError("prompt: found 9999 tokens (need at most 2047)")
        self._prompt = prompt
        self._settings = settings
        self._tokens = []
        self._text = ""
        self.completion = None
        self._chunks = self._make()
        self._progress = progress

    def _make(self) -> Iterator[str]:
        if self._prompt == "nan":
            raise NonFiniteError("logits: found NaN")
        if self._prompt == "long":
            for n_done in range(0, 2000, 100):
                time.sleep(0.05)
                self._progress(n_done, 2000, 0)
        if self._prompt == "endless":
            while True:
                time.sleep(0.01)
                yield "la "
        if self._prompt == "silent":
            return
        if self._prompt == "escape":
            yield "red \x1b[31malert"
            return
        if self._prompt == "settings":
            yield repr(dict(sorted(self._settings.items())))
            return
        yield "You said:"
        for word in self._prompt.split(" "):
            yield " " + word
        yield "."

    def __iter__(self):
        return self

    def __next__(self):
        text = None if self.completion else next(self._chunks, None)
        if text is None:
            self._end("length" if self._prompt == "cut" else "stop")
            raise StopIteration
        self._text += text
        self._tokens.append(len(self._tokens))
        return Chunk(text, (self._tokens[-1],))

    def close(self):
        self._end("cancelled")

    def _end(self, reason):
        if self.completion is None:
            self.completion = Completion(
                text=self._text,
                tokens=tuple(self._tokens),
                finish_reason=reason,
                n_dropped=1234 if self._prompt == "dropped" else 0,
                stop=None,
                seed=self._settings.get("seed", 7),
                usage=Usage(10, 4, len(self._tokens)),
                timings=Timings(0.1, 0.5, 2.0, 12.0, 34.0),
            )


@dataclass(frozen=True)
class FakeSamplingParams:
    temperature: float = 0.8
    top_k: int = 40

    def __post_init__(self):
        if not self.temperature >= 0:
            raise InvalidParameterError(f"temperature: found {self.temperature} (need 0 or more)")


class FakeTokenizer:
    bos_id = 1
    stop_ids = frozenset({2, 3})

    def __init__(self, chat_template):
        self.chat_template = chat_template


class FakeModel:
    """Has the methods of `edgeinfer.Model` that the command line calls."""

    n_ctx = N_CTX
    pooling = None
    sampling_defaults = FakeSamplingParams()

    def __init__(self, *, chat_template="template", **load_options):
        self.tokenizer = FakeTokenizer(chat_template)
        self.load_options = load_options
        self.closed = False
        self.requests = []
        self.prompt_ids = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.closed = True

    def tokenize(self, text, *, add_special=True, parse_special=False):
        head = [1] if add_special else []
        return head + [ord(char) for char in text]

    def detokenize(self, ids):
        return "".join(chr(id) for id in ids if id != 1)

    def apply_template(self, messages, *, template_variables=None, add_generation_prompt=True):
        return "".join(f"<{m['role']}>{m['content']}" for m in messages)

    def save_session(self, path, messages, *, template_variables=None):
        path.write_text(json.dumps(messages), encoding="utf-8")
        return self.load_session(path)

    def load_session(self, path):
        try:
            messages = tuple(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise SessionError(f"{path}: {error.strerror}") from None
        n_tokens = len(self.apply_template(messages))
        return types.SimpleNamespace(messages=messages, n_restored=n_tokens)

    def embed(self, texts, *, progress, normalize, dimensions, truncate):
        progress(1, 1)
        rows = [[len(text), text.count("a"), 0.1][:dimensions] for text in texts]
        return np.array(rows, np.float32)

    def rank(self, query, documents, *, progress, top_n, raw, truncate):
        scores = [(doc.count(query) * (1 if raw else 0.5), i) for i, doc in enumerate(documents)]
        ordered = sorted(scores, key=lambda pair: -pair[0])[:top_n]
        return [Ranked(index, score, len(documents[index])) for score, index in ordered]

    def stream(self, prompt, *, progress=None, **settings):
        self.prompt_ids = prompt
        text = self.detokenize(prompt)
        self.requests.append((text, settings))
        return FakeStream(text, progress, settings)

    def stream_chat(self, messages, *, progress=None, **settings):
        if self.tokenizer.chat_template is None:
            raise TemplateError("no chat template")
        self.requests.append(([dict(message) for message in messages], settings))
        return FakeStream(messages[-1]["content"], progress, settings)


def install(models=None, **options):
    """Make `edgeinfer.model.load` return fake models, and keep them in `models`."""

    def load(path, **load_options):
        model = FakeModel(**options, **load_options)
        if models is not None:
            models.append(model)
        return model

    module = types.ModuleType("edgeinfer.model")
    module.load = load
    sys.modules["edgeinfer.model"] = module


if __name__ == "__main__":
    if os.environ.get("TAKE_TERMINAL"):  # so that Ctrl-C typed there is a signal here
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    install()
    from edgeinfer.cli.__main__ import main

    sys.exit(main())
