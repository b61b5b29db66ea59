"""Which architecture a config or a file is, and that its tensors are what it needs."""

import numpy as np
import pytest

from edgequant.blocks import BLOCK_TYPES, TensorInfo
from edgequant.errors import CheckpointError, GGUFError, UnsupportedError
from edgequant.model.architecture import Architecture
from edgequant.model.hparams import HParams
from edgequant.model.parts.attention import interleave
from edgequant.model.registry import (
    all_architectures,
    by_class,
    by_name,
    read_config,
    read_model,
)
from edgequant.model.tensors import role_of

H = HParams(2, 64, 4, 2, 16, 96, 100, 256, 1e-5, 10000.0)
every = pytest.mark.parametrize("architecture", all_architectures(), ids=lambda a: a.name)


def infos(architecture: Architecture, h: HParams = H) -> dict[str, TensorInfo]:
    specs = architecture.tensors(h)
    return {spec.name: TensorInfo(spec.name, BLOCK_TYPES["F16"], spec.shape) for spec in specs}


@every
def test_names_find_it(architecture: Architecture) -> None:
    assert by_name(architecture.name) is architecture
    for name in architecture.hf_classes:
        assert by_class(name) is architecture


@every
def test_its_tensors_are_its_graphs(architecture: Architecture) -> None:
    for tied in (False, True):
        h = HParams(**(vars(H) | {"tied": tied, "rope_freqs": True, "mlp_bias": True}))
        specs = list(architecture.tensors(h))
        assert {spec.name for spec in specs} == set(architecture.record(h).weights)
        assert len({spec.name for spec in specs}) == len(specs)
        for spec in specs:
            assert role_of(spec.name) == (spec.role, spec.layer)
            assert (spec.source is None) == (spec.name == "rope_freqs.weight")


@every
def test_a_model_file_is_read(architecture: Architecture) -> None:
    tensors = infos(architecture)
    assert read_model(H.to_keys(architecture.name), tensors, "m") == (architecture, H)


def test_tensors_are_in_llama_cpps_order() -> None:
    names = list(infos(by_name("llama")))
    assert names[:5] == [
        "output.weight", "output_norm.weight", "token_embd.weight",
        "blk.0.attn_k.weight", "blk.0.attn_norm.weight",
    ]  # fmt: skip


def test_a_missing_tensor_is_named() -> None:
    tensors = infos(by_name("qwen2"))
    del tensors["blk.1.attn_k.bias"]
    with pytest.raises(GGUFError, match=r"m: 1 of 27 tensors are missing.*blk\.1\.attn_k\.bias"):
        read_model(H.to_keys("qwen2"), tensors, "m")


def test_a_misshapen_tensor_is_named_with_both_shapes() -> None:
    tensors = infos(by_name("llama"))
    tensors["token_embd.weight"] = TensorInfo("token_embd.weight", BLOCK_TYPES["F16"], (99, 64))
    with pytest.raises(GGUFError, match=r"token_embd.weight is \(99, 64\).*ask for \(100, 64\)"):
        read_model(H.to_keys("llama"), tensors, "m")


def test_a_tensor_that_would_be_left_out_is_named() -> None:
    tensors = infos(by_name("llama"))
    tensors["blk.0.attn_rel_b.weight"] = tensors["blk.0.attn_k.weight"]
    with pytest.raises(UnsupportedError, match=r"attn_rel_b.weight is not a tensor of.*llama"):
        read_model(H.to_keys("llama"), tensors, "m")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"rwkv: not a model architecture") as caught:
        by_name("rwkv")
    assert "llama, qwen2, qwen3" in caught.value.hint
    with pytest.raises(UnsupportedError, match=r"T5Model: not a model class") as caught:
        read_config({"architectures": ["T5Model"]}, "config.json")
    assert "MistralForCausalLM" in caught.value.hint
    with pytest.raises(GGUFError, match=r"m: general.architecture is missing; this is not a mod"):
        read_model({}, {}, "m")


@pytest.mark.parametrize("classes", [None, [], "LlamaForCausalLM", [3]])
def test_a_config_names_its_class(classes: object) -> None:
    with pytest.raises(CheckpointError, match=r'config.json: "architectures" is .*expected'):
        read_config({"architectures": classes}, "config.json")


@pytest.mark.parametrize("chunk", [1, 3, 8, 24])
@pytest.mark.parametrize("columns", [(), (5,)])
def test_interleave_in_any_chunks(chunk: int, columns: tuple[int, ...]) -> None:
    source = np.arange(24 * int(np.prod(columns))).reshape(24, *columns)
    reads: list[int] = []

    def read(start: int, stop: int) -> np.ndarray:
        reads.append(stop - start)
        return source[start:stop]

    transform = interleave(8)
    made = np.concatenate(
        [transform(read, source.shape, i, min(i + chunk, 24)) for i in range(0, 24, chunk)]
    )
    for head in range(3):
        for pair in range(4):
            assert np.array_equal(made[8 * head + 2 * pair], source[8 * head + pair])
            assert np.array_equal(made[8 * head + 2 * pair + 1], source[8 * head + pair + 4])
    assert max(reads) <= chunk + 2 * 7  # whole heads around a chunk, never the tensor
