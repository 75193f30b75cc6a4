"""The role of a transfer: a variable read, the gradient of a variable, the global step, …"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tfmini.graph.node import Node, Nodes
from tfmini.graph.op_types import OPS
from tfmini.graph.traits import VARIABLE_OPS, ops_with
from tfmini.placement.partition import Pair, Partitions
from tfmini.shapes import RawShape

_FORWARDS, _LOOKS_UP = ops_with("forwards", "value"), ops_with("looks_up")
_UPDATES, _ACCUMULATES = ops_with("writes", "optimize", "scatter"), ops_with("accumulator", "apply")
_GRADIENT_INPUTS = frozenset({"grad", "delta", "gradient", "gradient_indices", "gradient_values", "gradient_shape",
                              "updates", "indices"})  # fmt: skip
# Ops between a gradient and the op that applies it: sums and means over replicas, clipping, slices.
_ON_THE_WAY = (ops_with("aggregates"), ops_with("forwards"))
_FAR = 6

Place = tuple[str, str]  # a device and a node on it


@dataclass
class Wiring:
    """Partitions with indexes of their edges.

    Attributes:
      partitions: the result of the partitioner.
      uses: device -> node name -> the nodes that take its outputs.
      beyond: the place of a ``_Send`` -> the place of its ``_Recv``.
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
    """A pair with the partitions around it."""

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
    """Returns the role of the pair's value."""
    if pair.is_control:
        return "control edge"
    crossing = _Crossing(pair, wiring)
    return next(filter(None, (rule(crossing) for rule in _RULES)), "tensor")


def updated_shape(part: Nodes, users: list[Node], role: str) -> RawShape:
    """Returns the shape of the variable that a dense gradient updates, None if it is not known."""
    if not role.startswith("gradient of"):
        return None
    for node in users:
        if _takes_gradient(node) and not _takes_rows(node):
            holder = part.get(node.inputs[0][0])
            shape = holder.attrs.get("shape") if holder is not None else None
            if isinstance(shape, tuple):
                return shape
    return None


def _global_step(c: _Crossing) -> str:
    return "global step" if "global_step" in c.pair.source[0].split("/") else ""


def _token(c: _Crossing) -> str:
    return "token" if c.source.op in ops_with("queue", "dequeue") and "sync_token" in c.source.name else ""


def _variable_read(c: _Crossing) -> str:
    if c.source.op in VARIABLE_OPS:
        return "variable read"
    return "variable read" if c.source.op in _FORWARDS and _holder(c.source, c.source_part) else ""


def _rows(c: _Crossing) -> str:
    """Finds rows that an op looks up in a variable on the variable's own device, as for embeddings."""
    holder = _holder(c.source, c.source_part) if c.source.op in _LOOKS_UP else ""
    return f"rows of {holder}" if holder else ""


def _ids(c: _Crossing) -> str:
    """Finds the numbers of rows to look up in a variable."""
    for node in c.uses.get(c.pair.recv, []):
        if node.op in _LOOKS_UP and len(node.inputs) > 1 and node.inputs[1][0] == c.pair.recv:
            holder = _holder(node, c.part)
            if holder:
                return f"ids for {holder}"
    return ""


def _holder(node: Node, part: Nodes) -> str:
    """Returns the variable in the same part that is, or gives, the first input of a node; "" if there is none."""
    holder = part.get(node.inputs[0][0])
    while holder is not None and holder.op in _FORWARDS and holder.inputs:
        holder = part.get(holder.inputs[0][0])
    return holder.name if holder is not None and holder.op in VARIABLE_OPS else ""


def _update(c: _Crossing) -> str:
    """Finds inputs of ops that update a variable, such as its gradient, also through ops that aggregate them."""
    is_gradient = any(part.startswith("gradients") for part in c.pair.source[0].split("/"))
    for device, node, slot in _downstream(c, is_gradient):
        if node.inputs and _takes_gradient(node):
            name = _input_name(node, slot)
            if name in _GRADIENT_INPUTS or (name == "" and is_gradient):
                return f"gradient of {_updated(node, c.wiring.partitions[device])}"
            return "local step" if name == "local_step" else "hyper-parameter"
    return ""


def _takes_gradient(node: Node) -> bool:
    return node.op in _UPDATES or node.op in _ACCUMULATES


def _takes_rows(node: Node) -> bool:
    """Whether the op takes a sparse gradient: some rows and their numbers."""
    return any(_input_name(node, slot) in ("indices", "gradient_indices") for slot in range(len(node.inputs)))


def _input_name(node: Node, slot: int) -> str:
    """Returns the declared name of an input; "" if the op is not declared here or takes lists."""
    handle = OPS.get(node.op)
    inputs = handle.op_def.inputs if handle is not None else ()
    return inputs[slot].name if slot < len(inputs) == len(node.inputs) else ""


def _downstream(c: _Crossing, anything: bool) -> Iterator[tuple[str, Node, int]]:
    """Lists the inputs that a value reaches, the nearest first, on all devices.

    With ``anything`` it follows the value through any op, else only through those that gradients pass.
    """
    front: list[Place] = [(c.pair.dst, c.pair.recv)]
    seen = set(front)
    for _ in range(_FAR):
        reached = [(device, node, slot) for device, name in front for node, slot in _inputs(c.wiring, device, name)]
        yield from reached
        front = []
        for device, node, _ in reached:
            place = c.wiring.beyond.get((device, node.name), (device, node.name))
            if place not in seen and (anything or node.op == "_Send" or any(node.op in ops for ops in _ON_THE_WAY)):
                seen.add(place)
                front.append(place)


def _inputs(wiring: Wiring, device: str, name: str) -> Iterator[tuple[Node, int]]:
    for node in wiring.uses[device].get(name, []):
        yield from ((node, slot) for slot, (source, _) in enumerate(node.inputs) if source == name)


def _updated(node: Node, part: Nodes) -> str:
    """Returns the variable that an op updates; for a gradient accumulator the variable of its gradients."""
    holder = part.get(node.inputs[0][0])
    shared = holder.attrs.get("shared_name") if holder is not None and node.op in _ACCUMULATES else None
    if isinstance(shared, bytes) and shared.endswith(b"/grad_accum"):
        return shared.decode().removesuffix("/grad_accum").partition(":")[0]
    return node.inputs[0][0]


_RULES: tuple[Callable[[_Crossing], str], ...] = (_global_step, _token, _variable_read, _rows, _ids, _update)
