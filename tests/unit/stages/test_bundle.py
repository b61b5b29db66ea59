"""Bundles of a tiny model: what a manifest names is there, and the folder is whole or not there."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import BOS, TEMPLATE, write_model

from edgequant.device.kernel_files import read_spirv
from edgequant.device.targets import TARGETS
from edgequant.errors import DeviceError, EdgequantError, FileError, UnsupportedError
from edgequant.gguf.reader import open_file
from edgequant.gguf.writer import open_output
from edgequant.graph.kernels import cache as kernels_cache
from edgequant.graph.kernels import compiled
from edgequant.graph.kernels.sample import NOT_FINITE, RING
from edgequant.progress import SILENT
from edgequant.stages import whole_folder
from edgequant.stages.bundle import bundle

KEYS = {"tokenizer.chat_template": TEMPLATE, "general.name": "Tiny", "llama.context_length": 1300}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", keys=KEYS)


@pytest.fixture(scope="module", params=TARGETS)
def folder(request, model, tmp_path_factory) -> Path:
    """A bundle for each target."""
    path = tmp_path_factory.mktemp("bundles") / request.param
    report = bundle(model, path, target=request.param)
    found = {p.relative_to(path).as_posix(): p.stat().st_size for p in _files(path)}
    assert found == dict(report.files)
    assert report.bytes == sum(found.values())
    return path


@pytest.fixture(scope="module")
def manifests(folder) -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("manifest*.json"))]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_there_is_a_manifest_for_each_subgroup_size(folder, manifests) -> None:
    target = TARGETS[folder.name]
    for manifest in manifests:
        told = manifest["manifests"]
        assert [one["subgroup"] for one in told] == [each.subgroup for each in target.assumed]
        assert told[0]["file"] == "manifest.json"
        for one in told:
            other = json.loads((folder / one["file"]).read_text("utf-8"))
            assert other["limits"]["subgroup"] == one["subgroup"]
    assert len(manifests) == len(target.assumed)
    assert target.name != "android" or len(manifests) == 3
    files = {item["file"] for manifest in manifests for item in manifest["pipelines"]}
    assert files == {f"kernels/{path.name}" for path in (folder / "kernels").iterdir()}


def test_every_kernel_is_there_and_has_its_entry(folder, manifests) -> None:
    for manifest, item in ((m, item) for m in manifests for item in m["pipelines"]):
        path = folder / item["file"]
        assert path.stem == item["kernel"]
        if path.suffix == ".spv":
            kernel = read_spirv(path)
            assert kernel.entry == item["entry"]
            assert kernel.features <= set(manifest["needs"]["features"])
        else:
            assert re.search(rf"\bkernel\b.*\bvoid {item['entry']}\(", path.read_text("utf-8"))
        assert 0 < np.prod(item["threads"]) <= manifest["limits"]["workgroup"]
        assert not item["subgroups"] or item["threads"][0] % manifest["limits"]["subgroup"] == 0


def test_every_argument_lies_in_its_buffer(folder, manifests) -> None:
    for manifest in manifests:
        limits, buffers = manifest["limits"], manifest["buffers"]
        for item in manifest["dispatches"]:
            assert 0 <= item["pipeline"] < len(manifest["pipelines"])
            assert all(0 < n < 65536 for n in item["workgroups"])
            assert item["arguments"]
            for buffer, offset in item["arguments"]:
                assert 0 <= offset < buffers[buffer]["bytes"]
                assert offset % 4 == 0
            nbytes = 8 * len(item["arguments"]) + len(bytes.fromhex(item["scalars"]))
            assert nbytes <= limits["argument_bytes"] <= 128  # what every Vulkan device passes
        for item in buffers:
            assert 0 < item["bytes"] <= limits["max_buffer_bytes"]
            if "file" in item:
                assert item["offset"] % 16 == 0
                assert item["offset"] + item["bytes"] <= (folder / item["file"]).stat().st_size
                assert not item["written"]
            else:
                assert item["written"] or item["holds"] in ("step", "tokens")


def test_there_is_a_recording_for_every_step(manifests) -> None:
    for manifest in manifests:
        assert manifest["batches"] == [1, 8, 64, 512]
        assert manifest["contexts"] == [512, 1024, 1300]
        keys = [(r["purpose"], r["tokens"], r["context"]) for r in manifest["recordings"]]
        assert len(set(keys)) == len(keys) == 2 * 4 * 3
        for item in manifest["recordings"]:
            count = len(item["dispatches"])
            assert all(0 <= n < len(manifest["dispatches"]) for n in item["dispatches"])
            assert item["barriers"] == sorted(set(item["barriers"]))
            assert all(0 < at < count for at in item["barriers"])
            assert ("logits" in item) == (item["purpose"] == "draw")
            if "logits" in item:
                buffer, offset = item["logits"]
                room = manifest["buffers"][buffer]["bytes"]
                assert offset + 4 * manifest["model"]["vocab"] <= room
        used = {n for item in manifest["recordings"] for n in item["dispatches"]}
        assert used == set(range(len(manifest["dispatches"])))


def test_the_rest_of_the_manifest(folder, manifests) -> None:
    manifest = manifests[-1]
    assert (manifest["format"], manifest["version"]) == ("edgequant bundle", 1)
    held = {
        part: manifest["buffers"][manifest[part]["buffer"]] for part in ("step", "tokens", "ring")
    }
    assert [item["holds"] for item in held.values()] == ["step", "tokens", "ring"]
    assert held["step"]["bytes"] == manifest["step"]["bytes"] == 48
    assert held["tokens"]["bytes"] == 4 * manifest["tokens"]["length"] == 4 * 512
    assert (held["ring"]["bytes"], held["ring"]["place"]) == (4 * RING, "readback")
    assert manifest["ring"]["not_finite"] == NOT_FINITE
    fields = {item["name"]: item for item in manifest["step"]["fields"]}
    assert fields["temperature"] == {
        "name": "temperature", "offset": 20, "type": "float32", "count": 1,
    }  # fmt: skip
    assert (fields["padding"]["offset"], fields["padding"]["count"]) == (36, 3)
    told = manifest["tokenizer"]
    assert (told["bos"], told["add_bos"], told["chat_template"]) == (BOS, True, TEMPLATE)
    raw = (folder / "pieces.bin").read_bytes()
    ends = np.frombuffer(raw, "<u4", told["size"] + 1)
    pieces = [raw[4 * len(ends) :][a:b] for a, b in pairwise(ends)]
    assert (pieces[ord("A")], pieces[256], pieces[BOS]) == (b"A", b"he", b"")
    assert sum(map(len, pieces)) == ends[-1]


def test_weights_are_where_the_manifest_says(folder, manifests, model) -> None:
    for manifest in manifests:
        with open_file(model) as file:
            weights = file.weights()
            content = b"".join(
                (folder / item["file"]).read_bytes()[item["offset"] :][: item["bytes"]]
                for item in manifest["buffers"]
                if item["holds"] == "weights"
            )
            for name in file.tensors:
                assert weights[name].data.tobytes() in content


def _names(value: Any) -> Iterator[str]:
    """The keys of a JSON value, at any depth."""
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            yield from _names(item)


def test_the_readme_says_what_every_key_means(folder, manifests) -> None:
    for manifest in manifests:
        text = (folder / "README.md").read_text("utf-8")
        for name in {*_names(manifest), *(field["name"] for field in manifest["step"]["fields"])}:
            assert f"`{name}`" in text, name
        assert "$" not in text
        metal = manifest["target"] in ("ios", "macos")
        assert ("### With Metal" in text, "### With Vulkan" in text) == (metal, not metal)
        assert f"# Tiny, for {manifest['target']}\n" in text


def test_a_link_takes_no_room_and_a_copy_is_one(model, tmp_path) -> None:
    linked = bundle(model, tmp_path / "linked", target="linux", link=True)
    copied = bundle(model, tmp_path / "copied", target="linux")
    assert (tmp_path / "linked" / "model.gguf").samefile(model)
    assert not (tmp_path / "copied" / "model.gguf").samefile(model)
    assert (tmp_path / "copied" / "model.gguf").read_bytes() == model.read_bytes()
    assert (linked.bytes, linked.linked) == (copied.bytes, True)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "copied", tmp_path / "linked"]


def test_parts_of_a_model_keep_their_numbers(model, tmp_path) -> None:
    with open_file(model) as file:
        weights = file.weights()
        infos = list(file.tensors.values())
        path = tmp_path / "m.gguf"
        with open_output(path, dict(file.keys), infos, part_nbytes=100_000) as output:
            for info in infos:
                output.append(info.name, weights[info.name].data)
    report = bundle(output.paths[0], tmp_path / "out", target="android", context=64)
    names = [name for name in report.files if name.endswith(".gguf")]
    assert len(names) > 1
    assert names[0] == f"model-00001-of-{len(names):05}.gguf"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {b["file"] for b in manifest["buffers"] if b["holds"] == "weights"} <= set(names)
    with open_file(tmp_path / "out" / names[0]) as again:
        assert len(again.tensors) == len(infos)


def test_what_is_there_is_replaced_only_by_force_and_only_a_bundle(model, tmp_path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    bundle(model, out, target="linux", context=8)  # nothing is lost with an empty folder
    with pytest.raises(FileError, match=r"out: exists\.\n") as caught:
        bundle(model, out, target="ios")
    assert "--force" in caught.value.hint
    bundle(model, out, target="android", context=8, force=True)
    assert json.loads((out / "manifest.json").read_text())["target"] == "android"
    with pytest.raises(FileError, match=r"holds the input '.*out/model\.gguf'"):
        bundle(out / "model.gguf", out, target="linux", force=True)
    (out / "manifest.json").unlink()
    with pytest.raises(FileError, match=r"exists, and is not a folder with a manifest\.json"):
        bundle(model, out, target="linux", force=True)
    with pytest.raises(FileError, match=r"its directory '.*nowhere' does not exist"):
        bundle(model, tmp_path / "nowhere" / "out", target="linux")
    assert list(tmp_path.iterdir()) == [out]


def test_too_little_room_is_said_before_anything_is_written(model, tmp_path, monkeypatch) -> None:
    full = type("Usage", (), {"total": 1 << 40, "free": 1000})()
    monkeypatch.setattr("edgequant.gguf.destination.shutil.disk_usage", lambda _: full)
    with pytest.raises(FileError, match=r"out: needs [\d,]+ bytes, but its disk has 1,000 free"):
        bundle(model, tmp_path / "out", target="linux", context=8)
    assert not list(tmp_path.iterdir())


class _Interrupting:
    """Progress that ends the work when so many bytes are written."""

    def __init__(self, after: str) -> None:
        self._after = after

    def advance(self, amount: int, note: str = "") -> None:
        if note == self._after:
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(SILENT, name)


@pytest.mark.parametrize("when", ["manifest.json", "model.gguf"])
def test_an_interrupted_bundle_leaves_what_was_there(model, tmp_path, when) -> None:
    out = tmp_path / "out"
    bundle(model, out, target="linux", context=8)
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        bundle(model, out, target="ios", force=True, progress=_Interrupting(when))
    assert (out / "manifest.json").read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_that_cannot_take_its_name_is_taken_back(model, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    bundle(model, out, target="linux", context=8)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if Path(target) == out and not path.parent.name.startswith(".out.old."):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(FileError, match="cannot be written: Input/output error"):
        bundle(model, out, target="ios", context=8, force=True)
    assert json.loads((out / "manifest.json").read_text())["target"] == "linux"
    assert list(tmp_path.iterdir()) == [out]


def test_a_link_that_cannot_be_made(model, tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(whole_folder.os, "link", refuse)
    with pytest.raises(FileError, match=r"second name in .*: Invalid cross-device link") as caught:
        bundle(model, tmp_path / "out", target="linux", context=8, link=True)
    assert "--link" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_bundled(model, tmp_path, monkeypatch) -> None:
    def fails(match: str, kind: type[EdgequantError], path: Path = model, **options: Any) -> str:
        with pytest.raises(kind, match=match) as caught:
            bundle(path, tmp_path / "out", **({"target": "linux", "context": 8} | options))
        assert not (tmp_path / "out").exists()
        return caught.value.hint

    fails("^windows: not a target", UnsupportedError, target="windows")
    odd = write_model(tmp_path / "odd.gguf", keys={"general.architecture": "mamba"})
    fails("^mamba: not a model architecture", UnsupportedError, odd)
    assumed = TARGETS["linux"].limits
    fails(
        r"^bundle for linux: \w+ has 256 threads; workgroups of 128 are assumed",
        DeviceError, limits=[replace(assumed, workgroup=128)],
    )  # fmt: skip
    eight = write_model(tmp_path / "eight.gguf", fmt="Q8_0")
    monkeypatch.setattr(compiled, "INTEGERS", ())
    hint = fails(r"^bundle for linux: output\.weight: Q8_0: no GPU kernel", DeviceError, eight)
    assert hint == "quantize to one of F32, F16, BF16."
    monkeypatch.setattr(kernels_cache, "WIDEST", 8)
    hint = fails("^bundle for linux: attention: heads of 16 values", DeviceError)
    assert hint == "run the model with edgequant itself, on the cpu."
