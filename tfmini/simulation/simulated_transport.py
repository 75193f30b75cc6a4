"""The transport of a simulated host: connections that keep the order of messages, as TCP does, until they break."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.timers import Timer
from tfmini.rpc.transport import Connection, Listener, Locate, OnClosed, OnParts, Transport

if TYPE_CHECKING:
    from tfmini.simulation.simulated_process import SimulatedHost


class SimulatedTransport(Transport):
    """Transport of a simulated host, at ``sim://name``; ``sim://*`` makes a new name.

    Attributes:
      connection: makes an end of a connection.
    """

    @property
    def connection(self) -> type[SimulatedConnection]:
        return SimulatedConnection

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host

    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        network = self.host.network
        if address.endswith("://*"):
            address = f"sim://{self.host.name}-{len(network.listeners)}"
        if address in network.listeners:
            raise errors.UnknownError.of(f"{address} is in use by {network.listeners[address].host.name}")
        network.listeners[address] = listener = SimulatedListener(self.host, address, on_connection)
        return listener

    def connect(self, address: str, locate: Locate | None = None) -> Connection:
        network, host = self.host.network, self.host
        found = locate() if locate is not None else ()
        address = found[0] if found else address
        listener = network.listeners.get(address)
        near = self.connection(host, address)
        fault = None if listener is None else network.severed(host.name, listener.host.name)
        if listener is None or fault is not None and not fault.silent:
            near.arrive("connection refused: no process listens there", network.latency_s[1])
            return near
        far = self.connection(listener.host, address)
        near.pair(far)
        listener.connections.append(far)
        wait = network.latency_s[0] + (0.0 if fault is None else fault.until - network.now())
        if wait < float("inf"):
            listener.host.call_later(wait, listener.on_connection, far)
        return near


class SimulatedListener(Listener):
    """A bound address of a simulated host."""

    def __init__(self, host: SimulatedHost, address: str, on_connection: Callable[[Connection], None]) -> None:
        self.host = host
        self.address = address
        self.on_connection = on_connection
        self.connections: list[SimulatedConnection] = []

    def close(self) -> None:
        if self.host.network.listeners.get(self.address) is self:
            del self.host.network.listeners[self.address]
        for connection in self.connections:
            connection.close("the listener was closed")


class SimulatedConnection(Connection):
    """One end of a connection. Messages and the end are queued in `_inbox` until `start`."""

    def __init__(self, host: SimulatedHost, address: str) -> None:
        self.host = host
        self.address = address
        self.peer_name = ""
        self._other: SimulatedConnection | None = None
        self._on_parts: OnParts | None = None
        self._on_closed: OnClosed | None = None
        self._inbox: collections.deque[list[bytes] | str] = collections.deque()
        self._on_their_way: collections.deque[Timer] = collections.deque()
        self._last_arrival = 0.0
        self._arrived = 0  # bytes
        self._sending = True
        self._closed_here = False
        host.network.connections[self] = None

    def pair(self, other: SimulatedConnection) -> None:
        """Connects two ends."""
        self._other, other._other = other, self
        self.peer_name, other.peer_name = other.host.name, self.host.name

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        self.host.call_soon(self._deliver)

    @property
    def backlog(self) -> int:
        return 0

    @property
    def activity(self) -> int:
        return self._arrived

    def send(self, parts: Sequence[Any]) -> None:
        if self._sending and self._other is not None and self.host.alive:
            delay = self.host.network.delay_of(self.host.name, self.peer_name, parts)
            if delay is not None:
                self._other.arrive([bytes(part) for part in parts], delay)

    def close(self, reason: str = "closed here") -> None:
        if self._sending:
            self._sending, self._closed_here = False, True
            self._tell_other(f"closed by the other side: {reason}")
            self.arrive(reason)

    def die(self) -> None:
        """Ends the connection because the host of this end was killed."""
        self._sending = False
        self.host.network.connections.pop(self, None)
        self._tell_other("the connection was closed")

    def _tell_other(self, reason: str) -> None:
        network = self.host.network
        fault = network.severed(self.host.name, self.peer_name)
        if self._other is not None and (fault is None or fault.silent and fault.until < float("inf")):
            wait = 0.0 if fault is None else fault.until - network.now()
            self._other.arrive(reason, network.latency_s[0] + wait)

    def cut(self, reason: str) -> None:
        """Ends the connection, as a router that goes down does; the messages on their way here are lost."""
        for timer in self._on_their_way:
            timer.cancel()
        self.arrive(reason)

    def arrive(self, item: list[bytes] | str, delay: float = 0.0) -> None:
        """Delivers a message, or the reason of the end, to this host after ``delay``, in order."""
        now = self.host.now()
        self._last_arrival = max(self._last_arrival, now + delay)
        self._on_their_way.append(self.host.call_later(self._last_arrival - now, self._push, item))

    def _push(self, item: list[bytes] | str) -> None:
        self._on_their_way.popleft()
        self._inbox.append(item)
        self._arrived += sum(map(len, item))
        self._deliver()

    def _deliver(self) -> None:
        resume = self.host.network.wedged_until(self.host.name)
        if resume > self.host.now():
            if resume < float("inf"):
                self.host.call_later(resume - self.host.now(), self._deliver)
            return
        while self._inbox and self._on_closed is not None and self._on_parts is not None:
            item = self._inbox.popleft()
            if isinstance(item, list):
                if not self._closed_here:
                    self._on_parts(item)
                continue
            on_closed, self._on_closed, self._sending = self._on_closed, None, False
            self.host.network.connections.pop(self, None)
            on_closed(item)
