"""Rerankers that answer with a word: what folder says so, and by which tokens."""

import json
from pathlib import Path

import pytest

from edgeinfer.convert.answers import TEMPLATE, answering, asking_keys
from edgeinfer.convert.config import read_config
from edgeinfer.convert.families import family_of
from edgeinfer.errors import ModelFormatError

CARD = "---\nlicense: apache-2.0\npipeline_tag: text-ranking\n---\n# A model\n"


def ranks(folder: Path) -> bool:
    config = read_config(folder)
    family = family_of(config)
    changed = answering(folder, family, config)
    return changed is not family


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_card_says_that_a_model_ranks_and_the_vocabulary_by_what(folder: Path) -> None:
    (folder / "README.md").write_text(CARD.replace("text-ranking", "text-generation"))
    assert not ranks(folder)
    (folder / "README.md").write_text(CARD.replace("---\n#", "# ---\n#") + "pipeline_tag: x")
    assert not ranks(folder)
    (folder / "README.md").write_text(CARD)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"yes": 7, "no": 5}}}))
    assert ranks(folder)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"yes": 7}}}))
    with pytest.raises(ModelFormatError, match="vocab: no: found 'None'"):
        ranks(folder)


def test_a_module_says_it_with_ids(folder: Path) -> None:
    listed = [{"type": "a.b.Transformer", "path": ""}, {"type": "a.LogitScore", "path": "1_L"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_L").mkdir()
    settings = folder / "1_L/config.json"
    settings.write_text(json.dumps({"true_token_id": 7, "false_token_id": 5}))
    assert ranks(folder)
    settings.write_text(json.dumps({"true_token_id": -1, "false_token_id": 5}))
    with pytest.raises(ModelFormatError, match="true_token_id: found '-1'"):
        ranks(folder)


@pytest.mark.parametrize("path", ["..", "", "/etc", None])
def test_a_module_is_inside_the_folder(folder: Path, path: str | None) -> None:
    (folder / "modules.json").write_text(json.dumps([{"type": "a.LogitScore", "path": path}]))
    with pytest.raises(ModelFormatError, match="need a folder's name"):
        ranks(folder)


def test_the_template_has_both_texts_in_it() -> None:
    assert TEMPLATE.count("{query}") == TEMPLATE.count("{document}") == 1
    assert "tokenizer.chat_template.rerank" in [key.key for key in asking_keys()]
