"""A checkpoint directory: the index is obeyed, and what is wrong is named up front."""

import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from shards import write_shard

from edgequant.errors import CheckpointError, EdgequantError, UnsupportedError
from edgequant.source.checkpoint import open_checkpoint

ONE = np.ones((2, 3), np.float32)
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123456789\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a config and nothing else."""
    path = tmp_path / "tiny-model"
    path.mkdir()
    (path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    return path


def write_index(directory: Path, weight_map: object) -> None:
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def two_shards(directory: Path) -> dict[str, str]:
    """Write tensors a and b in two numbered shards; returns their weight map."""
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for name, tensor in zip(names, "ab", strict=True):
        write_shard(directory / name, {tensor: ONE})
    return dict(zip("ab", names, strict=True))


def test_one_file(directory: Path) -> None:
    write_shard(directory / "model.safetensors", {"b": ONE, "a": 2 * ONE})
    found = open_checkpoint(str(directory))
    assert found.name == "tiny-model"
    assert found.config == {"architectures": ["LlamaForCausalLM"]}
    assert list(found.tensors) == ["b", "a"]
    assert found.shards == (directory / "model.safetensors",)
    assert found.notes == ()
    np.testing.assert_array_equal(found.tensors["a"].read(0, 2), 2 * ONE)


def test_a_trailing_dot_still_gives_a_name(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shard(directory / "model.safetensors", {"a": ONE})
    monkeypatch.chdir(directory)
    assert open_checkpoint(".").name == "tiny-model"


def test_the_bundled_checkpoint(books_6m: Path) -> None:
    found = open_checkpoint(str(books_6m))
    assert len(found.tensors) == 56
    assert found.tensors["model.embed_tokens.weight"].dtype == ml_dtypes.bfloat16


def test_the_index_is_obeyed_and_copies_beside_it_are_reported(directory: Path) -> None:
    write_index(directory, two_shards(directory))
    write_shard(directory / "consolidated.safetensors", {"tok_embeddings.weight": ONE, "a": ONE})
    write_shard(directory / "model.safetensors", {"a": 5 * ONE})
    found = open_checkpoint(str(directory))
    assert set(found.tensors) == {"a", "b"}
    np.testing.assert_array_equal(found.tensors["a"].read(0, 2), ONE)
    (note,) = found.notes
    assert "consolidated.safetensors" in note
    assert "model.safetensors" in note


def test_numbered_shards_without_an_index(directory: Path) -> None:
    two_shards(directory)
    write_shard(directory / "consolidated.safetensors", {"tok_embeddings.weight": ONE})
    found = open_checkpoint(str(directory))
    assert set(found.tensors) == {"a", "b"}
    assert "consolidated" in found.notes[0]


def test_saved_buffers_are_left_out_and_reported(directory: Path) -> None:
    tensors = {
        "a": ONE,
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32),
        "transformer.h.0.attn.masked_bias": np.ones(4, np.uint8),
    }
    write_shard(directory / "model.safetensors", tensors)
    found = open_checkpoint(str(directory))
    assert set(found.tensors) == {"a"}
    assert "2 saved buffers" in found.notes[0]


def break_nothing_there(directory: Path) -> str:
    return str(directory / "no" / "such" / "place")


def break_file(directory: Path) -> str:
    return str(write_shard(directory / "model.safetensors", {"a": ONE}))


def break_no_config(directory: Path) -> None:
    (directory / "config.json").unlink()


def break_adapter(directory: Path) -> None:
    (directory / "config.json").rename(directory / "adapter_config.json")


def break_config_json(directory: Path) -> None:
    (directory / "config.json").write_text('{"architectures": ')


def break_config_nested(directory: Path) -> None:
    (directory / "config.json").write_text("[" * 100_000)


def break_config_list(directory: Path) -> None:
    (directory / "config.json").write_text("[1]")


def break_config_lfs(directory: Path) -> None:
    (directory / "config.json").write_text(LFS)


def break_config_unreadable(directory: Path) -> None:
    (directory / "config.json").unlink()
    (directory / "config.json").mkdir()


def break_quantized(directory: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "awq"}}
    (directory / "config.json").write_text(json.dumps(config))


def break_pickles(directory: Path) -> None:
    (directory / "pytorch_model.bin").write_bytes(b"PK")


def break_index_json(directory: Path) -> None:
    (directory / "model.safetensors.index.json").write_text("{")


def break_index_empty(directory: Path) -> None:
    write_index(directory, {})


def break_index_outside(directory: Path) -> None:
    write_index(directory, {"a": "../model.safetensors"})


def break_index_number(directory: Path) -> None:
    write_index(directory, {"a": 1})


def break_missing_shard(directory: Path) -> None:
    weight_map = two_shards(directory)
    write_index(directory, {**weight_map, **{f"t{i}": "mtp.safetensors" for i in range(1000)}})


def break_missing_shards(directory: Path) -> None:
    write_index(directory, {f"t{i}": f"model-{i:05}-of-00030.safetensors" for i in range(1, 31)})


def break_missing_number(directory: Path) -> None:
    two_shards(directory)
    (directory / "model-00002-of-00002.safetensors").unlink()


def break_wrong_shard(directory: Path) -> None:
    weight_map = two_shards(directory)
    write_index(directory, dict(zip("ba", weight_map.values(), strict=True)))


def break_absent_tensor(directory: Path) -> None:
    weight_map = two_shards(directory)
    write_index(directory, {**weight_map, "c": weight_map["a"]})


def break_truncated(directory: Path) -> None:
    write_index(directory, two_shards(directory))
    shard = directory / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])


def break_pointer(directory: Path) -> None:
    write_index(directory, two_shards(directory))
    (directory / "model-00002-of-00002.safetensors").write_text(LFS)


def break_doubled(directory: Path) -> None:
    two_shards(directory)
    write_shard(directory / "model-00002-of-00002.safetensors", {"b": ONE, "a": ONE})


def break_doubled_in_index(directory: Path) -> None:
    write_index(directory, two_shards(directory))
    write_shard(directory / "model-00002-of-00002.safetensors", {"b": ONE, "a": ONE})


def break_integers(directory: Path) -> None:
    write_shard(directory / "model.safetensors", {"a": np.ones((2, 2), np.int64)})


def break_fp8(directory: Path) -> None:
    tensors = {"a": ONE.astype(ml_dtypes.float8_e4m3fn), "a_scale_inv": ONE}
    write_shard(directory / "model.safetensors", tensors)


BROKEN = {
    break_nothing_there: "neither a directory here nor a Hub id",
    break_file: "a file, not a checkpoint directory",
    break_no_config: "has no config.json",
    break_adapter: "a LoRA adapter, not a model",
    break_config_json: "config.json: not JSON",
    break_config_nested: "config.json: not JSON",
    break_config_list: "config.json: holds a list, not an object",
    break_config_lfs: "config.json: a git-lfs pointer of .* which stands for a file of 123456789",
    break_config_unreadable: "config.json: cannot be read",
    break_quantized: r"config.json: the weights are already quantized \(awq\)",
    break_pickles: r"PyTorch pickles \(pytorch_model.bin\), not safetensors",
    lambda _: None: "has config.json but no .safetensors file",
    break_index_json: "index.json: not JSON",
    break_index_empty: "index.json: has no weight_map",
    break_index_outside: "'a' is said to be in '../model.safetensors', which is no file name",
    break_index_number: "'a' is said to be in 1, which is no file name",
    break_missing_shard: "1 of 3 shards are missing: mtp.safetensors.\nHint",
    break_missing_shards: "30 of 30 shards are missing: .*00001.*, .*2.*, .*3.* and 27 more",
    break_missing_number: "1 of 2 shards are missing: model-00002-of-00002.safetensors",
    break_wrong_shard: "2 of 2 tensors are not where it says, such as 'b' in model-00001",
    break_absent_tensor: "1 of 3 tensors are not where it says, such as 'c'",
    break_truncated: "model-00002-of-00002.safetensors: 'b' ends at byte .*, but the file has",
    break_pointer: "model-00002-of-00002.safetensors: a git-lfs pointer",
    break_doubled: "model-00002-of-00002.safetensors: 'a' is also in model-00001-of-00002",
    break_doubled_in_index: "model-00002-of-00002.safetensors: 'a' is also in model-00001",
    break_integers: "'a' is stored as I64, not in F32, F16, BF16",
    break_fp8: "'a' is stored as F8_E4M3, not in F32, F16, BF16",
}


@pytest.mark.parametrize("break_it", BROKEN, ids=lambda f: f.__name__)
def test_what_is_wrong_is_named(directory: Path, break_it: object) -> None:
    assert callable(break_it)
    spec = break_it(directory) or str(directory)
    with pytest.raises(EdgequantError, match=BROKEN[break_it]) as caught:
        open_checkpoint(spec)
    first, _, hint = str(caught.value).partition("\nHint: ")
    assert first.endswith(".")
    assert hint
    assert len(str(caught.value)) < 1000
    expected = UnsupportedError if "is stored as" in first or "quantized" in first else None
    assert isinstance(caught.value, expected or CheckpointError)


def test_shards_may_be_links(directory: Path, tmp_path: Path) -> None:
    blob = write_shard(tmp_path / "blob", {"a": ONE})
    (directory / "model.safetensors").symlink_to(blob)
    np.testing.assert_array_equal(open_checkpoint(str(directory)).tensors["a"].read(0, 2), ONE)


def test_a_copied_checkpoint_needs_no_network(
    books_6m: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(books_6m, tmp_path / "owner" / "name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgequant.source.checkpoint.download", None)
    assert len(open_checkpoint("owner/name").tensors) == 56  # a directory goes before the Hub
