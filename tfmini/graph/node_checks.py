"""Checks of imported nodes, with TensorFlow's error messages."""

from __future__ import annotations

import platform
import re
from typing import Any

from tfmini import protos
from tfmini.dtypes import DType
from tfmini.errors import NotFoundError
from tfmini.graph.graph_def import GRAPH_DEF_VERSION, GRAPH_DEF_VERSION_MIN_PRODUCER
from tfmini.graph.op_def import MISSING, ArgDef, AttrDef, OpDef
from tfmini.graph.op_types import OPS, OpType
from tfmini.graph.wire_checks import OUTPUT_LIMIT

_NODE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*\Z")
_FIELD_OF_KIND = {"string": "s", "int": "i", "float": "f", "bool": "b"}
_KIND_OF_FIELD = {field: kind for kind, field in _FIELD_OF_KIND.items()}


def check_versions(versions: Any) -> None:
    """Raises ValueError if a GraphDef is too old or too new."""
    if versions.producer < GRAPH_DEF_VERSION_MIN_PRODUCER:
        raise ValueError(
            f"GraphDef producer version {versions.producer} below min producer {GRAPH_DEF_VERSION_MIN_PRODUCER}"
            " supported by TensorFlow 1.15.  Please regenerate your graph."
        )
    if versions.min_consumer > GRAPH_DEF_VERSION:
        raise ValueError(
            f"GraphDef min consumer version {versions.min_consumer} above current version {GRAPH_DEF_VERSION}"
            " for TensorFlow 1.15.  Please upgrade TensorFlow."
        )
    if GRAPH_DEF_VERSION in versions.bad_consumers:
        raise ValueError(
            f"GraphDef disallows consumer version {GRAPH_DEF_VERSION}.  Please upgrade TensorFlow: this version is"
            " likely buggy."
        )


def check_name(node_def: Any) -> None:
    """Raises ValueError if a node has no valid name or no op type."""
    if not _NODE_NAME.match(node_def.name):
        raise ValueError(f"Node '{node_def.name}': Node name contains invalid characters")
    if not node_def.op:
        raise ValueError(f"Node '{node_def.name}' does not specify an operation")


def known_op(node_def: Any) -> OpType:
    """Returns the handle of a node's op type; raises NotFoundError if there is none."""
    handle = OPS.get(node_def.op)
    if handle is None:
        raise NotFoundError.of(
            f"Op type not registered '{node_def.op}' in binary running on {platform.node()}. Make sure the Op and"
            " Kernel are registered in the binary running in this process: import the module that declares the op"
            f" before importing the graph. (node '{node_def.name}')"
        )
    return handle


def check_attrs(node_def: Any, op_def: OpDef, name: str, attrs: dict[str, Any]) -> None:
    """Compares a node's attrs with the op's declaration.

    Args:
      node_def: the NodeDef. It tells of which kind each value is.
      op_def: the declaration.
      name: the node's name in the graph, for error messages.
      attrs: the node's plain attrs, defaults included.

    Raises:
      ValueError: an attr is missing, unknown, of the wrong kind, or has a value that is not allowed.
    """
    where = f"NodeDef: {{{{node {name}}}}}"
    for attr in node_def.attr:
        if not attr.startswith("_") and attr not in op_def.attrs:
            raise ValueError(
                f"NodeDef mentions attr '{attr}' not in {op_summary(op_def)}; {where}. (Check whether your"
                " GraphDef-interpreting binary is up to date with your GraphDef-generating binary.)."
            )
    for definition in op_def.attrs.values():
        if definition.name not in attrs:
            raise ValueError(f"NodeDef missing attr '{definition.name}' from {op_summary(op_def)}; {where}")
        problem = _kind_problem(node_def, definition) or _value_problem(definition, attrs[definition.name])
        if problem:
            raise ValueError(f"{problem}\n\t; {where}; {op_summary(op_def)}")
    for arg in op_def.outputs:
        if arg.number_attr is not None and attrs[arg.number_attr] > OUTPUT_LIMIT:
            count = attrs[arg.number_attr]
            raise ValueError(f"Attr '{arg.number_attr}' asks for {count} outputs; {OUTPUT_LIMIT} are possible; {where}")


def _kind_problem(node_def: Any, definition: AttrDef) -> str | None:
    if definition.name not in node_def.attr:
        return None
    field = node_def.attr[definition.name].WhichOneof("value")
    if field is None:
        return None
    kind = definition.kind
    values = node_def.attr[definition.name]
    if kind.startswith("list(") and field == "list":
        found = values.list.ListFields()
        field, kind = (found[0][0].name, kind[5:-1]) if found else ("", "")
    if field == _FIELD_OF_KIND.get(kind, kind):
        return None
    got = _KIND_OF_FIELD.get(field, field)
    return f"AttrValue had value with type '{got}' when '{definition.kind}' expected\n\t for attr '{definition.name}'"


def _value_problem(definition: AttrDef, value: Any) -> str | None:
    if (odd := definition.odd_item(value)) is not MISSING:
        names = ", ".join(_quoted(choice) for choice in definition.allowed or ())
        return f"Value for attr '{definition.name}' of {_quoted(odd)} is not in the list of allowed values: {names}"
    if not definition.is_short(value):
        return None
    if isinstance(value, list):
        return f"Length for attr '{definition.name}' of {len(value)} must be at least minimum {definition.minimum}"
    return f"Value for attr '{definition.name}' of {value} must be at least minimum {definition.minimum}"


def check_inputs(op_def: OpDef, name: str, expected: list[DType], sources: list[Any]) -> None:
    """Compares the types of a node's inputs with those that the op expects.

    Raises:
      ValueError: there are too few or too many inputs, or one has another type.
    """
    if len(expected) != len(sources):
        types = ", ".join(type_word(dtype) for dtype in expected)
        raise ValueError(
            f"NodeDef expected inputs '{types}' do not match {len(sources)} inputs specified; {op_summary(op_def)};"
            f" NodeDef: {{{{node {name}}}}}"
        )
    for i, (dtype, tensor) in enumerate(zip(expected, sources)):
        if tensor.dtype is not dtype and tensor.dtype.base_dtype is not dtype:
            raise ValueError(
                f"Input {i} of node {name} was passed {type_word(tensor.dtype)} from {tensor.name} incompatible with"
                f" expected {type_word(dtype)}."
            )


# ---- how TensorFlow writes declarations in messages -----------------------------------------


def type_word(dtype: DType) -> str:
    """Formats a type as TensorFlow's C++ code does: ``float``, ``half``, ``float_ref``."""
    name: str = protos.DataType.Name(dtype.as_datatype_enum)
    return name[3:].lower()


def op_summary(op_def: OpDef) -> str:
    """Formats a declaration on one line: ``Op<name=Exp; signature=x:T -> y:T; attr=T:type,allowed=[…]>``."""
    inputs = ", ".join(_arg_text(arg) for arg in op_def.inputs)
    outputs = ", ".join(_arg_text(arg) for arg in op_def.outputs)
    attrs = "".join(f"; attr={_attr_text(attr)}" for attr in op_def.attrs.values())
    stateful = "; is_stateful=true" if op_def.is_stateful else ""
    return f"Op<name={op_def.name}; signature={inputs} -> {outputs}{attrs}{stateful}>"


def _arg_text(arg: ArgDef) -> str:
    kind = arg.type_list_attr or arg.type_attr or type_word(arg.dtype)  # type: ignore[arg-type]
    kind = f"{arg.number_attr}*{kind}" if arg.number_attr else kind
    return f"{arg.name}:{f'Ref({kind})' if arg.is_ref else kind}"


def _attr_text(attr: AttrDef) -> str:
    text = f"{attr.name}:{attr.kind}"
    if attr.has_default:
        text += f",default={_default_text(attr.default, attr.kind)}"
    if attr.minimum is not None:
        text += f",min={attr.minimum}"
    if attr.allowed is not None:
        text += f",allowed=[{', '.join(_enum_name(choice) for choice in attr.allowed)}]"
    return text


def _default_text(value: Any, kind: str) -> str:
    if kind.startswith("list("):
        return "[" + ", ".join(_default_text(item, kind[5:-1]) for item in value) + "]"
    if kind == "shape":
        return "<unknown>" if value is None else "[" + ",".join("?" if d is None else str(d) for d in value) + "]"
    return str(value).lower() if kind == "bool" else _enum_name(value)


def _enum_name(value: Any) -> str:
    return protos.DataType.Name(value.as_datatype_enum) if isinstance(value, DType) else _quoted(value)


def _quoted(value: Any) -> str:
    if isinstance(value, DType):
        return type_word(value)
    return f'"{value.decode(errors="replace")}"' if isinstance(value, bytes) else str(value)
