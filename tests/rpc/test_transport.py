"""Every transport passes the same suite."""

from __future__ import annotations

import errno
import socket
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import zmq

from tests.rpc.conformance import End, LaneTransport, TransportConformance
from tests.rpc.task_processes import until
from tfmini import errors
from tfmini.rpc import zmq_router
from tfmini.rpc.keys import Keys
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.stream_lane import SealedLane, StreamListener, lane_name
from tfmini.rpc.transport import RefusedConnection, Transport
from tfmini.rpc.zmq_pump import Pump
from tfmini.rpc.zmq_transport import ZmqTransport
from tfmini.testing import SimulatedNetwork


class TestTcp(TransportConformance):
    @pytest.fixture
    def world(self) -> Any:
        transport = ZmqTransport(get_reactor())
        return get_reactor(), transport, transport, "tcp://127.0.0.1:0"


class TestIpc(TransportConformance):
    @pytest.fixture
    def world(self) -> Iterator[Any]:
        transport = ZmqTransport(get_reactor())
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the path of a socket has at most 107 bytes
            yield get_reactor(), transport, transport, f"ipc://{folder}/socket"


class TestCurve(TransportConformance):
    @pytest.fixture
    def world(self) -> Any:
        keys = Keys(*zmq.curve_keypair())
        transport = ZmqTransport(get_reactor(), keys)
        return get_reactor(), transport, transport, "tcp://127.0.0.1:0"

    @pytest.mark.parametrize("with_keys", [False, True])
    def test_unauthenticated_peers_are_refused(self, world: Any, with_keys: bool) -> None:
        reactor, server, _, address = world
        arrived: list[Any] = []
        listener = server.listen(address, arrived.append)
        wrong_keys = Keys(server.keys.public, zmq.curve_keypair()[1]) if with_keys else None
        end = End(ZmqTransport(reactor, wrong_keys).connect(listener.address), reactor).start()
        end.connection.send([b"let me in"])
        assert end.wait_end()
        assert not arrived
        listener.close()


class TestCurveOverIpc(TransportConformance):
    @pytest.fixture
    def world(self) -> Iterator[Any]:
        transport = ZmqTransport(get_reactor(), Keys(*zmq.curve_keypair()))
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            yield get_reactor(), transport, transport, f"ipc://{folder}/socket"


class TestLane(TransportConformance):
    @pytest.fixture
    def world(self) -> Any:
        transport = LaneTransport(get_reactor())
        return get_reactor(), transport, transport, "lane://any"

    def test_address_can_be_bound_again_at_once(self, world: Any, pair: Any) -> None:
        pytest.skip("a lane's address is never used twice")

    def test_address_in_use_is_refused(self, world: Any, pair: Any) -> None:
        pytest.skip("a lane's address is never used twice")


class StreamTransport(Transport):
    """Stream lanes by themselves, without a ZeroMQ connection before."""

    token = b""

    def __init__(self, sealed: bool) -> None:
        self._is_sealed = sealed

    def listen(self, address: str, on_connection: Any) -> Any:
        listener = StreamListener("127.0.0.1", get_reactor(), self._is_sealed)
        connections: list[Any] = []
        self.token = listener.issue_token(lambda lane: (connections.append(lane), on_connection(lane)), once=False)
        close = listener.close

        def close_all() -> None:
            close()
            for connection in connections:
                connection.close("the listener was closed")

        listener.close = close_all  # type: ignore[method-assign]
        return listener

    def connect(self, address: str) -> Any:
        try:
            sock = socket.create_connection(("127.0.0.1", int(address.removeprefix("stream://"))))
        except OSError as error:
            return RefusedConnection(get_reactor(), address, str(error))
        sock.send(lane_name(self.token))
        if self._is_sealed:
            return SealedLane(sock, get_reactor(), address, self.token, connecting=True)
        return LaneConnection(sock, None, get_reactor(), address)


class TestStream(TransportConformance):
    sealed = False

    @pytest.fixture
    def world(self) -> Any:
        transport = StreamTransport(self.sealed)
        return get_reactor(), transport, transport, "stream://any"

    def test_address_can_be_bound_again_at_once(self, world: Any, pair: Any) -> None:
        pytest.skip("the kernel chooses the port")

    def test_address_in_use_is_refused(self, world: Any, pair: Any) -> None:
        pytest.skip("the kernel chooses the port")


class TestSealed(TestStream):
    sealed = True


class TestSimulated(TransportConformance):
    threads = False

    @pytest.fixture
    def world(self) -> Any:
        network = SimulatedNetwork()
        return network, network.host("server").transport, network.host("client").transport, "sim://server"


def test_busy_port_names_the_address_and_the_remedy() -> None:
    transport = ZmqTransport(get_reactor())
    listener = transport.listen("tcp://127.0.0.1:0", lambda connection: None)
    # TensorFlow's helpers for tests of clusters look for its text.
    with pytest.raises(
        errors.UnknownError, match="^The server cannot listen at .*Could not start gRPC server"
    ) as caught:
        transport.listen(listener.address, lambda connection: None)
    assert listener.address in caught.value.message
    assert "choose another port" in caught.value.message
    listener.close()


def test_an_unknown_host_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: Any, **options: Any) -> Any:  # without asking a name service, which may not be there
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    reactor = get_reactor()
    end = End(ZmqTransport(reactor).connect("tcp://no-such-host.invalid:1"), reactor).start()
    assert "was not found" in end.wait_end()


class NotedPump(Pump):
    """A pump of a listener; the test makes some of its calls itself."""

    def __init__(self, sock: Any, reactor: Any, on_message: Any, after: Any, may_read: Any, at_end: Any) -> None:
        super().__init__(sock, reactor, self._noted, after, may_read, at_end)
        self.on_message, self.deliver, self.end_turn = on_message, after, at_end
        self.routing_ids: list[bytes] = []

    def start(self, on_event: Any) -> None:
        self.on_event = on_event
        super().start(on_event)

    def _noted(self, parts: list[Any]) -> None:
        self.routing_ids.append(parts[0])
        self.on_message(parts)


@pytest.fixture
def pumps(monkeypatch: pytest.MonkeyPatch) -> list[NotedPump]:
    """The pumps of the listeners that the test makes."""
    made: list[NotedPump] = []

    def make(*args: Any) -> NotedPump:
        made.append(NotedPump(*args))
        return made[-1]

    monkeypatch.setattr(zmq_router, "Pump", make)
    return made


def test_nothing_is_delivered_after_a_close_that_follows_a_failed_send(pumps: list[NotedPump]) -> None:
    """The client has gone, and its messages wait."""
    transport = ZmqTransport(get_reactor())
    accepted: list[End] = []
    listener = transport.listen(
        "tcp://127.0.0.1:0", lambda connection: accepted.append(End(connection, get_reactor()).start())
    )
    near = End(transport.connect(listener.address), get_reactor()).start()
    near.connection.send([b"hello"])
    until(lambda: accepted and accepted[0].messages, "the connection")
    connection, (pump,) = accepted[0].connection, pumps
    pump.send = Mock(side_effect=zmq.ZMQError(errno.EHOSTUNREACH))  # type: ignore[method-assign]
    connection.send([b"for nobody"])
    connection.close()
    pump.on_message([pump.routing_ids[0], Frame(b"late")])
    pump.deliver()
    accepted[0].wait_end()
    assert accepted[0].messages == [[b"hello"]]
    near.connection.close()
    listener.close()


class Frame(bytes):
    """Stands in for a received frame."""

    bytes = property(lambda self: bytes(self))

    def get(self, option: object) -> Any:
        return 10_000 if option == zmq.SRCFD else ""


def test_a_connection_ends_after_its_last_messages_although_another_one_has_its_descriptor(
    pumps: list[NotedPump],
) -> None:
    """Its end is among the events that are read when the first message of the other one comes."""
    transport = ZmqTransport(get_reactor())
    accepted: list[End] = []
    listener: Any = transport.listen(
        "tcp://127.0.0.1:0", lambda connection: accepted.append(End(connection, get_reactor()).start())
    )
    (pump,) = pumps
    pump.on_event(zmq.EVENT_ACCEPTED, 10_000)
    pump.on_message([b"old", Frame(b"one")])
    events = [(zmq.EVENT_DISCONNECTED, 10_000), (zmq.EVENT_ACCEPTED, 10_000)]
    messages = [[b"old", Frame(b"two")], [b"new", Frame(b"more")]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pump, "read_monitor", lambda: [pump.on_event(*events.pop(0)) for _ in events[:]])
        patch.setattr(pump, "drain", lambda: [pump.on_message(messages.pop(0)) for _ in messages[:]])
        pump.on_message([b"new", Frame(b"one")])
        pump.end_turn()
    pump.deliver()
    old, new = accepted
    assert old.messages == [[b"one"], [b"two"]] and old.wait_end() == "the connection was closed"
    assert new.messages == [[b"one"], [b"more"]]
    pump.on_event(zmq.EVENT_DISCONNECTED, 10_000)  # now the descriptor is the other one's
    pump.end_turn()
    pump.deliver()
    assert new.wait_end() == "the connection was closed"
    listener.close()
