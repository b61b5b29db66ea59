"""`edgequant bundle` as it is typed."""

import json

import pytest
import typed
from tiny_model import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("bundle") / "tiny.gguf")


def test_what_it_says(model, tmp_path) -> None:
    out = tmp_path / "out"
    result = typed.invoke("bundle", model, "-o", out, "--target", "linux")
    assert result.exit_code == 0
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert list(lines) == ["bundle", "model", "memory", "kernels", "steps", "assumed"]
    assert lines["bundle"].startswith(f"{out} for linux, 0.")
    assert "f16 cache of 64 tokens" in lines["memory"]
    assert "dispatches a token" in lines["steps"]
    assert lines["assumed"] == (
        "subgroups of 32, workgroups of 1024, matrices none, int8 dot products yes"
    )
    assert typed.invoke("bundle", model, "-o", out, "--target", "ios", "--force", "-q").stdout == ""


def test_a_manifest_for_each_size_of_subgroups(model, tmp_path) -> None:
    words = ("bundle", model, "-o", tmp_path / "out", "--target", "android")
    assert "subgroups of 64, 16 or 32, " in typed.invoke(*words).stdout
    report = typed.read_json(*words, "--subgroup", 8, "--subgroup", 32, "--force")
    assert [limits["subgroup"] for limits in report["limits"]] == [8, 32]
    assert {"manifest.json", "manifest-32.json"} < set(report["files"])


def test_options_change_what_is_assumed(model, tmp_path) -> None:
    report = typed.read_json(
        "bundle", model, "-o", tmp_path / "out", "--target", "linux", "--subgroup", 16,
        "--workgroup", 512, "--shared", 49152, "--matrix", "16x16x16", "--no-integer-dot",
        "--ctx", 40, "--cache-type", "f32", "--link",
    )  # fmt: skip
    (limits,) = report["limits"]
    assert limits == {
        "subgroup": 16,
        "workgroup": 512,
        "shared_bytes": 49152,
        "max_alloc_bytes": 1 << 30,
        "cooperative_matrix": [16, 16, 16],
        "integer_dot": False,
    }
    assert (report["context"], report["cache"], report["linked"]) == (40, "f32", True)
    assert set(report["files"]) > {"manifest.json", "README.md", "model.gguf", "tokenizer.json"}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["limits"]["cooperative_matrix"] == [16, 16, 16]
    report = typed.read_json(
        "bundle", model, "-o", tmp_path / "flat", "--target", "macos", "--matrix", "none"
    )
    assert report["limits"][0]["cooperative_matrix"] is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--target", "symbian"), "'symbian' is not one of 'ios', 'android', 'macos', 'linux'"),
        (("--target", "linux", "--matrix", "16"), "'16' is not a size such as 16x16x16"),
        (("--target", "linux", "--workgroup", "64"), "64 is not in the range 256<=x<=1024"),
        ((), "Missing option '--target'"),
    ],
)
def test_wrong_words(model, tmp_path, words, text) -> None:
    result = typed.invoke("bundle", model, "-o", tmp_path / "out", *words)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


def test_an_error_ends_with_1(model, tmp_path, capsys) -> None:
    assert typed.exits_with("bundle", model, "-o", model, "--target", "ios") == 1
    assert "Hint: choose another name, or remove it yourself." in capsys.readouterr().err
    assert typed.exits_with("bundle", tmp_path, "-o", tmp_path / "o", "--target", "ios") == 1
