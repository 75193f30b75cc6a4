"""Parts that are computed in a block of shared memory: no copy, and the block comes back whatever happens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from tests.rpc.task_processes import until
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.lane_memory import PART_LIMIT, LaneMemory, PartMemory
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.shared_blocks import Block, BlockPool

SIZE = 300_000


class Parts:
    """The object under test, whose unused blocks go back to their pool at once."""

    def __init__(self) -> None:
        self.pool = BlockPool()
        self.unused: list[int] = []
        self.placed = PartMemory(self.pool, self._take_back)

    def _take_back(self, block_id: int) -> None:
        self.unused.append(block_id)
        self.pool.give_back(block_id)

    def made(self) -> tuple[Any, Block]:
        array = self.placed.make(SIZE)
        assert array is not None and array.nbytes == SIZE and array.flags.writeable
        block = self.placed.find(array.data)
        assert block is not None
        return array, block

    def returned(self, block: Block) -> None:
        """The peer returns the block."""
        if self.placed.returned(block.id):
            self._take_back(block.id)


@pytest.fixture
def parts() -> Iterator[Parts]:
    parts = Parts()
    yield parts
    parts.pool.close()


def test_a_part_that_is_not_sent_gives_its_block_back(parts: Parts) -> None:
    array, block = parts.made()
    view = array.view(np.float32)[5:]
    del array
    assert not parts.unused
    del view
    assert parts.unused == [block.id] and parts.made()[1] is block


def test_a_failure_that_keeps_the_array_keeps_the_block(parts: Parts) -> None:
    array, block = parts.made()
    _, other = parts.made()
    assert other is not block


@pytest.mark.parametrize("order", [("gone", "returned"), ("returned", "gone")])
def test_a_sent_block_comes_back_after_the_array_is_gone_and_the_peer_has_returned_it(
    parts: Parts, order: tuple[str, str]
) -> None:
    for _ in range(3):
        array, block = parts.made()
        array[:] = 1
        parts.placed.mark_sent(block)
        assert parts.placed.find(array.data) is None  # a second message copies it
        for event in order:
            assert parts.pool.statistics()["lent_blocks"] == 1
            if event == "gone":
                del array
            else:
                parts.returned(block)
        assert parts.unused.pop() == block.id and not parts.unused
    assert parts.pool.statistics()["idle_blocks"] == 1


def test_a_peer_cannot_return_what_it_was_not_sent(parts: Parts) -> None:
    array, block = parts.made()
    with pytest.raises(KeyError):
        parts.returned(block)
    parts.placed.mark_sent(block)
    parts.returned(block)
    parts.returned(block)  # twice: the array is in use
    assert parts.pool.statistics()["lent_blocks"] == 1
    del array
    with pytest.raises(KeyError):
        parts.returned(block)


def test_the_blocks_are_bounded(parts: Parts) -> None:
    made = [parts.made() for _ in range(PART_LIMIT)]
    assert parts.placed.make(SIZE) is None
    parts.placed.mark_sent(made[0][1])
    assert parts.placed.make(SIZE) is None
    parts.returned(made[0][1])
    del made[0]
    assert parts.placed.make(SIZE) is not None


def test_without_memory_there_is_no_block(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: int) -> None:
        raise OSError("no memory")

    monkeypatch.setattr("os.posix_fallocate", fail)
    assert parts.placed.make(SIZE) is None
    assert parts.pool.statistics() == {"lent_blocks": 0, "lent_bytes": 0, "idle_blocks": 0, "idle_bytes": 0}


class Ends:
    """Two lanes of this process. ``got`` has the messages at the second, as bytes, or kept as they are."""

    def __init__(self, keep: bool = False) -> None:
        messages, descriptors = socket.socketpair(), socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.got: list[Any] = []
        take: Callable[[Any], Any] = list if keep else lambda parts: [bytes(part) for part in parts]
        self.sender, self.receiver = (
            LaneConnection(messages[i], descriptors[i], get_reactor(), "test") for i in range(2)
        )
        self.sender.start(lambda parts: None, lambda reason: None)
        self.receiver.start(lambda parts: self.got.append(take(parts)), lambda reason: None)

    def blocks(self) -> tuple[int, int]:
        """Lent and idle blocks of the sender."""
        found = self.sender.statistics()
        return found["lent_blocks"], found["idle_blocks"]

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


def filled(end: LaneConnection, nbytes: int, value: int) -> Any:
    array = end.part_memory(nbytes)
    array[:] = value
    return array


def test_parts_are_sent_from_where_they_were_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends()
    copied: list[int] = []
    fill = Block.fill
    monkeypatch.setattr(Block, "fill", lambda block, parts: (copied.extend(map(len, parts)), fill(block, parts)))
    for round_ in range(4):
        one, two = filled(ends.sender, SIZE, round_), filled(ends.sender, 2 * SIZE, round_ + 1)
        other = bytes([round_ + 2]) * SIZE
        ends.sender.send([b"head", one.data, other, b"small", two.data])
        del one, two
        until(lambda: len(ends.got) == 1, "the message")
        head, first, second, small, third = ends.got.pop()
        assert (head, small) == (b"head", b"small")
        assert (first, second, third) == (bytes([round_]) * SIZE, other, bytes([round_ + 1]) * 2 * SIZE)
        until(lambda: ends.blocks() == (0, 3), "the return of the blocks")
    assert copied == [SIZE] * 4
    ends.close()


def test_a_receiver_may_keep_a_part_for_long() -> None:
    ends = Ends(keep=True)
    for value in range(3):
        ends.sender.send([b"head", filled(ends.sender, 1 << 20, value).data])
    until(lambda: len(ends.got) == 3, "the messages")
    assert [set(np.unique(parts[1]).tolist()) for parts in ends.got] == [{0}, {1}, {2}]
    assert ends.blocks() == (3, 0)
    ends.got.clear()
    until(lambda: ends.blocks() == (0, 3), "the return of the blocks")
    ends.close()


def test_a_part_of_a_connection_that_has_ended_goes_another_way() -> None:
    first, second = Ends(), Ends()
    part = filled(first.sender, SIZE, 7)
    first.close()
    second.sender.send([b"head", part.data])
    until(lambda: len(second.got) == 1, "the message")
    assert second.got[0][1] == bytes([7]) * SIZE
    del part
    assert first.sender.part_memory(SIZE) is None
    second.close()


def test_a_part_that_nobody_sends_comes_back() -> None:
    ends = Ends()
    held = [filled(ends.sender, SIZE, 1)]
    assert ends.blocks() == (1, 0)
    thread = threading.Thread(target=held.clear)  # as a thread of the pool that runs a segment
    thread.start()
    thread.join()
    until(lambda: ends.blocks() == (0, 1), "the return of the block")
    ends.close()


def test_a_full_socket_of_descriptors_leaves_the_part_to_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends()

    def full(*_: Any) -> int:
        raise BlockingIOError

    part = filled(ends.sender, SIZE, 3)
    with monkeypatch.context() as patch:
        patch.setattr("socket.send_fds", full)
        ends.sender.send([b"head", part.data, bytes(SIZE)])
    del part
    until(lambda: len(ends.got) == 1, "the message")
    assert ends.got[0] == [b"head", bytes([3]) * SIZE, bytes(SIZE)]
    until(lambda: ends.blocks() == (0, 2), "the return of the blocks")
    ends.close()


def test_an_idle_block_of_a_part_grows_old() -> None:
    later: list[Callable[[], None]] = []

    class Reactor:
        def call_soon(self, call: Callable[..., None], *args: Any) -> None:
            call(*args)

        def call_later(self, delay: float, call: Callable[[], None], *args: Any) -> None:
            later.append(call)

    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memory = LaneMemory(mine, cast(Any, Reactor()), lambda: None)
    memory.part_memory(SIZE)
    assert memory.statistics()["idle_blocks"] == 1
    while later:
        later.pop()()
    assert memory.statistics()["idle_blocks"] == 0
    memory.close()
    theirs.close()
