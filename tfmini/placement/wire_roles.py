"""What a transfer is to the user: a variable read, the gradient of a variable, the global step…"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tfmini.graph.node import Node, Nodes
from tfmini.placement.partition import Pair
from tfmini.shapes import RawShape

_VARIABLES = frozenset({"Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"})
_READS = frozenset({"Identity", "ReadVariableOp"})
_UPDATES = ("Apply", "SparseApply", "ResourceApply", "ResourceSparseApply", "Scatter", "ResourceScatter",
            "Accumulator", "SparseAccumulator", "ResourceAccumulator")  # fmt: skip
_GATHERS = ("Gather", "ResourceGather")
# From the rows' gradient to the op that applies it: Reshape, Unique, UnsortedSegmentSum, a multiplication…
_FAR = 6

Uses = Mapping[str, list[Node]]


@dataclass(frozen=True)
class _Crossing:
    """A pair with the two parts that it joins, and who uses what in the second."""

    pair: Pair
    source_part: Nodes
    part: Nodes
    uses: Uses

    @property
    def source(self) -> Node:
        return self.source_part[self.pair.source[0]]


def role_of(pair: Pair, source_part: Nodes, part: Nodes, uses: Uses) -> str:
    """The role of what goes from one part to another.

    Args:
      source_part, part: of the sending and of the receiving device.
      uses: name -> the nodes of ``part`` that read its outputs.
    """
    if pair.is_control:
        return "control edge"
    crossing = _Crossing(pair, source_part, part, uses)
    return next(filter(None, (rule(crossing) for rule in _RULES)), "tensor")


def updated_shape(part: Nodes, users: list[Node], role: str) -> RawShape:
    """The shape of the variable that a dense gradient is for, None where there is none to be found."""
    if not role.startswith("gradient of"):
        return None
    for node in users:
        if node.op.startswith(("Apply", "ResourceApply", "AccumulatorApply", "ResourceAccumulatorApply")):
            holder = part.get(node.inputs[0][0])
            shape = holder.attrs.get("shape") if holder is not None else None
            if isinstance(shape, tuple):
                return shape
    return None


def _global_step(c: _Crossing) -> str:
    return "global step" if "global_step" in c.pair.source[0].split("/") else ""


def _token(c: _Crossing) -> str:
    return "token" if c.source.op.startswith("QueueDequeue") and "sync_token" in c.source.name else ""


def _variable_read(c: _Crossing) -> str:
    node = c.source
    if node.op in _READS and node.inputs and node.inputs[0][0] in c.source_part:
        node = c.source_part[node.inputs[0][0]]
    return "variable read" if node.op in _VARIABLES else ""


def _rows(c: _Crossing) -> str:
    """What was looked up in a variable where it lives, as embeddings are."""
    holder = _holder(c.source, c.source_part) if c.source.op.startswith(_GATHERS) else ""
    return f"rows of {holder}" if holder else ""


def _ids(c: _Crossing) -> str:
    """Which rows to look up."""
    for node in c.uses.get(c.pair.recv, []):
        if node.op.startswith(_GATHERS) and len(node.inputs) > 1 and node.inputs[1][0] == c.pair.recv:
            holder = _holder(node, c.part)
            if holder:
                return f"ids for {holder}"
    return ""


def _holder(node: Node, part: Nodes) -> str:
    """The variable that the first input of a node is, or is read from, within its part."""
    holder = part.get(node.inputs[0][0])
    while holder is not None and holder.op in _READS and holder.inputs:
        holder = part.get(holder.inputs[0][0])
    return holder.name if holder is not None and holder.op in _VARIABLES else ""


def _update(c: _Crossing) -> str:
    """The gradient or another input of an op that updates a variable, perhaps after some preparation there."""
    is_gradient = any(part.startswith("gradients") for part in c.pair.source[0].split("/"))
    far = _FAR if is_gradient else 1
    for node in _downstream(c.pair.recv, c.uses, far):
        if node.op.startswith(_UPDATES) and node.inputs:
            return f"gradient of {_updated(node, c.part)}" if is_gradient else "hyper-parameter"
    return ""


def _downstream(name: str, uses: Uses, far: int) -> Iterator[Node]:
    """The nodes that use a value, those near it first."""
    seen: set[str] = set()
    front = [name]
    for _ in range(far):
        users = [node for source in front for node in uses.get(source, []) if node.name not in seen]
        yield from users
        seen.update(node.name for node in users)
        front = [node.name for node in users]


def _updated(node: Node, part: Nodes) -> str:
    """The variable that an op updates; of a gradient accumulator the one that it collects for."""
    holder = part.get(node.inputs[0][0])
    shared = holder.attrs.get("shared_name") if holder is not None and "Accumulator" in holder.op else None
    if isinstance(shared, bytes) and shared.endswith(b"/grad_accum"):
        return shared.decode().removesuffix("/grad_accum").partition(":")[0]
    return node.inputs[0][0]


_RULES: tuple[Callable[[_Crossing], str], ...] = (_global_step, _token, _variable_read, _rows, _ids, _update)
