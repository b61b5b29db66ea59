"""Hub ids, against a local stand-in of the Hub: what is fetched, cached, refused and explained."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
from hub_stand_in import COMMIT, StandIn, serve
from shards import write_shard

from edgequant.errors import CheckpointError
from edgequant.source.checkpoint import open_checkpoint
from edgequant.source.hub import HubId, split_id

ONE = np.ones((64, 64), np.float32)


class Listener:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self.said: list[str] = []
        self.open = False

    def begin(self, label: str, total: int, unit: str) -> None:
        assert unit == "bytes"
        self.total, self.open = total, True

    def advance(self, amount: int, note: str = "") -> None:
        self.done += amount

    def end(self) -> None:
        self.open = False

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StandIn]]:
    """A Hub with the repository owner/name, and an empty cache."""
    repo = tmp_path / "repos" / "owner" / "name"
    (repo / "original").mkdir(parents=True)
    (repo / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (repo / "tokenizer.model").write_bytes(b"\n")
    (repo / "chat_template.jinja").write_text("{{ messages }}")
    (repo / "README.md").write_text("# A model")
    (repo / "pytorch_model.bin").write_bytes(bytes(1000))
    (repo / "original" / "params.json").write_text("{}")
    write_shard(repo / "model.safetensors", {"a": ONE})
    write_shard(repo / "original" / "model.safetensors", {"a": ONE})
    write_shard(repo / "consolidated.safetensors", {"a": ONE})
    for name in ("gated", "private"):
        shutil.copytree(repo, tmp_path / "repos" / name / "name")
    with serve(tmp_path / "repos") as (endpoint, handler):
        # The library reads its environment once, when it is imported.
        url = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
        yield handler


def files_under(path: Path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()}


def test_only_what_is_needed_is_fetched(hub: type[StandIn]) -> None:
    listener = Listener()
    found = open_checkpoint("owner/name", listener)
    assert found.name == "name"
    assert files_under(found.directory) == {
        "config.json", "tokenizer.model", "chat_template.jinja", "model.safetensors"
    }  # fmt: skip
    np.testing.assert_array_equal(found.tensors["a"].read(0, 64), ONE)
    assert listener.done == listener.total > ONE.nbytes
    assert not listener.open


def test_the_index_says_which_shards(hub: type[StandIn]) -> None:
    repo = hub.root / "owner" / "name"
    write_shard(repo / "first.safetensors", {"b": ONE})
    index = '{"weight_map": {"b": "first.safetensors"}}'
    (repo / "model.safetensors.index.json").write_text(index)
    found = open_checkpoint("owner/name")
    assert set(found.tensors) == {"b"}
    assert not (found.directory / "model.safetensors").exists()


def test_shards_without_an_index(hub: type[StandIn]) -> None:
    repo = hub.root / "owner" / "name"
    (repo / "model.safetensors").rename(repo / "model-00001-of-00001.safetensors")
    found = open_checkpoint("owner/name")
    assert [path.name for path in found.shards] == ["model-00001-of-00001.safetensors"]


def test_a_revision_is_asked_for(hub: type[StandIn]) -> None:
    found = open_checkpoint("owner/name@v1")
    assert found.directory.name == COMMIT
    assert "GET /api/models/owner/name/revision/v1" in hub.asked


def test_the_second_time_nothing_is_fetched(hub: type[StandIn]) -> None:
    open_checkpoint("owner/name")
    hub.asked.clear()
    open_checkpoint("owner/name")
    assert not [line for line in hub.asked if line.startswith("GET") and "resolve" in line]


def test_without_network_the_cache_is_used_and_said(
    hub: type[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_checkpoint("owner/name")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    listener = Listener()
    assert open_checkpoint("owner/name", listener).directory == before.directory
    assert "cannot be reached; using" in listener.said[0]


def test_a_private_model_needs_the_token(
    hub: type[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match=r"that may be read \(HTTP 401\)") as caught:
        open_checkpoint("private/name")
    assert "hf auth login" in caught.value.hint
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert set(open_checkpoint("private/name").tensors) == {"a"}


def test_a_gated_model_says_so(hub: type[StandIn]) -> None:
    with pytest.raises(CheckpointError, match="is gated, and this account has no access"):
        open_checkpoint("gated/name")


def test_no_such_model(hub: type[StandIn]) -> None:
    with pytest.raises(CheckpointError, match=r"no such directory here, and no such model .*404"):
        open_checkpoint("owner/nane")


def test_no_such_revision(hub: type[StandIn]) -> None:
    with pytest.raises(CheckpointError, match="has no revision 'v9'"):
        open_checkpoint("owner/name@v9")


def test_no_config(hub: type[StandIn]) -> None:
    repo = hub.root / "owner" / "name"
    (repo / "config.json").rename(repo / "model-q4.gguf")
    with pytest.raises(CheckpointError, match=r"has no config.json \(but GGUF files\)"):
        open_checkpoint("owner/name")


def test_only_pickles(hub: type[StandIn]) -> None:
    (hub.root / "owner" / "name" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"the repository has no \.safetensors file"):
        open_checkpoint("owner/name")


def test_a_hub_in_trouble(hub: type[StandIn]) -> None:
    hub.broken = True
    with pytest.raises(CheckpointError, match=r"the Hub cannot be reached \(HTTP 503\)"):
        open_checkpoint("owner/name")


def test_no_network(hub: type[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(CheckpointError, match=r"the Hub cannot be reached \(ConnectE") as caught:
        open_checkpoint("owner/name")
    assert "HF_ENDPOINT" in caught.value.hint


def test_a_full_disk(hub: type[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/blob")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(
        CheckpointError, match="the disk filled up while it was downloaded"
    ) as caught:
        open_checkpoint("owner/name")
    assert "HF_HOME" in caught.value.hint


def test_offline_by_wish(hub: type[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set"):
        open_checkpoint("owner/name")


def test_the_environment_is_obeyed(hub: type[StandIn], tmp_path: Path) -> None:
    endpoint = huggingface_hub.constants.ENDPOINT
    code = (
        "from edgequant.source.checkpoint import open_checkpoint; "
        "print(open_checkpoint('owner/name').directory)"
    )
    env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "home")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("owner/name", HubId("owner/name", "name", None)),
        ("Qwen/Qwen2.5-0.5B@main", HubId("Qwen/Qwen2.5-0.5B", "Qwen2.5-0.5B", "main")),
        ("a/b@refs/pr/1", HubId("a/b", "b", "refs/pr/1")),
        ("./owner/name", None),
        ("/owner/name", None),
        ("~/name", None),
        ("name", None),
        ("a/b/c", None),
        ("owner/name@", None),
        ("models/tiny.gguf", None),
        ("", None),
    ],
)
def test_what_looks_like_a_hub_id(spec: str, expected: HubId | None) -> None:
    assert split_id(spec) == expected


def test_an_id_the_library_refuses(hub: type[StandIn]) -> None:
    with pytest.raises(CheckpointError, match="neither a directory here nor a Hub id"):
        open_checkpoint("owner/na--me")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
