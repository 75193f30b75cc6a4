"""`Node`: an operation as a plain value, the form in which graphs are placed, cut and sent.

A client holds `Operation` objects; the master and the workers hold dictionaries name -> `Node` in creation order. A
graph pass is a function from such a dictionary to a new one. It does not change its argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.errors import InvalidArgumentError
from tfmini.graph.node_types import by_name, check_edges
from tfmini.graph.op_types import OPS, OpType
from tfmini.graph.wire_checks import check_node
from tfmini.shapes import TensorShape

Endpoint = tuple[str, int]
Nodes = dict[str, "Node"]
# An attr of nodes inside functions: the user's source line that made the node, as b"file:line".
DEFINED_AT = "_defined_at"


class Node:
    """One node: its op type, device (the requested one, after placement the assigned one), inputs and attrs.

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
        """Returns a copy with some fields changed."""
        values = {slot: fields.get(slot, getattr(self, slot)) for slot in self.__slots__}
        return Node(**values)

    @property
    def handle(self) -> OpType | None:
        """The op's handle, or None if tfmini does not have the op type."""
        return OPS.get(self.op)

    def __repr__(self) -> str:
        args = [f"{name}:{index}" if index else name for name, index in self.inputs]
        args += [f"^{name}" for name in self.controls]
        return f"<node {self.name} = {self.op}({', '.join(args)}) @{self.device or '?'}>"

    def to_wire(self) -> list[Any]:
        """Converts the node to a plain list for an rpc `Structure` field."""
        attrs = {name: _attr_to_wire(value) for name, value in self.attrs.items()}
        return [self.name, self.op, self.device, [list(i) for i in self.inputs], list(self.controls), attrs]

    @classmethod
    def from_wire(cls, fields: list[Any]) -> Node:
        """The inverse of `to_wire`.

        Raises:
          InvalidArgumentError: a field or an attr is of another type than the op's declaration says.
        """
        try:
            name, op, device, inputs, controls, attrs = fields
            pairs = [(source, index) for source, index in inputs]
            plain = {key: _attr_from_wire(value) for key, value in attrs.items()}
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise InvalidArgumentError.of(f"A node of the graph is malformed: {error}") from None
        check_node(name, op, device, pairs, controls, plain)
        return cls(name, op, device, pairs, controls, plain)


class FunctionBody:
    """A function as an attr: a graph with parameters and results.

    Attributes:
      name: for error messages.
      nodes: in creation order. Each parameter is a Placeholder among them.
      parameters: the node name of each parameter; captured tensors come last.
      results: the endpoint of each result.
      targets: the names of nodes with side effects, which run in every call.
    """

    __slots__ = ("name", "nodes", "parameters", "results", "targets")

    def __init__(
        self, name: str, nodes: list[Node], parameters: list[str], results: list[Endpoint], targets: list[str]
    ) -> None:
        self.name = name
        self.nodes = nodes
        self.parameters = parameters
        self.results = results
        self.targets = targets

    def __repr__(self) -> str:
        return f"<function {self.name} of {len(self.nodes)} nodes>"

    def to_wire(self) -> dict[str, Any]:
        """Converts the body to a plain value for an rpc `Structure` field."""
        return {
            "name": self.name,
            "nodes": [node.to_wire() for node in self.nodes],
            "parameters": self.parameters,
            "results": [list(result) for result in self.results],
            "targets": self.targets,
        }

    @classmethod
    def from_wire(cls, fields: dict[str, Any]) -> FunctionBody:
        nodes = [Node.from_wire(node) for node in fields["nodes"]]
        check_edges(nodes, by_name(nodes))
        results = [(name, index) for name, index in fields["results"]]
        return cls(fields["name"], nodes, list(fields["parameters"]), results, list(fields["targets"]))


def _attr_to_wire(value: Any) -> Any:
    """Converts an attr to a value that msgpack can encode: a shape, here a tuple, becomes a TensorShape."""
    if type(value) is FunctionBody:
        return value.to_wire()
    if type(value) is tuple:
        return TensorShape.from_raw(value)
    return [_attr_to_wire(v) for v in value] if type(value) is list else value


def _attr_from_wire(value: Any) -> Any:
    if type(value) is TensorShape:
        return value.raw
    if type(value) is dict:
        return FunctionBody.from_wire(value)
    return [_attr_from_wire(v) for v in value] if type(value) is list else value
