"""Lanes whose peer misbehaves: bounds on memory."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.rpc.task_processes import until
from tfmini.rpc import lane_connection, lane_wire
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter

LIMIT_S = 60.0  # limit of waits for events that are certain


@pytest.mark.parametrize("noise", [b"\xff" * 64, b"\0" * 64, b"\1\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\xff\xff" + bytes(14)])
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


def test_a_message_of_exactly_one_read_does_not_hide_the_next_one() -> None:
    """The kernel reports bytes once, so a lane must not take a full read for the last one."""
    mine, theirs = socket.socketpair()
    for size in (lane_connection.READ_BYTES - 32, 5):
        theirs.send(lane_wire.pack_single(b"x" * size))
    got: list[Any] = []
    lane = lane_connection.LaneConnection(mine, None, get_reactor(), "test")
    lane.start(got.append, lambda reason: None)
    until(lambda: len(got) == 2, "the second message")
    assert [len(part) for (part,) in got] == [lane_connection.READ_BYTES - 32, 5]
    lane.close()
    theirs.close()


def test_a_lane_that_was_closed_before_its_start_watches_nothing() -> None:
    """The system gives the number of its descriptor to the next connection."""
    mine, theirs = socket.socketpair()
    number, reasons = mine.fileno(), []
    closed = lane_connection.LaneConnection(mine, None, get_reactor(), "test")
    closed.close("ended meanwhile")
    a, b = socket.socketpair()
    assert number in (a.fileno(), b.fileno())
    closed.start(lambda parts: None, reasons.append)
    until(lambda: reasons == ["ended meanwhile"], "the report of the end")
    got: list[Any] = []
    other = lane_connection.LaneConnection(a, None, get_reactor(), "test")
    other.start(got.append, lambda reason: None)
    b.send(lane_wire.pack_single(b"x"))
    until(lambda: got, "the message")
    for end in (other, theirs, b):
        end.close()
