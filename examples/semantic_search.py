"""Find the passages of text files that are nearest in meaning to a question.

    python examples/semantic_search.py "how do cats purr" notes/*.txt --model MODEL

Vectors of all passages come from one call, which fills the model's steps; the best passages may be
put in order once more by a reranker, which reads each together with the question. Models made for
embeddings find more than others: Qwen3-Embedding, EmbeddingGemma, bge, nomic-embed.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import edgeinfer

PASSAGE_CHARS = 600
CANDIDATES = 20  # that a reranker reads for each answer


def passages(paths: list[Path]) -> list[str]:
    """Return the paragraphs of the files, joined while they are short."""
    found: list[str] = []
    for path in paths:
        held = ""
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            if held and len(held) + len(paragraph) > PASSAGE_CHARS:
                found.append(held)
                held = ""
            held = f"{held}\n\n{paragraph.strip()}".strip()
        if held:
            found.append(held)
    return found


def nearest(model: edgeinfer.Model, question: str, texts: list[str], n: int) -> list[int]:
    """Return the indices of the n texts nearest to a question, the nearest first."""

    def progress(n_done: int, n_total: int) -> None:
        print(f"\r{n_done} of {n_total} tokens read", end="", file=sys.stderr)

    vectors = model.embed(texts, truncate=True, progress=progress)
    print(file=sys.stderr)
    scores = vectors @ model.embed(question)
    order: list[int] = np.argsort(-scores, kind="stable")[:n].tolist()
    return order


def main() -> None:
    """Print the passages that answer a question best."""
    parser = argparse.ArgumentParser()
    parser.add_argument("question")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--reranker")
    parser.add_argument("-n", type=int, default=3)
    given = parser.parse_args()
    texts = passages(given.files)
    with edgeinfer.load(given.model) as model:
        found = nearest(model, given.question, texts, CANDIDATES if given.reranker else given.n)
    if given.reranker:
        with edgeinfer.load(given.reranker) as reranker:
            documents = [texts[i] for i in found]
            places = reranker.rank(given.question, documents, top_n=given.n, truncate=True)
            found = [found[place.index] for place in places]
    for i in found:
        print(texts[i], end="\n\n")


if __name__ == "__main__":
    main()
