"""A network of tasks in one thread, with virtual time, seeded delays and planned faults.

::

    faults = [Kill("ps0", at=3.0), Drop(("w0", "ps0"), "RunGraph", nth=2)]
    network = SimulatedNetwork(FaultPlan(faults, seed=7))
    host = network.host("ps0")
    endpoint = Endpoint(host, "/job:ps/replica:0/task:0", 1, transports={"sim": host.transport})
    endpoint.listen("sim://ps0")
    ...
    host.drive(waiter, deadline=10.0)

Each task is a `SimulatedHost`: a reactor (`Clock`) with the network's clock. No real time passes:
`drive` and `SimulatedNetwork.run` jump from event to event. Equal seeds and plans give equal
histories (`SimulatedNetwork.history`). Silence costs no time, so minutes of failure detection in a
cluster of a thousand tasks run in seconds.

A link keeps the order of its messages, as every transport does. `Drop` loses single messages, which
no real connection does; it simulates bugs and finds waits without a deadline.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from tfmini import errors
from tfmini.rpc.records import REGISTRY
from tfmini.rpc.timers import Timer, TimerHeap
from tfmini.rpc.transport import Connection, Listener, OnClosed, OnParts, Transport
from tfmini.rpc.waiter import Waiter

LinkName = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Drop:
    """Loses the ``nth`` (from 1) message of a kind from link[0] to link[1]; kind "": any."""

    link: LinkName
    kind: str
    nth: int


@dataclasses.dataclass(frozen=True)
class Delay:
    """Delays the ``nth`` message of a kind, and all later ones, by ``seconds``."""

    link: LinkName
    kind: str
    nth: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Sever:
    """Cuts both directions between two tasks from ``at`` until ``until`` (seconds).

    ``silent``: messages are lost but connections stay open, as after a cable is pulled.
    """

    link: LinkName
    at: float
    until: float = float("inf")
    silent: bool = False


@dataclasses.dataclass(frozen=True)
class Kill:
    """Ends the task's process: its connections close, and its queued calls do not run."""

    task: str
    at: float


@dataclasses.dataclass(frozen=True)
class Stop:
    """Stops the task's process (SIGSTOP) from ``at`` until ``until``; then it continues."""

    task: str
    at: float
    until: float = float("inf")


Fault = Drop | Delay | Sever | Kill | Stop


@dataclasses.dataclass(frozen=True)
class FaultPlan:
    """The planned faults, and the seed of the delays."""

    faults: Sequence[Fault] = ()
    seed: int = 0


class SimulatedNetwork:
    """The network, its clock and its hosts.

    Args:
      plan: the faults and the seed.
      latency_s: smallest and largest delay of a message, in virtual seconds.
    """

    def __init__(
        self, plan: FaultPlan | None = None, latency_s: tuple[float, float] = (50e-6, 200e-6)
    ) -> None:
        self.plan = plan or FaultPlan()
        self.random = random.Random(self.plan.seed)
        self.history: list[tuple[float, str, str, str]] = []
        self._latency_s = latency_s
        self._time = 0.0
        self._heap = TimerHeap()
        self._hosts: dict[str, SimulatedHost] = {}
        self._listeners: dict[str, _SimulatedListener] = {}
        self._connections: set[_SimulatedConnection] = set()
        self._seen: collections.Counter[tuple[LinkName, str]] = collections.Counter()
        self._plan_faults()

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._time

    def host(self, name: str) -> SimulatedHost:
        """Returns the host of a name; a new host if it was killed."""
        if name not in self._hosts or not self._hosts[name].alive:
            self._hosts[name] = SimulatedHost(self, name)
        return self._hosts[name]

    def run(self, until: float) -> None:
        """Makes all calls that are due until that time."""
        while (timer := self._heap.pop_due(until)) is not None:
            self._make(timer)
        self._time = max(self._time, until)

    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool:
        """Makes calls in order of time until the waiter is done or the deadline passes.

        Raises:
          RuntimeError: no call is left, and the waiter is not done.
        """
        limit = float("inf") if deadline is None else deadline
        while not waiter.done:
            timer = self._heap.pop_due(limit)
            if timer is None:
                if deadline is None:
                    raise RuntimeError(
                        f"no event is left at {self._time:.3f} s, but the waiter is not done"
                    )
                self._time = max(self._time, deadline)
                return False
            self._make(timer)
        return True

    def kill(self, name: str) -> None:
        """Kills a host now; see `Kill`."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            return
        host.alive = False
        self._note("killed", name, "")
        for address, listener in list(self._listeners.items()):
            if listener.host is host:
                del self._listeners[address]
        for connection in list(self._connections):
            if connection.host is host:
                connection.die()

    def sever(self, one: str, other: str, silent: bool = False) -> None:
        """Cuts the connections between two hosts now; see `Sever`."""
        self._note("severed", one, other)
        for connection in list(self._connections):
            if not silent and {connection.host.name, connection.peer_name} == {one, other}:
                connection.arrive(f"the link between {one} and {other} was cut")

    # -- inside --------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        for fault in self.plan.faults:
            if isinstance(fault, Kill):
                self._heap.add(fault.at, self.kill, (fault.task,))
            elif isinstance(fault, Sever):
                self._heap.add(fault.at, self.sever, (*fault.link, fault.silent))

    def _make(self, timer: Timer) -> None:
        self._time = max(self._time, timer.when)
        timer.fire()

    def _note(self, event: str, source: str, target: str) -> None:
        self.history.append((self._time, event, source, target))

    def _stopped_until(self, name: str) -> float:
        """The time when the host continues, if it is stopped now; else the current time."""
        now = self._time
        ends = [
            f.until
            for f in self.plan.faults
            if isinstance(f, Stop) and f.task == name and f.at <= now < f.until
        ]
        return max(ends, default=now)

    def is_severed(self, one: str, other: str) -> bool:
        """Whether the link between two hosts is cut now."""
        return any(
            isinstance(f, Sever) and set(f.link) == {one, other} and f.at <= self._time < f.until
            for f in self.plan.faults
        )

    def delay_of(self, source: str, target: str, parts: Sequence[Any]) -> float | None:
        """The delay of a message; None if it is lost."""
        kind = _kind_of(parts)
        link = (source, target)
        delay = self.random.uniform(*self._latency_s)
        for counted in {kind, ""}:
            self._seen[link, counted] += 1
        for fault in self.plan.faults:
            if not isinstance(fault, (Drop, Delay)) or fault.link != link or fault.kind not in (kind, ""):
                continue
            if self._seen[link, fault.kind] != fault.nth:
                continue
            if isinstance(fault, Drop):
                self._note(f"dropped {kind}", source, target)
                return None
            delay += fault.seconds
        if self.is_severed(source, target):
            return None
        self._note(kind, source, target)
        return delay


def _kind_of(parts: Sequence[Any]) -> str:
    try:
        header = msgpack.unpackb(parts[0], strict_map_key=False, ext_hook=lambda code, data: None)
        return REGISTRY[header[1]].__name__
    except (ValueError, TypeError, KeyError, IndexError):
        return "?"  # a test's own bytes


class SimulatedHost:
    """One process of the simulation: a reactor whose calls stop when the host is killed or stopped."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self.network = network
        self.name = name
        self.alive = True
        self.transport = SimulatedTransport(self)

    def now(self) -> float:
        """The network's time."""
        return self.network.now()

    def call_soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Makes the call at the current virtual time, after the calls that are already due."""
        self.call_later(0.0, call, *args)

    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> Timer:
        """Makes the call after ``delay`` virtual seconds, unless the host is killed before."""
        return self.network._heap.add(self.now() + delay, self._call, (call, args))

    def drive(self, waiter: Waiter, deadline: float | None = None) -> bool:
        """Drives the whole network; see `SimulatedNetwork.drive`."""
        return self.network.drive(waiter, deadline)

    def _call(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        resume = self.network._stopped_until(self.name)
        if resume == float("inf"):
            return
        if resume > self.now():
            self.network._heap.add(resume, self._call, (call, args))
        else:
            call(*args)


class SimulatedTransport(Transport):
    """Transport of a simulated host, at ``sim://name``; ``sim://*`` makes a new name."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host

    def listen(self, address: str, on_connection: Callable[[Connection], None]) -> Listener:
        network = self.host.network
        if address.endswith("://*"):
            address = f"sim://{self.host.name}-{len(network._listeners)}"
        if address in network._listeners:
            raise errors.UnknownError.of(f"{address} is in use by {network._listeners[address].host.name}")
        network._listeners[address] = listener = _SimulatedListener(self.host, address, on_connection)
        return listener

    def connect(self, address: str) -> Connection:
        network, host = self.host.network, self.host
        listener = network._listeners.get(address)
        near = _SimulatedConnection(host, address)
        if listener is None or network.is_severed(host.name, listener.host.name):
            near.arrive("connection refused: no process listens there", network._latency_s[1])
            return near
        far = _SimulatedConnection(listener.host, address)
        near.pair(far)
        listener.connections.append(far)
        listener.host.call_later(network._latency_s[0], listener.on_connection, far)
        return near


class _SimulatedListener(Listener):
    def __init__(
        self, host: SimulatedHost, address: str, on_connection: Callable[[Connection], None]
    ) -> None:
        self.host = host
        self.address = address
        self.on_connection = on_connection
        self.connections: list[_SimulatedConnection] = []

    def close(self) -> None:
        if self.host.network._listeners.get(self.address) is self:
            del self.host.network._listeners[self.address]
        for connection in self.connections:
            connection.close("the listener was closed")


class _SimulatedConnection(Connection):
    """One end of a connection. Messages and the end are queued in `_inbox` until `start`."""

    def __init__(self, host: SimulatedHost, address: str) -> None:
        self.host = host
        self.address = address
        self.peer_name = ""
        self._other: _SimulatedConnection | None = None
        self._on_parts: OnParts | None = None
        self._on_closed: OnClosed | None = None
        self._inbox: collections.deque[list[bytes] | str] = collections.deque()
        self._last_arrival = 0.0
        self._sending = True
        self._closed_here = False
        host.network._connections.add(self)

    def pair(self, other: _SimulatedConnection) -> None:
        """Connects two ends."""
        self._other, other._other = other, self
        self.peer_name, other.peer_name = other.host.name, self.host.name

    def start(self, on_parts: OnParts, on_closed: OnClosed) -> None:
        self._on_parts, self._on_closed = on_parts, on_closed
        self.host.call_soon(self._deliver)

    @property
    def backlog(self) -> int:
        return 0

    def send(self, parts: Sequence[Any]) -> None:
        if self._sending and self._other is not None and self.host.alive:
            delay = self.host.network.delay_of(self.host.name, self.peer_name, parts)
            if delay is not None:
                self._other.arrive([bytes(part) for part in parts], delay)

    def close(self, reason: str = "closed here") -> None:
        if self._sending:
            self._sending, self._closed_here = False, True
            other = self._other
            if other is not None and not self.host.network.is_severed(self.host.name, self.peer_name):
                other.arrive(f"closed by the other side: {reason}", self.host.network._latency_s[0])
            self.arrive(reason)

    def die(self) -> None:
        """Ends the connection because the host of this end was killed."""
        self._sending = False
        self.host.network._connections.discard(self)
        if self._other is not None:
            self._other.arrive("the connection was closed", self.host.network._latency_s[0])

    def arrive(self, item: list[bytes] | str, delay: float = 0.0) -> None:
        """Delivers a message, or the reason of the end, to this host after ``delay``, in order."""
        now = self.host.now()
        self._last_arrival = max(self._last_arrival, now + delay)
        self.host.call_later(self._last_arrival - now, self._push, item)

    def _push(self, item: list[bytes] | str) -> None:
        self._inbox.append(item)
        self._deliver()

    def _deliver(self) -> None:
        while self._inbox and self._on_closed is not None and self._on_parts is not None:
            item = self._inbox.popleft()
            if isinstance(item, list):
                if not self._closed_here:
                    self._on_parts(item)
                continue
            on_closed, self._on_closed, self._sending = self._on_closed, None, False
            self.host.network._connections.discard(self)
            on_closed(item)
