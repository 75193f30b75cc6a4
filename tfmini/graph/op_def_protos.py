"""Conversion of op declarations to OpDef messages, which a MetaGraphDef has of each op that it uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini import dtypes, protos
from tfmini.graph.graph_def import to_proto
from tfmini.graph.op_def import ArgDef, AttrDef, OpDef
from tfmini.graph.op_types import OPS


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
