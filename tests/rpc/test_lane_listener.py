"""Lanes open for a token only."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

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


def test_a_lane_waits_while_there_is_no_descriptor_for_its_second_socket() -> None:
    reactor = get_reactor()
    listener = LaneListener(reactor)
    opened: list[LaneConnection] = []
    came = Waiter()
    token = listener.issue_token(lambda lane: (opened.append(lane), came.set()))
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, mine, theirs:
        sock.connect("\0" + listener.address.removeprefix("lane://"))
        reactor.drive(Waiter(), reactor.now() + 0.1)  # the listener accepts, and waits for the token
        with no_descriptors():
            socket.send_fds(sock, [token], [theirs.fileno()])
            assert not reactor.drive(came, reactor.now() + 0.5)
        assert reactor.drive(came, reactor.now() + LIMIT_S)
    opened[0].close()
    listener.close()


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Inside, this process can open no files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_lanes_can_be_switched_off(monkeypatch: Any) -> None:
    monkeypatch.setenv("TFMINI_LANE", "off")
    assert host_id() == ""
    monkeypatch.delenv("TFMINI_LANE")
    assert host_id() == host_id() != ""
