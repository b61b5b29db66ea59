"""Text to token ids and back, from GGUF keys alone; and those keys from a Hugging Face tokenizer.

The engine is the `tokenizers` library; ours is only the translation. `run` never looks at a
Hugging Face file.
"""
