"""Turn token ids into more token ids over time: pages, sequences, steps; no text."""
