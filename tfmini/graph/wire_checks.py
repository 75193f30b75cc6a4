"""Checks of nodes from another process: compiler and kernels may rely on the types of their fields and attrs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.dtypes import DType
from tfmini.errors import InvalidArgumentError
from tfmini.graph.registry import OPS

# What a value of each kind of attr is in a node (`Operation.attrs`).
_IS_KIND: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int,
    "float": lambda value: type(value) in (float, int),
    "bool": lambda value: type(value) is bool,
    "string": lambda value: type(value) is bytes,
    "type": lambda value: isinstance(value, DType),
    "shape": lambda value: value is None or type(value) is tuple,
    "tensor": lambda value: isinstance(value, (np.ndarray, np.generic, bytes, int, float, bool)),
    "func": lambda value: not isinstance(value, (list, dict, int, float, bytes)),
}
# Attrs that no op declares and whose type the runtime relies on; those of sends and receives, which are no ops.
_UNDECLARED = {"_group": "int", "_may_be_dead": "bool"}
_TRANSFERS = {
    **{"T": "type", "tensor_type": "type", "client_terminated": "bool"},
    **dict.fromkeys(("tensor_name", "send_device", "recv_device"), "string"),
}


def check_node(name: Any, op: Any, device: Any, inputs: Any, controls: Any, attrs: dict[Any, Any]) -> None:
    """Refuses a node whose fields or attrs are of the wrong type.

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
    declared = handle.op_def.attrs if handle is not None else {}
    undeclared = _UNDECLARED if handle is not None else {**_UNDECLARED, **_TRANSFERS}
    for key, value in attrs.items():
        definition = declared.get(key)
        kind = definition.kind if definition is not None else undeclared.get(key)
        if kind is not None and not _is_of_kind(kind, value):
            raise InvalidArgumentError.of(
                f"Attr {key!r} of node {name!r} ({op}) must be of kind {kind}, got {value!r:.80}"
            )


def _is_of_kind(kind: str, value: Any) -> bool:
    if kind.startswith("list("):
        is_kind = _IS_KIND[kind[5:-1]]
        return type(value) is list and all(is_kind(item) for item in value)
    return _IS_KIND[kind](value)
