"""What a user says of tensors against a recipe: types by name, for the output, for the embedding.

It knows names and types. Which tensors may be quantized at all, and what becomes of rows that a
type does not fit, is the business of `assignment.py`.

Source: src/llama-quant.cpp and tools/quantize of llama.cpp 0c1e57098: the options, that the first
pattern that is found anywhere in a name decides, and their order: embedding, output, patterns.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgequant.blocks import TensorInfo
from edgequant.errors import UnsupportedError
from edgequant.formats import names


@dataclass(frozen=True)
class Overrides:
    """What a user says; all of it comes before a recipe's rules.

    Attributes:
        pure: no mix: all that no other part of this names gets the recipe's own format.
        output: the format of the output matrix, also where that is the embedding.
        embedding: the format of the token embedding.
        patterns: (regular expression, format) pairs; the first that is found in a name decides.
        keep_output: the output matrix stays as it is in the input.
        among: a target chooses among these formats; empty where it may take what loses least.
    """

    pure: bool = False
    output: str | None = None
    embedding: str | None = None
    patterns: tuple[tuple[str, str], ...] = ()
    keep_output: bool = False
    among: tuple[str, ...] = ()

    def choose(self, name: str, *, embed: bool, output: bool) -> str | None:
        """Return the format of a tensor; None leaves it to the recipe.

        Args:
            name: on disk.
            embed: it is an embedding.
            output: it is the output matrix; a tied embedding is both.
        """
        if embed and self.embedding is not None:
            return self.embedding
        if output and self.output is not None:
            return self.output
        return next((fmt for regex, fmt in self.patterns if re.search(regex, name)), None)


NOTHING = Overrides()


def read_overrides(
    *,
    pure: bool = False,
    output: str | None = None,
    embedding: str | None = None,
    patterns: Iterable[str] = (),
    keep_output: bool = False,
    among: str | None = None,
) -> Overrides:
    """Read what was typed.

    Args:
        pure: as in `Overrides`, like all but the patterns.
        output: a format, in any case.
        embedding: a format, in any case.
        patterns: as "REGEX=FORMAT".
        keep_output: as in `Overrides`.
        among: formats with commas between them.

    Raises:
        UnsupportedError: an unknown format, a broken regular expression, or two contrary wishes.
    """
    if keep_output and output is not None:
        raise UnsupportedError(
            f"--output-type {output}: --keep-output asks for the output as it is.",
            hint="leave out one of the two.",
        )
    return Overrides(
        pure=pure,
        output=None if output is None else _format(output),
        embedding=None if embedding is None else _format(embedding),
        patterns=tuple(_read_pattern(pattern) for pattern in patterns),
        keep_output=keep_output,
        among=() if among is None else tuple(_format(name.strip()) for name in among.split(",")),
    )


def check_overrides(overrides: Overrides, tensors: Sequence[TensorInfo], where: str) -> None:
    """See that every pattern is found in some weight's name: one that is not is a slip.

    Args:
        overrides: what a user says.
        tensors: those of the model that can be quantized.
        where: the model's file, for the message.

    Raises:
        UnsupportedError: a pattern that names nothing.
    """
    for regex, fmt in overrides.patterns:
        if not any(re.search(regex, info.name) for info in tensors):
            names = ", ".join(info.name for info in tensors[:3])
            raise UnsupportedError(
                f"{where}: --tensor-type '{regex}={fmt}' matches none of its {len(tensors):,} "
                "weights that can be quantized.",
                hint=f"look at their names with edgequant inspect; they are like {names}.",
            )


def _format(typed: str) -> str:
    name = typed.upper()
    if name not in names():
        raise UnsupportedError(
            f"{typed}: not a format that edgequant can write.",
            hint=f"use one of {', '.join(names())}.",
        )
    return name


def _read_pattern(typed: str) -> tuple[str, str]:
    regex, equals, fmt = typed.rpartition("=")
    if not equals or not regex:
        raise UnsupportedError(
            f"--tensor-type '{typed}': not of the form REGEX=TYPE.",
            hint="write for example --tensor-type 'ffn_down=Q6_K'.",
        )
    try:
        re.compile(regex)
    except re.error as error:
        raise UnsupportedError(
            f"--tensor-type '{typed}': '{regex}' is no regular expression: {error}.",
            hint="escape characters that have a meaning in one, such as '\\.' for a dot.",
        ) from None
    return regex, _format(fmt)
