"""Conversion of operations and plain nodes to GraphDef messages, and of messages to plain nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini import protos
from tfmini.export import export_names
from tfmini.graph.attr_values import from_proto, shape_proto, to_proto
from tfmini.graph.graph import Graph
from tfmini.graph.node import Endpoint, Node, Nodes, node_of
from tfmini.graph.op_def import OpDef
from tfmini.graph.operation import Operation
from tfmini.graph.registry import OPS

# TensorFlow 1.15's numbers.
GRAPH_DEF_VERSION = 134
GRAPH_DEF_VERSION_MIN_PRODUCER = 0
GRAPH_DEF_VERSION_MIN_CONSUMER = 0


def operation_to_node_def(op: Operation) -> Any:
    """Converts an operation to a NodeDef."""
    node_def = protos.NodeDef()
    _fill(node_def, node_of(op))
    return node_def


def graph_to_graph_def(graph: Graph, from_version: int | None = None, add_shapes: bool = False) -> Any:
    """Converts a graph to a GraphDef.

    Args:
      from_version: leave out the first ``from_version`` ops.
      add_shapes: store the static shapes of each op's outputs in its attr ``_output_shapes``.

    Raises:
      ValueError: the message would be larger than 2 GiB.
    """
    graph_def = protos.GraphDef(versions=graph.graph_def_versions)
    for op in graph.get_operations()[from_version or 0 :]:
        node_def = graph_def.node.add()
        _fill(node_def, node_of(op))
        if add_shapes and op.outputs:
            shapes = node_def.attr["_output_shapes"].list.shape
            shapes.extend(shape_proto(tensor.raw_shape) for tensor in op.outputs)
    if graph_def.ByteSize() >= 2**31:
        raise ValueError("GraphDef cannot be larger than 2GB.")
    return graph_def


def nodes_to_graph_def(nodes: Iterable[Node]) -> Any:
    """Converts plain nodes to a GraphDef, in their order."""
    graph_def = protos.GraphDef(versions=protos.VersionDef(producer=GRAPH_DEF_VERSION))
    for node in nodes:
        _fill(graph_def.node.add(), node)
    return graph_def


def _fill(node_def: Any, node: Node) -> None:
    node_def.name, node_def.op, node_def.device = node.name, node.op, node.device
    node_def.input.extend(endpoint_text(endpoint) for endpoint in node.inputs)
    # Sorted, as TensorFlow does, so that equal graphs have equal messages.
    node_def.input.extend(f"^{name}" for name in sorted(node.controls))
    handle = OPS.get(node.op)
    definitions = handle.op_def.attrs if handle is not None else {}
    for name, value in node.attrs.items():
        definition = definitions.get(name)
        try:
            node_def.attr[name].CopyFrom(to_proto(definition.kind if definition else "", value))
        except TypeError as error:
            raise TypeError(f"attr '{name}' of node '{node.name}' (op: '{node.op}'): {error}") from None
    for definition in definitions.values():
        if definition.has_default and definition.name not in node.attrs:
            node_def.attr[definition.name].CopyFrom(to_proto(definition.kind, definition.default))


def endpoint_text(endpoint: Endpoint) -> str:
    """Formats an endpoint as an input of a NodeDef: ``"a"`` for output 0, ``"a:1"`` for output 1."""
    name, index = endpoint
    return f"{name}:{index}" if index else name


def parse_endpoint(text: str) -> Endpoint:
    """Splits a NodeDef's data input into node name and output index (0 if there is no ``:number`` at the end)."""
    name, colon, index = text.rpartition(":")
    return (name, int(index)) if colon and index.isdigit() else (text, 0)


def graph_def_to_nodes(graph_def: Any) -> Nodes:
    """Converts a GraphDef to nodes by name, in its order. Absent attrs get their defaults.

    Raises:
      ValueError: a name is repeated, a control input stands before a data input, or an attr is malformed.
    """
    nodes: Nodes = {}
    for node_def in graph_def.node:
        if node_def.name in nodes:
            raise ValueError(f"Node '{node_def.name}' is not unique")
        nodes[node_def.name] = node_from_node_def(node_def)
    return nodes


def node_from_node_def(node_def: Any) -> Node:
    """Converts one NodeDef to a plain node.

    Raises:
      ValueError: a control input stands before a data input, or an attr is malformed.
    """
    texts = list(node_def.input)
    data = [text for text in texts if not text.startswith("^")]
    if any(text.startswith("^") for text in texts[: len(data)]):
        raise ValueError(f"Node '{node_def.name}': Control dependencies must come after regular dependencies")
    controls = dict.fromkeys(text[1:] for text in texts[len(data) :])
    handle = OPS.get(node_def.op)
    attrs = default_attrs(handle.op_def) if handle is not None else {}
    for name, value in node_def.attr.items():
        # An AttrValue with nothing set asks for the default.
        if value.WhichOneof("value") is not None:
            attrs[name] = _plain_attr(node_def, name, value)
    return Node(node_def.name, node_def.op, node_def.device, map(parse_endpoint, data), controls, attrs)


def _plain_attr(node_def: Any, name: str, value: Any) -> Any:
    try:
        return from_proto(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Node '{node_def.name}': attr '{name}': {error}") from None


def default_attrs(op_def: OpDef) -> dict[str, Any]:
    """Returns the attrs of an op that have a default, with their default."""
    return {attr.name: attr.default for attr in op_def.attrs.values() if attr.has_default}


export_names("tf tf.version", "GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER")
