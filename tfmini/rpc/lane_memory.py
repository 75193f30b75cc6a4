"""The shared memory of one local lane: its own blocks, the peer's, and the notes that give them back.

Descriptors of blocks travel by a second socket, so the message socket can be read without
ancillary data.
"""

from __future__ import annotations

import collections
import socket
from collections.abc import Callable, Sequence
from typing import Any

from tfmini.rpc.lane_wire import FLAG, PLACE
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.shared_blocks import Block, BlockCache, BlockPool

_URGENT_BYTES = 1 << 20  # a freed block of this size goes back at once, smaller ones with the next message
_FREE_TICK_S = 0.02


class LaneMemory:
    """See the module.

    Args:
      sock: the socket for descriptors.
      send_notes: sends a message that only takes the notes along.
    """

    def __init__(self, sock: socket.socket, reactor: Reactor, send_notes: Callable[[], None]) -> None:
        self._sock = sock
        self._reactor = reactor
        self._send_notes = send_notes
        self._pool = BlockPool()
        self._cache = BlockCache(self._on_free)
        self._timer: Any = None
        self._closed = False
        self.notes: collections.deque[int] = collections.deque()
        sock.setblocking(False)

    def statistics(self) -> dict[str, int]:
        """Blocks of this side, and transfers of the other side still in use here."""
        return {**self._pool.statistics(), "borrowed": self._cache.borrowed}

    # -- this side's blocks --------------------------------------------------------------

    def share(self, parts: list[Any]) -> Block | None:
        """Copies the parts into one block; None when there is none to be had."""
        block = self._pool.take(sum(len(part) + (-len(part) & 63) for part in parts))
        if block is None:
            return None
        try:
            block.fill(parts)
        except OSError:  # out of memory
            self._pool.discard(block.id)
            return None
        return block

    def pass_on(self, block: Block) -> bool:
        """Sends the descriptor ahead of the message; False when its socket is full."""
        if block.fd < 0:
            return True
        try:
            socket.send_fds(self._sock, [PLACE.pack(block.id, block.capacity)], [block.fd])
        except BlockingIOError:
            self._pool.give_back(block.id)
            return False
        block.forget_fd()
        return True

    def take_notes(self) -> list[int]:
        """The notes that wait, for a message that takes them along."""
        notes = []
        while self.notes:
            notes.append(self.notes.popleft())
        return notes

    # -- the peer's blocks ---------------------------------------------------------------

    def borrow(self, block_id: int) -> Any:
        """The bytes of a transfer.

        Raises:
          ValueError, BlockingIOError: the peer broke the rules.
        """
        while block_id not in self._cache:
            message, fds, _, _ = socket.recv_fds(self._sock, PLACE.size, 1)
            if len(message) != PLACE.size or len(fds) != 1:
                raise ValueError("a shared memory block did not come")
            self._cache.add(PLACE.unpack(message)[0], fds[0])
        if self._timer is None:
            self._timer = self._reactor.call_later(_FREE_TICK_S, self._return_blocks, _FREE_TICK_S)
        return self._cache.borrow(block_id)

    def read_notes(self, notes: Sequence[int]) -> None:
        """Takes in the peer's notes.

        Raises:
          ValueError: a block comes back that was not lent.
        """
        for note in notes:
            if note & FLAG:
                self._cache.forget(note ^ FLAG)
                continue
            try:
                self.notes.extend(block_id | FLAG for block_id in self._pool.give_back(note))
            except KeyError:
                raise ValueError(f"block {note} was given back but not lent") from None

    def _on_free(self, block_id: int, nbytes: int) -> None:
        """The last view of a transfer has died; see `BlockCache` for what is allowed here."""
        self.notes.append(block_id)
        if nbytes >= _URGENT_BYTES and not self._closed:
            self._reactor.call_soon(self._send_notes)

    def _return_blocks(self, delay: float) -> None:
        """Sends back what no message has taken along, ever more rarely while transfers are in use."""
        self._timer = None
        self._send_notes()
        if self._cache.borrowed and not self._closed:
            delay = min(1.0, delay * 2)
            self._timer = self._reactor.call_later(delay, self._return_blocks, delay)

    def close(self) -> None:
        """Releases all; transfers in use stay valid."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()
        self._pool.close()
        self._cache.close()
