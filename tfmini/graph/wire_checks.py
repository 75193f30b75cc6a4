"""Checks of nodes from another process: compiler and kernels may rely on the types of their fields and attrs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.core_types import TensorLike
from tfmini.dtypes import DType, string
from tfmini.errors import InvalidArgumentError
from tfmini.graph.op_def import MISSING, AttrDef, OpDef
from tfmini.graph.op_types import OPS

# What a value of each kind of attr is in a node (`Operation.attrs`).
_IS_KIND: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) in (float, int),
    "bool": lambda value: type(value) is bool,
    "string": lambda value: type(value) is bytes,
    "type": lambda value: isinstance(value, DType) and not value._is_ref_dtype,
    "any type": lambda value: isinstance(value, DType),  # also one of references
    "shape": lambda value: value is None or type(value) is tuple,
    "tensor": lambda value: isinstance(value, (np.ndarray, np.generic, bytes, int, float, bool)),
    "func": lambda value: not isinstance(value, (list, dict, int, float, bytes)),
}
# Attrs that no op declares and whose type the runtime relies on; those of sends and receives, which are no ops.
OUTPUT_LIMIT = 1 << 16  # outputs that one attr may ask for: the node that asks takes a few bytes
_UNDECLARED = {
    "_class": "list(string)",
    **dict.fromkeys(("_input_types", "_output_types"), "list(any type)"),
}
_TRANSFERS = {"T": "type", "tensor_type": "type"}


def check_node(name: str, op: Any, device: Any, inputs: Any, controls: Any, attrs: dict[Any, Any]) -> None:
    """Refuses a node whose fields or attrs are of the wrong type, or excluded by the op's declaration.

    Attrs that are absent get their defaults.

    Raises:
      InvalidArgumentError: naming the node and the field or attr.
    """
    if not (type(name) is type(op) is type(device) is str and type(controls) is list):
        raise InvalidArgumentError.of(f"A node of the graph is malformed: name {name!r:.80}, op {op!r:.80}")
    for source, index in inputs:
        if type(source) is not str or type(index) is not int or index < 0:
            raise InvalidArgumentError.of(f"Node {name!r} has the malformed input {source!r:.80}, {index!r:.80}")
    if not all(type(control) is str for control in controls):
        raise InvalidArgumentError.of(f"Node {name!r} has malformed control inputs")
    handle = OPS.get(op)
    where = f"node {name!r} ({op})"
    check_kinds(name, op, attrs)
    declared = handle.op_def.attrs if handle is not None else {}
    for key, value in attrs.items():
        definition = declared.get(key)
        if definition is not None:
            _check_value(where, definition, value)
    for key, definition in declared.items():
        if key not in attrs:
            if not definition.has_default:
                raise InvalidArgumentError.of(f"The {where} has no attr {key!r}")
            attrs[key] = definition.default
    if handle is not None:
        _check_counts(where, handle.op_def, len(inputs), attrs)
    if op == "Const":
        _check_constant(where, attrs["value"], attrs["dtype"])


def check_kinds(name: str, op: str, attrs: dict[str, Any]) -> None:
    """Refuses attrs of another kind than the op declares; of what no op declares, those that the runtime reads.

    Raises:
      InvalidArgumentError: naming the node and the attr.
    """
    handle = OPS.get(op)
    declared = handle.op_def.attrs if handle is not None else {}
    undeclared = _UNDECLARED if handle is not None else {**_UNDECLARED, **_TRANSFERS}
    for key, value in attrs.items():
        kind = declared[key].kind if key in declared else undeclared.get(key)
        if kind is not None and not _is_of_kind(kind, value):
            raise InvalidArgumentError.of(
                f"Attr {key!r} of node {name!r} ({op}) must be of kind {kind}, got {value!r:.80}"
            )


def _check_value(where: str, definition: AttrDef, value: TensorLike) -> None:
    """Refuses a value that the declaration excludes: the client's checks of it may not have run."""
    if (odd := definition.odd_item(value)) is not MISSING:
        raise InvalidArgumentError.of(f"Attr {definition.name!r} of {where} cannot be {odd!r:.80}")
    if definition.is_short(value):
        raise InvalidArgumentError.of(
            f"Attr {definition.name!r} of {where} must be at least {definition.minimum}"
            f"{' long' if type(value) is list else ''}, got {value!r:.80}"
        )


def _check_constant(where: str, value: TensorLike, dtype: DType) -> None:
    """Refuses a constant of another type than its node says: what uses it relies on that."""
    if not isinstance(value, np.ndarray) or value.dtype != dtype.numpy or value.dtype == object and dtype is not string:
        found = getattr(value, "dtype", type(value).__name__)
        raise InvalidArgumentError.of(f"The {where} says that it is {dtype.name}, but its value is {found}")


def _check_counts(node: str, op_def: OpDef, inputs: int, attrs: dict[Any, Any]) -> None:
    """Refuses a node with other inputs than its attrs say, or with more outputs than one attr may ask for."""
    lists = {attr for arg in (*op_def.inputs, *op_def.outputs) if (attr := arg.number_attr or arg.type_list_attr)}
    counts = {attr: value if type(value := attrs[attr]) is int else len(value) for attr in lists}
    if any(count < 0 for count in counts.values()):
        raise InvalidArgumentError.of(f"The {node} has a list of negative length among {counts}")
    expected = sum(counts.get(arg.number_attr or arg.type_list_attr or "", 1) for arg in op_def.inputs)
    if inputs != expected:
        raise InvalidArgumentError.of(f"The {node} has {inputs} inputs; by its attrs it has {expected}")
    for arg in op_def.outputs:
        if arg.number_attr is not None and counts[arg.number_attr] > OUTPUT_LIMIT:
            raise InvalidArgumentError.of(
                f"Attr {arg.number_attr!r} of the {node} asks for {counts[arg.number_attr]} outputs; at most"
                f" {OUTPUT_LIMIT} are possible"
            )


def _is_of_kind(kind: str, value: TensorLike) -> bool:
    if kind.startswith("list("):
        is_kind = _IS_KIND[kind[5:-1]]
        return type(value) is list and all(is_kind(item) for item in value)
    return _IS_KIND[kind](value)
