"""Addresses, keys, who may open a lane, and bounds on memory."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tfmini import errors
from tfmini.rpc import local_lane
from tfmini.rpc import transport as transport_module
from tfmini.rpc.lane_listener import LaneListener, connect_lane, host_id
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.security import check_exposure, generate_keys, keys_of_environment, load_keys, parse_address
from tfmini.rpc.shared_blocks import BLOCK_LIMIT, BlockCache, BlockPool, size_class
from tfmini.rpc.waiter import Waiter
from tfmini.rpc.zmq_transport import ZmqTransport

sys.path.insert(0, str(Path(__file__).parent))
from conformance import LaneTransport

LIMIT_S = 60.0  # of waits for what is sure to come


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("localhost:2222", "tcp://localhost:2222"),
        ("grpc://ps0.example.com:1", "tcp://ps0.example.com:1"),
        ("zmq://10.0.0.1:0", "tcp://10.0.0.1:0"),
        ("tcp://[::1]:65535", "tcp://[::1]:65535"),
        ("ipc:///tmp/x", "ipc:///tmp/x"),
        ("inproc://a", "inproc://a"),
    ],
)
def test_addresses_have_one_spelling(text: str, parsed: str) -> None:
    assert str(parse_address(text)) == parsed
    assert parse_address(parsed) == parse_address(text)


@pytest.mark.parametrize(
    "text", ["", "x", ":1", "x:", "x:-1", "x:65536", "x:1:2", "a b:1", "ftp://x:1", "ipc://", "x:٣"]
)
def test_malformed_addresses_are_named(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Could not interpret the address") as caught:
        parse_address(text)
    assert repr(text) in caught.value.message


def test_exposure(monkeypatch: Any) -> None:
    monkeypatch.delenv("TFMINI_INSECURE", raising=False)
    for private in ("localhost:1", "127.0.0.9:1", "[::1]:1", "ipc:///x"):
        check_exposure(parse_address(private), None)
    for public in ("0.0.0.0:1", "10.0.0.1:1", "example.com:1", "*:1"):
        with pytest.raises(errors.FailedPreconditionError, match="tfmini keys"):
            check_exposure(parse_address(public), None)
        check_exposure(parse_address(public), None, insecure=True)


def test_keys_are_made_kept_secret_and_loaded(tmp_path: Path) -> None:
    secret = generate_keys(str(tmp_path / "keys"))
    assert os.stat(secret).st_mode & 0o077 == 0
    keys = load_keys(secret)
    assert keys.admits(keys.public)
    assert not keys.admits(b"x" * 40)
    assert keys.secret.decode() not in repr(keys)
    os.chmod(secret, 0o644)
    with pytest.raises(errors.PermissionDeniedError, match="chmod 600"):
        load_keys(secret)
    with pytest.raises(errors.NotFoundError):
        load_keys(str(tmp_path / "none"))
    (tmp_path / "bad").write_text("no key")
    with pytest.raises(errors.InvalidArgumentError):
        load_keys(str(tmp_path / "bad"))


def test_the_environment_names_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFMINI_KEYS", raising=False)
    assert keys_of_environment() is None
    monkeypatch.setenv("TFMINI_KEYS", generate_keys(str(tmp_path)))
    assert keys_of_environment() == load_keys(str(tmp_path / "tfmini.key_secret"))
    check_exposure(parse_address("0.0.0.0:1"), keys_of_environment())


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
    listener.invite(opened.append)
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
    token = listener.invite(lambda lane: (opened.append(lane), came.set()))
    first = connect_lane(listener.address, token, reactor)
    assert reactor.drive(came, reactor.now() + LIMIT_S)
    second, ended = connect_lane(listener.address, token, reactor), Waiter()
    second.start(lambda parts: None, lambda reason: ended.set())
    assert reactor.drive(ended, reactor.now() + LIMIT_S)
    assert len(opened) == 1
    for lane in (first, opened[0]):
        lane.close()
    listener.close()


def test_lanes_can_be_switched_off(monkeypatch: Any) -> None:
    monkeypatch.setenv("TFMINI_LANE", "off")
    assert host_id() == ""
    monkeypatch.delenv("TFMINI_LANE")
    assert host_id() == host_id() != ""


@pytest.mark.parametrize(
    "noise", [b"\xff" * 64, b"\0" * 64, b"\1\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\xff\xff" + bytes(14)]
)
def test_noise_on_a_lane_ends_that_lane_only(noise: bytes) -> None:
    reactor = get_reactor()
    mine, theirs = socket.socketpair()
    fds = socket.socketpair()
    lane, ended, reasons = local_lane.LaneConnection(mine, fds[0], reactor, "test"), Waiter(), []
    lane.start(lambda parts: None, lambda reason: (reasons.append(reason), ended.set()))
    theirs.send(noise)
    assert reactor.drive(ended, reactor.now() + LIMIT_S)
    assert "broke the lane's protocol" in reasons[0]
    theirs.close()
    fds[1].close()


@pytest.mark.parametrize("transport", [ZmqTransport, LaneTransport])
def test_a_peer_that_never_reads_is_given_up(transport: Any, monkeypatch: Any) -> None:
    """The queue is bounded in memory; who exceeds it loses the connection, with that reason."""
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


def test_a_backlog_is_too_much_when_the_peer_stands_still(monkeypatch: Any) -> None:
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


def test_a_block_that_is_none_is_refused() -> None:
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
