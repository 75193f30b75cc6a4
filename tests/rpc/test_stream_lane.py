"""Stream lanes: when they are used, the fallback without one, and the reuse of receive buffers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq

from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc import send_queue, stream_lane
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.handshake import LOST_AFTER_S, TICK_S
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.messages import Heartbeat
from tfmini.rpc.peer import State
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.send_queue import ReceiveBuffers
from tfmini.rpc.shared_blocks import KEEP_S
from tfmini.rpc.stream_lane import SealedLane, StreamListener, StreamOpening, lane_name
from tfmini.rpc.waiter import Waiter
from tfmini.rpc.zmq_pump import Pump

LIMIT_S = 60.0  # limit of waits for events that are certain
PS = "/job:ps/replica:0/task:0"


def until(condition: Any) -> None:
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit
        get_reactor().drive(Waiter(), get_reactor().now() + 0.005)


@pytest.fixture(params=["sealed", "open"])
def make(request: Any) -> Iterator[Any]:
    made: list[Endpoint] = []

    def endpoint(task: str = "", **options: Any) -> Endpoint:
        made.append(Endpoint(get_reactor(), task, len(made) + 1, **{"insecure": request.param == "open", **options}))
        made[-1].host_id = ""  # no local lane
        return made[-1]

    yield endpoint
    for one in made:
        one.close()


def status(client: Endpoint, address: str) -> Any:
    answers: list[Any] = []
    peer = client.peer(address, PS)
    peer.call(m.GetStatus(), answers.append, timeout_s=LIMIT_S)
    until(lambda: answers)
    assert isinstance(answers[0], m.GetStatusReply)
    return peer


def serve(server: Endpoint) -> str:
    server.serve({m.GetStatus: lambda peer, request, respond: respond(m.GetStatusReply(PS, 1, []))})
    return server.listen("127.0.0.1:0")


def test_a_link_moves_to_a_stream_that_is_encrypted_if_there_are_keys(make: Any) -> None:
    client = make()
    peer = status(client, serve(make(PS)))
    until(lambda: client.counters["lanes"] == 1)
    assert type(peer.link.connection) is (SealedLane if client.keys is not None else LaneConnection)
    status(client, peer.address)


@pytest.mark.parametrize("side", ["server", "client"])
def test_either_side_may_refuse_a_stream(make: Any, side: str, monkeypatch: Any) -> None:
    listening: list[str] = []
    listen = StreamListener.__init__

    def listen_noted(self: Any, interface: str, *args: Any) -> None:
        listening.append(interface)
        listen(self, interface, *args)

    monkeypatch.setattr(StreamListener, "__init__", listen_noted)
    server, client = make(PS), make()
    (server if side == "server" else client).streams = False
    peer = status(client, serve(server))
    assert not listening
    assert not isinstance(peer.link.connection, LaneConnection)


def test_a_lane_that_is_late_before_its_timer_is_noted_fails() -> None:
    """The thread that starts the timer may stop there for longer than its delay."""

    def call_later(delay: float, call: Any, *args: Any) -> Any:
        call(*args)
        return SimpleNamespace(cancel=lambda: None)

    unwatched: list[Any] = []
    reactor = SimpleNamespace(
        call_later=call_later, call_soon=lambda *_: None, source=lambda *_: "source", watch=lambda *_, **__: None,
        unwatch=unwatched.append,
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        opened: list[Any] = []
        opening = StreamOpening("127.0.0.1", port, b"", reactor, opened.append, False)  # type: ignore[arg-type]
        with listener.accept()[0] as accepted:
            accepted.settimeout(LIMIT_S)
            assert accepted.recv(1) == b""  # the other end is closed
    assert opening is not None and unwatched == ["source"] and not opened


def test_an_unreachable_port_leaves_the_link_on_zeromq(make: Any, monkeypatch: Any, caplog: Any) -> None:
    caplog.set_level("INFO", "tfmini.rpc")
    listen = StreamListener.__init__

    def listen_nowhere(self: Any, interface: str, reactor: Any, sealed: bool) -> None:
        listen(self, interface, reactor, sealed)
        self.close()

    monkeypatch.setattr(StreamListener, "__init__", listen_nowhere)
    client = make()
    peer = status(client, serve(make(PS)))
    until(lambda: "no stream lane" in caplog.text)
    (line,) = [record.getMessage() for record in caplog.records if "no stream lane" in record.getMessage()]
    assert line.endswith(": Connection refused")
    assert status(client, peer.address) is peer
    assert not isinstance(peer.link.connection, LaneConnection)


@pytest.mark.parametrize("shown", [b"x" * 32, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize("sealed", [True, False])
def test_wrong_tokens_are_refused(shown: bytes, sealed: bool) -> None:
    opened: list[Any] = []
    listener = StreamListener("127.0.0.1", get_reactor(), sealed)
    token = listener.issue_token(opened.append)
    port = int(listener.address.removeprefix("stream://"))
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    sock.send(shown)
    until(lambda: _is_closed(sock))
    assert not opened
    sock.close()
    good = socket.create_connection(("127.0.0.1", port))
    good.send(lane_name(token)[:10])
    good.send(lane_name(token)[10:])
    until(lambda: opened)
    opened[0].close()
    good.close()
    listener.close()


def _is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.fixture
def make_still(make: Any, monkeypatch: Any) -> Any:
    """Makes endpoints without heartbeats: the test ticks itself. Others in this process keep theirs."""

    def made(*args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("tfmini.rpc.endpoint.TICK_S", 1000.0)
            return make(*args)

    return made


@pytest.mark.parametrize("lane", [True, False])
def test_bytes_of_an_incomplete_message_are_activity(make_still: Any, lane: bool) -> None:
    """A peer is not silent while bytes of its message arrive; it is silent if they stop in the middle."""
    server, client = make_still(PS), make_still()
    server.streams = lane
    peer = status(client, serve(server))
    if lane:
        until(lambda: client.counters["lanes"] == 1)
    link = peer.link
    other = server.links()[0]
    other.post(Heartbeat(1, ""))
    until(lambda: link.connection.activity > 0)
    before = link.connection.activity
    other.post(Heartbeat(1, ""))
    # The bytes count although no thread reads them.
    limit = time.monotonic() + LIMIT_S
    while link.connection.activity == before:
        assert time.monotonic() < limit
    seen = link.received + link.connection.activity  # the rest of the message may still come while the test ticks
    link.watch.liveness.tick(TICK_S, seen, link.sent)
    assert link.watch.liveness.silence_s == 0
    ticks = [link.watch.liveness.tick(TICK_S, seen, i).name for i in range(int(LOST_AFTER_S / TICK_S) + 1)]
    assert "LOST" in ticks[-2:]


class SilentLane:
    """A lane that delivers nothing; ``activity`` is the number of bytes that have come by it."""

    activity = sent_bytes = received_bytes = 0

    def close(self, reason: str) -> None:
        """The link has ended."""


def test_bytes_on_a_lane_are_activity_before_the_switch(make_still: Any) -> None:
    """The LaneSwitch may wait behind a message whose handler takes long, such as a kernel in its thread."""
    server, client = make_still(PS), make_still()
    server.streams = False
    peer = status(client, serve(server))
    link = peer.link
    lane = link._lane = SilentLane()
    for _ in range(3 * int(LOST_AFTER_S / TICK_S)):
        lane.activity += 48
        link.tick(TICK_S)
    assert peer.state is State.READY
    for _ in range(2 * int(LOST_AFTER_S / TICK_S)):
        link.tick(TICK_S)
    assert peer.state is not State.READY


def test_buffers_are_reused_after_their_last_view() -> None:
    pool = ReceiveBuffers(idle_limit=8 << 20)
    memory, seen = pool.take(3 << 20)
    memory[:4] = b"abcd"
    part = seen[:4]
    place = memory.obj.ctypes.data
    del memory, seen
    assert pool.idle_bytes == 0
    assert not part.flags.writeable
    assert bytes(part) == b"abcd"
    part.flags.writeable = True  # a client may make it its own
    del part
    assert pool.idle_bytes == 3 << 20
    again, _ = pool.take(3 << 20)
    assert again.obj.ctypes.data == place
    others = [pool.take(3 << 20) for _ in range(3)]
    del others
    assert pool.idle_bytes <= 8 << 20


def test_a_dropped_message_is_reported_at_once(make: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        client = make()
        peer = client.peer(f"127.0.0.1:{taken.getsockname()[1]}", PS)
        dropped: list[Any] = []
        peer.send(m.SendTensors(1, "", 0, b"", (np.zeros(3),)), dropped.append)
        until(lambda: dropped)
    assert isinstance(dropped[0], errors.UnavailableError)
    assert PS in dropped[0].message
    assert "connection refused" in dropped[0].message  # at once, not after the time that a connection may take


def test_queued_messages_of_a_closed_peer_are_reported(make: Any) -> None:
    client = make()
    peer = client.peer("127.0.0.1:1", PS)
    peer.state = State.CONNECTING  # an attempt that takes long
    dropped: list[Any] = []
    peer.send(m.SendTensors(1, "", 0, b"", ()), dropped.append)
    client.close()
    until(lambda: dropped)
    assert isinstance(dropped[0], errors.UnavailableError)


def test_the_environment_can_switch_streams_off(monkeypatch: Any) -> None:
    monkeypatch.setenv("TFMINI_STREAM", "off")
    assert not stream_lane.streams_wanted()
    monkeypatch.delenv("TFMINI_STREAM")
    assert stream_lane.streams_wanted()


def test_idle_buffers_are_given_back(monkeypatch: Any) -> None:
    now, later = [100.0], []
    monkeypatch.setattr(send_queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pool = ReceiveBuffers(call_later=lambda delay, call: later.append(call))
    held, _ = pool.take(1 << 20)
    pool.take(2 << 20)  # nothing keeps it
    assert pool.idle_bytes == 2 << 20 and len(later) == 1
    now[0] += KEEP_S + 1
    later.pop()()
    assert pool.idle_bytes == 0 and len(later) == 1  # one buffer is in use
    del held, _
    assert pool.idle_bytes == 1 << 20
    now[0] += KEEP_S + 1
    later.pop()()
    assert pool.idle_bytes == 0 and not later
    pool.take(1 << 20)
    assert later  # once more


def test_numpy_views_of_a_buffer_keep_it() -> None:
    pool = ReceiveBuffers()
    memory, seen = pool.take(1 << 20)
    array: Any = np.ndarray((256,), np.float32, seen[1024:2048])
    del memory, seen
    assert pool.idle_bytes == 0
    del array
    assert pool.idle_bytes == 1 << 20


def test_messages_queued_on_the_old_connection_arrive(make: Any, monkeypatch: Any) -> None:
    """A message was sent before the lane was there, and ZeroMQ takes longer over it than it lingers."""
    monkeypatch.setattr("tfmini.rpc.zmq_pump.RETRY_S", 0.02)
    server, client = make(PS), make()
    got: list[int] = []
    server.serve({m.SendTensors: lambda peer, message, _: got.append(message.step_id)})
    peer = client.peer(serve(server), PS)
    ready_at: list[float] = []

    def established(peer: Any) -> None:
        """From now on ZeroMQ takes nothing for a while, so the LaneSwitch waits behind the message."""
        ready_at.append(time.monotonic())
        peer.send(m.SendTensors(2, "", 0, b"", ()))

    send = Pump.send

    def send_late(pump: Pump, parts: Any) -> bool:
        is_clients = pump.sock.type == zmq.DEALER
        if is_clients and ready_at and time.monotonic() <= ready_at[0] + 1.5:
            return False
        return send(pump, parts)

    monkeypatch.setattr(Pump, "send", send_late)

    client.on_peer_ready(established)
    peer.send(m.SendTensors(1, "", 0, b"", ()))
    until(lambda: got == [1, 2])
    until(lambda: client.counters["lanes"] == server.counters["lanes"] == 1)
    assert time.monotonic() > ready_at[0] + 1.5
    peer.send(m.SendTensors(3, "", 0, b"", ()))
    until(lambda: got == [1, 2, 3])
