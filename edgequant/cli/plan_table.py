"""A plan as a table: which formats the weights of each name have, in which layers."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from edgequant.cli.words import size, visible
from edgequant.model.tensors import role_of
from edgequant.stages.quantize_report import QuantizedTensor


def plan_table(tensors: Sequence[QuantizedTensor]) -> Table:
    """Lay out the plan: a row a name; vectors and others in F32 are left out.

    Args:
        tensors: in file order.
    """
    table = Table("weights", "formats, by layer", box=None)
    table.add_column("size", justify="right")
    rows: dict[str, list[QuantizedTensor]] = {}
    for tensor in tensors:
        if tensor.type != "F32":
            rows.setdefault(_stem(tensor.name), []).append(tensor)
    for stem, members in rows.items():
        layers: dict[str, list[int]] = {}
        for tensor in members:
            layer = role_of(tensor.name)[1]
            layers.setdefault(tensor.type, []).extend([] if layer is None else [layer])
        nbytes = sum(tensor.bytes for tensor in members)
        table.add_row(visible(stem), _formats(layers), size(nbytes))
    return table


def _stem(name: str) -> str:
    layer = role_of(name)[1]
    return name.removeprefix(f"blk.{layer}.").removesuffix(".weight")


def _formats(layers: Mapping[str, Sequence[int]]) -> str:
    if len(layers) == 1:
        return next(iter(layers))
    return "; ".join(f"{name} {spans(numbers)}" for name, numbers in layers.items())


def spans(numbers: Sequence[int]) -> str:
    """Say rising numbers in short: "0-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)
