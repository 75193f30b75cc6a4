"""What an op costs on a machine: its class, its work, and the seconds from the machine's curves.

Classes, and their work: ``matmul`` and ``convolution`` (floating-point operations; a product has more for each byte of
its matrices, see `_OPERATIONS_PER_BYTE`); ``elementwise``, ``reduction``, ``update`` (an assignment or an optimizer's
update), ``rows`` (a look-up), ``move`` (copying without arithmetic), ``view`` (neither; a collective is one, since what
it sends and adds up is charged as it happens), ``random`` and ``state`` (queues and the like), all by bytes of inputs
and outputs. A curve of the op's own type comes before that of its class.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfmini import dtypes
from tfmini.errors import OpError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import output_dtypes
from tfmini.graph.op_types import OPS, may_wait
from tfmini.graph.traits import ops_with, trait_of
from tfmini.inspection.cost import flops, size
from tfmini.shapes import RawShape
from tfmini.simulation.profile import Machine

FLOPS = ("matmul", "convolution")
CLASSES = (*FLOPS, "elementwise", "reduction", "update", "rows", "move", "view", "random", "state")
_ROWS = frozenset({"indices", "ids"})
_DEFAULT_S = 1e-6
#: A product packs its matrices and writes its result: small and thin ones have few operations for each byte of that.
#: Measured with OpenBLAS, for sides from 8 to 3,000.
_OPERATIONS_PER_BYTE = 6.0
_LOOKS_UP = ops_with("looks_up")
_DISTINCT = ops_with("distinct")
Shapes = Mapping[Endpoint, RawShape]


def class_of(node: Node) -> str:
    """The class of an op."""
    work = trait_of(node.op, "work")
    if work in FLOPS:
        return str(work)
    if trait_of(node.op, "collective"):
        return "view"
    if may_wait(node.op):
        return "state"
    if trait_of(node.op, "shape_only") or trait_of(node.op, "forwards"):
        return "view"
    if trait_of(node.op, "writes"):
        return "update"
    if node.op in _LOOKS_UP:
        return "rows"
    if work == "input":
        return "reduction"
    if work == "none":
        return "move"
    if node.op in OPS and "seed" in OPS[node.op].op_def.attrs:
        return "random"
    return "elementwise"


def work_of(node: Node, shapes: Shapes, kind: str) -> float:
    """The work of an op, in floating-point operations or bytes; 0 where shapes are unknown."""
    if kind in FLOPS:
        found = float(flops(node, shapes) or 0)
        return found + _OPERATIONS_PER_BYTE * _moved_bytes(node, shapes) if found and kind == "matmul" else found
    if kind == "view":
        return 0.0
    if kind == "rows":  # the table is not read as a whole
        return 2.0 * _output_bytes(node, shapes)
    if kind == "update":
        return float(_update_bytes(node, shapes))
    return float(_moved_bytes(node, shapes))


def _moved_bytes(node: Node, shapes: Shapes) -> int:
    return _output_bytes(node, shapes) + sum(_bytes(endpoint, shapes, None) for endpoint in node.inputs)


def with_bounds(nodes: Nodes, shapes: Shapes) -> Shapes:
    """The shapes, with those of distinct ids and of the rows summed by them as if no id came twice."""
    bounds = {}
    for name, node in nodes.items():
        if node.op in _DISTINCT and size(shapes.get((name, 0))) is None:
            bounds[name, 0] = shapes.get(node.inputs[0])
    return {**shapes, **bounds}


def _update_bytes(node: Node, shapes: Shapes) -> int:
    """The bytes of the values that change: for a sparse update those of its rows only."""
    names = [arg.name for arg in OPS[node.op].op_def.inputs] if node.op in OPS else []
    by_name = dict(zip(names, node.inputs))
    if _ROWS.intersection(by_name):
        return sum(_bytes(by_name[n], shapes, None) for n in ("grad", "updates", "indices", "delta") if n in by_name)
    return sum(_bytes(endpoint, shapes, None) for endpoint in node.inputs)


def _output_bytes(node: Node, shapes: Shapes) -> int:
    try:
        types = output_dtypes(node)
    except (KeyError, OpError):
        return 0
    return sum(_bytes((node.name, i), shapes, dtype) for i, dtype in enumerate(types))


def _bytes(endpoint: Endpoint, shapes: Shapes, dtype: dtypes.DType | None) -> int:
    count = size(shapes.get(endpoint))
    if count is None:
        return 0
    width = 4 if dtype is None or dtype.base_dtype in (dtypes.string, dtypes.resource, dtypes.variant) else dtype.size
    return count * width


class KernelCosts:
    """Seconds of ops on one machine.

    Args:
      machine: with the curves.
      nodes: the whole graph: in a partition, an input may be a Recv, whose shape is not known.
      measured: op -> seconds, of a trace; they come before the curves.
    """

    def __init__(self, machine: Machine, nodes: Nodes, shapes: Shapes, measured: Mapping[str, float]) -> None:
        self._curves, self._nodes, self._measured = machine.kernels, nodes, measured
        self._shapes = with_bounds(nodes, shapes)
        self._known: dict[str, float] = {}

    def seconds(self, node: Node) -> float:
        """The seconds of CPU of one run of an op. Nodes of one name are the same op."""
        found = self._known.get(node.name)
        if found is None:
            found = self._known[node.name] = self._compute(node)
        return found

    def _compute(self, node: Node) -> float:
        if node.name in self._measured:
            return self._measured[node.name]
        kind = class_of(node)
        curve = self._curves.get(node.op) or self._curves.get(kind) or self._curves.get("elementwise")
        return _DEFAULT_S if curve is None else curve(work_of(self._nodes.get(node.name, node), self._shapes, kind))
