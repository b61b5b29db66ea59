"""The JSON documents of a checkpoint, and the names of its files.

Shared by the two ways to a checkpoint, a directory and the Hub. Knows no tensor and no config key.
"""

import json
import re
from pathlib import Path

from edgequant.errors import CheckpointError
from edgequant.source.header import LFS_MARK, refuse_lfs_pointer

INDEX = "model.safetensors.index.json"

# Weights beside the model's: "consolidated" is the same model in Mistral's own names.
NOT_THE_MODEL = re.compile(r"(consolidated|adapter_).*")


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object from a file of a checkpoint, or raise CheckpointError."""
    try:
        text = path.read_bytes()
        if text.startswith(LFS_MARK):
            refuse_lfs_pointer(path, text)
        value = json.loads(text)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}).", hint="check the path and its rights."
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: not JSON ({error}).", hint="fetch this file again, or repair it."
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{path}: holds a {type(value).__name__}, not an object.",
            hint="fetch this file again, or repair it.",
        )
    return value


def read_index(path: Path) -> dict[str, str]:
    """Read which shard each tensor is in, from an index.

    Raises:
        CheckpointError: no such map, or a shard that is not a plain file name.
    """
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f"{path}: has no weight_map.", hint="fetch this file again, or repair it."
        )
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or "\\" in shard:
            raise CheckpointError(
                f"{path}: '{tensor}' is said to be in {shard!r}, which is no file name.",
                hint="fetch this file again, or repair it.",
            )
    return weight_map
