"""Stand in for a model: logits that depend on every token before them, read through the pages.

A slot holds a hash of the token there and of the slot before it, so a wrong page, a stale slot or
a skipped token changes every later row. So does a wrong snapshot, where there is recurrent state.
"""

import threading
from collections.abc import Sequence as Ids
from itertools import cycle

import numpy as np

from edgeinfer.engine.draft import Draft
from edgeinfer.engine.engine import Engine
from edgeinfer.engine.events import Event, Finished, Token
from edgeinfer.engine.guessing import Guesser
from edgeinfer.engine.holdings import Holdings
from edgeinfer.engine.pages import PagePool
from edgeinfer.engine.prefix import PrefixCache
from edgeinfer.engine.sampler import Sampled
from edgeinfer.engine.sequence import Sequence
from edgeinfer.errors import CancelledError
from edgeinfer.kernels.backend import PAGE_LEN, Batch, Cancel, Executable, Limits, check_batch
from edgeinfer.kernels.snapshots import check_snapshots

N_VOCAB = 97


class FakeExecutable:
    """Keep one hash a slot; record the shape of every step."""

    n_vocab = N_VOCAB
    n_hidden = 1
    n_out = N_VOCAB
    n_threads = n_threads_batch = 1
    weights_bytes = 0
    state_bytes = 0
    page_bytes = 8 * PAGE_LEN
    page_layout = "fake-1"

    def __init__(self, limits: Limits, *, snapshot_bytes: int = 0) -> None:
        self.limits = limits
        self.snapshot_bytes = snapshot_bytes
        self.snapshots = np.zeros((limits.n_snapshots, snapshot_bytes // 8), np.uint64)
        self.slots = np.zeros((limits.n_pages, PAGE_LEN), np.uint64)
        self.logits = np.zeros((limits.n_batch, N_VOCAB), np.float32)  # of the last step only
        self.hidden_rows = np.zeros((0, 1), np.float32)
        self.steps: list[tuple[int, ...]] = []  # tokens of each sequence in each step
        self.closed = 0
        self.fail_with: Exception | None = None
        self.gate: threading.Event | None = None  # hold a step until set, or until cancelled
        self.entered = threading.Event()

    def run(self, batch: Batch, *, cancel: Cancel | None = None) -> np.ndarray:
        check_batch(batch, self.limits, self.n_vocab)
        if self.snapshot_bytes:
            check_snapshots(batch, self.limits)
        self.steps.append(tuple(np.bincount(batch.sequences).tolist()))
        self.entered.set()
        while self.gate is not None and not self.gate.wait(0.001):
            if cancel is not None and cancel.is_set:
                raise CancelledError("step: cancelled")
        if self.fail_with is not None:
            raise self.fail_with
        hashes = [self._store(batch, i) for i in range(len(batch.tokens))]
        if self.snapshot_bytes:
            states = self._recur(batch)
            hashes = [(value + state) % 2**64 for value, state in zip(hashes, states, strict=True)]
        for row, i in enumerate(batch.wanted):
            self.logits[row] = _row(hashes[i])
        self.hidden_rows = np.array([[hashes[i] % 2**20] for i in batch.wanted], np.float32)
        return self.logits[: 0 if batch.hidden_only else len(batch.wanted)]

    def hidden(self) -> np.ndarray:
        return self.hidden_rows

    def copy_page(self, source: int, target: int) -> None:
        self.slots[target] = self.slots[source]

    def read_page(self, page: int, n_positions: int) -> np.ndarray:
        slots = self.slots[page].copy()
        slots[n_positions:] = 0
        return slots.view(np.uint8)

    def write_page(self, page: int, data: np.ndarray) -> None:
        self.slots[page] = data.view(np.uint64)

    def read_snapshot(self, snapshot: int) -> np.ndarray:
        return self.snapshots[snapshot].copy().view(np.uint8)

    def write_snapshot(self, snapshot: int, data: np.ndarray) -> None:
        self.snapshots[snapshot] = data.view(np.uint64)

    def close(self) -> None:
        self.closed += 1

    def _recur(self, batch: Batch) -> list[int]:
        """Return the state after each token, and write those that are to be saved."""
        states, value = [], 0
        saves = list(zip(batch.saved_rows.tolist(), batch.saved_snapshots.tolist(), strict=True))
        before = self.snapshots.copy()
        for i, sequence in enumerate(batch.sequences.tolist()):
            if i == 0 or sequence != batch.sequences[i - 1]:
                begins = batch.positions[i] == 0
                value = 0 if begins else int(before[batch.snapshots[sequence], 0])
            value = (value * 2862933555777941757 + int(batch.tokens[i]) * 3935559 + 7) % 2**64
            states.append(value)
            for snapshot in (to for row, to in saves if row == i):
                self.snapshots[snapshot] = value
        return states

    def _store(self, batch: Batch, i: int) -> int:
        position, table = int(batch.positions[i]), batch.page_tables[batch.sequences[i]]
        before = 0
        if position:
            before = int(self.slots[table[(position - 1) // PAGE_LEN], (position - 1) % PAGE_LEN])
        value = (before * 6364136223846793005 + int(batch.tokens[i]) * 2654435761 + 1) % 2**64
        self.slots[table[position // PAGE_LEN], position % PAGE_LEN] = value
        return value


def _row(value: int) -> np.ndarray:
    return np.random.default_rng(value).standard_normal(N_VOCAB).astype(np.float32)


class Argmax:
    """The likeliest id."""

    def sample(self, logits: np.ndarray, history: Ids[int], position: int) -> int:
        assert position == len(history)
        return int(logits.argmax())

    def sample_with_logprobs(
        self, logits: np.ndarray, history: Ids[int], position: int, n_top: int
    ) -> Sampled:
        return Sampled(self.sample(logits, history, position), -1.0, ((0, -1.0),) * n_top)


class Prophet:
    """Guess what sequences go on with: so many right tokens in turns, and two wrong ones.

    `answers`: by prompt, all tokens of the answer.
    """

    def __init__(self, answers: dict[tuple[int, ...], list[int]], n_right: Ids[int]) -> None:
        self.answers = answers
        self.n_right = cycle(n_right)
        self.n_guesses = 0

    def guess(self, sequences: list[Sequence], n_left: int) -> dict[Sequence, list[int]]:
        guesses = {}
        for sequence in sequences:
            to_come = self.answers[tuple(sequence.tokens[: sequence.n_prompt])]
            room = sequence.max_tokens - sequence.n_generated - 1
            n_right = next(self.n_right)
            right = to_come[sequence.n_generated :][:n_right]
            wrong = [(id + 1) % N_VOCAB for id in to_come[sequence.n_generated + n_right :][:2]]
            guesses[sequence] = [*right, *wrong][: min(room, n_left)]
            n_left -= len(guesses[sequence])
        return guesses

    def record(self, gained: dict[Sequence, int], n_guesses: int, step_s: float) -> None:
        self.n_guesses += n_guesses

    def forget(self, sequence: Sequence) -> None:
        pass

    def close(self) -> None:
        pass


class Eager:
    """Guess with a draft in every step, whatever it takes."""

    def __init__(self, draft: Draft, n_guesses: int = 5) -> None:
        self.draft = draft
        self.n_guesses = n_guesses

    def guess(self, sequences: list[Sequence], n_left: int) -> dict[Sequence, list[int]]:
        counts = {}
        for sequence in sequences:
            self.draft.follow(sequence)
            if not self.draft.is_reading(sequence):
                self.draft.begin(sequence, len(sequence.tokens))
            while not self.draft.is_ready(sequence) and self.draft.read(sequence, 50) > 0:
                pass
            room = sequence.max_tokens - sequence.n_generated - 1
            counts[sequence] = max(0, min(room, self.n_guesses, n_left // len(sequences)))
        return {s: guesses.tokens for s, guesses in self.draft.guess(counts, 0.0).items()}

    def record(self, gained: dict[Sequence, int], n_guesses: int, step_s: float) -> None:
        pass

    def forget(self, sequence: Sequence) -> None:
        self.draft.forget(sequence)

    def close(self) -> None:
        self.draft.close()


def make_draft(
    executable: Executable, limits: Limits, *, window: int = 0, cost: float = 0.1
) -> Draft:
    pool = PagePool(limits.n_pages)
    holdings = Holdings(pool, PrefixCache(pool), n_kept=limits.n_pages, window=window)
    n_vocab = executable.n_vocab
    return Draft(executable, limits, holdings, n_vocab=n_vocab, cost=cost, cancel=Cancel())


def fake_draft(*, n_ctx: int = 512, n_pages: int = 16, n_batch: int = 64) -> Draft:
    """Return the fake model as the draft of itself."""
    limits = Limits(n_ctx=n_ctx, n_pages=n_pages, n_batch=n_batch)
    return make_draft(FakeExecutable(limits), limits)


def unpaced(engine: Engine) -> Engine:
    """Let prompts fill every step: nothing is guessed beside them, however slow the machine is."""
    n_batch = engine.limits.n_batch
    engine.pace.most_tokens = lambda n_answers: n_batch
    return engine


def make_engine(
    *,
    n_ctx: int = 512,
    n_pages: int = 16,
    n_batch: int = 64,
    guesser: Guesser | None = None,
    snapshot_bytes: int = 0,
    n_snapshots: int = 32,
    whole_sequences: bool = False,
) -> Engine:
    limits = Limits(n_ctx=n_ctx, n_pages=n_pages, n_batch=n_batch, n_snapshots=n_snapshots)
    executable = FakeExecutable(limits, snapshot_bytes=snapshot_bytes)
    engine = Engine(executable, limits, guesser=guesser, whole_sequences=whole_sequences)
    return engine if guesser is None else unpaced(engine)


def make_sequence(tokens: Ids[int], *, max_tokens: int = 8, **options: object) -> Sequence:
    return Sequence(tokens, Argmax(), max_tokens=max_tokens, **options)


def run(engine: Engine, *sequences: Sequence) -> list[Event]:
    """Step until all sequences have finished and return every event."""
    events: list[Event] = []
    for sequence in sequences:
        engine.add(sequence)
    while any(sequence.finish_reason is None for sequence in sequences):
        events += engine.step()
    return events


def answer(engine: Engine, tokens: Ids[int], **options: object) -> list[int]:
    """Return the answer's ids of one sequence run alone."""
    sequence = make_sequence(tokens, **options)
    run(engine, sequence)
    return sequence.tokens[sequence.n_prompt :]


def prompt(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).tolist()


def tokens_of(events: list[Event], sequence: Sequence) -> list[int]:
    return [e.id for e in events if isinstance(e, Token) and e.sequence is sequence]


def ends_of(events: list[Event], sequence: Sequence) -> int:
    return sum(isinstance(e, Finished) and e.sequence is sequence for e in events)
