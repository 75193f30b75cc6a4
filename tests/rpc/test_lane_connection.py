"""Lanes whose peer misbehaves: bounds on memory."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.rpc.conformance import LaneTransport
from tests.rpc.task_processes import until
from tfmini.rpc import lane_connection, lane_wire
from tfmini.rpc import transport as transport_module
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
from tfmini.rpc.zmq_transport import ZmqTransport

LIMIT_S = 60.0  # limit of waits for events that are certain


@pytest.mark.parametrize(
    "noise", [b"\xff" * 64, b"\0" * 64, b"\1\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\xff\xff" + bytes(14)]
)
def test_random_bytes_on_a_lane_end_that_lane_only(noise: bytes) -> None:
    reactor = get_reactor()
    mine, theirs = socket.socketpair()
    fds = socket.socketpair()
    lane, ended, reasons = lane_connection.LaneConnection(mine, fds[0], reactor, "test"), Waiter(), []
    lane.start(lambda parts: None, lambda reason: (reasons.append(reason), ended.set()))
    theirs.send(noise)
    assert reactor.drive(ended, reactor.now() + LIMIT_S)
    assert "violated the lane's protocol" in reasons[0]
    theirs.close()
    fds[1].close()


@pytest.mark.parametrize("transport", [ZmqTransport, LaneTransport])
def test_a_peer_that_never_reads_is_disconnected(transport: Any, monkeypatch: Any) -> None:
    """The send queue is bounded in memory; a connection that exceeds it is closed with that reason."""
    monkeypatch.setattr(transport_module, "BACKLOG_LIMIT", 1 << 20)
    reactor = get_reactor()
    carrier = transport(reactor)
    accepted: list[Any] = []
    listener = carrier.listen("tcp://127.0.0.1:0", accepted.append)  # never started: never read
    near, ended, reasons = carrier.connect(listener.address), Waiter(), []
    near.start(lambda parts: None, lambda reason: (reasons.append(reason), ended.set()))
    if transport is ZmqTransport:  # ZeroMQ reads by itself; only a full queue of ours counts
        monkeypatch.setattr(near._pump, "send", lambda parts: False)
    block = memoryview(np.zeros(50_000, np.uint8))
    for _ in range(400):
        near.send([b"x", block])
    assert reactor.drive(ended, reactor.now() + LIMIT_S)
    assert "does not read" in reasons[0]
    assert near.backlog == 0
    listener.close()


def test_the_backlog_limit_is_lower_for_a_stalled_peer(monkeypatch: Any) -> None:
    now = 100.0
    monkeypatch.setattr(transport_module, "time", SimpleNamespace(monotonic=lambda: now))  # the module's own clock only
    backlog = transport_module.Backlog()
    backlog.add(3 << 30)  # one message of any size is no reason
    assert not backlog.excess()
    now += 3.9
    backlog.take(1 << 20)
    now += 3.9
    assert not backlog.excess()
    now += 0.2
    assert "does not read" in backlog.excess()
    backlog.clear()
    assert not backlog.excess()
    backlog.add(17 << 30)
    assert "does not read" in backlog.excess()  # however fast it reads


def test_a_message_of_exactly_one_read_does_not_hide_the_next_one() -> None:
    """The kernel reports bytes once, so a lane must not take a full read for the last one."""
    mine, theirs = socket.socketpair()
    for size in (lane_connection._READ - 32, 5):
        theirs.send(lane_wire.pack_single(b"x" * size))
    got: list[Any] = []
    lane = lane_connection.LaneConnection(mine, None, get_reactor(), "test")
    lane.start(got.append, lambda reason: None)
    until(lambda: len(got) == 2, "the second message")
    assert [len(part) for (part,) in got] == [lane_connection._READ - 32, 5]
    lane.close()
    theirs.close()
