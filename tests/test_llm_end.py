"""How a model ends: closed, forgotten, interrupted, its file changed; on a model of hashes."""

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from edgeinfer.errors import (
    ModelClosedError,
    ResourceError,
)
from tests.fake_llm import make_model


@pytest.fixture
def model():
    with make_model() as model:
        yield model


def test_a_changed_file_is_noticed(model):
    model._file.changed = True

    with pytest.raises(ResourceError, match="changed on disk"):
        model.generate("hello")


def test_a_file_that_was_written_to_meanwhile_is_noticed_at_the_end(model):
    stream = model.stream("hello", max_tokens=5)
    model._file.rewritten = True
    with pytest.raises(ResourceError, match="written to"):
        list(stream)
    for use in (model.generate, model.next_logits, model.logits, model.embed):
        with pytest.raises(ResourceError, match="written to"):
            use("hello" if use in (model.generate, model.embed) else [1, 2])


def test_a_closed_model_says_so_and_closes_twice():
    model = make_model()
    file, executable = model._file, model._engine.executable
    model.close()
    model.close()

    assert (file.closed, executable.closed) == (1, 1)
    for use in (
        lambda: model.generate("x"),
        lambda: model.stream("x"),
        lambda: model.chat([{"role": "user", "content": "x"}]),
        lambda: model.tokenize("x"),
        lambda: model.detokenize([1]),
        lambda: model.logits([1]),
        lambda: model.metadata,
        lambda: model.tokenizer,
    ):
        with pytest.raises(ModelClosedError, match="closed"):
            use()


def test_closing_while_another_thread_generates_ends_it_with_an_error():
    model = make_model()
    model._engine.executable.gate = threading.Event()
    raised = []

    def call():
        try:
            model.generate("hello")
        except ModelClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    model._engine.executable.entered.wait()
    model.close()
    thread.join()

    assert len(raised) == 1


def test_a_forgotten_model_is_freed():
    model = make_model()
    model.generate("hello", max_tokens=2)
    executable, gone = model._engine.executable, weakref.ref(model)
    del model
    gc.collect()

    assert gone() is None
    assert executable.closed == 1


ROUNDS = """
import gc, sys, edgeinfer, psutil
for _ in range(8):
    with edgeinfer.load(sys.argv[1], n_ctx=512) as model:
        model.generate("Once", max_tokens=2)
    del model
    gc.collect()
    print(psutil.Process().memory_info().rss)
"""


def test_memory_is_given_back_at_the_end(smollm2_path):
    command = [sys.executable, "-c", ROUNDS, str(smollm2_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, second, *later = map(int, shown.split())  # the first one imports, too
    assert len(later) == 6
    assert max(later) <= 1.05 * second


def test_a_stream_keeps_its_model_and_a_forgotten_stream_frees_its_pages(model):
    stream = make_model().stream("hello", max_tokens=20, temperature=0)
    assert len("".join(chunk.text for chunk in stream)) > 0

    abandoned = model.stream("hello", max_tokens=400)
    next(abandoned)
    del abandoned
    gc.collect()
    model.generate("other", max_tokens=1)

    scheduler = model._engine.scheduler
    assert scheduler.running == []
    while scheduler.holdings.prefixes.evict():
        pass
    assert scheduler.holdings.pool.n_free == scheduler.holdings.pool.n_pages


def test_the_interpreter_ends_quietly_with_a_model_and_a_stream_alive():
    script = (
        "from tests.fake_llm import make_model\n"
        "model = make_model()\n"
        "stream = model.stream('hello', max_tokens=400)\n"
        "next(stream)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_is_raised_in_a_waiting_call_and_the_model_goes_on():
    script = """
import os, signal, threading
from tests.fake_llm import make_model
model = make_model()
executable = model._engine.executable
executable.gate = threading.Event()

def interrupt():
    executable.entered.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    model.generate("hello")
except KeyboardInterrupt:
    print("interrupted")
executable.gate.set()
print(len(model.generate("hello", max_tokens=4, temperature=0).tokens))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout.split(), done.stderr) == (["interrupted", "4"], "")
