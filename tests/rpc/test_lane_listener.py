"""Lanes open for a token only."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from typing import Any

import pytest

from tfmini.rpc.forks import receive_descriptor
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.lane_listener import LaneListener, connect_lane, host_id
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter

LIMIT_S = 60.0  # limit of waits for events that are certain


def end_of(sock: socket.socket) -> bool:
    sock.settimeout(LIMIT_S)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("token", [b"", b"x" * 32, b"x" * 5])
@pytest.mark.parametrize("with_fd", [True, False])
def test_a_lane_opens_only_for_the_token(token: bytes, with_fd: bool) -> None:
    listener = LaneListener(get_reactor())
    opened: list[Any] = []
    listener.issue_token(opened.append)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect("\0" + listener.address.removeprefix("lane://"))
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if with_fd and token:
        socket.send_fds(sock, [token], [theirs.fileno()])
    elif token:
        sock.send(token)
    else:
        sock.shutdown(socket.SHUT_WR)
    assert end_of(sock)
    assert not opened
    for s in (sock, mine, theirs):
        s.close()
    listener.close()


def test_a_token_opens_one_lane() -> None:
    reactor = get_reactor()
    listener = LaneListener(reactor)
    opened: list[Any] = []
    came = Waiter()
    token = listener.issue_token(lambda lane: (opened.append(lane), came.set()))
    first = connect_lane(listener.address, token, reactor)
    assert reactor.drive(came, reactor.now() + LIMIT_S)
    second, ended = connect_lane(listener.address, token, reactor), Waiter()
    second.start(lambda parts: None, lambda reason: ended.set())
    assert reactor.drive(ended, reactor.now() + LIMIT_S)
    assert len(opened) == 1
    for lane in (first, opened[0]):
        lane.close()
    listener.close()


def test_a_lane_waits_while_there_is_no_descriptor_for_its_second_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    reactor = get_reactor()
    looks: list[int] = []

    def receive(sock: socket.socket, nbytes: int) -> tuple[bytes, int]:
        looks.append(nbytes)
        if len(looks) < 3:
            raise OSError(errno.EMFILE, "")
        return receive_descriptor(sock, nbytes)

    monkeypatch.setattr("tfmini.rpc.lane_listener.receive_descriptor", receive)
    listener = LaneListener(reactor)
    opened: list[LaneConnection] = []
    came = Waiter()
    token = listener.issue_token(lambda lane: (opened.append(lane), came.set()))
    lane = connect_lane(listener.address, token, reactor)
    assert reactor.drive(came, reactor.now() + LIMIT_S)
    assert len(looks) == 3
    for each in (lane, opened[0]):
        each.close()
    listener.close()


_AT_THE_LIMIT = """
import os, resource, socket
from tfmini.rpc.forks import AT_LIMIT, receive_descriptor
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
sent, other = socket.socketpair()
socket.send_fds(theirs, [b"token"], [sent.fileno()])
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 1000))
try:
    receive_descriptor(ours, 5)
except OSError as error:
    print(error.errno in AT_LIMIT)
resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
message, fd = receive_descriptor(ours, 5)
print(message, os.write(fd, b"x"), other.recv(2))
theirs.send(b"alone")
print(receive_descriptor(ours, 5))
"""


def test_a_descriptor_stays_while_there_is_no_room_for_it() -> None:
    """In a process of its own: ZeroMQ's threads die when they get none."""
    command = [sys.executable, "-c", _AT_THE_LIMIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.splitlines() == ["True", "b'token' 1 b'x'", "(b'alone', -1)"]


def test_lanes_can_be_switched_off(monkeypatch: Any) -> None:
    monkeypatch.setenv("TFMINI_LANE", "off")
    assert host_id() == ""
    monkeypatch.delenv("TFMINI_LANE")
    assert host_id() == host_id() != ""
