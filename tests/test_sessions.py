"""Restored is continued, to the bit; a refused file changes nothing; prefixes serve any process."""

import asyncio
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import edgeinfer
from edgeinfer.errors import InvalidParameterError, ResourceError, SessionError
from edgeinfer.kernels.backend import KV_TYPES
from edgeinfer.loader.kv_file import Binding
from tests.fake_llm import END, make_model

FIRST = [{"role": "user", "content": "Tell me two things about the colour of the sea."}]
NEXT = {"role": "user", "content": "And a third one?"}
OPTIONS = {"max_tokens": 12, "temperature": 0.7, "seed": 5, "logprobs": 4}


@pytest.fixture(autouse=True)
def cache(smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEINFER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EDGEINFER_PREFIX_MAX_BYTES", raising=False)
    return tmp_path / "cache"


def same(one, other):
    return (one.text, one.tokens, one.logprobs) == (other.text, other.tokens, other.logprobs)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_restored_conversation_equals_one_that_went_on(smollm2_path, tmp_path, kv_type):
    path = tmp_path / "chat.session"
    with edgeinfer.load(smollm2_path, n_ctx=1024, kv_type=kv_type) as model:
        said = {"role": "assistant", "content": model.chat(FIRST, **OPTIONS).text}
        saved = model.save_session(path, [*FIRST, said])
        expected = model.chat([*FIRST, said, NEXT], **OPTIONS)
    with edgeinfer.load(smollm2_path, n_ctx=512, kv_type=kv_type, n_threads=1) as model:
        session = model.load_session(path)
        assert session == saved
        assert list(session.messages) == [*FIRST, said]
        assert session.n_restored == len(session.tokens)
        restored = model.chat([*session.messages, NEXT], **OPTIONS)
    assert same(restored, expected)
    assert restored.usage.cached_tokens == session.n_restored


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_a_prefix_file_serves_a_process_that_did_not_compute_it(smollm2_path, tmp_path, kv_type):
    options = {"n_ctx": 512, "kv_type": kv_type}
    system = {"role": "system", "content": "You answer in verse, and never mention the moon. " * 9}
    question = {"role": "user", "content": "What is the sea?"}
    code = f"""
        import edgeinfer
        with edgeinfer.load({str(smollm2_path)!r}, **{options}) as model:
            print(model.keep_prefix([{system!r}]))
    """
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    path = Path(made.stdout.strip())
    assert path.parent == tmp_path / "cache" / "prefixes"
    with edgeinfer.load(smollm2_path, **options, prefixes=False) as model:
        expected = model.chat([system, question], **OPTIONS)
        n_prefix = len(model.apply_template([system, question])) - 30
    with edgeinfer.load(smollm2_path, **options) as model:
        found = model.chat([system, question], **OPTIONS)
    assert same(found, expected)
    assert expected.usage.cached_tokens == 0
    assert found.usage.cached_tokens > n_prefix > 80


# -- what needs no kernel --------------------------------------------------------------------------

TEXT = "a text of some length " * 6 + "that goes on "


def test_an_event_loop_keeps_and_restores_while_others_are_answered(tmp_path, cache):
    path = tmp_path / "a.session"

    async def main():
        model, other = make_model(), make_model()
        saved, answer, prefix = await asyncio.gather(
            model.asave_session(path, TEXT),
            model.agenerate("hello", max_tokens=5, logit_bias={END: -100.0}),
            model.akeep_prefix(TEXT),
        )
        assert prefix.parent == cache / "prefixes"
        assert len(answer.tokens) == 5
        return saved, await other.aload_session(path)

    saved, restored = asyncio.run(main())
    assert restored == saved
    assert restored.n_restored == len(saved.tokens)


def test_a_text_and_ids_are_kept_like_messages(tmp_path):
    model, other = make_model(), make_model()
    path = tmp_path / "a"
    session = model.save_session(path, TEXT)
    assert session.messages == ()
    assert other.load_session(path) == session
    expected = model.generate(TEXT + "more", temperature=0)
    found = other.generate(TEXT + "more", temperature=0)
    assert found.usage.cached_tokens == len(TEXT)
    assert found.tokens == expected.tokens
    (tmp_path / "link").symlink_to(path)
    assert other.load_session(tmp_path / "link") == session
    ids = model.tokenize(TEXT)
    assert model.save_session(path, iter(ids)).tokens == tuple(ids)  # replaces its like


def test_a_hybrid_goes_on_from_its_state(tmp_path, cache):
    path = tmp_path / "a"
    model, other = make_model(snapshot_bytes=64), make_model(snapshot_bytes=64)
    saved = model.save_session(path, TEXT)
    assert other.load_session(path) == saved
    assert saved.n_restored == len(TEXT)
    expected = make_model(snapshot_bytes=64).generate(TEXT + "more", temperature=0)
    found = other.generate(TEXT + "more", temperature=0)
    assert found.usage.cached_tokens == len(TEXT)
    assert found.tokens == expected.tokens
    with pytest.raises(SessionError, match=r"state of 64 bytes \(need 0\)"):
        make_model().load_session(path)
    assert model.keep_prefix(TEXT).exists()


def test_a_session_of_another_model_or_kv_type_is_refused(tmp_path):
    bound = Binding(model="a", program="p", kv_type="f16", activations="auto", layout="fake-1")
    path = tmp_path / "a"
    make_model(binding=bound).save_session(path, TEXT)
    make_model(binding=bound).load_session(path)
    other = make_model(binding=replace(bound, model="b", kv_type="q8_0"))
    with pytest.raises(SessionError) as caught:
        other.load_session(path)
    assert "model: found a (need b), kv_type: found f16 (need q8_0)" in str(caught.value)
    assert "layout" not in str(caught.value)
    assert other._engine.scheduler.holdings.pool.n_touched == 0


def test_a_damaged_session_leaves_the_model_as_it_was(tmp_path):
    model, path = make_model(), tmp_path / "a"
    model.save_session(path, TEXT)
    data = path.read_bytes()
    other = make_model()
    for at in (20, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(SessionError, match=str(path)):
            other.load_session(path)
    os.truncate(path, len(data) - 100)
    with pytest.raises(SessionError):
        other.load_session(path)
    assert other._engine.scheduler.holdings.pool.n_touched == 0
    assert other.generate(TEXT).usage.cached_tokens == 0


def test_other_files_are_not_replaced(tmp_path):
    path = tmp_path / "letter.txt"
    path.write_text("dear aunt")
    with pytest.raises(SessionError, match="choose another name"):
        make_model().save_session(path, TEXT)
    assert path.read_text() == "dear aunt"
    with pytest.raises(SessionError, match="cannot be written"):
        make_model().save_session(tmp_path / "none" / "a", TEXT)
    with pytest.raises(SessionError, match="No such file"):
        make_model().load_session(tmp_path / "none")
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_a_conversation_that_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(InvalidParameterError, match="JSON"):
        make_model().save_session(tmp_path / "a", [{"role": "user", "content": {1, 2}}])


def test_a_saved_session_leaves_no_page_behind(tmp_path):
    model = make_model()
    for n in range(3):
        model.save_session(tmp_path / str(n), TEXT[: 40 + 30 * n])
        model.load_session(tmp_path / str(n))
    holdings = model._engine.scheduler.holdings
    assert holdings.n_available == holdings.pool.n_pages


def test_prefix_files_keep_to_their_cap(cache):
    model = make_model()
    first = model.keep_prefix(TEXT)
    assert model.keep_prefix(TEXT) == first
    room = first.stat().st_size + 1000
    os.utime(first, (1, 1))
    second = model.keep_prefix("another text " * 10, most_bytes=room)
    assert [p.name for p in (cache / "prefixes").glob("*.prefix")] == [second.name]
    with pytest.raises(ResourceError, match="EDGEINFER_PREFIX_MAX_BYTES"):
        model.keep_prefix(TEXT, most_bytes=100)
    assert second.exists()
