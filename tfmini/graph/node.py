"""`Node`: a graph as a plain value, the only form in which graphs are placed, cut and sent.

A client holds `Operation` objects; the master and the workers hold dictionaries name -> `Node`
in creation order. A pass is a function from such a dictionary to a new one and leaves its
argument alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tfmini.graph.registry import OPS, OpHandle
from tfmini.shapes import TensorShape

if TYPE_CHECKING:
    from tfmini.graph.operation import Operation

Endpoint = tuple[str, int]
Nodes = dict[str, "Node"]


class Node:
    """One node: its op type, requested (later: assigned) device, inputs and attrs.

    Attributes:
      inputs: (source node name, output index) per data input.
      controls: names of the nodes that must finish first.
      attrs: as in `Operation.attrs`.
    """

    __slots__ = ("name", "op", "device", "inputs", "controls", "attrs")

    def __init__(
        self,
        name: str,
        op: str,
        device: str = "",
        inputs: Iterable[Endpoint] = (),
        controls: Iterable[str] = (),
        attrs: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.op = op
        self.device = device
        self.inputs = tuple(inputs)
        self.controls = tuple(controls)
        self.attrs = {} if attrs is None else attrs

    def replace(self, **fields: Any) -> Node:
        """A copy with some fields changed."""
        values = {slot: fields.get(slot, getattr(self, slot)) for slot in self.__slots__}
        return Node(**values)

    @property
    def handle(self) -> OpHandle | None:
        """The op's handle, or None when tfmini does not know the op type."""
        return OPS.get(self.op)

    def __repr__(self) -> str:
        args = [f"{name}:{index}" if index else name for name, index in self.inputs]
        args += [f"^{name}" for name in self.controls]
        return f"<node {self.name} = {self.op}({', '.join(args)}) @{self.device or '?'}>"

    def to_wire(self) -> list[Any]:
        """The node as a plain list for an rpc `Structure` field."""
        attrs = {name: _attr_to_wire(value) for name, value in self.attrs.items()}
        return [self.name, self.op, self.device, [list(i) for i in self.inputs], list(self.controls), attrs]

    @classmethod
    def from_wire(cls, fields: list[Any]) -> Node:
        name, op, device, inputs, controls, attrs = fields
        plain = {key: _attr_from_wire(value) for key, value in attrs.items()}
        return cls(name, op, device, [(source, index) for source, index in inputs], controls, plain)


def _attr_to_wire(value: Any) -> Any:
    """Shapes are tuples here, and msgpack has no tuples: they travel as TensorShape."""
    if type(value) is tuple:
        return TensorShape.from_raw(value)
    return [_attr_to_wire(v) for v in value] if type(value) is list else value


def _attr_from_wire(value: Any) -> Any:
    if type(value) is TensorShape:
        return value.raw
    return [_attr_from_wire(v) for v in value] if type(value) is list else value


def node_of(operation: Operation) -> Node:
    """The plain value of a client's operation."""
    return Node(
        operation._name,
        operation.type,
        operation._device,
        [(t.op._name, t._index) for t in operation._inputs],
        [op._name for op in operation._control_inputs],
        operation.attrs,
    )
