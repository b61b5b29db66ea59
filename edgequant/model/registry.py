"""Which architectures there are, and which one a config or a model file is.

The registry finds the files of `architectures/`, so adding one edits nothing here.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from edgequant.blocks import TensorInfo
from edgequant.errors import CheckpointError, GGUFError, UnsupportedError
from edgequant.model.architecture import Architecture
from edgequant.model.hparams import HParams


@cache
def all_architectures() -> tuple[Architecture, ...]:
    """Return every architecture this version knows, by name."""
    package = importlib.import_module("edgequant.model.architectures")
    modules = pkgutil.iter_modules(package.__path__)
    found = [importlib.import_module(f"{package.__name__}.{m.name}").ARCHITECTURE for m in modules]
    return tuple(sorted(found, key=lambda architecture: architecture.name))


def by_name(name: str) -> Architecture:
    """Return the architecture that general.architecture names.

    Raises:
        UnsupportedError: unknown; the hint lists those known.
    """
    for architecture in all_architectures():
        if architecture.name == name:
            return architecture
    known = ", ".join(architecture.name for architecture in all_architectures())
    raise UnsupportedError(
        f"{name}: not a model architecture that edgequant knows.",
        hint=f"use a model file of one of {known}.",
    )


def by_class(hf_class: str) -> Architecture:
    """Return the architecture that reads checkpoints of a Hugging Face class.

    Raises:
        UnsupportedError: unknown; the hint lists those known.
    """
    for architecture in all_architectures():
        if hf_class in architecture.hf_classes:
            return architecture
    known = ", ".join(name for found in all_architectures() for name in found.hf_classes)
    raise UnsupportedError(
        f"{hf_class}: not a model class that edgequant can convert.",
        hint=f"use a checkpoint of one of {known}.",
    )


def read_config(config: Mapping[str, object], where: str) -> tuple[Architecture, HParams]:
    """Return what a config.json describes.

    Raises:
        CheckpointError: it names no class, or its values make no sense.
        UnsupportedError: a class, value or key that edgequant does not do.
    """
    classes = config.get("architectures")
    if not isinstance(classes, list) or not classes or not isinstance(classes[0], str):
        raise CheckpointError(
            f'{where}: "architectures" is {classes!r}; the name of a model class was expected.',
            hint="use the config.json that belongs to the checkpoint.",
        )
    return by_class(classes[0]), HParams.from_config(config, where)


def read_model(
    keys: Mapping[str, object], tensors: Mapping[str, TensorInfo], where: str
) -> tuple[Architecture, HParams]:
    """Return what a GGUF model file holds, its tensors checked by name and shape.

    Args:
        keys: plain values by key.
        tensors: by name.
        where: the file's name, for errors.

    Raises:
        GGUFError: it is no model, its values make no sense, or a tensor is missing or misshapen.
        UnsupportedError: an architecture, key or tensor that edgequant does not do.
    """
    name = keys.get("general.architecture")
    if not isinstance(name, str):
        raise GGUFError(
            f"{where}: general.architecture is missing; this is not a model.",
            hint="use a model file; an importance matrix goes to --imatrix.",
        )
    architecture = by_name(name)
    h = HParams.from_keys(keys, where).fitted(tensors)
    architecture.check(h, tensors, where)
    return architecture, h
