"""Complete a prompt with llama-cpp-python: `start_peer.py FILE PROMPT THREADS TOKENS`.

The counterpart of `edgeinfer run` for `benchmarks.start`; runs under the peer's Python.
"""

import sys

from llama_cpp import Llama


def main() -> None:
    """Print the pieces as they come; greedy, with the peer's default context."""
    path, prompt, n_threads, n_tokens = sys.argv[1:]
    threads = int(n_threads)
    model = Llama(path, n_threads=threads, n_threads_batch=threads, verbose=False)
    for chunk in model(prompt, max_tokens=int(n_tokens), temperature=0.0, stream=True):
        sys.stdout.write(chunk["choices"][0]["text"])
        sys.stdout.flush()
    print()


if __name__ == "__main__":
    main()
