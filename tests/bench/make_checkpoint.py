"""Make a synthetic checkpoint of any size, in bounded memory, to measure convert and quantize.

    python tests/bench/make_checkpoint.py DIRECTORY --gigabytes 3
    python tests/bench/make_checkpoint.py MODEL.gguf --gguf-shape llama-3.1-8b

The first writes a Llama checkpoint in Hugging Face's form: BF16, sharded, random weights, a small
byte-level tokenizer. The second writes a sparse F16 model file with the shape of a real model and
no weights, for `quantize --dry-run`: gigabytes long, kilobytes on the disk.
"""

import argparse
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np

SHARD_BYTES = 1 << 30
CHUNK_WEIGHTS = 1 << 22


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama model."""

    layers: int
    embed: int
    heads: int
    heads_kv: int
    ffn: int
    vocab: int
    tied: bool = False
    rope_freqs: bool = False

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the tensors' Hugging Face names and shapes."""
        narrow = self.embed // self.heads * self.heads_kv
        yield "model.embed_tokens.weight", (self.vocab, self.embed)
        for i in range(self.layers):
            stem = f"model.layers.{i}."
            yield stem + "input_layernorm.weight", (self.embed,)
            yield stem + "self_attn.q_proj.weight", (self.embed, self.embed)
            yield stem + "self_attn.k_proj.weight", (narrow, self.embed)
            yield stem + "self_attn.v_proj.weight", (narrow, self.embed)
            yield stem + "self_attn.o_proj.weight", (self.embed, self.embed)
            yield stem + "post_attention_layernorm.weight", (self.embed,)
            yield stem + "mlp.gate_proj.weight", (self.ffn, self.embed)
            yield stem + "mlp.up_proj.weight", (self.ffn, self.embed)
            yield stem + "mlp.down_proj.weight", (self.embed, self.ffn)
        yield "model.norm.weight", (self.embed,)
        if not self.tied:
            yield "lm_head.weight", (self.vocab, self.embed)


REAL = {
    "llama-3.1-8b": Shape(32, 4096, 32, 8, 14336, 128256, rope_freqs=True),
    "llama-3.2-3b": Shape(28, 3072, 24, 8, 8192, 128256, tied=True, rope_freqs=True),
    "llama-3.2-1b": Shape(16, 2048, 32, 8, 8192, 128256, tied=True, rope_freqs=True),
}


def shape_of(gigabytes: float) -> Shape:
    """Return a shape of this many 10^9 bytes in BF16, made long enough by its layers."""
    narrow = Shape(1, 2048, 16, 4, 5632, 4096)
    outside = 2 * 2 * narrow.vocab * narrow.embed
    layer = 2 * sum(prod(shape) for name, shape in narrow.tensors() if ".layers." in name)
    layers = max(1, round((gigabytes * 1e9 - outside) / layer))
    return Shape(layers, narrow.embed, narrow.heads, narrow.heads_kv, narrow.ffn, narrow.vocab)


def write_checkpoint(directory: Path, shape: Shape, seed: int) -> None:
    """Write config.json, tokenizer.json, the shards and their index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_of(shape), indent=1))
    write_tokenizer(directory, shape.vocab)
    shards = _split(list(shape.tensors()))
    rng = np.random.default_rng(seed)
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write_shard(directory / name, tensors, rng)
        weight_map |= {tensor: name for tensor, _ in tensors}
    total = sum(2 * prod(shape) for _, shape in shape.tensors())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def config_of(shape: Shape) -> dict[str, object]:
    """Return the config.json of a shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": shape.embed,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads_kv,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": shape.vocab,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
    }


def write_tokenizer(directory: Path, vocab: int) -> None:
    """Write a byte-level BPE tokenizer without merges: 256 bytes and two special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    split = (  # that of Llama 3
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True) for text in ("<|begin|>", "<|end|>")]
    tokenizer.add_special_tokens(special)
    if tokenizer.get_vocab_size() > vocab:
        raise SystemExit(f"a vocabulary of {vocab} is too small for 256 bytes and 2 tokens")
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "add_bos_token": True,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def _split(tensors: list[tuple[str, tuple[int, ...]]]) -> list[list[tuple[str, tuple[int, ...]]]]:
    shards: list[list[tuple[str, tuple[int, ...]]]] = [[]]
    size = 0
    for name, shape in tensors:
        nbytes = 2 * prod(shape)
        if shards[-1] and size + nbytes > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += nbytes
    return shards


def _write_shard(
    path: Path, tensors: list[tuple[str, tuple[int, ...]]], rng: np.random.Generator
) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors:
        nbytes = 2 * prod(shape)
        offsets = [offset, offset + nbytes]
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": offsets}
        offset += nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Normal numbers are slow to draw; one pool, read from random places, is as good here.
    pool = (0.02 * rng.standard_normal(CHUNK_WEIGHTS + 4096)).astype(ml_dtypes.bfloat16)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape in tensors:
            left = prod(shape)
            while left:
                start = int(rng.integers(4096))
                chunk = pool[start : start + min(left, CHUNK_WEIGHTS)]
                file.write(chunk.tobytes())
                left -= len(chunk)


def write_sparse_model(path: Path, shape: Shape) -> None:
    """Write an F16 model file of a shape; its tensors are a hole in the file, read as zeros."""
    from gguf import GGMLQuantizationType, GGUFWriter, TensorNameMap, get_tensor_name_map
    from gguf.constants import MODEL_ARCH

    names: TensorNameMap = get_tensor_name_map(MODEL_ARCH.LLAMA, shape.layers)
    writer = GGUFWriter(path, "llama")
    writer.add_file_type(1)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.embed)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads_kv)
    writer.add_context_length(131072)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.embed // shape.heads)
    writer.add_vocab_size(shape.vocab)
    tensors = [(names.get_name(name, (".weight",)), dims) for name, dims in shape.tensors()]
    if shape.rope_freqs:
        tensors.append(("rope_freqs.weight", (shape.embed // shape.heads // 2,)))
    for name, dims in tensors:
        if name is None:
            raise SystemExit("gguf-py knows no name for a tensor of this shape")
        matrix = len(dims) > 1
        kind = GGMLQuantizationType.F16 if matrix else GGMLQuantizationType.F32
        dtype = np.dtype(np.float16 if matrix else np.float32)
        writer.add_tensor_info(name, dims, dtype, dtype.itemsize * prod(dims), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    head = -(-path.stat().st_size // 32) * 32
    body = sum(-(-(2 if len(d) > 1 else 4) * prod(d) // 32) * 32 for _, d in tensors)
    with path.open("r+b") as file:
        file.truncate(head + body)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--gigabytes", type=float, help="size of the checkpoint in 10^9 bytes")
    what.add_argument("--gguf-shape", choices=REAL, help="write a sparse model file instead")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.gguf_shape:
        write_sparse_model(args.output, REAL[args.gguf_shape])
    else:
        write_checkpoint(args.output, shape_of(args.gigabytes), args.seed)


if __name__ == "__main__":
    main()
