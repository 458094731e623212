"""Measure what guesses gain where they are right, and cost where they are not.

    python -m benchmarks.speculation                          # smollm2, guesses at repeated text
    python -m benchmarks.speculation model.gguf --rounds 9 -t 1 --cpu --json
    python -m benchmarks.speculation model.gguf --draft small.gguf --case prose greedy

Each text is answered with guesses and without, in turns and some times over (--repeat); the answers
have to be equal. A ratio is the least time of the answer without them by the least with them, so
more than 1 is faster; medians over rounds, each of which has a text of its own in `prose`. Aims:
1.7 for `edit`, never below 0.97 for `prose`. --cpu takes the CPU time of the process in place of
the clock's, for a machine on which other work runs; it needs -t 1 to say anything. The draft of a
model of random weights is never right: that measures what it costs.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from edgeinfer.loader.resolve import resolve
from edgeinfer.model import Completion, Model, load

PARAGRAPH = (
    "The old lighthouse stood at the edge of the cliff, watching over the restless sea. Every "
    "evening, the keeper climbed the narrow stairs to light the great lamp, and its beam swept "
    "across the dark water to guide the ships home. In winter the storms were fierce, and the "
    "waves rose as high as the garden wall, but the light never failed. Sailors spoke of it with "
    "gratitude, and children in the village drew pictures of it with red and white chalk."
)
CODE = '''def total(prices, discount):
    """Return the sum of prices after the discount."""
    result = 0
    for price in prices:
        if price < 0:
            raise ValueError("price: found a negative number")
        result += price * (1 - discount)
    return result
'''
OPENINGS = (
    "Once upon a time, in a small village by the sea, there lived",
    "The theory of evolution explains",
    "My grandmother's kitchen was the warmest place in the house. She",
    "In the year 2150 the first city on Mars",
)


def edit(model: Model, seed: int, most: int) -> Completion:
    """Repeat a paragraph with one word changed."""
    task = 'Repeat this text, but replace the word "keeper" with "guard". Write only the text.'
    return model.chat(
        [{"role": "user", "content": f"{task}\n\n{PARAGRAPH}"}], max_tokens=most, temperature=0
    )


def code(model: Model, seed: int, most: int) -> Completion:
    """Repeat a function with a name changed."""
    task = 'Rename the variable "result" to "amount" in this function. Write only the code.'
    return model.chat(
        [{"role": "user", "content": f"{task}\n\n{CODE}"}], max_tokens=most, temperature=0
    )


def prose(model: Model, seed: int, most: int) -> Completion:
    """Tell a story, another one in every round."""
    opening = OPENINGS[seed % len(OPENINGS)]
    return model.generate(opening, max_tokens=most, temperature=0.8, seed=seed)


def greedy(model: Model, seed: int, most: int) -> Completion:
    """Tell the likeliest story."""
    return model.generate(OPENINGS[seed % len(OPENINGS)], max_tokens=most, temperature=0)


CASES = {"edit": edit, "code": code, "prose": prose, "greedy": greedy}
Case = Callable[[Model, int, int], Completion]


def timed(case: Case, model: Model, seed: int, most: int, clock: Callable[[], float]) -> Any:
    """Return the seconds of an answer whose prompt is known, and the answer."""
    start_s = clock()
    answer = case(model, seed, most)
    return clock() - start_s, answer


def compare(
    case: Case,
    guessing: Model,
    plain: Model,
    seed: int,
    options: argparse.Namespace,
) -> dict[str, float]:
    """Time one answer on both sides, in turns."""
    clock = time.process_time if options.cpu else time.perf_counter
    for model in (guessing, plain):
        case(model, seed, 1)  # from here on its prompt is known
    with_s = without_s = math.inf
    for _ in range(options.repeat):
        seconds, answer = timed(case, guessing, seed, options.tokens, clock)
        with_s = min(with_s, seconds)
        seconds, same = timed(case, plain, seed, options.tokens, clock)
        without_s = min(without_s, seconds)
    if answer.tokens != same.tokens:
        raise SystemExit(f"{case.__name__}: guesses changed the answer")
    return {
        "tokens": len(answer.tokens),
        "guessed": answer.timings.guessed_tokens,
        "accepted": answer.timings.accepted_tokens,
        "plain t/s": len(answer.tokens) / without_s,
        "ratio": without_s / with_s,
    }


def main() -> None:
    """Measure a model and print the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("-n", "--tokens", type=int, default=160, help="of an answer, at most")
    parser.add_argument("--draft", help="a small model of the same vocabulary that guesses, too")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--cpu", action="store_true", help="CPU time in place of the clock's")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path = resolve(options.model)
    rows: dict[str, Any] = {}
    with (
        load(path, n_threads=options.threads, n_ctx=2048, draft=options.draft) as guessing,
        load(path, n_threads=options.threads, n_ctx=2048, speculate=False) as plain,
    ):
        for name in options.case:
            rounds = [
                compare(CASES[name], guessing, plain, seed, options)
                for seed in range(options.rounds)
            ]
            rows[name] = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
            rows[name] |= {"lowest": min(r["ratio"] for r in rounds)}
            if not options.json:
                row = "  ".join(f"{key} {value:.3g}" for key, value in rows[name].items())
                print(f"{name:8}", row, flush=True)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
