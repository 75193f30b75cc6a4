"""tfmini's raw builders for samples, with numpy's dtypes kept, and in double precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

import tfmini as tf
from tfmini.graph.op_def import ArgDef
from tfmini.graph.op_types import OPS

# Per graph: an array's id and dtype -> the array, which keeps its id, and its constant.
_constants: WeakKeyDictionary[tf.Graph, dict[Any, Any]] = WeakKeyDictionary()
_WIDER = {tf.float32: tf.float64, tf.complex64: tf.complex128}


def builder(name: str, wide: bool = False) -> Callable[..., Any]:
    """The raw builder of an op: that of ``tf.raw_ops``, or the op's handle where the name is private.

    An array becomes a constant of the array's dtype; TensorFlow 1.x would prefer the default of a type attr. With
    ``wide``, Python's floats become float64, and the wider types are preferred as defaults of attrs.

    Raises:
      NameError: for a name that is no op's.
    """
    if name not in OPS:
        raise NameError(f"{name} is neither an op nor a name of the notation")
    return partial(_build, name, wide)


def _build(name: str, wide: bool, **arguments: Any) -> Any:
    op_def = OPS[name].op_def
    args = {arg.name: arg for arg in op_def.inputs}
    values = {
        key: value if key in op_def.attrs else _input(value, args.get(key), wide) for key, value in arguments.items()
    }
    if name.startswith("_"):  # names of nodes begin otherwise
        return OPS[name](**values, name=name.strip("_"))
    return getattr(tf.raw_ops, name)(**{**(_wider_attrs(name) if wide else {}), **values})


def _wider_attrs(name: str) -> dict[str, Any]:
    op_def = OPS[name].op_def
    types = (a for a in op_def.attrs.values() if a.kind == "type" and a.default in _WIDER)
    wider = {a.name: _WIDER[a.default] for a in types if not a.allowed or _WIDER[a.default] in a.allowed}
    return {key: dtype for key, dtype in wider.items() if key not in op_def.inferred_attrs()}


def _input(value: Any, arg: ArgDef | None, wide: bool) -> Any:
    if isinstance(value, tf.Tensor) or value is None:
        return value
    if isinstance(value, (list, tuple)) and (arg and arg.is_list or any(isinstance(v, tf.Tensor) for v in value)):
        return [_input(item, arg, wide) for item in value]
    array = value
    if wide and not isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind not in "fc":
            return value
    if not isinstance(array, (np.ndarray, np.generic)):
        return value
    fixed = arg.dtype if arg is not None else None
    return _constant(array, fixed or tf.as_dtype(array.dtype))


def _constant(array: Any, dtype: tf.DType) -> tf.Tensor:
    """The constant of an array, one for all the places where a row names it."""
    made = _constants.setdefault(tf.get_default_graph(), {})
    return made.setdefault((id(array), dtype), (array, tf.constant(array, dtype)))[1]


def without_constants(graph_def: Any) -> Any:
    """The graph with a placeholder of unknown shape, whose default is the constant, in place of each constant."""
    result = tf.GraphDef()
    result.CopyFrom(graph_def)
    for node in graph_def.node:
        if node.op == "Const":
            known, blurred = result.node.add(), next(n for n in result.node if n.name == node.name)
            known.CopyFrom(node)
            known.name = f"{node.name}/known"
            blurred.CopyFrom(tf.NodeDef(name=node.name, op="PlaceholderWithDefault", input=[known.name]))
            blurred.attr["dtype"].CopyFrom(node.attr["dtype"])
            blurred.attr["shape"].shape.unknown_rank = True
    return result
