"""Large parts between processes of one host: blocks of shared memory, one copy per transfer.

The sender owns memfd blocks in a few size classes and reuses them, so their pages stay warm (a
fresh 64 MB block costs more in page faults than the copy). A block's descriptor is passed once;
the receiver maps it read-only, once, and keeps the mapping. All large parts of one message share
a block. Every transfer is one numpy array over the mapping, the parts are views of it; when the
last one dies the block's id goes back to the sender. Blocks are sealed against resizing, so a
broken sender cannot make the receiver fault.

Python's mmap keeps a descriptor per mapping, so the number of blocks is bounded, too.
"""

from __future__ import annotations

import collections
import fcntl
import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if hasattr(fcntl, "F_SEAL_SHRINK") else 0x2 | 0x4
_ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)
_GET_SEALS = getattr(fcntl, "F_GET_SEALS", 1034)

IDLE_LIMIT = 256 << 20  # bytes of idle blocks kept warm per connection
BLOCK_LIMIT = 64  # blocks per connection, each a descriptor on both sides
_POPULATE_UP_TO = 256 << 20  # bytes
LARGEST = 20 << 30  # bytes; a receiver refuses to map more. The size class of the largest message


def size_class(nbytes: int) -> int:
    """The block size for a part: a power of two times 1, 1.25, 1.5 or 1.75, at least 64 KiB."""
    if nbytes <= 1 << 16:
        return 1 << 16
    quarter = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // quarter) * quarter


class Block:
    """A sender's block. ``fd`` is -1 once the receiver has it.

    Its pages come with the first `fill`: that writes through the descriptor, which costs half of
    faulting the pages in and, unlike populating the mapping, leaves the interpreter to others
    (3 GB take seconds, in which no heartbeat would go out).
    """

    __slots__ = ("_is_fresh", "bytes", "capacity", "fd", "id")

    def __init__(self, id: int, capacity: int) -> None:
        self.id = id
        self.capacity = capacity
        self.fd = os.memfd_create("tfmini-block", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, capacity)
            fcntl.fcntl(self.fd, _ADD_SEALS, _SEALS)
            memory = mmap.mmap(self.fd, capacity, flags=mmap.MAP_SHARED)
        except (OSError, ValueError):
            os.close(self.fd)
            raise
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)
        self._is_fresh = True

    def fill(self, parts: Sequence[Any]) -> None:
        """Copies the parts into the block, each to the next multiple of 64.

        Raises:
          OSError: there is no memory for it.
        """
        offset = 0
        for part in parts:
            size = len(part)
            if self._is_fresh:
                _write_all(self.fd, part, offset)
            else:
                np.copyto(self.bytes[offset : offset + size], np.frombuffer(part, np.uint8))
            offset += size + (-size & 63)
        self._is_fresh = False

    def forget_fd(self) -> None:
        """Closes the descriptor; the mapping stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _write_all(fd: int, part: Any, offset: int) -> None:
    with memoryview(part) as view:
        done = 0
        while done < len(view):  # Linux writes at most 2 GB at a time
            done += os.pwrite(fd, view[done:], offset + done)


class BlockPool:
    """A sender's blocks for one connection. Thread-safe."""

    def __init__(self, idle_limit: int = IDLE_LIMIT) -> None:
        self._idle_limit = idle_limit
        self._lock = threading.Lock()
        self._serial = itertools.count(1)
        self._lent: dict[int, Block] = {}
        self._idle: collections.OrderedDict[int, Block] = collections.OrderedDict()  # oldest first
        self._idle_bytes = 0
        self._closed = False

    def take(self, nbytes: int) -> Block | None:
        """A block that can hold ``nbytes``, lent until `give_back`; None when there is none to be had."""
        capacity = size_class(nbytes)
        with self._lock:
            for block in reversed(self._idle.values()):
                if block.capacity == capacity:
                    del self._idle[block.id]
                    self._idle_bytes -= capacity
                    self._lent[block.id] = block
                    return block
            if len(self._lent) + len(self._idle) >= BLOCK_LIMIT or self._closed:
                return None
        try:
            block = Block(next(self._serial), capacity)
        except (OSError, ValueError):  # out of memory, descriptors or mappings: send it inline
            return None
        with self._lock:
            self._lent[block.id] = block
        return block

    def give_back(self, block_id: int) -> list[int]:
        """Takes a block back; returns the ids of blocks that the receiver should forget.

        Raises:
          KeyError: that block is not lent.
        """
        forgotten = []
        with self._lock:
            block = self._lent.pop(block_id)
            self._idle[block_id] = block
            self._idle_bytes += block.capacity
            while self._idle_bytes > self._idle_limit or len(self._idle) > BLOCK_LIMIT // 2:
                _, oldest = self._idle.popitem(last=False)
                self._idle_bytes -= oldest.capacity
                oldest.forget_fd()
                forgotten.append(oldest.id)
        return forgotten

    def discard(self, block_id: int) -> None:
        """Drops a block that was lent but never passed on."""
        with self._lock:
            self._lent.pop(block_id).forget_fd()

    def statistics(self) -> dict[str, int]:
        """Blocks and bytes, lent and idle."""
        with self._lock:
            lent = sum(b.capacity for b in self._lent.values())
            return {
                "lent_blocks": len(self._lent),
                "lent_bytes": lent,
                "idle_blocks": len(self._idle),
                "idle_bytes": self._idle_bytes,
            }

    def close(self) -> None:
        """Lets go of all blocks; a receiver's mappings of them stay valid."""
        with self._lock:
            self._closed = True
            for block in (*self._lent.values(), *self._idle.values()):
                block.forget_fd()
            self._lent.clear()
            self._idle.clear()
            self._idle_bytes = 0


class _Loan(weakref.ref):
    """Watches the array that stands for one transfer; knows its block when it dies."""

    __slots__ = ("block_id", "nbytes")
    block_id: int
    nbytes: int


class BlockCache:
    """A receiver's mappings of the peer's blocks.

    Args:
      on_free: called with (block id, bytes) when the last view of a transfer dies, in whatever
        thread and moment that happens (inside a garbage collection, say): it must not lock.
    """

    def __init__(self, on_free: Callable[[int, int], None]) -> None:
        self._on_free = on_free
        self._maps: dict[int, tuple[mmap.mmap, int]] = {}
        self._loans: dict[int, _Loan] = {}

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._maps

    @property
    def borrowed(self) -> int:
        """How many transfers are still in use."""
        return len(self._loans)

    def add(self, block_id: int, fd: int) -> None:
        """Maps a block that was passed; closes ``fd``.

        Raises:
          ValueError: it is not a sealed block of sane size.
        """
        try:
            size = os.fstat(fd).st_size
            if not 0 < size <= LARGEST or fcntl.fcntl(fd, _GET_SEALS) & _SEALS != _SEALS:
                raise ValueError("not a sealed shared memory block")
            # Populating keeps the interpreter to itself, so a huge mapping is left to faults (16 pages each).
            flags = mmap.MAP_SHARED | (_POPULATE if size <= _POPULATE_UP_TO else 0)
            memory = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            self._maps[block_id] = memory, size
        except OSError as error:
            raise ValueError(f"a shared memory block cannot be mapped: {error}") from error
        finally:
            os.close(fd)

    def borrow(self, block_id: int) -> np.ndarray[Any, Any]:
        """One transfer in that block, as read-only bytes.

        Raises:
          ValueError: the block is unknown or in use.
        """
        entry = self._maps.get(block_id)
        if entry is None or block_id in self._loans:
            raise ValueError(f"shared memory block {block_id} is {'in use' if entry else 'unknown'}")
        # Views of it keep it alive as their base, since its own base is no array.
        owner = np.frombuffer(entry[0], np.uint8)
        # Read-only by default; the mapping itself is not, so that a client may make the array it fetched its own.
        owner.flags.writeable = False
        loan = _Loan(owner, self._freed)
        loan.block_id, loan.nbytes = block_id, entry[1]
        self._loans[block_id] = loan
        return owner

    def _freed(self, loan: _Loan) -> None:
        self._loans.pop(loan.block_id, None)
        self._on_free(loan.block_id, loan.nbytes)

    def forget(self, block_id: int) -> None:
        """Drops a mapping; the memory goes when the last view of it does."""
        self._maps.pop(block_id, None)

    def close(self) -> None:
        """Drops all mappings; transfers in use stay valid."""
        self._maps.clear()
