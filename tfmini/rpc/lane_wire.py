"""The format of a message in the byte stream of a lane.

Every piece is padded to 16 bytes, so that arrays are aligned::

    u32 parts, u32 notes, u64 total bytes | u64 per part: length | u64 per note | part, part, ...

If the top bit of a part's length is set, the part is in shared memory, and its piece holds the block's
id and the offset in it. A note returns a block to its owner, or, with the top bit set, tells the
receiver to drop its mapping of a block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from tfmini.rpc import codec

SHARE_FROM = 64 << 10  # bytes; smaller parts go through the socket
# Bytes of one message in the stream. The receiver allocates it when the prefix arrives, but the system
# provides pages only for received bytes.
MESSAGE_LIMIT = codec.MESSAGE_LIMIT + (64 << 20)
PARTS_LIMIT = 1 << 20
FLAG = 1 << 63
Places = Sequence[tuple[int, int]]
"""Of each part in shared memory: the number of its block, and where it begins there."""

PREFIX = struct.Struct("<IIQ")
PLACE = struct.Struct("<QQ")
SINGLE = struct.Struct("<IIQQQ")  # the padded table of a message with one part
PADDING = [bytes(-n % 16) for n in range(16)]
_tables: dict[int, struct.Struct] = {}


def _table(count: int) -> struct.Struct:
    packer = _tables.get(count)
    if packer is None:
        packer = struct.Struct(f"<IIQ{count}Q")
        if count < 64:
            _tables[count] = packer
    return packer


def pack_single(part: Any) -> bytes:
    """Packs a message of one small part, the usual case."""
    size = len(part)
    padding = PADDING[size & 15]
    return b"".join((SINGLE.pack(1, 0, 32 + size + len(padding), size, 0), part, padding))


def pack(parts: Sequence[Any], notes: Sequence[int], places: Places | None) -> tuple[list[Any], int]:
    """Packs a message; returns its pieces and their size in bytes.

    Args:
      places: of the parts of at least `SHARE_FROM` bytes in shared memory; None: they follow in the stream.
    """
    numbers: list[int] = []
    body: list[Any] = []
    shared = iter(places or ())
    for part in parts:
        size = len(part)
        if places is not None and size >= SHARE_FROM:
            numbers.append(size | FLAG)
            body.append(PLACE.pack(*next(shared)))
        else:
            numbers.append(size)
            body.append(part)
            if size & 15:
                body.append(PADDING[size & 15])
    numbers += notes
    if len(numbers) & 1:
        numbers.append(0)
    total = PREFIX.size + 8 * len(numbers) + sum(map(len, body))
    return [_table(len(numbers)).pack(len(parts), len(notes), total, *numbers), *body], total


def read_prefix(data: Any, offset: int) -> tuple[int, int, int]:
    """Reads (parts, notes, total bytes) of the message at ``offset``.

    Raises:
      ValueError: a number is out of bounds.
    """
    count, notes, total = PREFIX.unpack_from(data, offset)
    if total > MESSAGE_LIMIT or count > PARTS_LIMIT or notes > PARTS_LIMIT or total < 16:
        raise ValueError(f"a message of {count} parts and {total} bytes")
    return count, notes, total


def unpack(
    data: Any, start: int, prefix: tuple[int, int, int], borrow: Callable[[int], Any]
) -> tuple[list[Any], Sequence[int]]:
    """Unpacks the parts and notes of a complete message.

    Args:
      data: the bytes that hold the message, at ``start``; parts are slices of it.
      borrow: block id -> the bytes of that block.

    Raises:
      ValueError: the message is malformed.
    """
    count, notes, total = prefix
    position = start + 16 + 8 * (count + notes)
    if position > start + total:
        raise ValueError("a message shorter than its table")
    table = struct.unpack_from(f"<{count + notes}Q", data, start + 16)
    position += -(position - start) % 16
    parts: list[Any] = []
    blocks: dict[int, Any] = {}
    for number in table[:count]:
        size = 16 if number & FLAG else number
        if position + size > start + total:
            raise ValueError("a part that reaches beyond its message")
        if number & FLAG:
            block_id, offset = PLACE.unpack_from(data, position)
            if block_id not in blocks:
                blocks[block_id] = borrow(block_id)
            part = blocks[block_id][offset : offset + (number ^ FLAG)]
            if len(part) != number ^ FLAG:
                raise ValueError("a part that reaches beyond its block")
            parts.append(part)
        else:
            parts.append(data[position : position + size])
        position += size + (-size % 16)
    return parts, table[count:]
