"""Arguments of `Llama`: taken where they change nothing, refused where they would."""

import inspect
import sys
import types

import pytest

from edgeinfer.compat import llama_cpp
from edgeinfer.compat.llama_cpp import Llama, options
from edgeinfer.compat.llama_cpp.llama_chat_format import Jinja2ChatFormatter
from edgeinfer.errors import EdgeInferError, ResourceError

KNOWN = frozenset(["n_ctx", "seed"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_gpu_layers": -1, "use_mlock": True, "flash_attn": True, "n_ubatch": 64},
        {"f16_kv": True, "n_parts": -1, "lora_base": None},  # of earlier versions
        {"tensor_split": [0.5, 0.5]},
        {"rope_freq_base": 0.0, "rope_scaling_type": -1, "kv_overrides": None, "lora_path": None},
        {"rope_freq_base": 10000.0, "rope_freq_scale": 1.0, "vocab_only": False},  # LangChain's
    ],
)
def test_what_changes_no_answer_is_taken(arguments):
    options.check_unused(arguments, KNOWN)


PEERS = {  # every other argument of llama_cpp.Llama 0.3.36, at its default
    "n_gpu_layers": 0,
    "split_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "vocab_only": False,
    "use_mmap": True,
    "use_mlock": False,
    "kv_overrides": None,
    "n_ubatch": 512,
    "rope_scaling_type": -1,
    "attention_type": -1,
    "rope_freq_base": 0.0,
    "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_orig_ctx": 0,
    "offload_kqv": True,
    "flash_attn": False,
    "op_offload": None,
    "swa_full": None,
    "no_perf": False,
    "lora_base": None,
    "lora_scale": 1.0,
    "lora_path": None,
    "numa": False,
}


def test_every_argument_there_is_is_taken_at_its_default():
    options.check_unused(PEERS, KNOWN)
    own = set(inspect.signature(Llama.__init__).parameters)
    assert {"n_ctx", "n_batch", "seed", "type_k", "spm_infill", "chat_handler", "verbose"} <= own
    assert "draft_model" in own


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope_freq_base", 1e6),
        ("rope_scaling_type", llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN),
        ("yarn_orig_ctx", 4096),
        ("kv_overrides", {"tokenizer.ggml.pre": "llama3"}),
        ("lora_path", "adapter.gguf"),
        ("vocab_only", True),
    ],
)
def test_what_would_change_answers_is_refused_with_a_way_out(name, value):
    with pytest.raises(NotImplementedError, match=rf"{name}: found .*answers would differ; \w+"):
        Llama("model.gguf", **{name: value})


def test_an_unknown_argument_is_a_type_error_with_a_hint():
    with pytest.raises(TypeError, match="'n_gpu_layer'; did you mean 'n_gpu_layers'"):
        Llama("model.gguf", n_gpu_layer=1)


def test_kv_types_are_numbers_of_ggml():
    assert options.kv_type_of(None, None) == "f16"
    assert options.kv_type_of(1, None) == "f16"
    assert options.kv_type_of(llama_cpp.GGML_TYPE_Q8_0, 8) == "q8_0"
    assert (options.kv_type_of(0, 0), options.kv_type_of(2, 2)) == ("f32", "q4_0")
    for numbers in ((8, None), (8, 1), (3, 3), (99, 99)):
        need = "need the same of f32, f16, q8_0, q4_0, which are 0, 1, 8, 2"
        with pytest.raises(ValueError, match=need):
            options.kv_type_of(*numbers)


def test_a_missing_file_is_a_value_error():
    with pytest.raises(ValueError, match=r"Model path does not exist: .*no such file"):
        Llama("/nowhere/model.gguf")


def test_broken_and_unknown_models_are_value_errors(tmp_path, tiny_gguf):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and nothing else")
    with pytest.raises(ValueError, match="Failed to load model from file"):
        Llama(tmp_path / "broken.gguf")
    novel = tiny_gguf({"general.architecture": "novel", "novel.context_length": 8}, {})
    with pytest.raises(ValueError, match="novel"):
        Llama(novel)


def test_an_unknown_chat_format_lists_the_known_before_the_file_is_read():
    with pytest.raises(ValueError, match=r"Invalid chat handler: nope .*chatml.*llama-3"):
        Llama("model.gguf", chat_format="nope")


def test_other_tokenizers_are_refused():
    with pytest.raises(NotImplementedError, match="leave it out"):
        Llama("model.gguf", tokenizer=object())
    with pytest.raises(NotImplementedError, match="leave `tokenizer` out"):
        from edgeinfer.compat.llama_cpp.llama_tokenizer import LlamaHFTokenizer

        LlamaHFTokenizer.from_pretrained("owner/repo")


def test_every_error_is_edgeinfers_too():
    for name in ("LlamaValueError", "LlamaOverflowError", "LlamaUnsupportedError"):
        assert issubclass(getattr(llama_cpp, name), EdgeInferError)


def test_the_c_functions_and_image_handlers_say_they_are_not_here():
    with pytest.raises(AttributeError, match="C functions"):
        llama_cpp.llama_decode  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        llama_cpp.nope  # noqa: B018
    from edgeinfer.compat.llama_cpp import llama_chat_format

    with pytest.raises(NotImplementedError, match="reads no images"):
        llama_chat_format.Llava15ChatHandler  # noqa: B018


@pytest.fixture
def no_llama_cpp(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "llama_cpp"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "llama_cpp"]:
        del sys.modules[name]


@pytest.mark.usefixtures("no_llama_cpp")
def test_installed_it_answers_to_the_name_llama_cpp():
    llama_cpp.install()
    llama_cpp.install()

    import llama_cpp as found
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter as FoundFormatter
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
    from llama_cpp.llama_types import ChatCompletionRequestMessage

    assert found.Llama is Llama
    assert FoundFormatter is Jinja2ChatFormatter
    assert LlamaPromptLookupDecoding(num_pred_tokens=2).num_pred_tokens == 2
    assert ChatCompletionRequestMessage is not None


@pytest.mark.usefixtures("no_llama_cpp")
def test_it_does_not_take_the_place_of_the_library_itself(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", types.ModuleType("llama_cpp"))
    with pytest.raises(ValueError, match="imported already"):
        llama_cpp.install()


class Hub(types.ModuleType):
    def __init__(self, files, found=None):
        super().__init__("huggingface_hub")
        self.files, self.found, self.fetched = files, found, []
        self.HfApi = lambda: types.SimpleNamespace(list_repo_files=lambda repo: self.files)

    def hf_hub_download(self, repo, name, **options):
        self.fetched.append(name)
        return str(self.found or f"/hub/{repo}/{name}")


def test_a_model_of_a_repository_answers(monkeypatch, smollm2_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(["SmolLM2-q4_1.gguf"], smollm2_path))

    llm = Llama.from_pretrained(repo_id="o/m", filename="*q4_1.gguf", verbose=False)

    answer = llm.create_chat_completion(
        messages=[
            {"role": "system", "content": "You answer questions."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
        temperature=0,
        max_tokens=12,
    )
    assert answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["message"]["role"] == "assistant"
    llm.close()


@pytest.mark.parametrize(
    ("pattern", "found"), [("*Q4_0.gguf", "m-Q4_0.gguf"), ("m-Q8_0.gguf", "m-Q8_0.gguf")]
)
def test_a_file_of_a_repository_is_found_by_a_pattern(monkeypatch, pattern, found):
    hub = Hub(["README.md", "m-Q4_0.gguf", "m-Q8_0.gguf"])
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)

    with pytest.raises(ValueError, match=rf"does not exist: /hub/o/m/{found}"):
        Llama.from_pretrained("o/m", pattern, additional_files=["README*"], n_ctx=64)
    assert hub.fetched == [found, "README.md"]


@pytest.mark.parametrize("pattern", ["*.gguf", "*Q5*", None])
def test_a_pattern_must_mean_one_file(monkeypatch, pattern):
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(["m-Q4_0.gguf", "m-Q8_0.gguf"]))
    with pytest.raises(ValueError, match=r"need exactly one.*m-Q4_0"):
        Llama.from_pretrained("o/m", pattern)


def test_without_the_hubs_client_its_installation_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ResourceError, match="pip install 'edgeinfer"):
        Llama.from_pretrained("o/m", "*")
