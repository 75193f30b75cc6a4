"""Parts that are computed in a block of shared memory, so that sending them takes no copy.

A kernel whose large result only goes to a task on the same host gets memory of a block for it (`PartMemory.make`). The
lane recognises the part by its address and sends the place of it. Whatever happens to the array in between (the step
fails, the connection breaks, the array takes another way), it is an ordinary array: the block stays lent until the last
view of the array is gone, and, if it was sent, until the peer has returned it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.rpc.shared_blocks import Block, BlockPool, Loan, address_of, lend

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
