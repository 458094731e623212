"""Measure what requests gain from each other, and what they cost each other, on one engine.

    python -m benchmarks.serving                      # smollm2
    python -m benchmarks.serving model.gguf --repeat 5 -t 2 --json

together: seconds of 8 requests of 100 tokens at once, over those of one after another; aim 0.4.
prefix: seconds to the first token behind 1,000 tokens that are new, over those behind the same
1,000 tokens again; aim 10. beside: seconds of the steps of running answers while a prompt of 4,000
tokens (--prompt) is read, over those of steps without prompt tokens: mean, and 95th percentile;
aim 2. Medians over rounds.
"""

import argparse
import json
import random
import statistics
import threading
import time
from typing import Any

from edgeinfer.loader.resolve import resolve
from edgeinfer.model import Model, load

N_TOGETHER, ANSWER = 8, 100
N_PREFIX = 1000
SETTLE_S = 1.0
GREEDY: dict[str, Any] = {"temperature": 0}


class Clock:
    """Listen to what the engine's pace is told: answers, prompt tokens and seconds of a step."""

    def __init__(self, model: Model) -> None:
        self.steps: list[tuple[int, int, float]] = []
        pace = model._engine.pace
        record = pace.record

        def listen(n_answers: int, n_prompt_tokens: int, step_s: float) -> None:
            self.steps.append((n_answers, n_prompt_tokens, step_s))
            record(n_answers, n_prompt_tokens, step_s)

        pace.record = listen  # type: ignore[method-assign]


def ids(rng: random.Random, model: Model, n: int) -> list[int]:
    """Return token ids that no prompt had before."""
    return [rng.randrange(model.n_vocab // 2) for _ in range(n)]


def endless(model: Model) -> dict[str, Any]:
    """Return arguments that keep an answer from ending by itself."""
    return GREEDY | {"logit_bias": dict.fromkeys(model.tokenizer.stop_ids, -100.0)}


def answer_all(model: Model, prompts: list[list[int]]) -> None:
    """Answer prompts at the same time."""
    options = endless(model) | {"max_tokens": ANSWER}
    threads = [threading.Thread(target=model.generate, args=(p,), kwargs=options) for p in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def together(model: Model, rng: random.Random) -> dict[str, float]:
    """Time requests one after another, and at once."""
    seconds = {}
    for name, size in (("one by one", 1), ("at once", N_TOGETHER)):
        prompts = [ids(rng, model, 12) for _ in range(N_TOGETHER)]
        start_s = time.perf_counter()
        for first in range(0, N_TOGETHER, size):
            answer_all(model, prompts[first : first + size])
        seconds[name] = time.perf_counter() - start_s
    return seconds | {"ratio": seconds["at once"] / seconds["one by one"]}


def prefix(model: Model, rng: random.Random) -> dict[str, float]:
    """Time the first token behind a new beginning, and behind the same one again."""
    beginning = ids(rng, model, N_PREFIX)
    seconds = {}
    for name in ("new", "again"):
        start_s = time.perf_counter()
        model.generate(beginning + ids(rng, model, 12), max_tokens=1, **GREEDY)
        seconds[name] = time.perf_counter() - start_s
    return seconds | {"ratio": seconds["new"] / seconds["again"]}


def beside(model: Model, clock: Clock, n_answers: int, prompt: list[int]) -> dict[str, float]:
    """Time the steps of running answers while a long prompt is read."""
    rng = random.Random(n_answers)
    ended = threading.Event()

    def run() -> None:
        for _ in model.stream(ids(rng, model, 12), max_tokens=model.n_ctx, **endless(model)):
            if ended.is_set():
                return

    threads = [threading.Thread(target=run) for _ in range(n_answers)]
    for thread in threads:
        thread.start()
    clock.steps.clear()
    time.sleep(SETTLE_S)
    n_before = len(clock.steps)
    start_s = time.perf_counter()
    model.generate(prompt, max_tokens=1, **GREEDY)
    prompt_s = time.perf_counter() - start_s
    ended.set()
    for thread in threads:
        thread.join()
    steps = [(n, s) for answers, n, s in clock.steps if answers == n_answers]
    plain_s = statistics.mean(s for n, s in steps if n == 0)
    all_s = sorted(s for answers, _, s in clock.steps[n_before:] if answers == n_answers)
    mean_s = statistics.mean(all_s)
    return {
        "without ms": 1e3 * plain_s,
        "beside ms": 1e3 * mean_s,
        "prompt s": prompt_s,
        "95 % ratio": all_s[int(0.95 * len(all_s))] / plain_s,
        "ratio": mean_s / plain_s,
    }


def main() -> None:
    """Measure a model and print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = random.Random(1)
    rounds: dict[str, list[dict[str, float]]] = {}
    path = resolve(options.model)
    with load(path, n_threads=options.threads, kv_type=options.kv_type, speculate=False) as model:
        clock = Clock(model)
        answer_all(model, [ids(rng, model, 12)])
        for _ in range(options.repeat):
            rounds.setdefault("together", []).append(together(model, rng))
            rounds.setdefault("prefix", []).append(prefix(model, rng))
            for n in (1, 4):
                name = f"beside {n}"
                prompt = ids(rng, model, min(options.prompt, model.n_ctx - 1))
                rounds.setdefault(name, []).append(beside(model, clock, n, prompt))
    rows = {
        name: {key: statistics.median(r[key] for r in measured) for key in measured[0]}
        for name, measured in rounds.items()
    }
    if options.json:
        print(json.dumps(rows))
        return
    for name, row in rows.items():
        print(f"{name:10}", "  ".join(f"{key} {value:.3g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
