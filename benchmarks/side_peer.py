"""Measure llama-cpp-python for `benchmarks.models`: a job as JSON on stdin, rates on stdout.

Runs under the peer's Python; calls its low-level functions, so that no text, sampling or copy of
logits is timed. The job gives each row its options: "flash" (flash attention) and "repack" (weights
laid out anew at load where the peer's build has a kernel for that).
"""

import ctypes
from typing import Any

import llama_cpp

from benchmarks.measuring import N_BATCH, N_CTX, Row, answer, measure, read_job

SEQUENCE = 0


class Peer:
    """A llama.cpp context with one sequence."""

    def __init__(self, model: object, n_threads: int, *, flash: bool) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = N_CTX
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_threads = params.n_threads_batch = n_threads
        params.no_perf = True
        params.flash_attn_type = int(flash)
        self._context = llama_cpp.llama_init_from_model(model, params)
        if self._context is None:
            raise SystemExit("llama_init_from_model failed")
        self._memory = llama_cpp.llama_get_memory(self._context)
        vocab = llama_cpp.llama_model_get_vocab(model)
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(vocab))
        self._n_tokens = 0
        self._copy: ctypes.Array[ctypes.c_uint8] | None = None  # of a sequence with tokens in it

    def step(self, tokens: list[int], position: int) -> None:
        self._n_tokens = position + len(tokens)
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        # Positions go on from the sequence's last one; only the last token has logits.
        batch = llama_cpp.llama_batch_get_one(array, len(tokens))
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_get_logits_ith(self._context, -1)  # waits until they are there

    def remember(self) -> None:
        """Copy the sequence, as llama-bench does: the cache of a window cannot be cut."""
        if self._n_tokens == 0:
            return
        size = llama_cpp.llama_state_seq_get_size(self._context, SEQUENCE)
        self._copy = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self._context, self._copy, size, SEQUENCE)

    def restore(self) -> None:
        """Put the copy back."""
        llama_cpp.llama_memory_clear(self._memory, False)
        if self._copy is not None:
            size = len(self._copy)
            if not llama_cpp.llama_state_seq_set_data(self._context, self._copy, size, SEQUENCE):
                raise SystemExit("llama_state_seq_set_data failed")

    def close(self) -> None:
        llama_cpp.llama_free(self._context)


def main() -> None:
    """Load the model once for each layout that rows ask for, and measure those rows."""
    job, rows = read_job()
    options = job["options"]  # row name -> {"flash": bool, "repack": bool}
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    rates: dict[str, float] = {}
    for repack in (False, True):
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = repack
        chosen = [row for row in rows if options[row.name]["repack"] == repack]
        if not chosen:
            continue
        model = llama_cpp.llama_model_load_from_file(job["model"].encode(), params)
        if model is None:
            raise SystemExit(f"the peer cannot load {job['model']}")
        for flash in (False, True):
            these = [row for row in chosen if options[row.name]["flash"] == flash]
            rates |= _measured(model, these, job, flash=flash)
        llama_cpp.llama_model_free(model)
    version = f"llama-cpp-python {llama_cpp.__version__}"
    features = llama_cpp.llama_print_system_info().decode()
    answer(rates=rates, peer_version=version, peer_features=features)


def _measured(
    model: object, rows: list[Row], job: dict[str, Any], *, flash: bool
) -> dict[str, float]:
    if not rows:
        return {}
    peer = Peer(model, job["n_threads"], flash=flash)
    try:
        return measure(peer, rows, job["repeats"])
    finally:
        peer.close()


if __name__ == "__main__":
    main()
