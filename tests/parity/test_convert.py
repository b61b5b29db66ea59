"""What convert writes is what llama.cpp loads, gguf-py reads, and transformers computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.make_checkpoint import write_tokenizer
from numpy.typing import NDArray

from edgequant.model.registry import all_architectures
from edgequant.stages.convert import FILE_TYPES, convert

gguf = pytest.importorskip("gguf")
llama_cpp = pytest.importorskip("llama_cpp")
safetensors_torch = pytest.importorskip("safetensors.torch")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.oracle

VOCAB = 320
CLASSES = [name for found in all_architectures() for name in found.hf_classes]
TOKENS = np.random.default_rng(7).integers(0, 256, 40).astype(np.int32)


def make_checkpoint(directory: Path, hf_class: str, dtype: Any, **changes: object) -> Any:
    """Save a tiny random model of a class as transformers does; returns it in float32."""
    model_class = getattr(transformers, hf_class)
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "sliding_window": None,
        "bos_token_id": 256,
        "eos_token_id": 257,
    }
    torch.manual_seed(3)
    model = model_class(model_class.config_class(**{**sizes, **changes})).to(dtype)
    with torch.no_grad():  # transformers leaves biases zero and norms one
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(directory, max_shard_size="100KB")
    write_tokenizer(directory, VOCAB)
    return model_class.from_pretrained(directory, dtype=torch.float32).eval()


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    """Load a model file in llama.cpp."""
    model = llama_cpp.Llama(
        str(path), n_ctx=64, n_threads=1, logits_all=True, verbose=False, flash_attn=False
    )
    try:
        yield model
    finally:
        model.close()


def logits_of(path: Path) -> NDArray[np.float32]:
    with loaded(path) as model:
        model.eval(TOKENS.tolist())
        scores: NDArray[np.float32] = np.array(model.scores[: len(TOKENS)], np.float32)
    return scores


def theirs(model: Any) -> NDArray[np.float32]:
    with torch.no_grad():
        logits: NDArray[np.float32] = (
            model(torch.tensor(TOKENS[None].astype(np.int64))).logits[0].numpy()
        )
    return logits


def off(ours: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    return float(np.abs(ours - expected).max() / np.abs(expected).max())


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
VARIANTS = [(name, {}) for name in CLASSES] + [
    ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    ("LlamaForCausalLM", {"attention_bias": True}),
    ("LlamaForCausalLM", {"num_key_value_heads": 4, "head_dim": 32}),
    ("LlamaForCausalLM", {"rope_parameters": LLAMA3}),
    ("LlamaForCausalLM", {"rope_parameters": LINEAR}),
    ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    ("Qwen3ForCausalLM", {"tie_word_embeddings": True, "head_dim": 32}),
]


def label(value: object) -> str:
    return "-".join(value) if isinstance(value, dict) else str(value)


# llama.cpp keeps keys and values in float16, and multiplies F16 and BF16 weights with activations
# rounded to them; a wrong permutation or a lost bias is off by a tenth and more.
@pytest.mark.parametrize(("hf_class", "changes"), VARIANTS, ids=label)
@pytest.mark.parametrize(("outtype", "bound"), [("f32", 3e-3), ("f16", 6e-3), ("bf16", 3e-2)])
def test_llama_cpp_computes_what_transformers_does(
    tmp_path: Path, hf_class: str, changes: dict[str, object], outtype: str, bound: float
) -> None:
    model = make_checkpoint(tmp_path / "hf", hf_class, torch.bfloat16, **changes)
    convert(str(tmp_path / "hf"), tmp_path / "out.gguf", outtype=outtype)
    assert off(logits_of(tmp_path / "out.gguf"), theirs(model)) < bound


def permuted(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder query or key rows as llama.cpp's converter does for llama."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return halves.transpose(0, 2, 1, 3).reshape(weight.shape)


@pytest.mark.parametrize("outtype", ["f16", "bf16", "f32"])
def test_gguf_py_reads_the_checkpoints_values(books_6m: Path, tmp_path: Path, outtype: str) -> None:
    convert(str(books_6m), tmp_path / "books.gguf", outtype=outtype)
    reader = gguf.GGUFReader(tmp_path / "books.gguf")
    source = safetensors_torch.load_file(books_6m / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 6)
    found = {tensor.name: tensor for tensor in reader.tensors}
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    assert len(found) == len(source)
    for name, weight in source.items():
        kept = weight.to(kinds[outtype] if weight.ndim > 1 else torch.float32).float().numpy()
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        expected = permuted(kept, heads) if heads else kept
        tensor = found[names.get_name(name, (".weight",))]
        read = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert tensor.tensor_type.name == (outtype.upper() if weight.ndim > 1 else "F32")
        np.testing.assert_array_equal(read, expected)


def test_gguf_py_reads_the_keys(books_6m: Path, tmp_path: Path) -> None:
    convert(str(books_6m), tmp_path / "books.gguf")
    fields = gguf.GGUFReader(tmp_path / "books.gguf").fields
    assert fields["general.architecture"].contents() == "llama"
    assert fields["general.type"].contents() == gguf.GGUFType.MODEL
    assert fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_F16
    assert fields["general.quantization_version"].contents() == gguf.GGML_QUANT_VERSION


def test_file_types_are_llama_cpps() -> None:
    assert FILE_TYPES == {
        "F32": gguf.LlamaFileType.ALL_F32,
        "F16": gguf.LlamaFileType.MOSTLY_F16,
        "BF16": gguf.LlamaFileType.MOSTLY_BF16,
    }


def test_a_sharded_checkpoint_of_transformers_is_indexed(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "hf", "LlamaForCausalLM", torch.bfloat16)
    assert len(list((tmp_path / "hf").glob("model-*.safetensors"))) > 1
    assert (tmp_path / "hf" / "model.safetensors.index.json").exists()


def test_a_merged_qwen_with_weights_beyond_f16_still_runs(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "hf", "Qwen2ForCausalLM", torch.bfloat16)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[3, 5] = 1e5
        model.model.layers[0].mlp.up_proj.weight[5] = 1e-6
    model.to(torch.bfloat16).save_pretrained(tmp_path / "hf2")
    write_tokenizer(tmp_path / "hf2", VOCAB)
    report = convert(str(tmp_path / "hf2"), tmp_path / "out.gguf")
    assert "'blk.0.ffn_down.weight' is kept in BF16" in report.notes[0]
    assert np.isfinite(logits_of(tmp_path / "out.gguf")).all()
