"""Measure llama-cpp-python for `benchmarks.models`: a job as JSON on stdin, rates on stdout.

Runs under the peer's Python; calls its low-level functions, so that no text, sampling or copy of
logits is timed. The job gives each row its options: "flash" (flash attention), "repack" (weights
laid out anew at load where the peer's build has a kernel for that), "unified" (one cache for all
sequences). Each row has a context of its own, as large as it needs.
"""

import ctypes
from typing import Any

import llama_cpp

from benchmarks.measuring import N_BATCH, Row, answer, measure, read_job

PADDING = 256  # the peer rounds a context up to it


class Context:
    """A llama.cpp context and the calls that change its sequences."""

    def __init__(
        self,
        model: object,
        n_threads: int,
        n_ctx: int,
        *,
        n_sequences: int = 1,
        flash: bool,
        unified: bool,
    ) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = -(-n_ctx // PADDING) * PADDING * n_sequences
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_threads = params.n_threads_batch = n_threads
        params.n_seq_max = n_sequences
        params.no_perf = True
        params.flash_attn_type = int(flash)
        params.kv_unified = unified
        self.handle = llama_cpp.llama_init_from_model(model, params)
        if self.handle is None:
            raise SystemExit("llama_init_from_model failed")
        self.memory = llama_cpp.llama_get_memory(self.handle)
        self._batch = llama_cpp.llama_batch_init(max(N_BATCH, n_sequences), 0, 1)

    def run(self, tokens: list[list[int]], position: int, first: int = 0) -> None:
        """Decode the tokens of the sequences from `first` on; each one's last token has logits."""
        batch, n = self._batch, 0
        for sequence, own in enumerate(tokens, first):
            for i, token in enumerate(own):
                batch.token[n], batch.pos[n] = token, position + i
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, sequence
                batch.logits[n] = i == len(own) - 1
                n += 1
        batch.n_tokens = n
        if llama_cpp.llama_decode(self.handle, batch) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_get_logits_ith(self.handle, -1)  # waits until they are there

    def state(self, sequence: int) -> Any:
        """Copy a sequence out."""
        size = llama_cpp.llama_state_seq_get_size(self.handle, sequence)
        copy = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self.handle, copy, size, sequence)
        return copy

    def set_state(self, copy: Any, sequence: int) -> None:
        """Put a copy into an empty sequence."""
        if not llama_cpp.llama_state_seq_set_data(self.handle, copy, len(copy), sequence):
            raise SystemExit("llama_state_seq_set_data failed")

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self.handle)


class Peer:
    """A context with the sequences of one row."""

    def __init__(self, model: object, n_threads: int, row: Row, options: dict[str, bool]) -> None:
        self._model, self._n_threads, self._flash = model, n_threads, options["flash"]
        self._context = Context(
            model,
            n_threads,
            row.n_ctx,
            n_sequences=row.n_sequences,
            flash=self._flash,
            unified=options["unified"],
        )
        vocab = llama_cpp.llama_model_get_vocab(model)
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(vocab))
        self._has_window = llama_cpp.llama_model_n_swa(model) > 0
        self._depth = 0
        self._copy: Any = None  # of a sequence whose window cannot be cut

    def fill(self, depth: int, tokens: list[int]) -> None:
        self._depth = depth
        if depth == 0:
            return
        if self._has_window or depth % N_BATCH:
            for start in range(0, depth, N_BATCH):
                self._context.run([tokens[start : min(start + N_BATCH, depth)]], start)
            self._copy = self._context.state(0)
        else:
            self._context.set_state(self._repeated(depth, tokens), 0)

    def _repeated(self, depth: int, tokens: list[int]) -> Any:
        """Compute one step's tokens, and a sequence that holds them again and again.

        Copies of the first sequence are moved to later positions and joined to it. The peer turns
        moved keys with its next step, so one token more is decoded and dropped.
        """
        n = depth // N_BATCH
        many = Context(
            self._model,
            self._n_threads,
            -(-(depth + 1) // n),
            n_sequences=n,
            flash=self._flash,
            unified=True,
        )
        many.run([tokens[:N_BATCH]], 0)
        copy = many.state(0)
        for sequence in range(1, n):
            many.set_state(copy, sequence)
            llama_cpp.llama_memory_seq_add(many.memory, sequence, -1, -1, sequence * N_BATCH)
            llama_cpp.llama_memory_seq_cp(many.memory, sequence, 0, -1, -1)
            llama_cpp.llama_memory_seq_rm(many.memory, sequence, -1, -1)
        many.run([tokens[:1]], depth)
        llama_cpp.llama_memory_seq_rm(many.memory, 0, depth, -1)
        joined = many.state(0)
        many.close()
        return joined

    def step(self, tokens: list[list[int]], position: int) -> None:
        self._context.run(tokens, position)

    def restore(self) -> None:
        if self._copy is None and self._depth:
            llama_cpp.llama_memory_seq_rm(self._context.memory, 0, self._depth, -1)
            return
        llama_cpp.llama_memory_clear(self._context.memory, False)
        if self._copy is not None:
            self._context.set_state(self._copy, 0)

    def close(self) -> None:
        self._context.close()


def main() -> None:
    """Load the model once for each layout that rows ask for, and measure those rows."""
    job, rows = read_job()
    options = job["options"]  # row name -> {"flash": bool, "repack": bool, "unified": bool}
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    rates: dict[str, float] = {}
    for repack in (False, True):
        chosen = [row for row in rows if options[row.name]["repack"] == repack]
        if not chosen:
            continue
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = repack
        model = llama_cpp.llama_model_load_from_file(job["model"].encode(), params)
        if model is None:
            raise SystemExit(f"the peer cannot load {job['model']}")
        for row in chosen:
            peer = Peer(model, job["n_threads"], row, options[row.name])
            rates[row.name] = measure(peer, row, job["repeats"])
            peer.close()
        llama_cpp.llama_model_free(model)
    version = f"llama-cpp-python {llama_cpp.__version__}"
    features = llama_cpp.llama_print_system_info().decode()
    answer(rates=rates, peer_version=version, peer_features=features)


if __name__ == "__main__":
    main()
