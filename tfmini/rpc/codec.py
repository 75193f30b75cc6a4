"""Messages to parts and back.

`encode` gives a list of one-dimensional byte buffers: frame 0 (msgpack) and the raw frames of
the larger tensors, which are the arrays' own memory. `decode` gives arrays that are read-only
views of the parts (transports deliver read-only parts). A tensor is described in frame 0 by
``[dtype enum, payload, size, size, ...]``, where the payload is

* an int: the index of the raw frame;
* bytes: the elements themselves, for small tensors (a frame costs more than copying 2 KB);
* a list of bytes: the elements of a string tensor, row by row.

`encode` raises LocalProtocolError and `decode` RemoteProtocolError, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Union

import msgpack
import numpy as np

from tfmini import dtypes
from tfmini.dtypes import DType
from tfmini.rpc.records import (
    PROTOCOL_VERSION,
    REGISTRY,
    LocalProtocolError,
    Message,
    RemoteProtocolError,
    VersionMismatchError,
)
from tfmini.shapes import TensorShape

Part = Union[bytes, memoryview, "np.ndarray[Any, Any]"]

INLINE_LIMIT = 2048  # bytes; tensors up to this size travel inside frame 0
HEADER_LIMIT = 256 << 20  # bytes of frame 0; a graph of a million nodes fits

_EXT_TENSOR, _EXT_DTYPE, _EXT_SHAPE = 1, 2, 3
_STRING = dtypes.string.as_datatype_enum

# Filled as types are met: hashing a numpy dtype is far cheaper than dtypes.as_dtype.
_enum_of: dict[Any, int] = {}
_numpy_of: dict[int, np.dtype[Any]] = {}

# Packers allocate 256 KB each, so they are reused; a thread takes one out while it packs.
_packers: list[msgpack.Packer] = []


# ---------------------------------------------------------------------------------------------
# Encoding
# ---------------------------------------------------------------------------------------------


def encode(message: Message, request_id: int = 0) -> list[Any]:
    """The parts of a message.

    Contiguous arrays are not copied: their memory must stay as it is until the transport has
    taken it (the local lane and the in-process transport take it at once).
    """
    frames: list[Any] = [None]
    try:
        header = message.pack(request_id, _describe_tensors, frames)
        if message.has_structure:
            frames[0] = msgpack.Packer(default=lambda value: _extend(value, frames)).pack(header)
        else:
            packer = _packers.pop() if _packers else msgpack.Packer()
            frames[0] = packer.pack(header)
            _packers.append(packer)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{type(message).__name__} cannot be encoded: {error}") from error
    if len(frames[0]) > HEADER_LIMIT:
        raise LocalProtocolError(
            f"{type(message).__name__} is too large: {len(frames[0])} bytes beside its tensors"
        )
    return frames


def _describe_tensors(values: tuple[Any, ...], frames: list[Any]) -> list[list[Any]]:
    described = []
    for value in values:
        if type(value) is np.ndarray and value.nbytes <= INLINE_LIMIT:
            enum = _enum_of.get(value.dtype)
            if enum is not None and enum != _STRING:  # the usual one, without a call
                described.append([enum, value.tobytes(), *value.shape])
                continue
        described.append(_describe(value, frames))
    return described


def _describe(value: Any, frames: list[Any]) -> list[Any]:
    if type(value) is bytes:  # a kernel's rank-0 string; as an array it would lose trailing zero bytes
        return [_STRING, [value]]
    if type(value) is not np.ndarray:
        if isinstance(value, bytes):  # a scalar string; numpy would cut off zero bytes at its end
            return [_STRING, [value]]
        value = np.asarray(value)
    enum = _enum_of.get(value.dtype)
    if enum is None:
        value, enum = _learn(value)
    if enum == _STRING:
        return [enum, _string_elements(value), *value.shape]
    if value.nbytes <= INLINE_LIMIT:
        return [enum, value.tobytes(), *value.shape]
    if not value.flags.c_contiguous:
        shape, value = value.shape, np.ascontiguousarray(value)
    else:
        shape = value.shape
    # Not memoryview.cast: bfloat16 and complex have no buffer format that it knows.
    frames.append(value.reshape(-1).view(np.uint8).data)
    return [enum, len(frames) - 1, *shape]


def _learn(value: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """The type number of a numpy dtype met for the first time; foreign byte order is converted."""
    if value.dtype.kind in "SU":
        return value.astype(np.object_), _STRING
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    dtype = dtypes.as_dtype(value.dtype)
    if value.dtype.kind != "O" or dtype is dtypes.string:
        _enum_of[value.dtype] = dtype.as_datatype_enum
    return value, dtype.as_datatype_enum


def _string_elements(value: np.ndarray[Any, Any]) -> list[bytes]:
    items = value.reshape(-1).tolist()
    for i, item in enumerate(items):
        if type(item) is not bytes:
            items[i] = _as_bytes(item)
    return items


def _as_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return bytes(item)
    raise TypeError(f"a string tensor holds {type(item).__name__} ({item!r:.80}), not bytes")


def _extend(value: Any, frames: list[Any]) -> msgpack.ExtType:
    """msgpack's hook for what it does not know itself."""
    if isinstance(value, (np.ndarray, np.generic)):
        return msgpack.ExtType(_EXT_TENSOR, msgpack.packb(_describe(value, frames)))
    if isinstance(value, DType):
        return msgpack.ExtType(_EXT_DTYPE, bytes([value.as_datatype_enum]))
    if isinstance(value, TensorShape):
        return msgpack.ExtType(_EXT_SHAPE, msgpack.packb(value.raw))
    raise TypeError(f"a {type(value).__name__} cannot travel: {value!r:.80}")


# ---------------------------------------------------------------------------------------------
# Decoding
# ---------------------------------------------------------------------------------------------

# What unpacking hostile bytes can raise: bad UTF-8 and formats (ValueError), unhashable keys
# (TypeError), no parts or no entries (IndexError), sizes beyond a C integer (OverflowError),
# nesting (RecursionError).
_UNPACK_ERRORS = (
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
    RecursionError,
    msgpack.UnpackException,
    MemoryError,
)


def decode(parts: Sequence[Any]) -> tuple[Message, int]:
    """The message and its request id.

    Raises:
      VersionMismatchError: the peer speaks another version.
      RemoteProtocolError: anything else that is wrong with the parts.
    """
    used: list[int] = []
    request_id = 0
    try:
        head = parts[0]
        if len(head) > HEADER_LIMIT:
            raise RemoteProtocolError(f"a header of {len(head)} bytes is too long")
        header = msgpack.unpackb(
            head, strict_map_key=False, ext_hook=lambda c, d: _restore_ext(c, d, parts, used)
        )
        if type(header) is not list or len(header) < 3:
            raise RemoteProtocolError("the header is not a list of at least three entries")
        if header[0] != PROTOCOL_VERSION:
            raise VersionMismatchError(header[0])
        cls = REGISTRY.get(header[1])
        if type(header[2]) is not int or header[2] < 0:
            raise RemoteProtocolError(f"the request id is {header[2]!r:.80}")
        request_id = header[2]
        if cls is None or type(header[1]) is not int:
            raise RemoteProtocolError(f"unknown message kind {header[1]!r:.80}", request_id)
        if len(header) != cls.width:
            raise RemoteProtocolError(
                f"{cls.__name__} has {cls.width - 3} fields, got {len(header) - 3}", request_id
            )
        message = cls.unpack(header, _restore_tensors, parts, used)
        if len(used) != len(parts) - 1:
            raise RemoteProtocolError(
                f"{cls.__name__} uses {len(used)} of {len(parts) - 1} frames", request_id
            )
    except (LocalProtocolError, *_UNPACK_ERRORS) as error:
        raise RemoteProtocolError(f"bad message: {error}", request_id) from error
    return message, request_id


def _restore_tensors(entries: Any, parts: Sequence[Any], used: list[int]) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple([_restore(entry, parts, used) for entry in entries])


def _restore_ext(code: int, data: bytes, parts: Sequence[Any], used: list[int]) -> Any:
    if code == _EXT_TENSOR:
        return _restore(msgpack.unpackb(data), parts, used)
    if code == _EXT_DTYPE and len(data) == 1:
        return dtypes.DType(data[0])
    if code == _EXT_SHAPE:
        raw = msgpack.unpackb(data)
        return TensorShape(raw)
    raise ValueError(f"unknown extension {code}")


def _restore(entry: Any, parts: Sequence[Any], used: list[int]) -> np.ndarray[Any, Any]:
    enum, payload = entry[0], entry[1]
    if type(payload) is int:
        if not 0 < payload < len(parts):
            raise ValueError(f"frame {payload} of {len(parts)}")
        used.append(payload)
        payload = parts[payload]
    elif type(payload) is list:
        return _restore_strings(enum, payload, entry[2:])
    elif type(payload) is not bytes:
        raise ValueError(f"a tensor's payload is {type(payload).__name__}")
    dtype = _numpy_of.get(enum)
    if dtype is None:
        dtype = _numpy_dtype(enum)
    array: np.ndarray[Any, Any] = np.ndarray(entry[2:], dtype, payload)  # refuses a buffer that is too small
    if array.nbytes != len(payload):
        raise ValueError(f"{len(payload)} bytes cannot be a {dtype} tensor of shape {entry[2:]}")
    return array


def _numpy_dtype(enum: Any) -> np.dtype[Any]:
    dtype = dtypes.DType(enum)
    if dtype.numpy.hasobject or dtype is not dtype.base_dtype:
        raise ValueError(f"{dtype.name} has no raw bytes")
    _numpy_of[enum] = dtype.numpy
    return dtype.numpy


def _restore_strings(enum: Any, items: list[Any], shape: list[int]) -> np.ndarray[Any, Any]:
    if enum != _STRING or math.prod(shape) != len(items) or not all(type(item) is bytes for item in items):
        raise ValueError(f"{len(items)} elements cannot be a string tensor of shape {shape}")
    array = np.empty(len(items), np.object_)
    array[:] = items
    array = array.reshape(shape)
    array.flags.writeable = False
    return array
