"""Conversion of nodes to GraphDef messages, and of messages to nodes; of attrs to AttrValues and back.

Inside tfmini an attr is a plain value (see `Operation.attrs`); in a GraphDef it is an AttrValue. Only this module
converts between the two. Protobuf is imported when the first message is made or read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfmini import dtypes, protos
from tfmini.export import export, export_names
from tfmini.graph.attr_values import as_bytes, shape_proto, tensor_from_proto, tensor_proto
from tfmini.graph.node import Endpoint, FunctionBody, Node, Nodes
from tfmini.graph.op_def import ArgDef, AttrDef, OpDef
from tfmini.graph.op_types import OPS
from tfmini.graph.wire_checks import check_node
from tfmini.shapes import TensorShape, as_raw

# TensorFlow 1.15's numbers.
GRAPH_DEF_VERSION = 134
GRAPH_DEF_VERSION_MIN_PRODUCER = 0
GRAPH_DEF_VERSION_MIN_CONSUMER = 0


def nodes_to_graph_def(nodes: Iterable[Node]) -> Any:
    """Converts plain nodes to a GraphDef, in their order."""
    graph_def = protos.GraphDef(versions=protos.VersionDef(producer=GRAPH_DEF_VERSION))
    for node in nodes:
        fill_node_def(graph_def.node.add(), node)
    return graph_def


def fill_node_def(node_def: Any, node: Node) -> None:
    """Writes a node into an empty NodeDef.

    Raises:
      TypeError: an attr has a value that no message can hold.
    """
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


# ---- attrs ----------------------------------------------------------------------------------


def to_proto(kind: str, value: Any) -> Any:
    """Converts a plain attr value to an AttrValue.

    Args:
      kind: TensorFlow's attr type (``int``, ``list(shape)``, …); "" where no declaration gives it: the value
        then decides.
      value: the plain value.

    Raises:
      TypeError: no AttrValue can hold the value.
    """
    if isinstance(value, protos.AttrValue):
        return value
    kind = kind or _kind_of(value)
    attr = protos.AttrValue()
    if kind.startswith("list("):
        _fill_list(attr.list, kind[5:-1], value)
    elif kind == "func":
        attr.func.CopyFrom(_func_proto(value))
    else:
        field, convert = _SINGLE[kind]
        converted = convert(value)
        if kind in ("shape", "tensor"):
            getattr(attr, field).CopyFrom(converted)
        else:
            setattr(attr, field, converted)
    return attr


def _fill_list(target: Any, kind: str, values: Any) -> None:
    # An empty list must still choose the oneof: an AttrValue without a value is no attr.
    target.SetInParent()
    if kind == "func":
        target.func.extend(_func_proto(v) for v in values)
    elif kind:
        field, convert = _SINGLE[kind]
        getattr(target, field).extend(convert(v) for v in values)


def _func_proto(value: Any) -> Any:
    if isinstance(value, FunctionBody):
        return _function_proto(value)
    return protos.NameAttrList(name=value) if isinstance(value, str) else value


def _kind_of(value: Any) -> str:
    """Guesses the attr type of a value that no declaration describes."""
    if value is None or isinstance(value, (tuple, TensorShape)):
        return "shape"
    if isinstance(value, list):
        return f"list({_kind_of(value[0])})" if value else "list()"
    for types, kind in _KIND_BY_TYPE:
        if isinstance(value, types):
            return kind
    if isinstance(value, protos.NameAttrList):
        return "func"
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored in a GraphDef: {value!r}")


# bool before int: a bool is an int, too.
_KIND_BY_TYPE: tuple[tuple[Any, str], ...] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    ((str, bytes), "string"),
    (dtypes.DType, "type"),
    (np.ndarray, "tensor"),
)


def from_proto(attr: Any) -> Any:
    """Converts an AttrValue to its plain value. A function without attrs of its own becomes its name.

    Raises:
      ValueError: no value is set, or a tensor in it is malformed.
      TypeError: tfmini does not have the element type.
    """
    field = attr.WhichOneof("value")
    if field is None:
        raise ValueError("AttrValue has no value")
    value = getattr(attr, field)
    return _list_from_proto(value) if field == "list" else _PLAIN[field](value)


def plain_attr(value: Any) -> Any:
    """Converts an attr, a plain value or an AttrValue, to a plain value."""
    return from_proto(value) if hasattr(value, "WhichOneof") else value


def attr_of_scope(value: Any) -> Any:
    """The plain value of an attr of a scope, or a function of an op where ``value`` is one of its NodeDef."""
    return (lambda op: plain_attr(value(op.node_def))) if callable(value) else plain_attr(value)


def _list_from_proto(values: Any) -> list[Any]:
    for descriptor, items in values.ListFields():
        return [_PLAIN[descriptor.name](item) for item in items]
    return []


_SINGLE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "string": ("s", as_bytes),
    "int": ("i", int),
    "float": ("f", float),
    "bool": ("b", bool),
    "type": ("type", lambda value: dtypes.as_dtype(value).as_datatype_enum),
    "shape": ("shape", shape_proto),
    "tensor": ("tensor", tensor_proto),
}

_PLAIN: dict[str, Callable[[Any], Any]] = {
    "s": bytes,
    "i": int,
    "f": float,
    "b": bool,
    "type": lambda value: dtypes.as_dtype(int(value)),
    "shape": as_raw,
    "tensor": tensor_from_proto,
    "func": lambda value: _function(value),
    "placeholder": str,
}


def _function(value: Any) -> Any:
    if "tfmini_body" in value.attr:
        return _function_body(value)
    return value if value.attr else value.name


def _function_proto(body: FunctionBody) -> Any:
    """Converts a function to a NameAttrList, whose attrs hold the graph as a serialized GraphDef."""
    made = protos.NameAttrList(name=body.name)
    made.attr["tfmini_body"].s = nodes_to_graph_def(body.nodes).SerializeToString()
    lists = {
        "parameters": body.parameters,
        "results": [endpoint_text(result) for result in body.results],
        "targets": body.targets,
    }
    for name, texts in lists.items():
        made.attr[name].list.SetInParent()
        made.attr[name].list.s.extend(text.encode() for text in texts)
    return made


def _function_body(proto: Any) -> FunctionBody:
    """Converts a NameAttrList from `_function_proto` back to a function."""
    graph_def = protos.GraphDef.FromString(proto.attr["tfmini_body"].s)
    nodes = list(graph_def_to_nodes(graph_def).values())
    for node in nodes:
        check_node(node.name, node.op, node.device, node.inputs, list(node.controls), node.attrs)
    lists = {name: [text.decode() for text in proto.attr[name].list.s] for name in ("parameters", "results", "targets")}
    results = [parse_endpoint(text) for text in lists["results"]]
    return FunctionBody(proto.name, nodes, lists["parameters"], results, lists["targets"])


export_names("tf tf.version", "GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER")


# ---- Conversion of op declarations to OpDef messages, which a MetaGraphDef has of each op that it uses -------------


def op_def_proto(op_def: OpDef) -> Any:
    """Converts a declaration to an OpDef message."""
    message = protos.OpDef(
        name=op_def.name,
        is_stateful=op_def.is_stateful,
        allows_uninitialized_input=op_def.allows_uninitialized_input,
    )
    for arg in op_def.inputs:
        _fill_arg(message.input_arg.add(), arg)
    for arg in op_def.outputs:
        _fill_arg(message.output_arg.add(), arg)
    for attr in sorted(op_def.attrs.values(), key=lambda attr: attr.name):
        _fill_attr(message.attr.add(), attr)
    return message


def _fill_arg(target: Any, arg: ArgDef) -> None:
    target.name = arg.name
    target.is_ref = arg.is_ref
    target.type_attr = arg.type_attr or ""
    target.number_attr = arg.number_attr or ""
    target.type_list_attr = arg.type_list_attr or ""
    if arg.dtype is not None:
        target.type = arg.dtype.as_datatype_enum


def _fill_attr(target: Any, attr: AttrDef) -> None:
    target.name, target.type = attr.name, attr.kind
    if attr.has_default:
        target.default_value.CopyFrom(to_proto(attr.kind, attr.default))
    if attr.minimum is not None:
        target.has_minimum, target.minimum = True, attr.minimum
    if attr.allowed:
        kind = "list(type)" if isinstance(attr.allowed[0], dtypes.DType) else "list(string)"
        target.allowed_values.CopyFrom(to_proto(kind, list(attr.allowed)))


@export("tf.contrib.util.ops_used_by_graph_def")
def ops_used_by_graph_def(graph_def: Any) -> set[str]:
    """The types of the ops of a GraphDef and its functions (``tf.contrib.util.ops_used_by_graph_def``)."""
    return set(_op_types(graph_def))


@export("tf.contrib.util.stripped_op_list_for_graph")
def stripped_op_list_for_graph(graph_def: Any) -> Any:
    """The OpList of the ops of a GraphDef, without texts (``tf.contrib.util.stripped_op_list_for_graph``).

    Raises:
      ValueError: tfmini does not have one of the ops.
    """
    return stripped_op_list(graph_def)


def stripped_op_list(graph_def: Any) -> Any:
    """Returns the OpList of the ops that a GraphDef uses, sorted by name.

    Raises:
      ValueError: tfmini does not have one of the ops.
    """
    return protos.OpList(op=[op_def_proto(_declared(name)) for name in _op_types(graph_def)])


def _declared(name: str) -> OpDef:
    if name not in OPS:
        raise ValueError(f"Op {name} is used by the graph, but is not registered")
    return OPS[name].op_def


def _op_types(graph_def: Any) -> list[str]:
    functions = {function.signature.name for function in graph_def.library.function}
    used: set[str] = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        used.update(node.op for node in function.node_def)
    return sorted(used - functions)


def strip_default_attrs(node_defs: Iterable[Any]) -> None:
    """Removes attrs that have their default, so that a reader with an older declaration can do without them."""
    for node_def in node_defs:
        handle = OPS.get(node_def.op)
        for attr in handle.op_def.attrs.values() if handle is not None else ():
            if not attr.has_default or attr.name not in node_def.attr:
                continue
            default = to_proto(attr.kind, attr.default)
            if _same(node_def.attr[attr.name], default):
                del node_def.attr[attr.name]


def _same(a: Any, b: Any) -> bool:
    return bool(a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True))
