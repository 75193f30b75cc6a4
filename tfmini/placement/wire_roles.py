"""What a transfer is to the user: a variable read, the gradient of a variable, the global step…"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tfmini.graph.node import Node, Nodes
from tfmini.graph.registry import OPS
from tfmini.placement.partition import Pair, Partitions
from tfmini.shapes import RawShape

_VARIABLES = frozenset({"Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"})
_READS = frozenset({"Identity", "ReadVariableOp", "Enter", "RefEnter"})
_UPDATES = ("Apply", "SparseApply", "ResourceApply", "ResourceSparseApply", "Scatter", "ResourceScatter",
            "Accumulator", "SparseAccumulator", "ResourceAccumulator")  # fmt: skip
_GATHERS = ("Gather", "ResourceGather")
_GRADIENT_INPUTS = frozenset({"grad", "delta", "gradient", "gradient_indices", "gradient_values", "gradient_shape",
                              "updates", "indices"})  # fmt: skip
# What a gradient may pass on its way to the op that applies it: sums and means over replicas, clipping, slices.
_ON_THE_WAY = frozenset({"Identity", "Add", "AddV2", "AddN", "Mul", "RealDiv", "Div", "Cast", "Reshape", "Mean", "Sum",
                         "Pack", "ConcatV2", "ExpandDims", "Unique", "UnsortedSegmentSum", "GatherV2", "Select",
                         "Maximum", "Minimum", "Switch", "Merge"})  # fmt: skip
_FAR = 6

Place = tuple[str, str]  # a device and a node on it


@dataclass
class Wiring:
    """Partitions with their uses and crossings looked up.

    Attributes:
      partitions: what was cut.
      uses: per device, name -> the nodes that take its outputs.
      beyond: the place of a Send -> the place of its Recv.
    """

    partitions: Partitions
    uses: dict[str, dict[str, list[Node]]] = field(default_factory=dict)
    beyond: dict[Place, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uses = {device: _uses(part) for device, part in self.partitions.parts.items()}
        self.beyond = {(pair.src, pair.send): (pair.dst, pair.recv) for pair in self.partitions.pairs}


def _uses(part: Nodes) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in part.values():
        for source, _ in node.inputs:
            found.setdefault(source, []).append(node)
    return found


@dataclass(frozen=True)
class _Crossing:
    """A pair among all others."""

    pair: Pair
    wiring: Wiring

    @property
    def source_part(self) -> Nodes:
        return self.wiring.partitions[self.pair.src]

    @property
    def part(self) -> Nodes:
        return self.wiring.partitions[self.pair.dst]

    @property
    def uses(self) -> Mapping[str, list[Node]]:
        return self.wiring.uses[self.pair.dst]

    @property
    def source(self) -> Node:
        return self.source_part[self.pair.source[0]]


def role_of(pair: Pair, wiring: Wiring) -> str:
    """The role of what goes from one part to another."""
    if pair.is_control:
        return "control edge"
    crossing = _Crossing(pair, wiring)
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
    if c.source.op in _VARIABLES:
        return "variable read"
    return "variable read" if c.source.op in _READS and _holder(c.source, c.source_part) else ""


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
    """The gradient or another input of an op that updates a variable, perhaps after some preparation."""
    is_gradient = any(part.startswith("gradients") for part in c.pair.source[0].split("/"))
    for device, node, slot in _downstream(c, is_gradient):
        if node.op.startswith(_UPDATES) and node.inputs:
            name = _input_name(node, slot)
            if name in _GRADIENT_INPUTS or (name == "" and is_gradient):
                return f"gradient of {_updated(node, c.wiring.partitions[device])}"
            return "local step" if name == "local_step" else "hyper-parameter"
    return ""


def _input_name(node: Node, slot: int) -> str:
    """What the op calls its input; "" where it is not declared here or takes lists."""
    handle = OPS.get(node.op)
    inputs = handle.op_def.inputs if handle is not None else ()
    return inputs[slot].name if slot < len(inputs) == len(node.inputs) else ""


def _downstream(c: _Crossing, anything: bool) -> Iterator[tuple[str, Node, int]]:
    """The inputs that a value reaches, those near it first, on this and on further devices.

    With ``anything`` it is followed through any op, else only through what gradients pass on their way.
    """
    front: list[Place] = [(c.pair.dst, c.pair.recv)]
    seen = set(front)
    for _ in range(_FAR):
        reached = [(device, node, slot) for device, name in front for node, slot in _inputs(c.wiring, device, name)]
        yield from reached
        front = []
        for device, node, _ in reached:
            place = c.wiring.beyond.get((device, node.name), (device, node.name))
            if place not in seen and (anything or node.op in _ON_THE_WAY or node.op == "_Send"):
                seen.add(place)
                front.append(place)


def _inputs(wiring: Wiring, device: str, name: str) -> Iterator[tuple[Node, int]]:
    for node in wiring.uses[device].get(name, []):
        yield from ((node, slot) for slot, (source, _) in enumerate(node.inputs) if source == name)


def _updated(node: Node, part: Nodes) -> str:
    """The variable that an op updates; of a gradient accumulator the one that it collects for."""
    holder = part.get(node.inputs[0][0])
    shared = holder.attrs.get("shared_name") if holder is not None and "Accumulator" in holder.op else None
    if isinstance(shared, bytes) and shared.endswith(b"/grad_accum"):
        return shared.decode().removesuffix("/grad_accum").partition(":")[0]
    return node.inputs[0][0]


_RULES: tuple[Callable[[_Crossing], str], ...] = (_global_step, _token, _variable_read, _rows, _ids, _update)
