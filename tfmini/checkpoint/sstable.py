"""Sorted string tables, the format of index files: sorted keys and values in blocks with checksums.

::

    file    = data block*, meta-index block (empty), index block, footer
    block   = entry*, restart offset (fixed32)*, count of restarts (fixed32),
              compression type (1 byte, 0 = none), masked CRC-32C of the preceding bytes (fixed32)
    entry   = varint shared, varint unshared, varint value length, key[shared:], value
    footer  = handle of the meta-index, handle of the index, zeros up to 40 bytes, magic (fixed64)
    handle  = varint offset, varint size without the 5 bytes of type and checksum

``shared`` is the length of the prefix that a key shares with the previous key; at a restart it is 0.
The index has one entry per data block; its key is >= the block's last key and < the next block's first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from tfmini.checkpoint import checksums, varint

MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
_BLOCK_SIZE = 262144
_RESTART_INTERVAL = 16
_TRAILER = struct.Struct("<BI")


class TableError(ValueError):
    """The bytes are no valid table; the text has the reason."""


# ---- writing --------------------------------------------------------------------------------


class _BlockBuilder:
    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self.reset()

    def reset(self) -> None:
        self._buffer = bytearray()
        self._restarts = [0]
        self._since_restart = 0
        self.last_key = b""

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._since_restart < self._interval:
            shared = _common(self.last_key, key)
        else:
            self._restarts.append(len(self._buffer))
            self._since_restart = 0
        for number in (shared, len(key) - shared, len(value)):
            self._buffer += varint.encode(number)
        self._buffer += key[shared:]
        self._buffer += value
        self.last_key = key
        self._since_restart += 1

    @property
    def size(self) -> int:
        return len(self._buffer) + 4 * len(self._restarts) + 4

    def finish(self) -> bytes:
        restarts = struct.pack(f"<{len(self._restarts) + 1}I", *self._restarts, len(self._restarts))
        return bytes(self._buffer) + restarts


def build(items: Iterable[tuple[bytes, bytes]], block_size: int = _BLOCK_SIZE) -> bytes:
    """Builds the table of ``items``, whose keys must be strictly increasing.

    Raises:
      ValueError: when they are not.
    """
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    data = _BlockBuilder(_RESTART_INTERVAL)
    ended: tuple[bytes, bytes] | None = None  # last key and handle of a finished block without an index entry
    last: bytes | None = None
    for key, value in items:
        if last is not None and key <= last:
            raise ValueError(f"keys out of order: {key!r} after {last!r}")
        if ended is not None:
            index.append((_separator(ended[0], key), ended[1]))
            ended = None
        data.add(key, value)
        last = key
        if data.size >= block_size:
            ended = (key, _append_block(out, data.finish()))
            data.reset()
    if last is not None and ended is None:
        ended = (last, _append_block(out, data.finish()))
    if ended is not None:
        index.append((_successor(ended[0]), ended[1]))
    return bytes(out + _append_index(out, index))


def _append_index(out: bytearray, index: list[tuple[bytes, bytes]]) -> bytes:
    """Appends the meta-index and the index to ``out``; returns the footer."""
    meta_handle = _append_block(out, _BlockBuilder(_RESTART_INTERVAL).finish())
    block = _BlockBuilder(1)
    for key, handle in index:
        block.add(key, handle)
    handles = meta_handle + _append_block(out, block.finish())
    return handles.ljust(FOOTER_SIZE - 8, b"\0") + struct.pack("<Q", MAGIC)


def _append_block(out: bytearray, content: bytes) -> bytes:
    handle = varint.encode(len(out)) + varint.encode(len(content))
    checksum = checksums.masked(checksums.extend(0, content + b"\0"))
    out += content
    out += _TRAILER.pack(0, checksum)
    return handle


def _common(a: bytes, b: bytes) -> int:
    limit = min(len(a), len(b))
    for i in range(limit):
        if a[i] != b[i]:
            return i
    return limit


def _separator(start: bytes, limit: bytes) -> bytes:
    """Returns a short key k with start <= k < limit."""
    i = _common(start, limit)
    if i < min(len(start), len(limit)) and start[i] < 0xFF and start[i] + 1 < limit[i]:
        return start[:i] + bytes([start[i] + 1])
    return start


def _successor(key: bytes) -> bytes:
    """Returns a short key k with key <= k."""
    for i, byte in enumerate(key):
        if byte != 0xFF:
            return key[:i] + bytes([byte + 1])
    return key


# ---- reading --------------------------------------------------------------------------------


def read(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table, in order.

    Raises:
      TableError: when the bytes are no table or corrupt.
    """
    if len(table) < FOOTER_SIZE:
        raise TableError("file is too short to be an sstable")
    footer = table[-FOOTER_SIZE:]
    if struct.unpack("<Q", footer[-8:])[0] != MAGIC:
        raise TableError("not an sstable (bad magic number)")
    try:
        _, position = _handle(footer, 0)
        index_handle, _ = _handle(footer, position)
        for _, encoded in _entries(_block(table, index_handle)):
            yield from _entries(_block(table, _handle(encoded, 0)[0]))
    except TableError:
        raise
    except (ValueError, IndexError, struct.error) as error:
        raise TableError(f"malformed sstable: {error}") from None


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = varint.decode(data, position)
    size, position = varint.decode(data, position)
    return (offset, size), position


def _block(table: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    if offset + size + _TRAILER.size > len(table):
        raise TableError("truncated block read")
    kind, stored = _TRAILER.unpack_from(table, offset + size)
    if checksums.masked(checksums.extend(0, table[offset : offset + size + 1])) != stored:
        raise TableError("block checksum mismatch")
    if kind != 0:
        raise TableError(f"block compression type {kind} is not supported (1 is snappy)")
    return table[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * restarts
    position, key = 0, b""
    while position < end:
        shared, position = varint.decode(block, position)
        unshared, position = varint.decode(block, position)
        length, position = varint.decode(block, position)
        if shared > len(key) or position + unshared + length > end:
            raise TableError("bad entry in block")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length
