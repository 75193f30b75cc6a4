"""Constants: the ``Const`` op, ``tf.constant``, and the conversion of Python values to tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike
from tfmini.export import export, export_names
from tfmini.graph.attr_values import LARGEST_COPY, tensor_from_proto, tensor_proto
from tfmini.graph.conversion import register_tensor_conversion_function
from tfmini.graph.families import Tensor, get_default_graph, op
from tfmini.graph.graph import Graph
from tfmini.graph.node import Node
from tfmini.graph.operation import Operation
from tfmini.ops.array.kernel_arguments import filled
from tfmini.shapes import Dimension, RawShape, TensorShape, as_raw

const = op("Const() -> output: dtype; value: tensor; dtype: type", work="none", differentiable=False)
const.shape(lambda node: [node.attrs["value"].shape])


@const.kernel_factory("CPU")
def _kernel(node: Node) -> Any:
    value = node.attrs["value"]
    return lambda: value


def as_array(value: object, dtype: dtypes.DType | None = None) -> np.ndarray[Any, Any]:
    """The array of a constant, with TensorFlow's rules for the type of Python values.

    Python floats become float32, ints int32 (int64 when they do not fit), strings object arrays
    of bytes; numpy arrays keep their type.

    Python ints beyond an integer ``dtype`` of less than 64 bits wrap around, as in TensorFlow 1.15.

    Raises:
      TypeError: when a value does not fit ``dtype``.
      OverflowError: for an int beyond 64 bits, or beyond the largest float.
      ValueError: for ragged lists and None.
    """
    if value is None:
        raise ValueError("None values not supported.")
    if isinstance(value, (np.ndarray, np.generic)):
        return _from_numpy(value, dtype)
    array = _from_python(value, dtype)
    if dtype is not None:
        return _checked(value, array, dtype)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64:
        narrow = array.astype(np.int32)
        return narrow if np.array_equal(narrow, array) else array
    dtypes.as_dtype(array.dtype)
    return array


def _from_numpy(value: object, dtype: dtypes.DType | None) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    if array.dtype.kind == "O" and dtype not in (None, dtypes.string):
        return array.astype(dtype.numpy)
    if array.dtype.kind in "SUO":
        return _as_bytes(array, value)
    if dtype is None:
        dtypes.as_dtype(array.dtype)
        return array
    return array.astype(dtype.numpy) if dtype is not dtypes.string else _checked(value, array, dtype)


def _from_python(value: object, dtype: dtypes.DType | None) -> np.ndarray[Any, Any]:
    if isinstance(value, (str, bytes)):
        return _as_bytes(np.array(value, dtype=object), value)
    try:
        array = np.array(_plain(value))
    except (ValueError, OverflowError) as error:
        if isinstance(error, OverflowError):
            raise
        if isinstance(error, UnicodeDecodeError):  # A list of str and of bytes that are not ASCII.
            return _as_bytes(np.array(_plain(value), dtype=object), value)
        raise ValueError(f"Argument must be a dense tensor: {value!r} - got ragged nested sequences.") from None
    if array.dtype.kind in "Of" and dtype is not None and dtype.is_integer | (array.dtype.kind == "O"):
        exact = np.array(_plain(value), dtype=object)
        if exact.size and all(isinstance(item, int) for item in exact.ravel()):
            return exact  # NumPy has no type that holds all of these ints
    if array.dtype.kind in "SUO":
        return _as_bytes(np.array(_plain(value), dtype=object), value)
    if not array.size and dtype is None and not isinstance(value, np.ndarray):
        return array.astype(np.float32)
    return array


def _plain(value: object) -> Any:
    """Replaces Dimension and TensorShape objects inside lists by numbers."""
    if isinstance(value, Dimension):
        return value.value
    if isinstance(value, TensorShape):
        return value.as_list()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "__array__") and not isinstance(value, np.ndarray):
        return np.asarray(value)
    return value


def _as_bytes(array: np.ndarray[Any, Any], original: object) -> np.ndarray[Any, Any]:
    flat = np.empty(array.size, dtype=object)
    for i, item in enumerate(array.astype(object).ravel()):
        if isinstance(item, str):
            item = item.encode()
        if isinstance(item, Operation):
            _operation_conversion(item)
        if not isinstance(item, bytes):
            raise TypeError(
                f"Failed to convert object of type {type(original)} to Tensor. Contents: {original}."
                " Consider casting elements to a supported type."
            )
        flat[i] = item
    return flat.reshape(array.shape)


def _checked(value: object, array: np.ndarray[Any, Any], dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    """The array in the requested type, if each of its Python values may be converted to it."""
    kind = array.dtype.kind
    if kind == "O" and isinstance(next(iter(array.ravel()), b""), int):
        return _from_large_ints(array, dtype)
    fits = {
        "b": dtype is not dtypes.string,  # a Python bool is an int
        "i": not dtype.is_bool and dtype is not dtypes.string,
        "u": not dtype.is_bool and dtype is not dtypes.string,
        "f": dtype.is_floating or dtype.is_complex or not array.size,
        "c": dtype.is_complex,
        "O": dtype is dtypes.string,
    }.get(kind, False)
    if not fits and array.size:
        culprit = next(iter(array.ravel().tolist()))
        raise TypeError(f"Expected {dtype.name}, got {culprit!r} of type '{type(culprit).__name__}' instead.")
    if kind == "u" and dtype.is_integer and dtype is not dtypes.uint64:
        return _from_large_ints(array.astype(object), dtype)
    with np.errstate(over="ignore"):  # a half's infinity
        return array.astype(dtype.numpy)  # ints wrap around


def _from_large_ints(array: np.ndarray[Any, Any], dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    """The array in a numeric type; integer types take ints of 64 bits, with a sign unless the type is uint64."""
    if not dtype.is_integer:
        return array.astype(np.float64).astype(dtype.numpy)
    if any(not -(2**63) <= item < 2 ** (64 if dtype is dtypes.uint64 else 63) for item in array.ravel()):
        raise OverflowError(f"Python int too large to convert to C long, for a tensor of type {dtype.name}.")
    return (array % 2**64).astype(np.uint64).astype(dtype.numpy)


@export("tf.constant")
def constant(
    value: object, dtype: DTypeLike | None = None, shape: ShapeLike = None, name: str = "Const",
    verify_shape: bool = False,
) -> Tensor:  # fmt: skip
    """A constant tensor (``tf.constant``).

    Args:
      value: a number, string, list or array. One element fills ``shape``; a value with too few
        elements is extended by its last one.
      dtype: element type; default: by value.
      shape: static shape; default: that of ``value``.
      verify_shape: refuse a value of another shape.

    Raises:
      TypeError, ValueError: when the value does not fit type or shape.
    """
    return constant_in(get_default_graph(), value, dtype, shape, name, verify_shape)


def constant_in(
    graph: Graph, value: object, dtype: DTypeLike | None = None, shape: ShapeLike = None, name: str | None = None,
    verify_shape: bool = False,
) -> Tensor:  # fmt: skip
    """`constant`, in a given graph."""
    array = as_array(value, None if dtype is None else dtypes.as_dtype(dtype).base_dtype)
    if shape is not None:
        array = _with_shape(array, as_raw(shape), verify_shape)
    if array.nbytes > LARGEST_COPY and not any(array.strides):  # one value, repeated, as in `tensor_from_proto`
        array = np.broadcast_to(np.array(array[(0,) * array.ndim], array.dtype), array.shape)
    elif array is value or array.base is not None or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    array.setflags(write=False)
    tensor_dtype = dtypes.as_dtype(array.dtype)
    full_name = graph._full_name(name, "Const")
    node = graph.add_op(const, full_name, [], {"value": array, "dtype": tensor_dtype}, [tensor_dtype], [array.shape])
    return node.outputs[0]


def _with_shape(array: np.ndarray[Any, Any], shape: RawShape, verify: bool) -> np.ndarray[Any, Any]:
    if shape is None or None in shape:
        raise ValueError("A constant needs a fully defined shape.")
    if array.shape == shape:
        return array
    if verify:
        raise TypeError(f"Expected Tensor's shape: {TensorShape(shape)}, got {TensorShape(array.shape)}.")
    sizes = tuple(d or 0 for d in shape)
    size = math.prod(sizes)
    if not size:
        return np.empty(sizes, array.dtype)
    if array.size > size:
        raise ValueError(f"Too many elements provided. Needed at most {size}, but received {array.size}")
    if array.size == size:
        return array.reshape(sizes)
    if not array.size:
        raise ValueError("Cannot create a constant with a non-empty shape from an empty value.")
    if array.size == 1 and size * array.itemsize > LARGEST_COPY:
        return np.broadcast_to(array.reshape(()), sizes)  # a slot of an embedding may have gigabytes
    flat = filled((size,), array.ravel()[-1], array.dtype)
    flat[: array.size] = array.ravel()
    return flat.reshape(sizes)


def _constant_conversion(
    value: object, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Tensor:
    return constant(value, dtype=dtype, name=name or "Const")


def _sequence_conversion(
    value: object, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if _holds_tensors(value):
        return NotImplemented
    return constant(value, dtype=dtype, name=name or "Const")


def _holds_tensors(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_tensors(v) for v in value)
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


def _shape_conversion(
    value: TensorShape, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Tensor:
    if not value.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape to a Tensor: {value}")
    sizes = value.as_list()
    if dtype is None:
        dtype = dtypes.int64 if any(d > np.iinfo(np.int32).max for d in sizes if d) else dtypes.int32
    elif dtypes.as_dtype(dtype) not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"Cannot convert a TensorShape to dtype: {dtypes.as_dtype(dtype).name}")
    return constant(np.array(sizes, dtypes.as_dtype(dtype).numpy), name=name or "shape_as_tensor")


_tensor_shape_tensor_conversion_function = _shape_conversion
export_names("tensorflow.python.framework.constant_op", "_tensor_shape_tensor_conversion_function")


def _dimension_conversion(
    value: Dimension, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Tensor:
    if value.value is None:
        raise ValueError(f"Cannot convert an unknown Dimension to a Tensor: {value}")
    wanted = dtypes.as_dtype(dtype or dtypes.int32)
    if wanted not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"Cannot convert a TensorShape to dtype: {wanted.name}")
    return constant(value.value, dtype=wanted, name=name or "shape_as_tensor")


def _operation_conversion(
    value: Operation, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Tensor:
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    remedy = f"use its output, {value.outputs[0].name!r}" if value.outputs else "it has no outputs, so no value"
    raise TypeError(
        f"Can't convert Operation '{value.name}' to Tensor (target dtype={wanted!r}, name={name!r}, as_ref={as_ref}):"
        f" {remedy}."
    )


register_tensor_conversion_function(Operation, _operation_conversion, 100)
register_tensor_conversion_function((list, tuple), _sequence_conversion, 100)
register_tensor_conversion_function((np.ndarray, np.generic, str, bytes), _constant_conversion, 100)
register_tensor_conversion_function(TensorShape, _shape_conversion, 99)
register_tensor_conversion_function(Dimension, _dimension_conversion, 99)
register_tensor_conversion_function(object, _constant_conversion, 200)


# ---- ``tf.make_tensor_proto`` and ``tf.make_ndarray``: tensors as messages, outside of any graph -------------------


@export("tf.make_tensor_proto", "tf.contrib.util.make_tensor_proto")
def make_tensor_proto(
    values: object, dtype: DTypeLike | None = None, shape: ShapeLike = None, verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> Any:  # fmt: skip
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


def _checked_shape(array: np.ndarray[Any, Any], shape: ShapeLike, verify: bool) -> tuple[int, ...]:
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
