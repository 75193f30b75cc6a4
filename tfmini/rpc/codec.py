"""Encodes messages as parts and decodes them.

`encode` gives a list of one-dimensional byte buffers: frame 0 (msgpack) and the raw frames of
the larger tensors, which are the arrays' own memory. `decode` gives arrays that are read-only
views of the parts (transports deliver read-only parts). How frame 0
describes a tensor, stands in `tensor_wire`.

`encode` raises LocalProtocolError and `decode` RemoteProtocolError, and nothing else.

The memory that frame 0 takes when unpacked is bounded, because one byte can become an empty map of
64 bytes. Its length is limited per kind (`header_limit`), and a long one may hold only as many
containers per byte as a graph needs. Large tensors travel in frames of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import msgpack
import numpy as np

from tfmini import dtypes
from tfmini.dtypes import DType
from tfmini.memory import collector_at_rest
from tfmini.rpc.messages import HANDSHAKE
from tfmini.rpc.records import (
    PROTOCOL_VERSION,
    REGISTRY,
    LocalProtocolError,
    Message,
    RemoteProtocolError,
    VersionMismatchError,
)
from tfmini.rpc.tensor_wire import INLINE_LIMIT, describe, describe_tensors, restore, restore_tensors
from tfmini.shapes import TensorShape

Part = Union[bytes, memoryview, "np.ndarray[Any, Any]"]

MESSAGE_LIMIT = 16 << 30  # bytes of all parts together
HANDSHAKE_LIMIT = 64 << 10  # bytes of a message from an unauthenticated peer
_HANDSHAKE_ITEMS = 16  # entries of a list in such a message
_ITEMS_LIMIT = 1 << 20  # entries of any list or map in frame 0
# A shorter frame 0 is harmless whatever it holds; in a longer one, containers are counted.
_COUNTED_FROM = 1 << 20
_BYTES_PER_CONTAINER = 6

_EXT_TENSOR, _EXT_DTYPE, _EXT_SHAPE, _EXT_REPEATED = 1, 2, 3, 4

_dtype_extensions: dict[DType, msgpack.ExtType] = {}
# Idle packers, reused because each allocates 256 KB. A thread takes one out while it packs.
_packers: list[msgpack.Packer] = []


# ---- Encoding ------------------------------------------------------------------------------------------------------


def encode(message: Message, request_id: int = 0) -> list[Any]:
    """Encodes a message as parts.

    Contiguous arrays are not copied: their memory must not change until the transport has sent it
    (the local lane copies it at once).
    """
    frames: list[Any] = [None]
    try:
        header = message.pack(request_id, describe_tensors, frames)
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
        raise LocalProtocolError(f"{type(message).__name__} is too large: {size} bytes; the limit is {MESSAGE_LIMIT}")
    return frames


def _extend(value: Any, frames: list[Any]) -> msgpack.ExtType:
    """msgpack's hook for types that it does not know."""
    if type(value) is DType:  # most attrs of a graph, and there are few types
        made = _dtype_extensions.get(value)
        if made is None:
            made = _dtype_extensions[value] = msgpack.ExtType(_EXT_DTYPE, bytes([value.as_datatype_enum]))
        return made
    if isinstance(value, (np.ndarray, np.generic)):
        if value.nbytes > INLINE_LIMIT and not any(value.strides):  # a constant of one value, which may be huge
            one = describe(np.asarray(value)[(0,) * value.ndim], frames)
            return msgpack.ExtType(_EXT_REPEATED, msgpack.packb([one, *value.shape]))
        return msgpack.ExtType(_EXT_TENSOR, msgpack.packb(describe(value, frames)))
    if isinstance(value, TensorShape):
        return msgpack.ExtType(_EXT_SHAPE, msgpack.packb(value.raw))
    raise TypeError(f"a {type(value).__name__} cannot be sent: {value!r:.80}")


# ---- Decoding ------------------------------------------------------------------------------------------------------


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
            raise RemoteProtocolError(f"{cls.__name__} has {cls.width - 3} fields, got {len(header) - 3}", request_id)
        message = cls.unpack(header, restore_tensors, parts, used)
        if len(used) != len(parts) - 1:
            raise RemoteProtocolError(f"{cls.__name__} uses {len(used)} of {len(parts) - 1} frames", request_id)
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
    return msgpack.unpackb(parts[0], ext_hook=_refuse_ext, max_array_len=_HANDSHAKE_ITEMS, max_map_len=0, max_ext_len=0)


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
    with collector_at_rest():
        return msgpack.unpackb(
            head, strict_map_key=False, ext_hook=lambda c, d: _restore_ext(c, d, parts, used),
            list_hook=containers.count, object_hook=containers.count, max_array_len=_ITEMS_LIMIT,
            max_map_len=_ITEMS_LIMIT,
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


def _restore_ext(code: int, data: bytes, parts: Sequence[Any], used: list[int]) -> Any:
    if code == _EXT_TENSOR:
        return restore(msgpack.unpackb(data, max_array_len=len(data)), parts, used)
    if code == _EXT_REPEATED:
        one, *shape = msgpack.unpackb(data, max_array_len=len(data))
        return np.broadcast_to(restore(one, parts, used), shape)  # a view: a small message does not take much memory
    if code == _EXT_DTYPE and len(data) == 1:
        return dtypes.DType(data[0])
    if code == _EXT_SHAPE:
        return TensorShape(msgpack.unpackb(data, max_array_len=len(data)))
    raise ValueError(f"unknown extension {code}")


def _refuse_ext(code: int, data: bytes) -> Any:
    raise ValueError(f"unknown extension {code}")
