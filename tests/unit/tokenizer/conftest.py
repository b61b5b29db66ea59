"""Two small vocabularies, as the keys of a GGUF file."""

import pytest

from edgequant.tokenizer.bpe import LETTERS

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@pytest.fixture
def byte_level() -> dict[str, object]:
    """Byte-level BPE: 256 letters, some merges, a control, a user-defined and an unused token."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d"]
    tokens = [*LETTERS, *(merge.replace(" ", "") for merge in merges)]
    types = [NORMAL] * len(tokens)
    for token, kind in (("<s>", CONTROL), ("<|im_end|>", CONTROL), ("==", USER_DEFINED),
                        ("[PAD267]", UNUSED)):  # fmt: skip
        tokens.append(token)
        types.append(kind)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 264,
        "tokenizer.ggml.eos_token_id": 265,
        "tokenizer.ggml.add_bos_token": True,
    }


@pytest.fixture
def scored() -> dict[str, object]:
    """SentencePiece-style BPE: unknown, controls, 256 bytes, then pieces by falling score."""
    pieces = ["▁a", "aa", "ab", "▁ab", "▁▁", "abab", "a", "b", "c", "▁", "é"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)
        ],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(pieces))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
