"""Take the draft models of llama-cpp-python: guesses never change an answer, so they are left."""


class LlamaDraftModel:
    """A way to guess tokens ahead; edgeinfer decides by itself whether to guess."""


class LlamaPromptLookupDecoding(LlamaDraftModel):
    """Guesses found in the prompt."""

    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10) -> None:
        self.max_ngram_size = max_ngram_size
        self.num_pred_tokens = num_pred_tokens
