"""JSON files of a checkpoint, read with their types checked: what is not as expected is named."""

import json
from pathlib import Path
from typing import TypeVar

from edgequant.errors import CheckpointError

_AGAIN = "download the tokenizer's files again."
T = TypeVar("T")


def read_object(path: Path) -> dict[str, object]:
    """Return the object in a file, {} if there is no such file.

    Raises:
        CheckpointError: the file cannot be read, or holds something else.
    """
    try:
        content = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}.", hint=_AGAIN) from error
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}.", hint=_AGAIN) from error
    return expect(value, dict, str(path))


def expect(value: object, kind: type[T], where: str) -> T:
    """Return the value if it is of this type.

    Raises:
        CheckpointError: it is of another.
    """
    if type(value) is not kind:
        raise CheckpointError(
            f"{where}: is of type {type(value).__name__}; {kind.__name__} is needed.", hint=_AGAIN
        )
    return value


def content_of(token: object) -> str | None:
    """Return the text of a token that is written as a string or as {"content": …}, else None."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
