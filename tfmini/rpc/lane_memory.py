"""The shared memory of one local lane: its own blocks, the peer's blocks, and the notes that return them.

Descriptors of blocks travel on a second socket, so the message socket can be read without
ancillary data.
"""

from __future__ import annotations

import collections
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini.rpc.forks import AT_LIMIT, at_limit, has_room, receive_descriptor
from tfmini.rpc.lane_wire import FLAG, PLACE, Places
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.shared_blocks import KEEP_S, Block, BlockCache, BlockPool, Loan, address_of, lend
from tfmini.rpc.waiter import Timer

# ---- Parts that are computed in a block of shared memory, so that sending them takes no copy -----------------------
# A kernel whose large result only goes to a task on the same host gets memory of a block for it (`PartMemory.make`).
# The lane recognises the part by its address and sends the place of it. Whatever happens to the array in between (the
# step fails, the connection breaks, the array takes another way), it is an ordinary array: the block stays lent until
# the last view of the array is gone, and, if it was sent, until the peer has returned it.

# Blocks with such parts at a time, computed or on their way; a connection has `BLOCK_LIMIT` blocks, and keeps half of
# them when they are idle. The parts beyond are copied, all those of a message into one block.
PART_LIMIT = 16


class PartMemory:
    """The blocks of one connection in which parts are computed. Thread-safe without a lock, as `BlockCache` is.

    Args:
      pool: the connection's blocks.
      on_unused: gets the id of a block that may go back to the pool. It must not lock.
    """

    def __init__(self, pool: BlockPool, on_unused: Callable[[int], None]) -> None:
        self._pool = pool
        self._on_unused = on_unused
        self._loans: dict[int, Loan] = {}  # by block id: of the arrays that are in use here
        self._unsent: dict[int, Block] = {}  # by address
        self._sent: set[int] = set()
        # Of a sent block either the array goes first or the peer's return comes first: whoever finds the other here is
        # the second one, so exactly one of them gives the block back.
        self._first: dict[int, object] = {}

    def make(self, nbytes: int) -> np.ndarray[Any, Any] | None:
        """Memory for one part, as writable bytes; None when no block is available."""
        block = self._pool.take(nbytes) if len(self._unsent) + len(self._sent) < PART_LIMIT else None
        if block is None:
            return None
        try:
            block.allocate()
        except OSError:
            self._pool.discard(block.id)
            return None
        owner, loan = lend(block.bytes.data, nbytes, block, self._freed)
        owner.flags.writeable = True
        self._unsent[block.address] = block
        self._loans[block.id] = loan
        return owner

    def find(self, part: Any) -> Block | None:
        """The block in which a part was computed that has not been sent yet."""
        return self._unsent.get(address_of(part)) if self._unsent else None

    def mark_sent(self, block: Block) -> None:
        """Notes that a message with this block was sent; the peer will return it."""
        if self._unsent.pop(block.address, None) is not None:
            self._sent.add(block.id)

    def returned(self, block_id: int) -> bool:
        """Notes that the peer has returned a block; True if it can go back to the pool now, else `on_unused` gets it.

        Raises:
          KeyError: that block was not sent.
        """
        if block_id in self._sent:
            return self._is_second(block_id, "returned")
        if block_id in self._loans:
            raise KeyError(block_id)
        return True

    def _freed(self, loan: Loan) -> None:
        block: Block = loan.item
        self._loans.pop(block.id, None)
        if self._unsent.pop(block.address, None) is not None or self._is_second(block.id, "let go"):
            self._on_unused(block.id)

    def _is_second(self, block_id: int, event: str) -> bool:
        if self._first.setdefault(block_id, event) is event:
            return False
        del self._first[block_id]
        self._sent.discard(block_id)
        return True


# ---- Blocks of both sides, and the notes that return them ----------------------------------------------------------

# When freed blocks have so many bytes they are returned in a message of their own; fewer go with the next message. On a
# connection with one direction, such as that of a ps to a worker, there is none: the owner would make new blocks.
_URGENT_BYTES = 1 << 20
_FREE_TICK_S = 0.02


class Shared(NamedTuple):
    """Where the large parts of a message lie: in blocks in which they were computed, and in one with copies."""

    places: Places
    placed: list[Block]
    copy: Block | None


class LaneMemory:
    """The shared memory of one local lane; see the module.

    Args:
      sock: the socket for descriptors.
      send_notes: sends a message that has only notes.
    """

    def __init__(self, sock: socket.socket, reactor: Reactor, send_notes: Callable[[], None]) -> None:
        self._sock = sock
        self._reactor = reactor
        self._send_notes = send_notes
        self._pool = BlockPool(on_shed=self._on_shed)
        self._cache = BlockCache(self._on_free)
        self._computed = PartMemory(self._pool, self._on_unused)
        # Whether a call of `_return_blocks` or `_age` is to come, and its timer. The call may come before the timer is
        # noted: so the timer alone would not tell.
        self._is_returning = self._is_ageing = False
        self._timer: Timer | None = None
        self._ageing: Timer | None = None
        self._closed = False
        self._freed_bytes = 0  # since the last notes, about: threads may miss each other's
        self.notes: collections.deque[int] = collections.deque()
        sock.setblocking(False)

    def fileno(self) -> int:
        """The descriptor of the socket for descriptors, -1 when it is closed."""
        return self._sock.fileno()

    def statistics(self) -> dict[str, int]:
        """Counts this side's blocks, and the peer's transfers that are still in use here."""
        return {**self._pool.statistics(), "borrowed": self._cache.borrowed}

    # -- this side's blocks --------------------------------------------------------------

    def part_memory(self, nbytes: int) -> Any:
        """Memory in which a part can be computed that `share` then does not copy; None when no block is available."""
        return self._computed.make(nbytes)

    def share(self, parts: list[Any]) -> Shared | None:
        """Finds the parts' blocks, and copies all parts that have none into one; None if there is none for these."""
        blocks = [self._computed.find(part) for part in parts]
        rest = [part for part, block in zip(parts, blocks) if block is None]
        copy = self._copied(rest) if rest else None
        if rest and copy is None:
            return None
        places, offset = [], 0
        for part, block in zip(parts, blocks):
            if block is not None:
                places.append((block.id, 0))
            elif copy is not None:
                places.append((copy.id, offset))
                offset += len(part) + (-len(part) & 63)
        return Shared(places, [block for block in blocks if block is not None], copy)

    def _copied(self, parts: list[Any]) -> Block | None:
        block = self._pool.take(sum(len(part) + (-len(part) & 63) for part in parts))
        if block is None:
            return None
        try:
            block.fill(parts)
        except OSError:  # out of memory
            self._pool.discard(block.id)
            return None
        return block

    def send_descriptors(self, shared: Shared) -> bool:
        """Sends the descriptors of new blocks before the message; returns False when the socket is full."""
        blocks = shared.placed if shared.copy is None else [*shared.placed, shared.copy]
        if not all(map(self._send_descriptor, blocks)):
            if shared.copy is not None:
                self._pool.give_back(shared.copy.id)
            return False
        for block in shared.placed:
            self._computed.mark_sent(block)
        return True

    def _send_descriptor(self, block: Block) -> bool:
        if block.fd < 0:
            return True
        try:
            socket.send_fds(self._sock, [PLACE.pack(block.id, block.capacity)], [block.fd])
        except BlockingIOError:
            return False
        block.close_fd()
        return True

    def pop_notes(self) -> list[int]:
        """Removes and returns the notes that wait, to be sent with a message."""
        self._freed_bytes = 0
        notes = []
        while self.notes:
            notes.append(self.notes.popleft())
        return notes

    # -- the peer's blocks ---------------------------------------------------------------

    def borrow(self, block_id: int) -> Any:
        """Returns the bytes of a transfer.

        Raises:
          ValueError, BlockingIOError: the peer violated the protocol.
          ConnectionAbortedError: this process can open no more files.
        """
        while block_id not in self._cache:
            try:
                message, fd = receive_descriptor(self._sock, PLACE.size)
            except OSError as error:
                if error.errno not in AT_LIMIT:
                    raise
                if has_room(1):  # by now
                    continue
                raise ConnectionAbortedError(f"no descriptor for a block of shared memory: {at_limit()}") from None
            if len(message) != PLACE.size or fd < 0:
                raise ValueError("the descriptor of a shared memory block is missing")
            self._cache.add(PLACE.unpack(message)[0], fd)
        if not self._is_returning:
            self._return_later(_FREE_TICK_S)
        return self._cache.borrow(block_id)

    def read_notes(self, notes: Sequence[int]) -> None:
        """Handles the peer's notes.

        Raises:
          ValueError: the peer returns a block that was not lent to it.
        """
        for note in notes:
            if note & FLAG:
                self._cache.forget(note ^ FLAG)
                continue
            try:
                if self._computed.returned(note):
                    self._give_back(note)
            except KeyError:
                raise ValueError(f"block {note} was returned but not lent") from None

    def _give_back(self, block_id: int) -> None:
        self.notes.extend(dropped | FLAG for dropped in self._pool.give_back(block_id))
        if not self._is_ageing and not self._closed:
            self._age_later()

    def _age_later(self) -> None:
        self._is_ageing = True
        self._ageing = self._reactor.call_later(KEEP_S, self._age)

    def _age(self) -> None:
        """Gives back what no message uses any more, as long as there is something to give back."""
        self._is_ageing = False
        if self._pool.age() and not self._closed:
            self._age_later()

    def _on_free(self, block_id: int, nbytes: int) -> None:
        """Notes that the last view of a transfer is gone. See `BlockCache`: this must not lock."""
        self.notes.append(block_id)
        self._freed_bytes += nbytes
        if self._freed_bytes >= _URGENT_BYTES and not self._closed:
            self._freed_bytes = 0
            self._reactor.call_soon(self._send_notes)

    def _on_unused(self, block_id: int) -> None:
        """A part that was computed in a block is gone. See `PartMemory`: this must not lock."""
        if not self._closed:
            self._reactor.call_soon(self._take_back, block_id)

    def _take_back(self, block_id: int) -> None:
        if not self._closed:
            self._give_back(block_id)

    def _on_shed(self, dropped: list[int]) -> None:
        """Lets the peer drop its mappings of blocks that this side has dropped."""
        self.notes.extend(block_id | FLAG for block_id in dropped)
        self._reactor.call_soon(self._send_notes)

    def _return_blocks(self, delay: float) -> None:
        """Sends the notes that no message has carried; repeats with growing delays while transfers are in use."""
        self._is_returning = False
        self._send_notes()
        if self._cache.borrowed and not self._closed:
            self._return_later(min(1.0, delay * 2))

    def _return_later(self, delay: float) -> None:
        self._is_returning = True
        self._timer = self._reactor.call_later(delay, self._return_blocks, delay)

    def close(self) -> None:
        """Releases the blocks, mappings and socket; transfers in use stay valid."""
        self._closed = True
        for timer in (self._timer, self._ageing):
            if timer is not None:
                timer.cancel()
        self._sock.close()
        self._pool.close()
        self._cache.close()
