"""Text to token ids and back, from GGUF keys alone; and those keys from a Hugging Face tokenizer.

`run` never looks at a Hugging Face file. Byte-level BPE runs on the `tokenizers` library; ours is
only the translation. SentencePiece-style BPE is ours (`spm`): a GGUF file says how good a token is,
not in which order pairs merge, and that library cannot let equal scores merge from the left.

Where llama.cpp and Hugging Face disagree, we follow llama.cpp's vectors where they speak, else
Hugging Face: it is what the models were trained with. The known cases are told where they are
decided: `split` (NFC for qwen2, a long s after an apostrophe), `tokenizer` (overlapping special
tokens, control tokens in plain text), `from_gguf` (a file that names no BOS).
"""
