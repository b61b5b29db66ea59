"""Checkpoints of the Hugging Face Hub, through `huggingface_hub`: its cache, token and endpoint.

Only the files a conversion reads are fetched. `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and
`HF_HUB_OFFLINE` are obeyed by that library. This file does not look into what it downloads, except
into the index.
"""

import errno
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgequant.errors import CheckpointError
from edgequant.progress import SILENT, Progress
from edgequant.source.documents import INDEX, NOT_THE_MODEL, read_index

_ID = re.compile(r"(?P<repo>[A-Za-z0-9_][\w.-]*/(?P<name>[A-Za-z0-9_][\w.-]*))(@(?P<revision>.+))?")
_TEXTS = (".json", ".jinja")
_FILES = (".gguf", ".safetensors", ".bin")  # a mistyped path, not a repository


@dataclass(frozen=True)
class HubId:
    """A repository `owner/name` of the Hub, and a branch, tag or commit of it."""

    repo: str
    name: str
    revision: str | None

    def __str__(self) -> str:
        return self.repo + (f"@{self.revision}" if self.revision else "")


def split_id(spec: str) -> HubId | None:
    """Read `owner/name[@revision]`; None if it does not look like that."""
    match = None if spec.endswith(_FILES) else _ID.fullmatch(spec)
    return HubId(match["repo"], match["name"], match["revision"]) if match else None


def download(hub_id: HubId, progress: Progress) -> Path:
    """Fetch what a conversion needs, unless it is in the cache; without network use the cache.

    Returns:
        The directory in the Hub's cache.

    Raises:
        CheckpointError: no such repository or revision, no right to it, no network, or no
            safetensors in it.
    """
    # Half a second to import, and checkpoints on disk do not need it.
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # The transport library differs between versions (requests, httpx); its root error is a base.
    transport_error: type[Exception] = HfHubHTTPError.__bases__[0]
    try:
        return _fetch(hub_id, progress)
    except HFValidationError as error:
        raise CheckpointError(
            f"{hub_id}: neither a directory here nor a Hub id.",
            hint="give a directory with config.json and *.safetensors, or an id like owner/name.",
        ) from error
    except (OSError, transport_error) as error:
        cached = None if _is_an_answer(error) or _is_full(error) else _cached(hub_id)
        if cached is None:
            raise _explain(hub_id, error) from error
        progress.say(f"{hub_id}: the Hub cannot be reached; using {cached}")
        return cached
    finally:
        progress.end()


def _fetch(hub_id: HubId, progress: Progress) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    info = HfApi().model_info(hub_id.repo, revision=hub_id.revision, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    wanted = _select(hub_id, info.sha, set(sizes))
    progress.begin(f"download {hub_id}", sum(sizes[name] for name in wanted), "bytes")
    return Path(
        snapshot_download(  # by the branch's name, so that the cache knows it without network
            hub_id.repo, revision=hub_id.revision, allow_patterns=wanted, tqdm_class=_bar(progress)
        )
    )


def _select(hub_id: HubId, commit: str | None, files: set[str]) -> list[str]:
    """Choose the files to fetch: texts, tokenizer, and the shards of the model."""
    from huggingface_hub import snapshot_download

    if "config.json" not in files:
        kind = " (but GGUF files)" if any(name.endswith(".gguf") for name in files) else ""
        raise CheckpointError(
            f"{hub_id}: the repository has no config.json{kind}.",
            hint="name the repository of the original model, not of a conversion of it.",
        )
    top = {name for name in files if "/" not in name}
    if INDEX in top:
        fetched = snapshot_download(
            hub_id.repo, revision=commit, allow_patterns=[INDEX], tqdm_class=_bar(SILENT)
        )
        shards = set(read_index(Path(fetched) / INDEX).values())
    elif "model.safetensors" in top:
        shards = {"model.safetensors"}
    else:
        shards = {name for name in top if name.endswith(".safetensors")}
        shards = {name for name in shards if not NOT_THE_MODEL.fullmatch(name)}
    if not shards:
        raise CheckpointError(
            f"{hub_id}: the repository has no .safetensors file.",
            hint="choose a repository with safetensors; PyTorch's .bin files are not read.",
        )
    texts = {name for name in top if name.endswith(_TEXTS) or name == "tokenizer.model"}
    return sorted(texts | (shards & top))


def _cached(hub_id: HubId) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                hub_id.repo,
                revision=hub_id.revision,
                allow_patterns=["config.json"],
                local_files_only=True,
            )
        )
    except LocalEntryNotFoundError:
        return None


def _status(error: Exception) -> int | None:
    """Return the HTTP status the Hub answered with, if it answered."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _is_an_answer(error: Exception) -> bool:
    """Whether the Hub said no, which the cache must not gloss over."""
    return _status(error) in {401, 403, 404}


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOSPC


def _explain(hub_id: HubId, error: Exception) -> CheckpointError:
    from huggingface_hub.errors import (
        GatedRepoError,
        OfflineModeIsEnabled,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return CheckpointError(
            f"{hub_id}: the repository is gated, and this account has no access.",
            hint="accept its terms on the model's page, then log in with `hf auth login`.",
        )
    if isinstance(error, RevisionNotFoundError):
        return CheckpointError(
            f"{hub_id}: the repository has no revision '{hub_id.revision}'.",
            hint="name a branch, a tag or a commit of it after the @.",
        )
    if _is_an_answer(error):  # the Hub answers 401 to strangers whether it exists or not
        return CheckpointError(
            f"{hub_id}: no such directory here, and no such model on the Hub that may be read "
            f"(HTTP {_status(error)}).",
            hint="check the spelling; for a private model log in with `hf auth login`.",
        )
    if isinstance(error, OfflineModeIsEnabled):
        return CheckpointError(
            f"{hub_id}: no such directory here, not in the cache, and HF_HUB_OFFLINE is set.",
            hint="unset HF_HUB_OFFLINE, or give a directory.",
        )
    if _is_full(error):
        return CheckpointError(
            f"{hub_id}: the disk filled up while it was downloaded.",
            hint="free space, or set HF_HOME to a larger disk.",
        )
    answer = f"HTTP {_status(error)}" if _status(error) else type(error).__name__
    return CheckpointError(
        f"{hub_id}: no such directory here, and the Hub cannot be reached ({answer}).",
        hint="check the path, the network and HF_ENDPOINT; a download resumes where it stopped.",
    )


def _bar(progress: Progress) -> type:
    """Make a bar for snapshot_download that draws nothing and passes bytes on."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            # Newer versions count from the network, and as written; the latter is ours.
            self._counts = options.get("unit") == "B" and "Recon" in str(options.get("desc"))
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            if self._counts and n:
                progress.advance(int(n))

    return Bar
