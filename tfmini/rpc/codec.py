"""Encodes messages as parts and decodes them.

`encode` gives a list of one-dimensional byte buffers: frame 0 (msgpack) and the raw frames of
the larger tensors, which are the arrays' own memory. `decode` gives arrays that are read-only
views of the parts (transports deliver read-only parts). A tensor is described in frame 0 by
``[dtype enum, payload, size, size, ...]``, where the payload is

* an int: the index of the raw frame; of a string tensor that is a uint64 length per element, row by
  row, and then the elements;
* bytes: the elements themselves, for small tensors (a frame costs more than copying 2 KB);
* a list of bytes: the elements of a small string tensor, row by row.

`encode` raises LocalProtocolError and `decode` RemoteProtocolError, and nothing else.

The memory that frame 0 takes when unpacked is bounded, because one byte can become an empty map of
64 bytes. Its length is limited per kind (`header_limit`), and a long one may hold only as many
containers per byte as a graph needs. Large tensors travel in frames of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Union

import msgpack
import numpy as np

from tfmini import dtypes
from tfmini.dtypes import DType
from tfmini.rpc.connection_messages import HANDSHAKE
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
MESSAGE_LIMIT = 16 << 30  # bytes of all parts together
HANDSHAKE_LIMIT = 64 << 10  # bytes of a message from an unauthenticated peer
_HANDSHAKE_ITEMS = 16  # entries of a list in such a message
_ITEMS_LIMIT = 1 << 20  # entries of any list or map in frame 0
# A shorter frame 0 is harmless whatever it holds; in a longer one, containers are counted.
_COUNTED_FROM = 1 << 20
_BYTES_PER_CONTAINER = 6

_EXT_TENSOR, _EXT_DTYPE, _EXT_SHAPE = 1, 2, 3
_STRING = dtypes.string.as_datatype_enum
_LENGTH = np.dtype(np.uint64)

# Filled on the first use of a type: hashing a numpy dtype is far cheaper than dtypes.as_dtype.
_enum_of: dict[Any, int] = {}
_numpy_of: dict[int, np.dtype[Any]] = {}

# Idle packers, reused because each allocates 256 KB. A thread takes one out while it packs.
_packers: list[msgpack.Packer] = []


# ---------------------------------------------------------------------------------------------
# Encoding
# ---------------------------------------------------------------------------------------------


def encode(message: Message, request_id: int = 0) -> list[Any]:
    """Encodes a message as parts.

    Contiguous arrays are not copied: their memory must not change until the transport has sent it
    (the local lane and the in-process transport copy it at once).
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
    if len(frames[0]) > message.header_limit:
        raise LocalProtocolError(
            f"{type(message).__name__} is too large: {len(frames[0])} bytes without its tensors; the limit is"
            f" {message.header_limit}"
        )
    if len(frames) > 1 and (size := sum(map(len, frames))) > MESSAGE_LIMIT:
        raise LocalProtocolError(
            f"{type(message).__name__} is too large: {size} bytes; the limit is {MESSAGE_LIMIT}"
        )
    return frames


def _describe_tensors(values: tuple[Any, ...], frames: list[Any]) -> list[list[Any]]:
    described = []
    for value in values:
        if type(value) is np.ndarray and value.nbytes <= INLINE_LIMIT:
            enum = _enum_of.get(value.dtype)
            if enum is not None and enum != _STRING:  # inlined, since this is the usual case
                described.append([enum, value.tobytes(), *value.shape])
                continue
        described.append(_describe(value, frames))
    return described


def _describe(value: Any, frames: list[Any]) -> list[Any]:
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
    # memoryview.cast does not know the buffer formats of bfloat16 and complex.
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


def _as_bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return bytes(item)
    raise TypeError(f"a string tensor holds {type(item).__name__} ({item!r:.80}), not bytes")


def _extend(value: Any, frames: list[Any]) -> msgpack.ExtType:
    """msgpack's hook for types that it does not know."""
    if isinstance(value, (np.ndarray, np.generic)):
        return msgpack.ExtType(_EXT_TENSOR, msgpack.packb(_describe(value, frames)))
    if isinstance(value, DType):
        return msgpack.ExtType(_EXT_DTYPE, bytes([value.as_datatype_enum]))
    if isinstance(value, TensorShape):
        return msgpack.ExtType(_EXT_SHAPE, msgpack.packb(value.raw))
    raise TypeError(f"a {type(value).__name__} cannot be sent: {value!r:.80}")


# ---------------------------------------------------------------------------------------------
# Decoding
# ---------------------------------------------------------------------------------------------


def kind_of(parts: Sequence[Any]) -> int:
    """The number of a message's kind, as its first bytes say; 0: they say none. It may be malformed all the same."""
    head = bytes(memoryview(parts[0])[:3]) if parts else b""
    return head[2] if len(head) == 3 and 0x93 <= head[0] <= 0x9F and max(head[1:]) < 0x80 else 0


def decode(parts: Sequence[Any], handshake: bool = False) -> tuple[Message, int]:
    """Decodes a message; returns it and its request id.

    Args:
      handshake: the sender is unauthenticated: accept only a short message of the handshake.

    Raises:
      VersionMismatchError: the peer uses another version of the protocol.
      RemoteProtocolError: the parts are not a valid message.
    """
    used: list[int] = []
    request_id = 0
    try:
        header = _unpack_handshake(parts) if handshake else _unpack(parts, used)
        if type(header) is not list or len(header) < 3:
            raise RemoteProtocolError("the header is not a list of at least three entries")
        if header[0] != PROTOCOL_VERSION:
            raise VersionMismatchError(header[0])
        if type(header[2]) is not int or header[2] < 0:
            raise RemoteProtocolError(f"the request id is {header[2]!r:.80}")
        request_id = header[2]
        cls = REGISTRY.get(header[1]) if type(header[1]) is int else None
        if cls is None:
            raise RemoteProtocolError(f"unknown message kind {header[1]!r:.80}", request_id)
        if handshake and cls not in HANDSHAKE:
            raise RemoteProtocolError(f"expected a Hello, got {cls.__name__}", request_id)
        if len(header) != cls.width:
            raise RemoteProtocolError(
                f"{cls.__name__} has {cls.width - 3} fields, got {len(header) - 3}", request_id
            )
        message = cls.unpack(header, _restore_tensors, parts, used)
        if len(used) != len(parts) - 1:
            raise RemoteProtocolError(
                f"{cls.__name__} uses {len(used)} of {len(parts) - 1} frames", request_id
            )
    except RemoteProtocolError:
        raise
    except Exception as error:  # noqa: BLE001 - any error here is caused by the bytes that the peer sent
        raise RemoteProtocolError(f"bad message: {_describe_error(error)}", request_id) from error
    return message, request_id


def _describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, (ValueError, LocalProtocolError)) else f"{type(error).__name__}: {error}"


def _unpack_handshake(parts: Sequence[Any]) -> Any:
    """Unpacks frame 0 of a message from an unauthenticated peer."""
    size = sum(map(len, parts))
    if size > HANDSHAKE_LIMIT or len(parts) != 1:
        raise RemoteProtocolError(f"expected a Hello, got {len(parts)} parts of {size} bytes together")
    return msgpack.unpackb(
        parts[0], ext_hook=_refuse_ext, max_array_len=_HANDSHAKE_ITEMS, max_map_len=0, max_ext_len=0
    )


def _unpack(parts: Sequence[Any], used: list[int]) -> Any:
    """Unpacks frame 0 to Python objects."""
    head = parts[0]
    if len(head) < _COUNTED_FROM:
        return msgpack.unpackb(
            head, strict_map_key=False, ext_hook=lambda c, d: _restore_ext(c, d, parts, used),
            max_array_len=len(head), max_map_len=len(head),
        )  # fmt: skip
    cls = _kind_of(head)
    if cls is not None and len(head) > cls.header_limit:
        raise RemoteProtocolError(f"a header of {len(head)} bytes is too long for {cls.__name__}")
    containers = _Containers(len(head) // _BYTES_PER_CONTAINER)
    return msgpack.unpackb(
        head, strict_map_key=False, ext_hook=lambda c, d: _restore_ext(c, d, parts, used), list_hook=containers.count,
        object_hook=containers.count, max_array_len=_ITEMS_LIMIT, max_map_len=_ITEMS_LIMIT,
    )  # fmt: skip


def _kind_of(head: Any) -> type[Message] | None:
    """Reads the kind from a packed frame 0: ``[version, kind, ...]``, both below 128."""
    start = 1 if head[0] & 0xF0 == 0x90 else 3  # a list of up to 15 entries, or of up to 65535
    cls = REGISTRY.get(head[start + 1])
    if cls is None:
        raise RemoteProtocolError(f"a header of {len(head)} bytes is too long for an unknown kind")
    return cls


class _Containers:
    """Counts lists and maps while they are unpacked; raises ValueError when there are too many."""

    __slots__ = ("_left",)

    def __init__(self, limit: int) -> None:
        self._left = limit

    def count(self, container: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ValueError("the header holds too many lists and maps for its length")
        return container


def _restore_tensors(entries: Any, parts: Sequence[Any], used: list[int]) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple([_restore(entry, parts, used) for entry in entries])


def _restore_ext(code: int, data: bytes, parts: Sequence[Any], used: list[int]) -> Any:
    if code == _EXT_TENSOR:
        return _restore(msgpack.unpackb(data, max_array_len=len(data)), parts, used)
    if code == _EXT_DTYPE and len(data) == 1:
        return dtypes.DType(data[0])
    if code == _EXT_SHAPE:
        return TensorShape(msgpack.unpackb(data, max_array_len=len(data)))
    raise ValueError(f"unknown extension {code}")


def _refuse_ext(code: int, data: bytes) -> Any:
    raise ValueError(f"unknown extension {code}")


def _restore(entry: Any, parts: Sequence[Any], used: list[int]) -> np.ndarray[Any, Any]:
    if type(entry) is not list or len(entry) < 2 or type(entry[0]) is not int:
        raise ValueError(f"a tensor is described by {entry!r:.80}")
    enum, payload, *shape = entry
    for size in shape:
        if type(size) is not int or size < 0:
            raise ValueError(f"a tensor's shape is {shape!r:.80}")
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
        raise ValueError(f"{len(payload)} bytes cannot be a {dtype} tensor of shape {shape}")
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


def _restore_strings(enum: Any, items: list[Any], shape: list[int]) -> np.ndarray[Any, Any]:
    if enum != _STRING or math.prod(shape) != len(items) or not all(type(item) is bytes for item in items):
        raise ValueError(f"{len(items)} elements cannot be a string tensor of shape {shape}")
    array = np.empty(len(items), np.object_)
    array[:] = items
    array = array.reshape(shape)
    array.flags.writeable = False
    return array
