"""A ZeroMQ message without an end cannot fill the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rpc.task_processes import Call, until
from tests.rpc.test_pending import NULL, READY, assert_serves, is_closed, raw, server
from tfmini.rpc import messages as m
from tfmini.rpc.codec import encode
from tfmini.rpc.connection_messages import Hello
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.incomplete_messages import ADMITTED_BYTES, INTERVAL_S, PENDING_BYTES, IncompleteMessages
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.records import PROTOCOL_VERSION
from tfmini.testing.simulated import SimulatedNetwork

__all__ = ["server"]
MORE = b"\x01\x00"  # an empty frame that another one follows


def frame(data: bytes) -> bytes:
    return b"\x02" + len(data).to_bytes(8, "big") + data


@pytest.mark.parametrize("server", ["open"], indirect=True)
@pytest.mark.parametrize("says_hello", [False, True])
def test_a_message_of_endless_small_frames_ends_its_connection(server: Endpoint, says_hello: bool) -> None:
    """Of 64 bytes in memory each, before the Hello and after it."""
    sock = raw(server)
    start = NULL + READY
    if says_hello:
        start += frame(encode(Hello(PROTOCOL_VERSION, "", 9, "", b"", False, "", 0, 0), 1)[0])
    sock.send(start)
    sent, block = 0, MORE * (16 << 10)
    (listener,) = server._listeners

    def is_cut() -> bool:
        nonlocal sent
        try:
            while sent < 40 << 20:
                sent += sock.send(block)
        except BlockingIOError:
            pass
        except ConnectionError:
            return True
        return is_closed(sock)

    until(is_cut, "the end")
    sock.close()
    until(lambda: not listener._incomplete._watched, "the end of the connection")  # type: ignore[attr-defined]
    assert_serves(server)


def test_large_messages_pass(server: Endpoint) -> None:
    """Their pieces are complete messages."""
    got: list[Any] = []
    server.serve({m.RunGraph: lambda peer, request, respond: (got.append(request), respond(m.RunGraphReply(())))})
    client = Endpoint(get_reactor(), "", 7, keys=server.keys, insecure=True, lanes=False)
    peer = client.peer(server.address)
    value = np.arange(5 << 20, dtype=np.float32)
    for step in range(5):
        answer = Call(peer, m.RunGraph(1, step, (value,))).wait()
        assert isinstance(answer, m.RunGraphReply), answer
    assert len(got) == 5 and np.array_equal(got[4].feed_values[0], value)
    client.close()


class World:
    """A listener with made-up connections."""

    def __init__(self) -> None:
        self.network = SimulatedNetwork()
        self.received: dict[int, int] = {}
        self.ended: list[int] = []
        self.drained = True
        clock = self.network.host("ps")
        self.watch = IncompleteMessages(clock, lambda fd: self.received[fd], lambda: self.drained, self.ended.append)

    def pass_time(self) -> None:
        self.network.run(until=self.network.now() + 1.5 * INTERVAL_S)


def test_who_completes_messages_may_send_without_end() -> None:
    world = World()
    for fd in (5, 6):
        world.received[fd] = 0
        world.watch.add(fd)
        world.watch.admitted(fd)
    for _ in range(20):
        for fd in (5, 6):
            world.received[fd] += ADMITTED_BYTES
        world.watch.message(5)
        world.pass_time()
    assert set(world.ended) == {6}


def test_messages_that_wait_to_be_read_are_no_fault_of_their_sender() -> None:
    world = World()
    world.received[5], world.drained = 0, False
    world.watch.add(5)
    world.received[5] = 100 << 20
    for _ in range(5):
        world.pass_time()
    assert not world.ended
    world.watch.message(5)
    world.drained = True
    for _ in range(5):
        world.pass_time()
    assert not world.ended


def test_a_connection_that_is_not_admitted_may_send_a_handshake() -> None:
    world = World()
    world.received[5] = PENDING_BYTES
    world.watch.add(5)
    world.pass_time()
    assert not world.ended
    world.received[5] += 1
    world.pass_time()
    assert world.ended == [5]
    world.watch.remove(5)
    world.pass_time()
    assert world.ended == [5] and not world.watch._timer_runs
