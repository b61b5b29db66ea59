"""The kernels, a family a file: their arguments, and which variant, tile and grid an op gets.

Ops import these modules; a family knows sizes, block types and limits, never ops or an API. What
every family declares as `Arguments` is printed for the shaders (`shaders/build.py`).
"""

import importlib
import pkgutil

from edgequant.graph.launch import Arguments


def all_arguments() -> tuple[Arguments, ...]:
    """Return the argument structs of every family, in order of name."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Arguments):
                found[value.name] = value
    return tuple(found[name] for name in sorted(found))
