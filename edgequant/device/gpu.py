"""A GPU as a device: what every GPU API shares, on top of the verbs it implements.

`program` runs the steps; `purposes` are what it records, `recorder` how, in the sizes of `buckets`;
`resident` and `adopted` are its memory; `bind` gives operands their addresses.
"""

import atexit
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Self

from edgequant.blocks import BLOCK_TYPES, Weights
from edgequant.device import Choice
from edgequant.device.program import GpuProgram
from edgequant.device.protocol import Gpu
from edgequant.device.self_test import SelfTest
from edgequant.errors import DeviceError, UnsupportedError
from edgequant.graph import Graph
from edgequant.graph.ops.linear import Linear


class GpuDevice:
    """A GPU as a `Device`.

    Args:
        name: as given to `--device`.
        gpu: open; it stays so.
        cache: "f16", "q8_0" or "f32".
        exact: keep activations in float32 where the GPU could round them to int8 or float16.
        ensure: called with the block formats of a model's linear layers before it is loaded; raises
            DeviceError where the GPU cannot be trusted with one.
    """

    threads = 0

    def __init__(
        self,
        name: str,
        gpu: Gpu,
        *,
        cache: str = "f16",
        exact: bool = False,
        ensure: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.description = gpu.description
        self.cache = cache
        self.activations = _activations(gpu, exact=exact)
        self._gpu = gpu
        self._exact = exact
        self._ensure = ensure

    @classmethod
    def lasting(cls, name: str, gpu: Gpu, notes: Path, choice: Choice) -> Self:
        """Make a device of a GPU that stays open until Python ends.

        Args:
            name: as given to `--device`.
            gpu: open.
            notes: where is kept what passed its self-test.
            choice: what was asked for.
        """
        atexit.register(gpu.close)
        ensure = SelfTest(gpu, name, notes).ensure
        return cls(name, gpu, cache=choice.cache or "f16", exact=choice.exact, ensure=ensure)

    def load(self, graph: Graph, weights: Weights, *, context: int) -> GpuProgram:
        """Make a program.

        Raises:
            DeviceError: not enough memory, with the sizes; or a weight whose format or size no
                kernel has, with its name; or kernels that compute something else.
        """
        linears = (node for node in graph.nodes if isinstance(node.op, Linear))
        self._ensure({weights[name].type.name for node in linears for name in node.weights})
        try:
            return GpuProgram(
                self._gpu,
                self.name,
                graph,
                weights,
                context=context,
                cache=BLOCK_TYPES[self.cache.upper()],
                exact=self._exact,
            )
        except UnsupportedError as error:
            raise DeviceError(f"{self.name}: {error.what}", hint=error.hint) from None


def _activations(gpu: Gpu, *, exact: bool) -> str:
    decode = "int8" if gpu.limits.integer_dot and not exact else "float32"
    prefill = "float16" if gpu.limits.cooperative_matrix and not exact else "float32"
    return decode if decode == prefill else f"{decode} (decode), {prefill} (prefill)"
