"""`Node`: an operation as a plain value, the form in which graphs are placed, cut and sent.

A client holds `Operation` objects; the master and the workers hold dictionaries name -> `Node` in creation order. A
graph pass is a function from such a dictionary to a new one. It does not change its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfmini.collector import collector_at_rest
from tfmini.errors import InvalidArgumentError
from tfmini.graph.registry import OPS, OpHandle
from tfmini.graph.wire_checks import check_node
from tfmini.shapes import TensorShape

if TYPE_CHECKING:
    from tfmini.graph.operation import Operation

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
    def handle(self) -> OpHandle | None:
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
        from tfmini.graph.node_types import by_name, check_edges  # which needs `Node`

        nodes = [Node.from_wire(node) for node in fields["nodes"]]
        check_edges(nodes, by_name(nodes))
        results = [(name, index) for name, index in fields["results"]]
        return cls(fields["name"], nodes, list(fields["parameters"]), results, list(fields["targets"]))

    def to_proto(self) -> Any:
        """Converts the body to a NameAttrList, whose attrs hold the graph as a serialized GraphDef."""
        from tfmini import protos  # protobuf is slow to import
        from tfmini.graph.graph_def import endpoint_text, nodes_to_graph_def

        made = protos.NameAttrList(name=self.name)
        made.attr["tfmini_body"].s = nodes_to_graph_def(self.nodes).SerializeToString()
        lists = {
            "parameters": self.parameters,
            "results": [endpoint_text(result) for result in self.results],
            "targets": self.targets,
        }
        for name, texts in lists.items():
            made.attr[name].list.SetInParent()
            made.attr[name].list.s.extend(text.encode() for text in texts)
        return made

    @classmethod
    def from_proto(cls, proto: Any) -> FunctionBody:
        """Converts a NameAttrList from `to_proto` back to a body."""
        from tfmini import protos
        from tfmini.graph.graph_def import graph_def_to_nodes, parse_endpoint

        graph_def = protos.GraphDef.FromString(proto.attr["tfmini_body"].s)
        nodes = list(graph_def_to_nodes(graph_def).values())
        for node in nodes:
            check_node(node.name, node.op, node.device, node.inputs, list(node.controls), node.attrs)
        lists = {
            name: [text.decode() for text in proto.attr[name].list.s] for name in ("parameters", "results", "targets")
        }
        results = [parse_endpoint(text) for text in lists["results"]]
        return cls(proto.name, nodes, lists["parameters"], results, lists["targets"])


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


def node_of(operation: Operation) -> Node:
    """Converts a client's operation to a node."""
    return Node(
        operation.name,
        operation.type,
        operation._device,
        [(t.op.name, t.value_index) for t in operation.inputs],
        [op.name for op in operation._control_inputs],
        operation.attrs,
    )


def nodes_of(operations: Iterable[Operation], convert: Callable[[Operation], Node] = node_of) -> list[Node]:
    """Converts many operations."""
    with collector_at_rest():
        return [convert(operation) for operation in operations]
