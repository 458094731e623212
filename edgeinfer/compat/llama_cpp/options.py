"""Judge the arguments of `Llama` that edgeinfer has no use for.

Those that change speed or memory only are taken and left; those that would change answers are
refused unless they hold the value that changes nothing.
"""

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from edgeinfer.compat.llama_cpp import constants
from edgeinfer.compat.llama_cpp.errors import LlamaUnsupportedError, LlamaValueError

log = logging.getLogger(__name__)

NO_EFFECT = frozenset(
    (
        *("n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "offload_kqv", "op_offload"),
        *("use_mmap", "use_mlock", "numa", "n_ubatch", "flash_attn", "swa_full", "no_perf"),
        *("lora_base", "lora_scale", "rpc_servers"),
        # of earlier versions
        *("f16_kv", "low_vram", "mul_mat_q", "n_parts", "cache", "use_direct_io", "kv_unified"),
    )
)
# name: (the values that change nothing, the way out)
CHANGES_ANSWERS: dict[str, tuple[tuple[object, ...], str]] = {
    "vocab_only": ((False, None), "use edgeinfer.load_tokenizer for the tokenizer alone"),
    "kv_overrides": ((None, {}), "convert or edit the file so that its metadata are right"),
    "lora_path": ((None, ""), "merge the adapter into the model and convert that"),
    "attention_type": ((-1, None), "leave it out: the file says what attention it needs"),
    "n_gqa": ((None, 1), "leave it out: GGUF files say it themselves"),
    "rms_norm_eps": ((None, 0.0), "leave it out: GGUF files say it themselves"),
    # LangChain passes 10000.0 and 1.0 whatever the model is
    "rope_freq_base": ((0.0, None, 10000.0), "leave it out: the file says how it is scaled"),
    "rope_freq_scale": ((0.0, None, 1.0), "leave it out: the file says how it is scaled"),
    "rope_scaling_type": ((-1, None), "leave it out: the file says how it is scaled"),
    "yarn_ext_factor": ((-1.0,), "leave it out: the file says how it is scaled"),
    "yarn_attn_factor": ((1.0,), "leave it out: the file says how it is scaled"),
    "yarn_beta_fast": ((32.0,), "leave it out: the file says how it is scaled"),
    "yarn_beta_slow": ((1.0,), "leave it out: the file says how it is scaled"),
    "yarn_orig_ctx": ((0,), "leave it out: the file says how it is scaled"),
}
_KV_NAMES = {
    constants.GGML_TYPE_F32: "f32",
    constants.GGML_TYPE_F16: "f16",
    constants.GGML_TYPE_Q8_0: "q8_0",
    constants.GGML_TYPE_Q4_0: "q4_0",
}


def check_unused(arguments: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise unless all `arguments` may be ignored; `known` are the names there are besides."""
    for name, value in arguments.items():
        if name in CHANGES_ANSWERS:
            neutral, way_out = CHANGES_ANSWERS[name]
            if value not in neutral:
                raise LlamaUnsupportedError(
                    f"Llama: {name}: found {value!r} (need {neutral[0]!r}): edgeinfer does not "
                    f"have it, and answers would differ; {way_out}"
                )
        elif name not in NO_EFFECT:
            every = [*known, *NO_EFFECT, *CHANGES_ANSWERS]
            close = get_close_matches(name, every, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"Llama() got an unexpected keyword argument {name!r}{hint}")
    if arguments.get("n_gpu_layers"):
        log.info("n_gpu_layers=%r: edgeinfer runs on the CPU", arguments["n_gpu_layers"])


def kv_type_of(type_k: int | None, type_v: int | None) -> str:
    """Return the KV type that numbers of ggml mean, None being f16."""
    numbers = [constants.GGML_TYPE_F16 if t is None else t for t in (type_k, type_v)]
    names = [_KV_NAMES.get(number, f"type {number}") for number in numbers]
    if names[0] != names[1] or numbers[0] not in _KV_NAMES:
        raise LlamaValueError(
            f"type_k, type_v: found {names[0]} and {names[1]} (need the same of "
            f"{', '.join(_KV_NAMES.values())}, which are {', '.join(map(str, _KV_NAMES))})"
        )
    return names[0]
