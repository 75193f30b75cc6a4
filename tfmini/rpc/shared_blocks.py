"""Shared memory for large parts between processes of one host: at most one copy by the sender per transfer.

The sender owns memfd blocks in a few size classes and reuses them, so their pages stay warm (a
fresh 64 MB block costs more in page faults than the copy). The sender passes a block's descriptor once;
the receiver maps it once and keeps the mapping. All large parts of one message share a block, except those that
were computed in blocks of their own (`PartMemory` of `lane_memory`). Every
transfer is one read-only numpy array over the mapping, and the parts are views of it; when the last
view is gone, the receiver returns the block's id to the sender. Blocks are sealed against resizing, so
a faulty sender cannot cause a SIGBUS in the receiver.

Idle blocks stay warm for the next step, whatever their size, within a share of the machine's memory; a block that no
message has used for a while is dropped (after `KEEP_S`). With a fixed limit of bytes, a larger tensor would take new
memory in every step, which makes it 7 times as slow per byte.

Python's mmap keeps a descriptor per mapping, so the number of blocks is bounded, too.
"""

from __future__ import annotations

import collections
import fcntl
import functools
import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.memory import machine_memory

# ---- How much memory a process keeps warm for the messages of its next steps, and for how long ---------------------
# New memory costs several times the copy into it, in page faults. So memory that messages have used is used again: as
# much as the latest steps used, within a share of the machine's memory. What no message has used for a while goes
# back to the system, so a process that rests holds nothing.

KEEP_S = 10.0  # seconds; memory that is idle for so long is given back, after twice as long at the latest
_AT_MOST_OF_SMALL = 2 << 30  # bytes, where they are a quarter of the machine's memory at most


@functools.cache
def kept_limit() -> int:
    """Returns how many idle bytes of one kind a process keeps: an eighth of its memory, or up to 2 GB of a quarter."""
    memory = machine_memory()
    return max(memory // 8, min(_AT_MOST_OF_SMALL, memory // 4))


# ---- Blocks of shared memory, and who uses them --------------------------------------------------------------------

_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if hasattr(fcntl, "F_SEAL_SHRINK") else 0x2 | 0x4
"""A block neither shrinks nor grows."""
ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)
GET_SEALS = getattr(fcntl, "F_GET_SEALS", 1034)

TOTAL_LIMIT = kept_limit()  # bytes of a process's blocks, idle and lent, beyond which idle ones are dropped
LENT_LIMIT, TOTAL_LENT_LIMIT = 2 << 30, 16 << 30  # bytes in use by a receiver, by all; beyond, no more blocks are made
MUCH_IDLE, _LARGE = 256 << 20, 1 << 20  # bytes: a pool with more idle ones looks at all pools when a large one returns
BLOCK_LIMIT = 64  # blocks per connection, each a descriptor on both sides
_POPULATE_UP_TO = 1 << 20  # bytes
LARGEST = 20 << 30  # bytes: the size class of the largest message. A receiver refuses to map more


def size_class(nbytes: int) -> int:
    """Returns the block size for a part: a power of two times 1, 1.25, 1.5 or 1.75, at least 64 KiB."""
    if nbytes <= 1 << 16:
        return 1 << 16
    quarter = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // quarter) * quarter


class Block:
    """A sender's block. ``fd`` is -1 after the descriptor was passed to the receiver; ``address`` is that of ``bytes``.

    The first `fill` allocates the pages: it writes through the descriptor, which takes half the time of
    page faults and, unlike populating the mapping, releases Python's interpreter lock (3 GB take
    seconds, in which no heartbeat could be sent).
    """

    __slots__ = ("_is_fresh", "address", "bytes", "capacity", "fd", "id", "is_unused")

    def __init__(self, id: int, capacity: int) -> None:
        self.id = id
        self.capacity = capacity
        self.fd = os.memfd_create("tfmini-block", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, capacity)
            fcntl.fcntl(self.fd, ADD_SEALS, SEALS)
            memory = mmap.mmap(self.fd, capacity, flags=mmap.MAP_SHARED)
        except (OSError, ValueError):
            os.close(self.fd)
            raise
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)
        self.address = address_of(self.bytes)
        self._is_fresh = True
        self.is_unused = False  # since the last `BlockPool.age`

    def fill(self, parts: Sequence[Any]) -> None:
        """Copies the parts into the block, each to the next multiple of 64.

        Raises:
          OSError: out of memory.
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

    def allocate(self) -> None:
        """Provides the pages, so that whoever writes through the mapping gets no SIGBUS for want of memory.

        Raises:
          OSError: out of memory.
        """
        if self._is_fresh:
            os.posix_fallocate(self.fd, 0, self.capacity)
            self._is_fresh = False

    def close_fd(self) -> None:
        """Closes the descriptor; the mapping stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def address_of(part: Any) -> int:
    """The address of a buffer's first byte."""
    return int(np.frombuffer(part, np.uint8).__array_interface__["data"][0])


def _write_all(fd: int, part: Any, offset: int) -> None:
    with memoryview(part) as view:
        done = 0
        while done < len(view):  # Linux writes at most 2 GB at a time
            done += os.pwrite(fd, view[done:], offset + done)


_pools: weakref.WeakValueDictionary[int, BlockPool] = weakref.WeakValueDictionary()


def _limit_total() -> bool:
    """Drops idle blocks of the connections that use theirs least, beyond the process's limit.

    Called when a block is made or a large one returns, which takes much longer; other messages cost nothing here.
    Returns whether the blocks in use are below their own limit.
    """
    pools = [pool for ref in _pools.valuerefs() if (pool := ref()) is not None]
    excess = sum(pool.owned_bytes for pool in pools) - TOTAL_LIMIT
    if excess <= 0:
        return True
    for pool in sorted(pools, key=lambda pool: pool.uses):
        if excess > 0:
            excess -= pool.shed(excess)
    for pool in pools:
        pool.uses = 0
    return sum(pool.lent_bytes for pool in pools) <= TOTAL_LENT_LIMIT


class BlockPool:
    """A sender's blocks for one connection. Thread-safe.

    Args:
      idle_limit: bytes of its idle blocks; None: `TOTAL_LIMIT`.
      on_shed: gets the ids of blocks that were dropped for the sake of other connections, or by `age`.

    Attributes:
      owned_bytes: of all its blocks.
      uses: how many blocks came back since blocks were dropped for the sake of other connections.
    """

    def __init__(self, idle_limit: int | None = None, on_shed: Callable[[list[int]], None] | None = None) -> None:
        self._idle_limit = TOTAL_LIMIT if idle_limit is None else idle_limit
        self._on_shed = on_shed
        self._lock = threading.Lock()
        self._serial = itertools.count(1)
        self._lent: dict[int, Block] = {}
        self._idle: collections.OrderedDict[int, Block] = collections.OrderedDict()  # oldest first
        self._idle_bytes = 0
        self.owned_bytes = self.uses = 0
        self._closed = False
        _pools[id(self)] = self

    def take(self, nbytes: int) -> Block | None:
        """Lends a block that can hold ``nbytes``, until `give_back`; returns None when none is available."""
        capacity = size_class(nbytes)
        with self._lock:
            for block in reversed(self._idle.values()):
                if block.capacity == capacity:
                    del self._idle[block.id]
                    self._idle_bytes -= capacity
                    self._lent[block.id] = block
                    return block
            is_full = self.lent_bytes > LENT_LIMIT or len(self._lent) + len(self._idle) >= BLOCK_LIMIT
            if is_full or self._closed:  # the message goes through the stream, whose queue has a limit
                return None
        try:
            block = Block(next(self._serial), capacity)
        except (OSError, ValueError):  # out of memory, descriptors or mappings: send it inline
            return None
        with self._lock:
            if self._closed:
                block.close_fd()
                return None
            self._lent[block.id] = block
            self.owned_bytes += capacity
            is_only = len(self._lent) == 1
        if not _limit_total() and not is_only:
            self.discard(block.id)
            return None
        return block

    @property
    def lent_bytes(self) -> int:
        """Returns the bytes of the blocks in use."""
        return self.owned_bytes - self._idle_bytes

    def give_back(self, block_id: int) -> list[int]:
        """Takes a block back; returns the ids of dropped blocks, whose mappings the receiver should drop.

        Raises:
          KeyError: that block is not lent.
        """
        dropped = []
        with self._lock:
            block = self._lent.pop(block_id)
            self._idle[block_id] = block
            block.is_unused = False
            self.uses += 1
            self._idle_bytes += block.capacity
            while self._idle_bytes > self._idle_limit or len(self._idle) > BLOCK_LIMIT // 2:
                dropped.append(self._drop_oldest())
            is_much = self._idle_bytes > MUCH_IDLE and block.capacity >= _LARGE
        if is_much:
            _limit_total()
        return dropped

    def _drop_oldest(self) -> int:
        _, oldest = self._idle.popitem(last=False)
        self._idle_bytes -= oldest.capacity
        self.owned_bytes -= oldest.capacity
        oldest.close_fd()
        return oldest.id

    def shed(self, nbytes: int) -> int:
        """Drops the oldest idle blocks, of at least so many bytes if there are; returns their bytes."""
        return self._shed_while(lambda oldest, freed: freed < nbytes)

    def age(self) -> bool:
        """Drops the blocks that no message has used since the last call of this; returns whether idle ones are left."""
        # The latest used are taken first, so those that are never needed at the same time grow old.
        self._shed_while(lambda oldest, freed: oldest.is_unused)
        idle = list(self._idle.values())
        for block in idle:
            block.is_unused = True  # one that is in use by now turns to false again when it comes back
        return bool(idle)

    def _shed_while(self, may_drop: Callable[[Block, int], bool]) -> int:
        """Drops the oldest idle blocks as long as ``may_drop(oldest, bytes freed)`` says so; returns their bytes."""
        dropped = []
        with self._lock:
            before = self._idle_bytes
            while self._idle and may_drop(next(iter(self._idle.values())), before - self._idle_bytes):
                dropped.append(self._drop_oldest())
            freed = before - self._idle_bytes
        if dropped and self._on_shed is not None:
            self._on_shed(dropped)
        return freed

    def discard(self, block_id: int) -> None:
        """Drops a lent block that was not sent. A pool that was closed meanwhile has dropped it already."""
        with self._lock:
            block = self._lent.pop(block_id, None)
            if block is None:
                return
            self.owned_bytes -= block.capacity
        block.close_fd()

    def statistics(self) -> dict[str, int]:
        """Counts the blocks and bytes, lent and idle."""
        lent = list(self._lent.values())
        return {
            "lent_blocks": len(lent),
            "lent_bytes": sum(block.capacity for block in lent),
            "idle_blocks": len(self._idle),
            "idle_bytes": self._idle_bytes,
        }

    def close(self) -> None:
        """Releases all blocks; a receiver's mappings of them stay valid."""
        _pools.pop(id(self), None)
        with self._lock:
            self._closed = True
            for block in (*self._lent.values(), *self._idle.values()):
                block.close_fd()
            self._lent.clear()
            self._idle.clear()
            self._idle_bytes = self.owned_bytes = 0


class Loan(weakref.ref):
    """A weak reference to the array of one transfer; ``item`` identifies the memory to free with it."""

    __slots__ = ("item",)
    item: Any


def lend(memory: Any, nbytes: int, item: Any, on_freed: Callable[[Loan], None]) -> tuple[np.ndarray[Any, Any], Loan]:
    """Makes a read-only array of the first ``nbytes`` of ``memory``, and its loan.

    ``on_freed`` gets the loan when the last view of the array is gone. Views keep the array alive as their base,
    since the array's own base is no array. A client may make a fetched array writable, since the memory is.
    """
    owner = np.frombuffer(memory, np.uint8, nbytes)
    owner.flags.writeable = False
    loan = Loan(owner, on_freed)
    loan.item = item
    return owner, loan


class BlockCache:
    """A receiver's mappings of the peer's blocks.

    Args:
      on_free: called with (block id, bytes) when the last view of a transfer is gone. It must not lock,
        since any thread may call it at any moment (inside a garbage collection, say).
    """

    def __init__(self, on_free: Callable[[int, int], None]) -> None:
        self._on_free = on_free
        self._maps: dict[int, tuple[mmap.mmap, int]] = {}
        self._loans: dict[int, Loan] = {}  # by block id

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._maps

    @property
    def borrowed(self) -> int:
        """The number of transfers that are in use."""
        return len(self._loans)

    def add(self, block_id: int, fd: int) -> None:
        """Maps a block that the peer has sent; closes ``fd``.

        Raises:
          ValueError: it is not a sealed block of a valid size.
        """
        try:
            size = os.fstat(fd).st_size
            if not 0 < size <= LARGEST or fcntl.fcntl(fd, GET_SEALS) & SEALS != SEALS:
                raise ValueError("not a sealed shared memory block")
            # Populating holds Python's interpreter lock (64 MB: 9 ms). So the pages of a large mapping come as they are
            # read, 16 at a time, which takes as long; what nobody reads does not count as memory of this process.
            flags = mmap.MAP_SHARED | (_POPULATE if size <= _POPULATE_UP_TO else 0)
            memory = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            self._maps[block_id] = memory, size
        except OSError as error:
            raise ValueError(f"a shared memory block cannot be mapped: {error}") from error
        finally:
            os.close(fd)

    def borrow(self, block_id: int) -> np.ndarray[Any, Any]:
        """Returns one transfer in that block, as read-only bytes.

        Raises:
          ValueError: the block is unknown or in use.
        """
        entry = self._maps.get(block_id)
        if entry is None or block_id in self._loans:
            raise ValueError(f"shared memory block {block_id} is {'in use' if entry else 'unknown'}")
        memory, nbytes = entry
        owner, self._loans[block_id] = lend(memory, nbytes, (block_id, nbytes), self._freed)
        return owner

    def _freed(self, loan: Loan) -> None:
        block_id, nbytes = loan.item
        self._loans.pop(block_id, None)
        self._on_free(block_id, nbytes)

    def forget(self, block_id: int) -> None:
        """Drops a mapping; the memory is freed with the last view of it."""
        self._maps.pop(block_id, None)

    def close(self) -> None:
        """Drops all mappings; transfers in use stay valid."""
        self._maps.clear()
