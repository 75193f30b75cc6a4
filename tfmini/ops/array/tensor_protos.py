"""``tf.make_tensor_proto`` and ``tf.make_ndarray``: tensors as messages, outside of any graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.attr_values import tensor_from_proto, tensor_proto
from tfmini.ops.array.constant import as_array
from tfmini.shapes import TensorShape, as_raw


@export("tf.make_tensor_proto", "tf.contrib.util.make_tensor_proto")
def make_tensor_proto(
    values: Any, dtype: Any = None, shape: Any = None, verify_shape: bool = False, allow_broadcast: bool = False
) -> Any:
    """The TensorProto of a Python value or array (``tf.make_tensor_proto``).

    Args:
      values: a number, string, list or array; a TensorProto is returned as it is.
      dtype: element type; default: by value, as in ``tf.constant``.
      shape: static shape; where ``values`` has fewer elements, the last one repeats.
      verify_shape: refuse values of another shape.
      allow_broadcast: let a single element fill the shape.

    Raises:
      TypeError: when the values do not fit ``dtype``, or their shape is to be verified and differs.
      ValueError: for None, ragged lists and too many elements.
    """
    if hasattr(values, "tensor_shape"):
        return values
    array = as_array(values, None if dtype is None else dtypes.as_dtype(dtype).base_dtype)
    if allow_broadcast and shape is not None and array.size == 1:
        array = array.reshape(())
    return tensor_proto(array, None if shape is None else _checked_shape(array, shape, verify_shape))


def _checked_shape(array: np.ndarray[Any, Any], shape: Any, verify: bool) -> tuple[int, ...]:
    raw = as_raw(shape)
    if raw is None or None in raw:
        raise ValueError(f"A tensor needs a fully defined shape, not {TensorShape(raw)}.")
    if verify and raw != array.shape:
        raise TypeError(f"Expected Tensor's shape: {raw}, got {array.shape}.")
    size = TensorShape.from_raw(raw).num_elements() or 0
    if array.size > size:
        raise ValueError(f"Too many elements provided. Needed at most {size}, but received {array.size}")
    return raw  # type: ignore[return-value]


@export("tf.make_ndarray", "tf.contrib.util.make_ndarray")
def make_ndarray(tensor: Any) -> np.ndarray[Any, Any]:
    """A new array with the values of a TensorProto (``tf.make_ndarray``); strings as ``bytes``.

    Raises:
      ValueError: when the number of values does not fit the shape.
      TypeError: for element types without plain values.
    """
    return np.array(tensor_from_proto(tensor))
