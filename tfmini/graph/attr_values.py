"""Conversion between arrays and TensorProtos, and of shapes to TensorShapeProtos.

Protobuf is imported when the first message is made or read.
"""

from __future__ import annotations

import sys
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from tfmini import dtypes, protos
from tfmini.checkpoint import files
from tfmini.shapes import RawShape, TensorShape, as_raw

# A serialized message has at most 2 GiB; the nodes and names around the tensor take some of it.
_MAX_CONTENT_BYTES = 2**31 - 1
_LARGEST_RANK = 64  # numpy's
# Up to how many bytes a tensor of one value is an array of its own, and up to how many several values may stand for:
# TensorFlow shortens a message by about two, and a small message must not take much memory.
LARGEST_COPY = 1 << 16
_LARGEST_STRETCHED, _MOST_COPIES = 1 << 24, 64

# Arrays of these kinds with several elements are stored as raw bytes; others in the typed field of their kind.
_RAW_CONTENT = frozenset(
    dtypes.as_dtype(name)
    for name in (
        *("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"),
        *("qint8", "quint8", "qint16", "quint16", "qint32"),
    )
)

# dtype name -> (repeated field, numpy type of its items)
_TYPED_FIELDS: dict[str, tuple[str, Any]] = {
    "float32": ("float_val", np.float32),
    "float64": ("double_val", np.float64),
    **dict.fromkeys(("int32", "uint8", "int16", "int8", "uint16"), ("int_val", np.int32)),
    **dict.fromkeys(("qint8", "quint8", "qint16", "quint16", "qint32"), ("int_val", np.int32)),
    "int64": ("int64_val", np.int64),
    "bool": ("bool_val", np.bool_),
    "uint32": ("uint32_val", np.uint32),
    "uint64": ("uint64_val", np.uint64),
    "complex64": ("scomplex_val", np.float32),
    "complex128": ("dcomplex_val", np.float64),
    # The bits of a 16-bit float, as an int.
    "float16": ("half_val", np.uint16),
    "bfloat16": ("half_val", np.uint16),
}


def shape_proto(raw: RawShape) -> Any:
    """Converts an internal shape to a TensorShapeProto."""
    return TensorShape(raw).as_proto()


def as_bytes(value: Any) -> bytes:
    """Converts a string attr or an element of a string tensor to its bytes."""
    return value.encode() if isinstance(value, str) else bytes(value)


def tensor_proto(array: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Converts an array to a TensorProto, in the encoding that ``tf.make_tensor_proto`` chooses.

    Args:
      array: numpy array or scalar; object arrays hold ``bytes``.
      shape: the tensor's shape, if it has more elements than ``array``: the last element then repeats.

    Raises:
      ValueError: the content does not fit into a message (2 GiB).
      TypeError: no tensor can hold the array.
    """
    array = array if isinstance(array, (np.ndarray, np.generic)) else _wrapped(array)
    dtype = dtypes.as_dtype(array.dtype)
    if array.size > 1 and not any(array.strides):  # one value, repeated (see `tensor_from_proto`)
        shape, array = shape or array.shape, array[(slice(1),) * array.ndim]
    proto = protos.TensorProto(tensor_shape=shape_proto(array.shape if shape is None else shape))
    proto.dtype = dtype.as_datatype_enum  # type: ignore[assignment]
    whole = shape is None or prod(shape) == array.size
    if dtype in _RAW_CONTENT and array.size > 1 and whole:
        if array.nbytes > _MAX_CONTENT_BYTES:
            raise ValueError("Cannot create a tensor proto whose content is larger than 2GB.")
        proto.tensor_content = _little_endian(array).tobytes()
    else:
        fill_typed_field(proto, np.asarray(array))
    return proto


def content_proto(array: np.ndarray[Any, Any]) -> Any:
    """Converts an array to a TensorProto as TensorFlow's kernels write it: all elements in ``tensor_content``.

    The content of a string tensor is the lengths of all strings as varints, then the bytes of all strings.
    """
    proto: Any = protos.TensorProto(tensor_shape=shape_proto(array.shape))
    dtype = dtypes.as_dtype(array.dtype)
    proto.dtype = dtype.as_datatype_enum
    if dtype is dtypes.string:
        texts = array.ravel().tolist()
        proto.tensor_content = b"".join([*(files.encode(len(text)) for text in texts), *texts])
    else:
        proto.tensor_content = _little_endian(array).tobytes()
    return proto


def fill_typed_field(proto: Any, array: np.ndarray[Any, Any]) -> None:
    """Puts an array's elements into the field of its type. It sets neither the dtype nor the shape.

    Raises:
      TypeError: no tensor can hold the array.
    """
    dtype = dtypes.as_dtype(array.dtype)
    if dtype is dtypes.string:
        proto.string_val.extend(as_bytes(item) for item in array.ravel())
    elif dtype.name in _TYPED_FIELDS:
        field, item_type = _TYPED_FIELDS[dtype.name]
        getattr(proto, field).extend(_items(array, dtype, item_type).tolist())
    else:
        raise TypeError(f"Tensors of type {dtype.name} cannot be stored in a TensorProto.")


def _wrapped(value: Any) -> np.ndarray[Any, Any]:
    return np.array(value, dtype=object) if isinstance(value, (str, bytes)) else np.asarray(value)


def _little_endian(array: Any) -> Any:
    return array if sys.byteorder == "little" else array.byteswap()


def _items(array: np.ndarray[Any, Any], dtype: dtypes.DType, item_type: Any) -> np.ndarray[Any, Any]:
    """Returns an array's elements as the flat items of a typed field."""
    flat = np.ascontiguousarray(array).ravel()
    if dtype.is_quantized:
        flat = flat[dtype.name]
    # A complex number is stored as a pair, a 16-bit float as its bits; small integers are widened.
    return flat.view(item_type) if dtype.is_complex or item_type is np.uint16 else flat.astype(item_type)


def tensor_from_proto(proto: Any, shape: tuple[int, ...] | None = None, repeats: bool = True) -> np.ndarray[Any, Any]:
    """Converts a TensorProto to an array. The array is read-only where it shares the message's bytes.

    A message may hold fewer values than the tensor has elements: the last one repeats. Since the shape may then ask for
    any amount of memory, a large tensor of one value is a read-only view of that value.

    Args:
      shape: the tensor's shape, if it is not in the message.
      repeats: whether the last value may repeat.

    Raises:
      ValueError: the number of values does not fit the shape.
      TypeError: the elements are no plain values (resource, variant).
    """
    dtype = dtypes.as_dtype(proto.dtype).base_dtype
    shape = _defined(as_raw(proto.tensor_shape)) if shape is None else shape
    size = prod(shape)
    if dtype is dtypes.string:
        texts = _strings_of(proto.tensor_content, size) if proto.tensor_content else list(proto.string_val)
        flat = np.empty(len(texts), dtype=object)
        flat[:] = texts
    elif proto.tensor_content:
        flat = _from_content(proto.tensor_content, dtype, size)
    else:
        flat = _from_typed_field(proto, dtype)
    if flat.size < size and repeats:
        return _stretched(flat, shape, b"" if dtype is dtypes.string else 0)
    if flat.size != size:
        raise ValueError(f"Too {'many' if flat.size > size else 'few'} elements for a tensor of {size}: {flat.size}.")
    return flat.reshape(shape)


def _defined(shape: RawShape) -> tuple[int, ...]:
    if shape is None or None in shape:
        raise ValueError(f"A tensor needs a fully defined shape, not {TensorShape(shape)}.")
    if len(shape) > _LARGEST_RANK or prod(shape) >= 1 << 62:  # type: ignore[arg-type]
        raise ValueError(f"A tensor of shape {TensorShape(shape[:9])}{'…' if len(shape) > 9 else ''} is too large.")
    return shape  # type: ignore[return-value]


def _from_content(content: bytes, dtype: dtypes.DType, size: int) -> np.ndarray[Any, Any]:
    if not dtype.is_numpy_compatible or len(content) != size * dtype.size:
        raise ValueError(f"{len(content)} bytes of content cannot hold {size} elements of type {dtype.name}.")
    return _little_endian(np.frombuffer(content, dtype=dtype.numpy))  # type: ignore[no-any-return]


def _strings_of(content: bytes, size: int) -> list[bytes]:
    lengths, position = [], 0
    for _ in range(size):
        length, position = files.decode(content, position)
        lengths.append(length)
    ends = list(accumulate(lengths, initial=position))
    if ends[-1] != len(content):
        raise ValueError(f"{len(content)} bytes of content cannot hold {size} strings of {sum(lengths)} bytes.")
    return [content[start:end] for start, end in pairwise(ends)]


def _from_typed_field(proto: Any, dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    if dtype.name not in _TYPED_FIELDS:
        raise TypeError(f"Unsupported tensor type: {dtype.name}")
    field, item_type = _TYPED_FIELDS[dtype.name]
    if item_type is np.uint16:  # the field is a list of int32
        return np.array(getattr(proto, field), dtype=np.int32).astype(np.uint16).view(dtype.numpy)
    items = np.array(getattr(proto, field), dtype=item_type)
    return items.view(dtype.numpy) if dtype.is_complex else items.astype(dtype.numpy)


def _stretched(flat: np.ndarray[Any, Any], shape: tuple[int, ...], empty: Any) -> np.ndarray[Any, Any]:
    """Extends ``flat`` to an array of ``shape`` by repeating its last element, or ``empty`` if it has none."""
    last = flat[-1:] if flat.size else np.array([empty], flat.dtype)
    nbytes = prod(shape) * flat.itemsize
    if flat.size <= 1 and nbytes > LARGEST_COPY:
        return np.broadcast_to(last, shape)
    if nbytes > _LARGEST_STRETCHED + _MOST_COPIES * flat.nbytes:
        raise ValueError(f"{flat.size} elements of a message cannot stand for a tensor of {nbytes} bytes.")
    full = np.full(prod(shape), last)
    full[: flat.size] = flat
    return full.reshape(shape)
