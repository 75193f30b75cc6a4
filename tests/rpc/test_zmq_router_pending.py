"""Before admission a peer costs little, whatever it sends or does not send."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from tests.rpc.task_processes import PS, Call, until
from tfmini.rpc import messages as m
from tfmini.rpc import zmq_router
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import Keys
from tfmini.rpc.lane_listener import LaneListener, TokenListener
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.stream_lane import StreamListener
from tfmini.rpc.zmq_router import ADMISSION_S, PENDING_LIMIT, PendingConnections, pending_limit
from tfmini.testing import SimulatedNetwork

VERSION_3 = b"\xff" + bytes(8) + b"\x7f\x03\x00"
CURVE = VERSION_3 + b"CURVE".ljust(20, b"\0") + bytes(32)
NULL = VERSION_3 + b"NULL".ljust(20, b"\0") + bytes(32)
_PROPERTIES = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
READY = b"\x04" + bytes([len(_PROPERTIES)]) + _PROPERTIES


def long_frame(flags: int, size: int) -> bytes:
    return struct.pack(">BQ", flags, size)


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that may open only 1,024 files."""
    monkeypatch.setattr(zmq_router.resource, "getrlimit", lambda which: (1024, 1024))


@pytest.fixture(params=["keys", "open"])
def server(request: Any) -> Iterator[Endpoint]:
    keys = Keys(*zmq.curve_keypair()) if request.param == "keys" else None
    endpoint = Endpoint(get_reactor(), PS, 42, keys=keys, insecure=True)
    endpoint.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply(PS, 42, []))})
    endpoint.address = endpoint.listen("127.0.0.1:0")
    yield endpoint
    endpoint.close()


def raw(server: Endpoint) -> socket.socket:
    host, port = server.address.removeprefix("tcp://").split(":")
    sock = socket.create_connection((host, int(port)))
    sock.setblocking(False)
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side has closed; reads what it has sent."""
    try:
        while data := sock.recv(4096):
            del data
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def shake_hands(sock: socket.socket) -> None:
    """Says READY, and waits for the answer or the end: ZeroMQ takes what comes before its own for a command."""
    sock.send(NULL + READY)
    got = bytearray()

    def is_over() -> bool:
        try:
            while data := sock.recv(4096):
                got.extend(data)
        except BlockingIOError:
            return b"READY" in got
        except ConnectionError:
            pass
        return True

    until(is_over, "the answer to the handshake")


def assert_serves(server: Endpoint) -> None:
    client = Endpoint(get_reactor(), "", 7, keys=server.keys, insecure=True)
    answer = Call(client.peer(server.address, PS), m.GetStatus()).wait()
    assert isinstance(answer, m.GetStatusReply)
    client.close()


@pytest.mark.parametrize("size", [1 << 20, 1 << 32, 1 << 62])
@pytest.mark.parametrize("start", [b"", CURVE, NULL, NULL + READY], ids=["zmtp1", "curve", "null", "ready"])
@pytest.mark.parametrize("flags", [2, 6], ids=["message", "command"])
def test_a_huge_frame_is_refused_when_it_is_announced(server: Endpoint, start: bytes, size: int, flags: int) -> None:
    sock = raw(server)
    if start.endswith(READY):
        shake_hands(sock)
    else:
        sock.send(start)
    with contextlib.suppress(ConnectionError):
        # Without a greeting this is ZMTP 1.0: 0xff, the size, the flags.
        sock.send(long_frame(flags, size) if start else b"\xff" + struct.pack(">QB", size, 0) + bytes(2))
    until(lambda: is_closed(sock), "the refusal")
    sock.close()
    assert_serves(server)


def test_a_peer_that_sends_a_byte_now_and_then_is_cut_off(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_router, "ADMISSION_S", 0.5)
    sock = raw(server)
    rest = iter(CURVE[:-1])  # the greeting is never complete, so only time can end it

    def is_cut() -> bool:
        if is_closed(sock):
            return True
        sock.send(bytes(next(([byte] for byte in rest), [])))
        return False

    with contextlib.suppress(ConnectionError):  # it ended between the two calls
        until(is_cut, "the end")
    sock.close()
    assert_serves(server)


def test_a_peer_that_never_says_hello_is_cut_off(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that has a key, or needs none."""
    monkeypatch.setattr(zmq_router, "ADMISSION_S", 0.5)
    sock = zmq.Context.instance().socket(zmq.DEALER)
    sock.linger = 0
    sock.reconnect_ivl = -1
    if server.keys is not None:
        sock.curve_publickey, sock.curve_secretkey = server.keys.public, server.keys.secret
        sock.curve_serverkey = server.keys.public
    monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    sock.connect(server.address)
    for event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED):
        until(lambda: monitor.poll(0), "the event")
        assert struct.unpack("=hi", monitor.recv_multipart()[0])[0] == event
    sock.disable_monitor()
    monitor.close()
    sock.close()
    assert_serves(server)


def test_an_admitted_peer_is_not_cut_off(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []
    pop = PendingConnections.pop

    def noted(pending: PendingConnections[Any, Any], key: Any) -> Any:
        ended.append(pop(pending, key))
        return ended[-1]

    monkeypatch.setattr(PendingConnections, "pop", noted)
    client = Endpoint(get_reactor(), "", 7, keys=server.keys, insecure=True, lanes=False)
    peer = client.peer(server.address, PS)
    Call(peer, m.GetStatus()).wait()
    until(lambda: any(item is not None for item in ended), "the admission")
    link = peer.link
    until(lambda: Call(peer, m.GetStatus()).wait() and peer.link is link, "an answer")
    client.close()


def test_a_thousand_silent_peers_keep_nobody_out(server: Endpoint) -> None:
    silent = [raw(server) for _ in range(1000)]
    assert_serves(server)
    until(lambda: sum(not is_closed(sock) for sock in silent) <= PENDING_LIMIT, "the end of the others")
    assert is_closed(silent[0])  # the oldest
    assert not is_closed(silent[-1])
    assert_serves(server)
    for sock in silent:
        sock.close()


@pytest.fixture(params=["local", "stream", "sealed"])
def lanes(request: Any) -> Iterator[TokenListener]:
    if request.param == "local":
        listener: TokenListener = LaneListener(get_reactor())
    else:
        listener = StreamListener("127.0.0.1", get_reactor(), sealed=request.param == "sealed")
    yield listener
    listener.close()


def raw_lane(listener: TokenListener) -> socket.socket:
    scheme, _, name = listener.address.partition("://")
    sock = socket.socket(socket.AF_UNIX if scheme == "lane" else socket.AF_INET)
    sock.connect("\0" + name if scheme == "lane" else ("127.0.0.1", int(name)))
    sock.setblocking(False)
    return sock


def test_silent_lanes_give_way_to_new_ones(lanes: TokenListener) -> None:
    opened: list[Any] = []
    token = lanes.issue_token(opened.append)
    silent = [raw_lane(lanes) for _ in range(PENDING_LIMIT + 50)]
    until(lambda: all(is_closed(sock) for sock in silent[:50]), "the end of the oldest")
    assert not any(is_closed(sock) for sock in silent[50:])
    good = raw_lane(lanes)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if good.family == socket.AF_UNIX:
        socket.send_fds(good, [lanes.shown(token)], [theirs.fileno()])
    else:
        good.send(lanes.shown(token))
    until(lambda: opened, "the lane")
    opened[0].close()
    for sock in (*silent, good, mine, theirs):
        sock.close()


@pytest.mark.parametrize("sent", [b"", b"x" * 31])
def test_a_lane_without_a_token_is_cut_off(lanes: TokenListener, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_router, "ADMISSION_S", 0.2)
    sock = raw_lane(lanes)
    sock.send(sent)
    until(lambda: is_closed(sock), "the end")
    sock.close()


def test_each_connection_has_its_own_time() -> None:
    clock = SimulatedNetwork()
    ended: list[tuple[float, int]] = []
    table: PendingConnections[int, str] = PendingConnections(clock, lambda key, item: ended.append((clock.now(), key)))
    for key in range(3):
        clock.call_later(float(key), table.add, key, "item")
    clock.call_later(4.0, table.pop, 1)
    clock.run(until=100.0)
    assert ended == [(ADMISSION_S, 0), (2 + ADMISSION_S, 2)]
    table.add(3, "item")  # the timer runs again
    clock.run(until=200.0)
    assert [key for _, key in ended] == [0, 2, 3]


@pytest.mark.parametrize(
    ("files", "limit"), [(256, PENDING_LIMIT), (1024, PENDING_LIMIT), (16384, 2048), (-1, 8192), (1 << 20, 8192)]
)
def test_a_thousand_tasks_may_connect_at_once_where_there_is_room_for_them(
    files: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_router.resource, "getrlimit", lambda which: (files, files))
    assert pending_limit() == limit


def test_the_oldest_goes_first_and_an_admitted_one_stays() -> None:
    clock = SimulatedNetwork()
    ended: list[int] = []
    table: PendingConnections[int, str] = PendingConnections(clock, lambda key, item: ended.append(key))
    for key in range(PENDING_LIMIT):
        table.add(key, "item")
    assert table.pop(0) == "item" and table.pop(0) is None
    for key in range(PENDING_LIMIT, PENDING_LIMIT + 3):
        table.add(key, "item")
    assert ended == [1, 2] and len(table) == PENDING_LIMIT
    table.close()
    assert len(ended) == PENDING_LIMIT + 2 and not len(table)
