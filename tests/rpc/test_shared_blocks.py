"""Blocks of shared memory: sizes, reuse and bounds."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tfmini.rpc import shared_blocks
from tfmini.rpc.lane_memory import LaneMemory
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.shared_blocks import BLOCK_LIMIT, BlockCache, BlockPool, size_class


def test_size_classes_waste_at_most_a_quarter() -> None:
    for nbytes in (1, 65_536, 65_537, 313_600, 1 << 20, (1 << 20) + 1, 67_108_864, 123_456_789):
        capacity = size_class(nbytes)
        assert capacity >= nbytes
        assert capacity % 4096 == 0
        assert capacity <= max(1 << 16, nbytes * 1.25 + 4096)
        assert size_class(capacity) == capacity


def test_blocks_are_reused_bounded_and_sealed() -> None:
    pool = BlockPool(idle_limit=1 << 20)
    block = pool.take(100_000)
    assert block is not None
    with pytest.raises(OSError):
        os.ftruncate(block.fd, 10)
    freed: list[int] = []
    cache = BlockCache(lambda block_id, nbytes: freed.append(block_id))
    cache.add(block.id, os.dup(block.fd))
    block.bytes[:4] = (1, 2, 3, 4)
    view = cache.borrow(block.id)[:4].view(np.uint16)
    with pytest.raises(ValueError, match="in use"):
        cache.borrow(block.id)
    assert not view.flags.writeable
    assert view.tolist() == [0x201, 0x403]
    assert not freed
    del view
    assert freed == [block.id]
    assert pool.give_back(block.id) == []
    assert pool.take(100_000) is block
    with pytest.raises(KeyError):
        pool.give_back(12345)
    many = [pool.take(70_000) for _ in range(BLOCK_LIMIT + 5)]
    assert many.count(None) == 6
    forgotten = [f for b in many if b is not None for f in pool.give_back(b.id)]
    assert forgotten
    assert pool.statistics()["idle_bytes"] <= 1 << 20
    pool.close()
    assert pool.take(1) is None


def resident_kb() -> int:
    """What of shared blocks counts as memory of this process."""
    of_block, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Rss:"):
            total += int(line.split()[1]) if of_block else 0
        elif "-" in line.split()[0]:
            of_block = "tfmini-block" in line
    return total


def test_a_received_block_takes_memory_as_it_is_read() -> None:
    size = 16 << 20
    pool, cache = BlockPool(), BlockCache(lambda block_id, nbytes: None)
    block = pool.take(size)
    assert block is not None
    block.fill([np.ones(size, np.uint8).data])
    before = resident_kb()
    cache.add(block.id, os.dup(block.fd))
    received = cache.borrow(block.id)
    assert resident_kb() - before < 1024
    assert received[: size // 2].sum() == size // 2
    assert abs(resident_kb() - before - (size >> 11)) < 1024
    pool.close()


def test_an_invalid_block_is_refused() -> None:
    cache = BlockCache(lambda block_id, nbytes: None)
    with pytest.raises(ValueError, match="unknown"):
        cache.borrow(1)
    fd = os.memfd_create("unsealed")
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="sealed"):
        cache.add(1, fd)
    read, write = os.pipe()
    with pytest.raises(ValueError):
        cache.add(1, read)
    os.close(write)


def test_idle_blocks_of_all_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections that use their blocks least lose them, and their peers the mappings of them."""
    monkeypatch.setattr(shared_blocks, "TOTAL_LIMIT", 60 << 20)
    shed: list[list[int]] = [[] for _ in range(8)]
    pools = [BlockPool(on_shed=shed[i].extend) for i in range(8)]

    def use(pool: BlockPool, nbytes: int) -> None:
        block = pool.take(nbytes)
        assert block is not None and pool.give_back(block.id) == []

    for pool in pools[:6]:
        use(pool, 10 << 20)
    for _ in range(5):
        use(pools[0], 10 << 20)
    assert not any(shed)
    use(pools[6], 20 << 20)
    assert [pool.statistics()["idle_blocks"] for pool in pools] == [1, 0, 0, 1, 1, 1, 1, 0]
    assert shed == [[], [1], [1], [], [], [], [], []]
    held = [pools[7].take(20 << 20) for _ in range(4)]  # blocks in use stay
    assert None not in held
    assert [pool.statistics()["idle_blocks"] for pool in pools[:7]] == [0] * 7
    for pool in pools:
        pool.close()
    assert not any(pool.owned_bytes for pool in pools)


def test_large_blocks_stay_warm() -> None:
    """However large a tensor is, the next step finds its block, within the share of the machine's memory."""
    pool = BlockPool()
    block = pool.take(shared_blocks.TOTAL_LIMIT // 2)  # its pages do not exist before it is filled
    assert block is not None and pool.give_back(block.id) == []
    assert pool.take(shared_blocks.TOTAL_LIMIT // 2) is block
    pool.close()


def test_idle_blocks_are_bounded_when_they_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks may be in use beyond the limit of a process. They do not stay when they return."""
    monkeypatch.setattr(shared_blocks, "TOTAL_LIMIT", 8 << 20)
    monkeypatch.setattr(shared_blocks, "MUCH_IDLE", 1 << 20)
    pools = [BlockPool() for _ in range(3)]
    lent = [(pool, block) for pool in pools for _ in range(3) if (block := pool.take(2 << 20)) is not None]
    assert sum(pool.lent_bytes for pool in pools) == 18 << 20
    for pool, block in lent:
        pool.give_back(block.id)
    assert 0 < sum(pool.owned_bytes for pool in pools) <= 8 << 20
    for pool in pools:
        pool.close()


def test_blocks_that_no_message_uses_are_given_back() -> None:
    shed: list[int] = []
    pool = BlockPool(on_shed=shed.extend)
    blocks = [block for _ in range(3) if (block := pool.take(1 << 20)) is not None]
    for block in blocks:
        pool.give_back(block.id)
    assert pool.age() and not shed
    used = pool.take(1 << 20)
    assert used is blocks[2]  # the latest one: the others grow old
    pool.give_back(used.id)
    assert pool.age() and shed == [blocks[0].id, blocks[1].id]
    assert not pool.age() and pool.owned_bytes == 0
    pool.close()


class _Later:
    """A reactor whose calls of later the test makes."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        call()

    def call_later(self, delay: float, call: Any, *args: Any) -> Any:
        self.later.append(lambda: call(*args))
        return SimpleNamespace(cancel=lambda: None)


def shared_one(sender: LaneMemory, part: bytes) -> int:
    """Shares a part and sends the descriptor; returns the block's id."""
    shared = sender.share([part])
    assert shared is not None and sender.send_descriptors(shared)
    return shared.places[0][0]


def test_both_sides_let_go_of_what_no_message_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[int] = []
    forget = BlockCache.forget
    monkeypatch.setattr(
        BlockCache, "forget", lambda cache, block_id: (forgotten.append(block_id), forget(cache, block_id))
    )
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reactor = _Later()
    sender = LaneMemory(mine, cast(Any, reactor), lambda: receiver.read_notes(sender.pop_notes()))
    receiver = LaneMemory(theirs, cast(Any, _AtOnce()), lambda: sender.read_notes(receiver.pop_notes()))
    block_id = shared_one(sender, bytes(1 << 20))
    receiver.borrow(block_id)
    assert sender.statistics()["idle_blocks"] == 1 and not forgotten
    while reactor.later:
        reactor.later.pop()()
    assert sender.statistics()["idle_blocks"] == 0 and forgotten == [block_id]
    sender.close()
    receiver.close()


def test_blocks_are_returned_also_if_a_timer_is_due_before_it_is_noted() -> None:
    """The thread that starts it may stop there for longer than its delay."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    started: list[float] = []

    def call_later(delay: float, call: Any, *args: Any) -> Any:
        started.append(delay)
        if len(started) < 3:
            call(*args)
        return SimpleNamespace(cancel=lambda: None)

    sender = LaneMemory(mine, cast(Any, _AtOnce()), lambda: None)
    reactor = cast(Any, SimpleNamespace(call_later=call_later, call_soon=lambda *_: None))
    receiver = LaneMemory(theirs, reactor, lambda: None)
    for _ in range(3):
        receiver.borrow(shared_one(sender, bytes(1 << 20)))
    assert len(started) == 3
    sender.close()
    receiver.close()


def test_without_descriptors_a_block_says_what_to_do() -> None:
    """The lane ends, and its reason names the limit."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender = LaneMemory(mine, get_reactor(), lambda: None)
    receiver = LaneMemory(theirs, get_reactor(), lambda: None)
    block_id = shared_one(sender, bytes(1 << 20))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.dup(mine.fileno()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(ConnectionError, match="no descriptor for a block of shared memory: .*`ulimit -n NUMBER`"):
            receiver.borrow(block_id)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        sender.close()
        receiver.close()


class _AtOnce:
    """A reactor that makes calls at once, and none later."""

    def call_soon(self, call: Callable[[], None]) -> None:
        call()

    def call_later(self, delay: float, call: Any, *args: Any) -> None:
        """Does nothing: no test waits for a timer."""


@pytest.mark.parametrize("nbytes", [64 << 10, 300_000, 1_000_000, 3 << 20])
def test_a_connection_of_one_direction_uses_its_blocks_again(nbytes: int) -> None:
    """The owner hears of freed blocks although the receiver has no message for it."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender = LaneMemory(mine, cast(Any, _AtOnce()), lambda: None)
    receiver = LaneMemory(theirs, cast(Any, _AtOnce()), lambda: sender.read_notes(receiver.pop_notes()))
    used = set()
    for value in range(200):
        block_id = shared_one(sender, bytes([value]) * nbytes)
        used.add(block_id)
        assert receiver.borrow(block_id)[nbytes - 1] == value  # nothing keeps it
    assert len(used) * nbytes <= (1 << 20) + nbytes
    sender.close()
    receiver.close()


def test_blocks_in_use_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that gives none back gets messages through the stream, whose queue has a limit."""
    monkeypatch.setattr(shared_blocks, "LENT_LIMIT", 1 << 20)
    pool = BlockPool()
    blocks = [block for _ in range(40) if (block := pool.take(100_000)) is not None]
    assert sum(block.capacity for block in blocks) == pool.lent_bytes <= (1 << 20) + 200_000
    pool.give_back(blocks[0].id)
    assert pool.take(100_000) is blocks[0]
    pool.close()


def test_blocks_in_use_on_all_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_blocks, "TOTAL_LIMIT", 1 << 18)
    monkeypatch.setattr(shared_blocks, "TOTAL_LENT_LIMIT", 1 << 20)
    pools = [BlockPool() for _ in range(5)]
    lent = [pool.take(100_000) for pool in pools for _ in range(4)]
    assert sum(pool.lent_bytes for pool in pools) <= (1 << 20) + 5 * 114_688
    assert all(pool.lent_bytes for pool in pools) and None in lent  # each connection may use one block
    for pool in pools:
        pool.close()
