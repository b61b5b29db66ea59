"""Which layers of a graph have a KV cache, and how wide it is."""

from edgequant.graph.graph import Graph
from edgequant.graph.ops.rotate_attend import RotateAttend
from edgequant.graph.ops.rotate_store import RotateStore
from edgequant.graph.ops.store_kv import StoreKV

STORES = (StoreKV, RotateStore, RotateAttend)  # the ops that fill a cache


def caches(graph: Graph) -> dict[int, tuple[int, int]]:
    """Return, by layer, (heads_kv, head_dim) of its keys, which are those of its values."""
    return {
        node.op.layer: (node.op.heads_kv, node.op.head_dim)
        for node in graph.nodes
        if isinstance(node.op, STORES)
    }
