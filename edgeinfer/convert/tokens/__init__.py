"""The tokenizer of a Hugging Face folder to the keys of a GGUF file, of whatever kind it is."""
