"""Checks of attr values from Python against the declaration, and their conversion to the internal form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.attr_values import tensor_from_proto
from tfmini.graph.node import FunctionBody
from tfmini.graph.op_def import AttrDef
from tfmini.shapes import as_raw


def check_attr(op_name: str, definition: AttrDef, value: Any) -> Any:
    """Checks an attr value and returns its internal form.

    Raises:
      TypeError, ValueError: the declaration does not allow the value.
    """
    kind = definition.kind
    if kind.startswith("list("):
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"Expected list for attr '{definition.name}' of '{op_name}' Op, got {value!r}.")
        result: Any = [_CONVERTERS[kind[5:-1]](definition.name, v) for v in value]
    else:
        result = _CONVERTERS[kind](definition.name, value)
    _check_allowed(op_name, definition, result)
    return result


def _check_allowed(op_name: str, definition: AttrDef, value: Any) -> None:
    items = value if isinstance(value, list) else [value]
    if definition.allowed is not None and definition.kind.endswith("string"):
        for item in items:
            if item not in definition.allowed:
                choices = '", "'.join(a.decode() for a in definition.allowed)
                raise ValueError(
                    f"Attr '{definition.name}' of '{op_name}' Op passed string '{item.decode()}' not in: \"{choices}\"."
                )
    if definition.minimum is not None:
        size = len(value) if isinstance(value, list) else value
        if size < definition.minimum:
            raise ValueError(
                f"Attr '{definition.name}' of '{op_name}' Op passed {size} less than minimum {definition.minimum}."
            )


def _to_int(name: str, value: Any) -> int:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__index__") and not isinstance(value, float):
        raise TypeError(f"Expected int for argument '{name}' not {value!r}.")
    if isinstance(value, float) and value != int(value):
        raise TypeError(f"Expected int for argument '{name}' not {value!r}.")
    return int(value)


def _to_bool(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"Expected bool for argument '{name}' not {value!r}.")
    return bool(value)


def _to_float(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"Expected float for argument '{name}' not {value!r}.")
    return float(np.float32(value))  # the precision that the attr has in a GraphDef


def _to_bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise TypeError(f"Expected string for argument '{name}' not {value!r}.")


def _to_tensor_value(name: str, value: Any) -> Any:
    if hasattr(value, "tensor_shape"):  # a TensorProto
        return tensor_from_proto(value)
    return np.asarray(value) if isinstance(value, np.ndarray) else value


_CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    "type": lambda name, value: dtypes.as_dtype(value).base_dtype,
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "string": _to_bytes,
    "shape": lambda name, value: as_raw(value),
    "tensor": _to_tensor_value,
    "func": lambda name, value: value if isinstance(value, (str, FunctionBody)) else value.name,
}
