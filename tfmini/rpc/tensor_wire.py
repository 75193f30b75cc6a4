"""How tensors are described in frame 0 of a message, and made again from it.

A description is ``[dtype enum, payload, size, size, ...]``, where the payload is

* an int: the index of the raw frame; of a string tensor that is a uint64 length per element, row by
  row, and then the elements;
* bytes: the elements themselves, for small tensors (a frame costs more than copying 2 KB);
* a list of bytes: the elements of a small string tensor, row by row.

Neighbours among many small tensors of one type and shape are stacked: one description, with the enum negated and
their count as the first size. (In a step of thousands of small variables, an object or two per tensor cost more than
its bytes: 1.1 us per tensor to describe and make it instead of 3.4.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike

INLINE_LIMIT = 2048  # bytes; tensors up to this size travel inside frame 0
STACK_FROM = 8  # tensors; shorter runs are described one by one
STACK_LIMIT = 16 << 10  # bytes of a stack, since a tensor that is kept keeps its whole stack
# Bytes and dimensions of a stacked tensor, and tensors of a field: else a short message could become very many arrays,
# of which each takes 100 bytes and 16 for each dimension.
STACKED_LEAST, STACKED_RANK, STACKED_MOST = 32, 4, 1 << 20
_STRING = dtypes.string.as_datatype_enum
_LENGTH = np.dtype(np.uint64)

# A cast of a memoryview does not know bfloat16 and complex; it takes a quarter of the time of two views.
_CAST = frozenset("?bBhHiIlLqQfd")
# Filled on the first use of a type: hashing a numpy dtype is far cheaper than dtypes.as_dtype.
_enum_of: dict[Any, int] = {}
_numpy_of: dict[int, np.dtype[Any]] = {}


def describe_tensors(values: tuple[Any, ...], frames: list[Any]) -> list[list[Any]]:
    """Describes the values of a field; appends raw frames to ``frames``."""
    if len(values) >= STACK_FROM:
        return _describe_runs(values, frames)
    return _describe_each(values, frames)


def _describe_each(values: Sequence[Any], frames: list[Any]) -> list[list[Any]]:
    described = []
    for value in values:
        if type(value) is np.ndarray:  # the usual cases; `describe` has all
            dtype = value.dtype
            enum = _enum_of.get(dtype)
            if enum is not None and enum != _STRING:
                if value.nbytes <= INLINE_LIMIT:
                    described.append([enum, value.tobytes(), *value.shape])
                    continue
                if dtype.char in _CAST and value.flags.c_contiguous:
                    frames.append(value.data.cast("B"))
                    described.append([enum, len(frames) - 1, *value.shape])
                    continue
        described.append(describe(value, frames))
    return described


def _describe_runs(values: tuple[Any, ...], frames: list[Any]) -> list[list[Any]]:
    """Describes tensors, neighbours of one type and shape together."""
    described: list[list[Any]] = []
    run: list[Any] = []
    dtype = shape = None
    for value in values:
        if type(value) is np.ndarray:
            if value.dtype is dtype and value.shape == shape:
                run.append(value)
                continue
            next_dtype, next_shape = value.dtype, value.shape
        else:
            next_dtype = next_shape = None
        described += _describe_run(run, frames)
        run, dtype, shape = [value], next_dtype, next_shape
    described += _describe_run(run, frames)
    return described


def _describe_run(run: list[Any], frames: list[Any]) -> list[list[Any]]:
    if len(run) < STACK_FROM or not STACKED_LEAST <= run[0].nbytes <= INLINE_LIMIT or run[0].ndim > STACKED_RANK:
        return _describe_each(run, frames)
    enum = _enum_of.get(run[0].dtype)
    if enum is None:
        enum = _register_dtype(run[0])[1]
    if enum == _STRING or not run[0].dtype.isnative:
        return _describe_each(run, frames)
    count = STACK_LIMIT // run[0].nbytes
    stacks = [run[i : i + count] for i in range(0, len(run), count)]
    return [[-enum, b"".join([v.tobytes() for v in stack]), len(stack), *run[0].shape] for stack in stacks]


def describe(value: TensorLike, frames: list[Any]) -> list[Any]:
    """Describes one tensor."""
    if isinstance(value, bytes):  # a rank-0 string; as an array it would lose trailing zero bytes
        return _describe_strings([bytes(value)], (), frames)
    if type(value) is not np.ndarray:
        value = np.asarray(value)
    enum = _enum_of.get(value.dtype)
    if enum is None:
        value, enum = _register_dtype(value)
    if enum == _STRING:
        return _describe_strings(_string_elements(value), value.shape, frames)
    if value.nbytes <= INLINE_LIMIT:
        return [enum, value.tobytes(), *value.shape]
    if not value.flags.c_contiguous:
        shape, value = value.shape, np.ascontiguousarray(value)
    else:
        shape = value.shape
    frames.append(value.reshape(-1).view(np.uint8).data)
    return [enum, len(frames) - 1, *shape]


def _register_dtype(value: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """Registers the dtype of ``value``; returns the value in native byte order and the type number."""
    if value.dtype.kind in "SU":
        return value.astype(np.object_), _STRING
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    dtype = dtypes.as_dtype(value.dtype)
    if value.dtype.kind != "O" or dtype is dtypes.string:
        _enum_of[value.dtype] = dtype.as_datatype_enum
    return value, dtype.as_datatype_enum


def _describe_strings(items: list[bytes], shape: tuple[int, ...], frames: list[Any]) -> list[Any]:
    if len(items) <= INLINE_LIMIT // 8 and sum(map(len, items)) <= INLINE_LIMIT:
        return [_STRING, items, *shape]
    lengths = np.fromiter(map(len, items), _LENGTH, len(items))
    frames.append(b"".join((lengths.tobytes(), *items)))
    return [_STRING, len(frames) - 1, *shape]


def _string_elements(value: np.ndarray[Any, Any]) -> list[bytes]:
    items = value.reshape(-1).tolist()
    for i, item in enumerate(items):
        if type(item) is not bytes:
            items[i] = _as_bytes(item)
    return items


def _as_bytes(item: object) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return bytes(item)
    raise TypeError(f"a string tensor holds {type(item).__name__} ({item!r:.80}), not bytes")


def restore_tensors(entries: Any, parts: Sequence[Any], used: list[int]) -> tuple[np.ndarray[Any, Any], ...]:
    """The inverse of `describe_tensors`; appends the numbers of the frames that it takes to ``used``."""
    values: list[np.ndarray[Any, Any]] = []
    for entry in entries:
        if type(entry) is list and entry and type(entry[0]) is int and entry[0] < 0:
            values += _restore_stack(entry, parts, used)
            if len(values) > STACKED_MOST:
                raise ValueError(f"stacks of more than {STACKED_MOST} tensors")
        else:
            values.append(restore(entry, parts, used))
    return tuple(values)


def _restore_stack(entry: list[Any], parts: Sequence[Any], used: list[int]) -> list[np.ndarray[Any, Any]]:
    enum, payload, *shape = entry
    if type(payload) is not bytes or not shape:
        raise ValueError(f"a stack of tensors is described by {entry!r:.80}")
    if len(payload) > STACK_LIMIT or len(shape) > 1 + STACKED_RANK:
        raise ValueError(f"a stack of tensors has {len(payload)} bytes and {len(shape)} sizes")
    stack = restore([-enum, payload, *shape], parts, used)
    if len(payload) < STACKED_LEAST * len(stack):
        raise ValueError(f"a stack of {len(stack)} tensors has {len(payload)} bytes")
    return list(stack) if stack.ndim > 1 else [stack[i, ...] for i in range(len(stack))]  # else numpy scalars


def restore(entry: Any, parts: Sequence[Any], used: list[int]) -> np.ndarray[Any, Any]:
    """The inverse of `describe`.

    Raises:
      ValueError: the entry describes no tensor.
    """
    if type(entry) is not list or len(entry) < 2 or type(entry[0]) is not int:
        raise ValueError(f"a tensor is described by {entry!r:.80}")
    enum, payload, *sizes = entry
    for size in sizes:
        if type(size) is not int or size < 0:
            raise ValueError(f"a tensor's shape is {sizes!r:.80}")
    shape = tuple(sizes)  # numpy takes it in half the time of a list
    if type(payload) is int:
        if not 0 < payload < len(parts):
            raise ValueError(f"frame {payload} of {len(parts)}")
        used.append(payload)
        payload = parts[payload]
        if enum == _STRING:
            payload = _split_strings(payload, math.prod(shape))
    elif type(payload) is not bytes and type(payload) is not list:
        raise ValueError(f"a tensor's payload is {type(payload).__name__}")
    if type(payload) is list:
        return _restore_strings(enum, payload, shape)
    dtype = _numpy_of.get(enum)
    if dtype is None:
        dtype = _numpy_dtype(enum)
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, payload)  # raises if the buffer is too small
    if array.nbytes != len(payload):
        raise ValueError(f"{len(payload)} bytes cannot be a {dtype} tensor of shape {sizes}")
    return array


def _split_strings(frame: Any, count: int) -> list[bytes]:
    """Splits the frame of a string tensor into its elements."""
    start = 8 * count
    if start > len(frame):
        raise ValueError(f"{len(frame)} bytes cannot hold {count} strings")
    ends = np.frombuffer(frame, _LENGTH, count).cumsum().tolist()
    # Every end is checked, since the sum may have overflowed.
    items, body, begin = [], memoryview(frame)[start:], 0
    for end in ends:
        if not begin <= end <= len(body):
            raise ValueError("a string reaches beyond its frame")
        items.append(bytes(body[begin:end]))
        begin = end
    if begin != len(body):
        raise ValueError(f"{len(body) - begin} bytes too many in a frame of strings")
    return items


def _numpy_dtype(enum: Any) -> np.dtype[Any]:
    dtype = dtypes.DType(enum)
    if dtype.numpy.hasobject or dtype is not dtype.base_dtype:
        raise ValueError(f"{dtype.name} has no raw bytes")
    _numpy_of[enum] = dtype.numpy
    return dtype.numpy


def _restore_strings(enum: Any, items: list[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if enum != _STRING or math.prod(shape) != len(items) or not all(type(item) is bytes for item in items):
        raise ValueError(f"{len(items)} elements cannot be a string tensor of shape {list(shape)}")
    array = np.empty(len(items), np.object_)
    array[:] = items
    array = array.reshape(shape)
    array.flags.writeable = False
    return array
