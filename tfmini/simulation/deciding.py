"""Which ops of a graph must really run in a simulation, because what they compute decides what runs, waits or is sent.

Such are queues, accumulators and collectives; small whole numbers and truth values that follow from constants, shapes
and each other: steps, tokens, counters and conditions of loops. Everything that follows from fed, random or stored
floats is a phantom: only its type and shape are known. A condition that is a phantom is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from tfmini import dtypes
from tfmini.errors import OpError
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import output_dtypes
from tfmini.graph.op_types import OPS
from tfmini.graph.traits import FLOW_OPS, PLACEHOLDER_OPS, VARIABLE_OPS, ops_with, trait_of
from tfmini.inspection.cost import size
from tfmini.shapes import RawShape

_SMALL = 4096  # elements: synchronous workers take their tokens from a tensor with one for each
_SHAPE_ONLY = ops_with("shape_only")
_WRITES = ops_with("writes")
_COLLECTIVES = ops_with("collective")
_CONTROL_ONLY = ops_with("control_only")
Shapes = Mapping[Endpoint, RawShape]


class Deciding:
    """The ops of one graph that must run.

    Args:
      nodes: the whole graph. ``shapes``: static shapes; unknown ones make phantoms.
      steps: what runs: it tells which queues and accumulators are filled.
    """

    def __init__(self, nodes: Nodes, shapes: Shapes, steps: Iterable[Nodes]) -> None:
        self._nodes, self._shapes = nodes, shapes
        self._filled = {
            node.inputs[0][0] for step in steps for node in step.values()
            if trait_of(node.op, "queue") == "enqueue" or trait_of(node.op, "accumulator") == "apply"
        }  # fmt: skip
        self._stores = {
            node.inputs[0][0] for node in nodes.values()
            if trait_of(node.op, "queue") is not None or trait_of(node.op, "accumulator") is not None
        }  # fmt: skip
        self.phantoms: Set[str] = self._spread({name for name, node in nodes.items() if self._begins(node)})

    def runs(self, node: Node) -> bool:
        """Whether the op's kernel runs; else its outputs are phantoms. The op may be one that the partitioner made."""
        if node.op in _COLLECTIVES or trait_of(node.op, "accumulator") is not None:
            return True
        if trait_of(node.op, "queue") is not None:
            return self._nodes.get(node.name, node).inputs[0][0] in self._filled
        return self.is_known(node.name) if node.name in self._nodes else all(self.is_known(n) for n, _ in node.inputs)

    def is_known(self, name: str) -> bool:
        """Whether the outputs of an op are really computed."""
        return name not in self.phantoms

    def variables(self) -> list[str]:
        """The variables that have real values."""
        return [name for name, node in self._nodes.items() if node.op in VARIABLE_OPS and self.is_known(name)]

    def _begins(self, node: Node) -> bool:
        """Whether an op's outputs are phantoms whatever its inputs are."""
        op = node.op
        if op in FLOW_OPS or op in _CONTROL_ONLY or trait_of(op, "accumulator") == "apply":
            return False
        if op in VARIABLE_OPS:
            return not _is_small_variable(node)
        if op in _WRITES:
            return False  # as the variable
        if trait_of(op, "queue") is not None:
            return node.inputs[0][0] not in self._filled or not self._is_small(node)
        if node.inputs and node.inputs[0][0] in self._stores:
            return node.inputs[0][0] not in self._filled or not self._is_small(node)
        if op in PLACEHOLDER_OPS or op not in OPS or op in _COLLECTIVES:
            return True
        if op == "ReadVariableOp":
            return False
        makes_state = not node.inputs and any(t.base_dtype is dtypes.resource or t._is_ref_dtype for t in _types(node))
        if OPS[op].op_def.is_stateful and not makes_state:
            return True
        if op in _SHAPE_ONLY:
            return not all(size(self._shapes.get(e)) is not None for e in node.inputs) or not self._is_small(node)
        return op != "Const" and not makes_state and not self._is_small(node)

    def _is_small(self, node: Node) -> bool:
        """Whether all outputs are few whole numbers or truth values."""
        for i, dtype in enumerate(_types(node)):
            count = size(self._shapes.get((node.name, i)))
            if count is None or count > _SMALL or not (dtype.base_dtype.is_integer or dtype.base_dtype is dtypes.bool):
                return False
        return True

    def _spread(self, found: set[str]) -> set[str]:
        """Adds all ops that follow from phantoms."""
        readers: dict[str, list[Node]] = {}
        for node in self._nodes.values():
            for source, _ in node.inputs:
                readers.setdefault(source, []).append(node)
        stack = list(found)
        while stack:
            for node in readers.get(stack.pop(), ()):
                if node.name not in found and node.op not in _SHAPE_ONLY and node.op not in _COLLECTIVES:
                    found.add(node.name)
                    stack.append(node.name)
        return found


def _types(node: Node) -> list[dtypes.DType]:
    try:
        return output_dtypes(node)
    except (KeyError, OpError):
        return []


def _is_small_variable(node: Node) -> bool:
    dtype, count = node.attrs["dtype"].base_dtype, size(node.attrs["shape"])
    return count is not None and count <= _SMALL and (dtype.is_integer or dtype is dtypes.bool)
