"""The tests that every transport must pass; its test class inherits `TransportConformance`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfmini import errors
from tfmini.rpc.lane_connection import LaneConnection
from tfmini.rpc.lane_listener import LaneListener, connect_lane
from tfmini.rpc.reactor import Reactor
from tfmini.rpc.transport import Connection, Listener, RefusedConnection, Transport
from tfmini.rpc.waiter import Waiter

TIMEOUT_S = 60.0


class ListenerWithConnections(LaneListener):
    """A listener that owns its connections; its address carries the token."""

    def __init__(self, reactor: Reactor, on_connection: Callable[[Connection], None]) -> None:
        super().__init__(reactor)
        self._on_connection = on_connection
        self._connections: list[LaneConnection] = []
        self.address += "/" + self.issue_token(self._admit, once=False).hex()

    def _admit(self, connection: LaneConnection) -> None:
        self._connections.append(connection)
        self._on_connection(connection)

    def close(self) -> None:
        super().close()
        for connection in self._connections:
            connection.close("the listener was closed")


class LaneTransport(Transport):
    """Lanes by themselves, without a ZeroMQ connection before; the address holds the secret."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        return ListenerWithConnections(self._reactor, on_connection)

    def connect(self, address: str) -> Connection:
        name, _, token = address.removeprefix("lane://").partition("/")
        try:
            return connect_lane(name, bytes.fromhex(token), self._reactor)
        except (OSError, ValueError) as error:
            return RefusedConnection(self._reactor, address, f"no lane there: {error}")


class End:
    """One end of a connection under test: records the received messages and can wait for them."""

    def __init__(self, connection: Any, reactor: Any) -> None:
        self.connection = connection
        self.reactor = reactor
        self.messages: list[list[bytes]] = []
        self.raw: list[list[Any]] = []
        self.ends: list[str] = []
        self._wanted = 0
        self._waiter = Waiter()
        self.hook: Any = None

    def start(self) -> End:
        self.connection.start(self._on_parts, self._on_closed)
        self.connection.admit()
        return self

    def _on_parts(self, parts: list[Any]) -> None:
        assert not self.ends, "a message after the end"
        self.raw.append(list(parts))
        self.messages.append([bytes(p) for p in parts])
        if self.hook is not None:
            self.hook(self, parts)
        if len(self.messages) >= self._wanted:
            self._waiter.set()

    def _on_closed(self, reason: str) -> None:
        self.ends.append(reason)
        self._waiter.set()

    def wait_messages(self, count: int) -> None:
        self._wanted = count
        self._waiter = waiter = Waiter()
        if len(self.messages) < count:
            assert self.reactor.drive(waiter, self.reactor.now() + TIMEOUT_S), f"{len(self.messages)} of {count} came"
        assert len(self.messages) >= count, f"ended early: {self.ends}"

    def wait_end(self) -> str:
        if not self.ends:
            self._wanted = 1 << 60
            self._waiter = waiter = Waiter()
            assert self.reactor.drive(waiter, self.reactor.now() + TIMEOUT_S), "the end never came"
        return self.ends[0]


class TransportConformance:
    """Subclasses provide ``world``: (reactor, server transport, client transport, address)."""

    threads = True  # whether it may be used from several threads

    @pytest.fixture
    def world(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def pair(self, world: Any) -> Any:
        """A listener and both ends of one connection, with a first message each way."""
        reactor, server, client, address = world
        accepted: list[End] = []
        arrived = Waiter()

        def on_connection(connection: Any) -> None:
            accepted.append(End(connection, reactor).start())
            arrived.set()

        listener = server.listen(address, on_connection)
        near = End(client.connect(listener.address), reactor).start()
        near.connection.send([b"hello"])
        assert reactor.drive(arrived, reactor.now() + TIMEOUT_S)
        far = accepted[0]
        far.wait_messages(1)
        far.connection.send([b"welcome"])
        near.wait_messages(1)
        yield near, far, listener
        near.connection.close("test over")
        listener.close()
        for end in (near, far):
            end.wait_end()

    def test_messages_go_both_ways(self, pair: Any) -> None:
        near, far, _ = pair
        assert far.messages == [[b"hello"]]
        assert near.messages == [[b"welcome"]]

    @pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 100, 65535, 65536, 65537, 1_000_003])
    def test_every_part_size_arrives_whole(self, pair: Any, size: int) -> None:
        near, far, _ = pair
        data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        for sender, receiver in ((near, far), (far, near)):
            sender.connection.send([b"head", memoryview(data), b"tail"])
            receiver.wait_messages(2)
            assert receiver.messages[1] == [b"head", data.tobytes(), b"tail"]

    def test_many_parts_in_one_message(self, pair: Any) -> None:
        near, far, _ = pair
        parts = [bytes([i % 256]) * (i % 50 + 1) for i in range(3000)]
        near.connection.send(parts)
        far.wait_messages(2)
        assert far.messages[1] == parts

    def test_order_holds_under_a_burst(self, pair: Any) -> None:
        near, far, _ = pair
        large = np.zeros(100_000, np.uint8)
        for i in range(500):
            near.connection.send([str(i).encode(), memoryview(large)] if i % 50 == 0 else [str(i).encode()])
        far.wait_messages(501)
        assert [m[0] for m in far.messages[1:]] == [str(i).encode() for i in range(500)]

    def test_received_parts_are_read_only_and_stay(self, pair: Any) -> None:
        near, far, _ = pair
        for i in range(20):
            near.connection.send([b"head", memoryview(np.full(100_000, i, np.uint8)), b"x" * 10_000])
        far.wait_messages(21)
        for i, (_, part, small) in enumerate(far.raw[1:]):
            assert memoryview(part).readonly
            assert memoryview(small).readonly
            assert (np.frombuffer(part, np.uint8) == i).all()

    def test_a_reader_that_stalls_loses_nothing(self, pair: Any) -> None:
        """Messages that the peer does not read are queued; `send` does not block."""
        near, far, _ = pair
        block = memoryview(np.random.default_rng(0).integers(0, 256, 60_000, np.uint8))

        def echo(end: End, parts: list[Any]) -> None:
            end.connection.send([bytes(p) for p in parts])

        far.hook = echo
        for _ in range(300):
            near.connection.send([b"x", block])
        near.wait_messages(301)
        assert all(m[1] == bytes(block) for m in near.messages[1:])

    def test_remote_close_is_seen_once(self, pair: Any) -> None:
        near, far, _ = pair
        far.connection.send([b"last"])
        far.connection.close("enough")
        near.wait_end()
        far.wait_end()
        assert near.messages[-1] == [b"last"]
        near.connection.close("again")
        far.connection.close("again")
        near.connection.send([b"into the void"])
        assert len(near.ends) == len(far.ends) == 1

    def test_close_by_the_connecting_side(self, pair: Any) -> None:
        near, far, _ = pair
        near.connection.send([b"last"])
        near.connection.close("enough")
        far.wait_end()
        assert far.messages[-1] == [b"last"]
        assert near.wait_end() == "enough"

    def test_close_from_inside_a_handler(self, pair: Any) -> None:
        near, far, _ = pair
        far.hook = lambda end, parts: end.connection.close("from the handler")
        near.connection.send([b"one"])
        near.connection.send([b"two"])
        far.wait_end()
        near.wait_end()
        assert far.messages[1:] == [[b"one"]]

    def test_a_failing_handler_does_not_stop_the_next_message(self, pair: Any, caplog: Any) -> None:
        near, far, _ = pair

        def fail(end: End, parts: list[Any]) -> None:
            if parts[0] == b"bad":
                raise ValueError("a bug")

        far.hook = fail if self.threads else None
        near.connection.send([b"bad"])
        near.connection.send([b"good"])
        far.wait_messages(3)
        assert far.messages[-1] == [b"good"]

    def test_address_can_be_bound_again_at_once(self, world: Any, pair: Any) -> None:
        _, server, _, _ = world
        _, _, listener = pair
        listener.close()
        again = server.listen(listener.address, lambda connection: None)
        again.close()

    def test_address_in_use_is_refused(self, world: Any, pair: Any) -> None:
        _, server, _, _ = world
        _, _, listener = pair
        with pytest.raises(errors.UnknownError):
            server.listen(listener.address, lambda connection: None)

    def test_connecting_to_nothing_ends(self, world: Any) -> None:
        reactor, server, client, address = world
        listener = server.listen(address, lambda connection: None)
        listener.close()
        end = End(client.connect(listener.address), reactor).start()
        end.connection.send([b"anybody?"])
        assert end.wait_end()

    def test_two_clients_are_distinguished(self, world: Any) -> None:
        reactor, server, client, address = world

        def on_connection(connection: Any) -> None:
            end = End(connection, reactor)
            end.hook = lambda end, parts: end.connection.send([b"you said", parts[0]])
            end.start()

        listener = server.listen(address, on_connection)
        clients = [End(client.connect(listener.address), reactor).start() for _ in range(3)]
        for i, end in enumerate(clients):
            end.connection.send([str(i).encode()])
        for i, end in enumerate(clients):
            end.wait_messages(1)
            assert end.messages == [[b"you said", str(i).encode()]]
        clients[0].connection.close()
        clients[0].wait_end()
        clients[1].connection.send([b"still here"])
        clients[1].wait_messages(2)
        listener.close()
        for end in clients[1:]:
            end.wait_end()

    def test_sends_from_many_threads_stay_whole(self, pair: Any) -> None:
        if not self.threads:
            pytest.skip("single-threaded by design")
        near, far, _ = pair

        def send(name: int) -> None:
            for i in range(100):
                near.connection.send([b"%d" % name, b"%d" % i, bytes([name]) * (1 + i * 700)])

        senders = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for t in senders:
            t.start()
        far.wait_messages(401)
        for t in senders:
            t.join(TIMEOUT_S)
            assert not t.is_alive()
        for name in range(4):
            mine = [m for m in far.messages[1:] if m[0] == b"%d" % name]
            assert [m[1] for m in mine] == [b"%d" % i for i in range(100)]
            assert all(m[2] == bytes([name]) * (1 + i * 700) for i, m in enumerate(mine))
