"""A checkpoint: a directory in Hugging Face's form, as one mapping of lazy tensors.

It finds the shards, obeys the index, and names what is missing, doubled or unreadable before a
weight is read. It does not know which tensors a model needs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgequant.blocks import LazyTensor
from edgequant.errors import CheckpointError, UnsupportedError, some
from edgequant.progress import SILENT, Progress
from edgequant.source.documents import INDEX, NOT_THE_MODEL, read_index, read_json
from edgequant.source.header import Entry
from edgequant.source.hub import download, split_id
from edgequant.source.shard import DTYPES, Shard

# Buffers that older versions of transformers saved and every loader makes anew: left unread.
_BUFFER = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.bias)")
_NUMBERED = re.compile(r"(.+)-\d{5}-of-(\d{5})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk.

    Attributes:
        name: of the model: the directory's name, or the Hub id's last part.
        directory: where its files are.
        config: config.json.
        tensors: by Hugging Face name, in the shards' order; buffers that loaders make are left out.
        shards: the files the tensors are in.
        notes: what was ignored, one sentence each.
    """

    name: str
    directory: Path
    config: dict[str, object]
    tensors: Mapping[str, LazyTensor]
    shards: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """All it is read from: the shards, and the texts and tokenizers beside them."""
        texts = (p for p in self.directory.iterdir() if p.suffix in {".json", ".jinja", ".model"})
        return (*self.shards, *texts)


def open_checkpoint(spec: str, progress: Progress = SILENT) -> Checkpoint:
    """Open a directory, or a Hub id `owner/name[@revision]`, which is downloaded first.

    Raises:
        CheckpointError: nothing there, or files missing, cut short, doubled or contradictory.
        UnsupportedError: weights stored in a type other than F32, F16 or BF16.
    """
    path = Path(spec).expanduser()
    hub_id = split_id(spec)
    if path.exists():
        name, directory = path.resolve().name, path
    elif hub_id is not None:
        name, directory = hub_id.name, download(hub_id, progress)
    else:
        raise CheckpointError(
            f"{spec}: neither a directory here nor a Hub id.",
            hint="give a directory with config.json and *.safetensors, or an id like owner/name.",
        )
    if not directory.is_dir():
        raise CheckpointError(
            f"{spec}: a file, not a checkpoint directory.",
            hint="give the directory of a checkpoint; a GGUF file needs no conversion.",
        )
    config = _read_config(directory)
    notes: list[str] = []
    index = read_index(directory / INDEX) if (directory / INDEX).exists() else {}
    shards = [Shard(directory / name) for name in _shard_names(directory, index, notes)]
    _check_index(directory, index, shards)
    return Checkpoint(
        name=name,
        directory=directory,
        config=config,
        tensors=_merge(shards, notes),
        shards=tuple(shard.path for shard in shards),
        notes=tuple(notes),
    )


def _read_config(directory: Path) -> dict[str, object]:
    path = directory / "config.json"
    if not path.exists():
        if (directory / "adapter_config.json").exists():
            raise CheckpointError(
                f"{directory}: a LoRA adapter, not a model (it has adapter_config.json only).",
                hint="merge it into its base model first, and convert the result.",
            )
        raise CheckpointError(
            f"{directory}: has no config.json.",
            hint="give the directory that `save_pretrained` or a download made.",
        )
    config = read_json(path)
    quantized = config.get("quantization_config")
    if isinstance(quantized, dict):
        raise UnsupportedError(
            f"{path}: the weights are already quantized ({quantized.get('quant_method')}).",
            hint="convert the original checkpoint, in F32, F16 or BF16.",
        )
    return config


def _shard_names(directory: Path, index: Mapping[str, str], notes: list[str]) -> list[str]:
    """Find the shards: those the index names, else model.safetensors, else all there are."""
    found = sorted(p.name for p in directory.glob("*.safetensors"))
    if index:
        names = sorted(set(index.values()))
        missing = [name for name in names if name not in found]
    elif "model.safetensors" in found:
        names, missing = ["model.safetensors"], []
    else:
        names = [name for name in found if not NOT_THE_MODEL.fullmatch(name)]
        missing = _missing_numbers(names)
    if missing:
        raise CheckpointError(
            f"{directory}: {len(missing)} of {len({*names, *missing})} shards are missing: "
            f"{some(missing)}.",
            hint="download the missing files; the others can stay.",
        )
    if not names:
        raise _no_weights(directory)
    ignored = [name for name in found if name not in names]
    if ignored:
        notes.append(f"ignored {some(ignored)}: not among the model's shards")
    return names


def _missing_numbers(names: list[str]) -> list[str]:
    """Return what lacks of shards named like model-00001-of-00003.safetensors."""
    series = {match.groups() for match in map(_NUMBERED.fullmatch, names) if match}
    wanted = [
        f"{stem}-{number:05}-of-{total}.safetensors"
        for stem, total in sorted(series)
        for number in range(1, int(total) + 1)
    ]
    return [name for name in wanted if name not in names]


def _no_weights(directory: Path) -> CheckpointError:
    pickles = sorted(p.name for pattern in ("*.bin", "*.pt*") for p in directory.glob(pattern))
    if pickles:
        return CheckpointError(
            f"{directory}: the weights are PyTorch pickles ({some(pickles)}), not safetensors.",
            hint="load it with transformers and call save_pretrained, then convert the result.",
        )
    return CheckpointError(
        f"{directory}: has config.json but no .safetensors file.",
        hint="download the weights too.",
    )


def _merge(shards: list[Shard], notes: list[str]) -> dict[str, LazyTensor]:
    """Join the shards' tensors; a name may be in one shard only."""
    tensors: dict[str, LazyTensor] = {}
    home: dict[str, Path] = {}
    buffers = 0
    for shard in shards:
        for name, entry in shard.entries.items():
            if name in home:
                raise CheckpointError(
                    f"{shard.path}: '{name}' is also in {home[name].name}.",
                    hint="remove the shard that does not belong to this model.",
                )
            home[name] = shard.path
            if _BUFFER.fullmatch(name):
                buffers += 1
                continue
            _check_dtype(shard.path, entry)
            tensors[name] = shard.tensor(entry)
    if buffers:
        notes.append(f"left out {buffers} saved buffers, which every loader makes anew")
    return tensors


def _check_dtype(path: Path, entry: Entry) -> None:
    if entry.dtype not in DTYPES:
        raise UnsupportedError(
            f"{path}: '{entry.name}' is stored as {entry.dtype}, not in {', '.join(DTYPES)}.",
            hint="convert the original checkpoint, in F32, F16 or BF16.",
        )


def _check_index(directory: Path, index: Mapping[str, str], shards: list[Shard]) -> None:
    """Check that every tensor the index names is in the shard it says."""
    held = {(name, shard.path.name) for shard in shards for name in shard.entries}
    absent = [name for name, shard in index.items() if (name, shard) not in held]
    if absent:
        raise CheckpointError(
            f"{directory / INDEX}: {len(absent)} of {len(index)} tensors are not where it says, "
            f"such as '{absent[0]}' in {index[absent[0]]}.",
            hint="fetch the index and the shards again, all of one revision.",
        )
