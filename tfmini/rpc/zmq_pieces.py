"""Large messages over ZeroMQ travel in pieces.

ZeroMQ encrypts or decrypts a frame at once, in the thread that also serves all other connections: 2.6 GB take longer
than a peer may be silent. It also has one limit of frames for all clients of a listener, before they are admitted and
after. So a message of more than `PIECE_BYTES` has the format of a lane (`lane_wire`) and is cut into pieces. A piece
is a ZeroMQ message of two empty frames and up to `PIECE_BYTES`, in any number of frames. The pieces of a message
follow each other without another message between them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from tfmini.rpc import lane_wire
from tfmini.rpc.receive_buffers import memory_for

PIECE_BYTES = 256 << 10
FRAME_LIMIT = PIECE_BYTES + 4096  # bytes of a frame, with what encryption adds


def is_large(parts: Sequence[Any]) -> bool:
    """Whether a message travels in pieces."""
    return (len(parts[0]) if len(parts) == 1 else sum(map(len, parts))) > PIECE_BYTES


def cut(parts: Sequence[Any]) -> Iterator[list[Any]]:
    """Yields the pieces of a message; they share its memory."""
    piece: list[Any] = [b"", b""]
    room = PIECE_BYTES
    for chunk in lane_wire.pack(parts, (), None)[0]:
        rest = memoryview(chunk)
        while rest:
            piece.append(rest[:room])
            rest, room = rest[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [b"", b""], PIECE_BYTES
    if len(piece) > 2:
        yield piece


def is_piece(frames: Sequence[Any]) -> bool:
    """Whether a ZeroMQ message is a piece of a message."""
    return len(frames) > 2 and not len(frames[0]) and not len(frames[1])


class Assembly:
    """Joins the pieces that arrive on one connection. ``received`` counts their bytes."""

    __slots__ = ("_have", "_memory", "_view", "received")

    def __init__(self) -> None:
        self.received = 0
        self._have = 0
        self._memory: Any = None
        self._view: Any = None

    def add(self, frames: Sequence[Any]) -> list[Any] | None:
        """Adds a piece; returns the message's parts if it is the last one.

        Raises:
          ValueError: the piece is malformed.
          MemoryError: out of memory.
        """
        for frame in frames[2:]:
            if self._memory is None:
                self._begin(frame)
            end = self._have + len(frame)
            if end > len(self._memory):
                raise ValueError("a piece that reaches beyond its message")
            self._memory[self._have : end] = frame
            self._have = end
            self.received += len(frame)
        return self._finish() if self._memory is not None and self._have == len(self._memory) else None

    def _begin(self, frame: Any) -> None:
        if len(frame) < lane_wire.PREFIX.size:
            raise ValueError(f"a first piece of {len(frame)} bytes")
        # Most connections move to a lane after their first large message: a kept buffer would lie idle.
        is_first = not self.received
        self._memory, self._view = memory_for(lane_wire.read_prefix(frame, 0)[2], keep=not is_first)
        self._have = 0

    def _finish(self) -> list[Any]:
        view, self._memory, self._view = self._view, None, None
        try:
            parts, notes = lane_wire.unpack(view, 0, lane_wire.read_prefix(view, 0), _no_block)
        except struct.error as error:
            raise ValueError(f"a malformed table: {error}") from None
        if notes or not parts:
            raise ValueError("a message of pieces without parts, or with notes")
        return parts


def _no_block(block_id: int) -> Any:
    raise ValueError("shared memory in a message of pieces")
