"""An architecture is a value: its names, and the parts a layer is made of.

From it come the list of tensors (`tensors`) and the graph (`record`). It knows no weights, no
device and no file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from edgequant.blocks import TensorInfo
from edgequant.errors import GGUFError, UnsupportedError
from edgequant.graph import Graph, Value
from edgequant.model.hparams import HParams
from edgequant.model.tensors import TensorSpec


class Part(Protocol):
    """A piece of a layer: frozen data with two methods, at most six fields."""

    def tensors(self, h: HParams, layer: int) -> Iterator[TensorSpec]:
        """Yield the tensors the part needs."""
        ...

    def emit(self, graph: Graph, x: Value, h: HParams, layer: int) -> Value:
        """Append the part's nodes and return its output."""
        ...


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer.

    Attributes:
        name: the value of general.architecture on disk.
        hf_classes: entries of "architectures" in config.json that it reads.
        layer: the parts of one layer, in order.
        frame: what stands before and after the layers: embedding, last norm, output.
    """

    name: str
    hf_classes: tuple[str, ...]
    layer: tuple[Part, ...]
    frame: "Frame"

    def tensors(self, h: HParams) -> Iterator[TensorSpec]:
        """Yield every tensor of a model of these sizes in llama.cpp's order: by layer, name."""
        yield from sorted(self.frame.tensors(h), key=lambda spec: spec.name)
        for layer in range(h.layers):
            specs = [spec for part in self.layer for spec in part.tensors(h, layer)]
            yield from sorted(specs, key=lambda spec: spec.name)

    def record(self, h: HParams) -> Graph:
        """Return the forward pass of a model of these sizes."""
        graph = Graph()
        x = self.frame.enter(graph, h)
        for layer in range(h.layers):
            for part in self.layer:
                x = part.emit(graph, x, h, layer)
        self.frame.leave(graph, x, h)
        return graph

    def check(self, h: HParams, tensors: Mapping[str, TensorInfo], where: str) -> None:
        """Refuse a model file whose tensors are not this architecture's, of these sizes.

        Raises:
            GGUFError: naming the first tensor that is missing or misshapen.
            UnsupportedError: naming a tensor that this architecture would leave out.
        """
        wanted = {spec.name: spec for spec in self.tensors(h)}
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise GGUFError(
                f"{where}: {len(missing):,} of {len(wanted):,} tensors are missing, the first is "
                f"{missing[0]}.",
                hint="convert or download the file again.",
            )
        for name, info in tensors.items():
            if name not in wanted:
                raise UnsupportedError(
                    f"{where}: {name} is not a tensor of edgequant's {self.name}.",
                    hint="use a plain model of this architecture; its variants compute otherwise.",
                )
            if info.shape != wanted[name].shape:
                raise GGUFError(
                    f"{where}: {name} is {info.shape}, but the file's keys ask for "
                    f"{wanted[name].shape}.",
                    hint="convert the checkpoint again.",
                )


class Frame(Protocol):
    """What stands around the layers."""

    def tensors(self, h: HParams) -> Iterator[TensorSpec]:
        """Yield the tensors outside the layers."""
        ...

    def enter(self, graph: Graph, h: HParams) -> Value:
        """Append the embedding."""
        ...

    def leave(self, graph: Graph, x: Value, h: HParams) -> Value:
        """Append the last norm and the output; returns the logits."""
        ...
