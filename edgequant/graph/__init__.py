"""A forward pass as data: ops and values, recorded once for a model and read by every device.

Chosen over calling NumPy directly so that one recording serves the NumPy meaning, the imatrix
observer and the GPUs. Ops stay simple; fusing them is a rewrite of the graph, not an op's business.
"""

from edgequant.graph.graph import ROWS, TOKENS, Axis, Graph, Node, Shape, Value
from edgequant.graph.op import Array, Cache, Launchable, Op, Step

__all__ = [
    "ROWS",
    "TOKENS",
    "Array",
    "Axis",
    "Cache",
    "Graph",
    "Launchable",
    "Node",
    "Op",
    "Shape",
    "Step",
    "Value",
]
