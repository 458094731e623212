"""A model of hashes with a tokenizer of one id a character, for tests of the class users hold."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from edgeinfer.engine.sampling import SamplingParams
from edgeinfer.errors import ModelClosedError, ResourceError
from edgeinfer.llm import Model
from edgeinfer.loader.kv_file import UNBOUND
from edgeinfer.loader.metadata import Metadata
from tests.engine.fakes import N_VOCAB, make_engine, unpaced

T = TypeVar("T")

PIECES = [bytes([32 + id]) for id in range(N_VOCAB - 5)]
PIECES += ["🔥".encode()[:2], "🔥".encode()[2:3], "🔥".encode()[3:], b"<end>", b"<bos>"]
END, BOS = N_VOCAB - 2, N_VOCAB - 1


class FakeTokenizer:
    """One id a printable ASCII character, three an emoji."""

    n_vocab = N_VOCAB
    stop_ids = frozenset([END])
    bos_id = BOS
    leading_space = False

    def __init__(self, add_bos=False):
        self.add_bos = add_bos

    def encode(self, text, *, add_special=True, parse_special=False):
        head = [BOS] if add_special and self.add_bos else []
        ids = [ord(c) - 32 for c in text.replace("<end>", "") if " " <= c <= "{"]
        return head + ids + [END] * (parse_special and "<end>" in text)

    def encode_within(self, text, most):
        return self.encode(text)[:most]

    def encode_pair(self, first, second, *, most=None):
        return [*self.encode(first), END, *self.encode(second)][:most]

    def encode_filled(self, template, parts):
        for name, part in parts.items():
            template = template.replace(f"{{{name}}}", part)
        return self.encode(template)

    def encode_chat(self, messages, *, add_generation_prompt=True, **variables):
        text = "".join(m["content"] for m in messages) + "".join(variables)
        return self.encode(text + ">" * add_generation_prompt)

    def with_template_source(self, source):
        other = FakeTokenizer(self.add_bos)
        other.encode_chat = lambda messages, **variables: other.encode(
            source + messages[-1]["content"]
        )
        return other

    def decode(self, ids):
        return b"".join(PIECES[id] for id in ids).decode(errors="replace")

    def piece(self, token_id):
        return PIECES[token_id]

    def pieces(self):
        return PIECES

    def is_control(self, token_id):
        return token_id in (END, BOS)


class FakeFile:
    path = Path("fake.gguf")
    closed = 0
    changed = rewritten = False

    @property
    def metadata(self):
        if self.closed:
            raise ModelClosedError("fake.gguf: the file is closed")
        return Metadata({"general.architecture": "fake"}, where="fake.gguf")

    def check_unchanged(self):
        if self.changed:
            raise ResourceError("fake.gguf: the model file changed on disk")

    def check_contents(self):
        if self.rewritten:
            raise ResourceError("fake.gguf: the model file was written to")

    def close(self):
        self.closed += 1


def make_model(*, add_bos=False, binding=UNBOUND, pooling=None, **engine_options):
    engine, tokenizer = make_engine(**engine_options), FakeTokenizer(add_bos)
    more = {"load_s": 1.5, "binding": binding, "pooling": pooling}
    more["gives_rows"] = pooling in (None, "none")
    return Model(FakeFile(), tokenizer, engine, SamplingParams(), **more)


def started_at_once(model: Model, n: int, call: Callable[[], T]) -> T:
    """Return what `call` returns, whose `n` sequences have all come before the first step."""
    held, go, found = threading.Event(), threading.Event(), []
    unpaced(model._engine)

    def hold():
        held.set()
        go.wait()

    threads = [
        threading.Thread(target=lambda: model._driver.call(hold)),
        threading.Thread(target=lambda: found.append(call())),
    ]
    threads[0].start()
    held.wait()
    threads[1].start()
    while model._driver._commands.qsize() < n and threads[1].is_alive():
        time.sleep(0.001)
    go.set()
    for thread in threads:
        thread.join()
    return found[0]
