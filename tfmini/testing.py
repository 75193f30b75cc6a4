"""A kit for tests: clusters of real processes (`ProcessCluster`), and networks of processes in virtual time.

Virtual time, with seeded delays and planned faults::


    faults = [Kill("ps0", at=3.0), Drop(("w0", "ps0"), "RunGraph", nth=2)]
    network = SimulatedNetwork(FaultPlan(faults, seed=7))
    host = network.host("ps0")
    endpoint = Endpoint(host, "/job:ps/replica:0/task:0", 1, transports={"sim": host.transport})
    endpoint.listen("sim://ps0")
    ...
    host.drive(waiter, deadline=10.0)

Each task is a `SimulatedHost`: a process (`runtime.process.Process`) and a reactor (`Clock`) with the network's
clock. No real time passes: `drive` and `SimulatedNetwork.run` jump from event to event. Equal seeds and plans give
equal histories (`SimulatedNetwork.history`). Silence costs no time, so minutes of failure detection in a cluster of
a thousand tasks run in seconds.

Whole clusters run here, too. ``host.spawn(program)`` starts a program in a thread that belongs to the simulated
process: its servers, sessions and training loops use the process's clock, reactor and random numbers. One thread of
the simulation runs at any time. A thread that waits makes the calls that are due, or hands over to the thread whose
wait has ended.

A link keeps the order of its messages, as every transport does. `Drop` loses single messages, which
no real connection does; it simulates bugs and finds waits without a deadline.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import msgpack

from tfmini.launch.local_cluster import ProcessCluster as ProcessCluster
from tfmini.rpc.records import REGISTRY
from tfmini.rpc.waiter import Timer
from tfmini.show.simulation.simulated_process import VirtualNetwork

LinkName = tuple[str, str]
_FOREVER = float("inf")
_EXIT_S = 0.05  # from the end of its servers to that of a process


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

    ``silent``: connections stay open, as after a cable is pulled. What is sent meanwhile arrives after the end.
    """

    link: LinkName
    at: float
    until: float = float("inf")
    silent: bool = False


@dataclasses.dataclass(frozen=True)
class Kill:
    """Ends the task's process: its connections close, and its queued calls do not run.

    ``gently``: its servers stop before, as a ps does on SIGTERM.
    """

    task: str
    at: float
    gently: bool = False


@dataclasses.dataclass(frozen=True)
class Stop:
    """Stops the task's process (SIGSTOP) from ``at`` until ``until``; then it continues."""

    task: str
    at: float
    until: float = float("inf")


@dataclasses.dataclass(frozen=True)
class Wedge:
    """Keeps the task from handling messages from ``at`` until ``until``, as a stuck handler does; its timers run on."""

    task: str
    at: float
    until: float = float("inf")


Fault = Drop | Delay | Sever | Kill | Stop | Wedge


@dataclasses.dataclass(frozen=True)
class FaultPlan:
    """The planned faults, and the seed of the delays."""

    faults: Sequence[Fault] = ()
    seed: int = 0


class SimulatedNetwork(VirtualNetwork):
    """The network, its clock and its hosts, with faults.

    Args:
      plan: the faults and the seed.
      latency_s: smallest and largest delay of a message, in virtual seconds.
    """

    def __init__(self, plan: FaultPlan | None = None, latency_s: tuple[float, float] = (50e-6, 200e-6)) -> None:
        self.plan = plan or FaultPlan()
        super().__init__(self.plan.seed, latency_s)
        self.random = random.Random(self.plan.seed)
        self.history: list[tuple[float, str, str, str]] = []
        self._seen: collections.Counter[tuple[LinkName, str]] = collections.Counter()
        self._stops = [f for f in self.plan.faults if isinstance(f, Stop)]
        self._wedges = [f for f in self.plan.faults if isinstance(f, Wedge)]
        self._severs = [f for f in self.plan.faults if isinstance(f, Sever)]
        self._on_messages = [f for f in self.plan.faults if isinstance(f, (Drop, Delay))]
        self._planned: list[Timer] = []
        self._plan_faults()

    def kill(self, name: str) -> None:
        """Kills a host now; see `Kill`."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            return
        host.alive = False
        self.note("killed", name, "")
        for address, listener in list(self.listeners.items()):
            if listener.host is host:
                del self.listeners[address]
        for connection in list(self.connections):
            if connection.host is host:
                connection.die()
        for thread in host.threads:
            self.call_later(0.0, self.hand_over, thread.turn)

    def end(self, name: str) -> None:
        """Stops the servers of a host now, and kills it soon; see `Kill`."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            return
        self.note("ended", name, "")
        for _, server in list(host.servers.values()):
            # In a thread of the process: it waits, and may be killed before it has waited long enough.
            host.thread(server.stop, name="stop").start()
        self.call_later(_EXIT_S, self.kill, name)

    def sever(self, one: str, other: str, silent: bool = False) -> None:
        """Cuts the connections between two hosts now; see `Sever`."""
        self.note("severed", one, other)
        for connection in list(self.connections):
            if not silent and {connection.host.name, connection.peer_name} == {one, other}:
                connection.cut(f"the link between {one} and {other} was cut")

    def end_faults(self) -> None:
        """From now on nothing fails."""
        for timer in self._planned:
            timer.cancel()
        self._stops, self._severs, self._on_messages = [], [], []

    # -- inside --------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        for fault in self.plan.faults:
            if isinstance(fault, Kill):
                self._planned.append(self.heap.add(fault.at, self.end if fault.gently else self.kill, (fault.task,)))
            elif isinstance(fault, Sever):
                self._planned.append(self.heap.add(fault.at, self.sever, (*fault.link, fault.silent)))

    def note(self, event: str, source: str, target: str = "") -> None:
        """Adds an event to the history."""
        self.history.append((self._time, event, source, target))

    def stopped_until(self, name: str) -> float:
        """The time when the host continues, if it is stopped now; else the current time."""
        until = self._time
        # It may be stopped again before: what comes at once must keep its order with what came meanwhile.
        for fault in sorted((f for f in self._stops if f.task == name), key=lambda f: f.at):
            if fault.at <= until < fault.until:
                until = fault.until
        return until

    def wedged_until(self, name: str) -> float:
        """The time when the host handles messages again, if it does not now; else the current time."""
        now = self._time
        return max((f.until for f in self._wedges if f.task == name and f.at <= now < f.until), default=now)

    def severed(self, one: str, other: str) -> Sever | None:
        """The fault that cuts the link between two hosts now, or None; of several the worst."""
        now = self._time
        found = [f for f in self._severs if f.at <= now < f.until and {*f.link} == {one, other}]
        return max(found, key=lambda f: (not f.silent, f.until), default=None)

    def delay_of(self, source: str, target: str, parts: Sequence[Any]) -> float | None:
        """The delay of a message; None if it is lost."""
        kind = _kind_of(parts)
        link = (source, target)
        delay = self.random.uniform(*self.latency_s)
        for counted in {kind, ""}:
            self._seen[link, counted] += 1
        for fault in self._on_messages:
            if fault.link != link or fault.kind not in (kind, ""):
                continue
            if self._seen[link, fault.kind] != fault.nth:
                continue
            if isinstance(fault, Drop):
                self.note(f"dropped {kind}", source, target)
                return None
            delay += fault.seconds
        cut = self.severed(source, target)
        if cut is not None:
            if not cut.silent or cut.until == _FOREVER:
                return None
            delay += cut.until - self._time  # the transport sends it again
        self.note(kind, source, target)
        return delay


def _kind_of(parts: Sequence[Any]) -> str:
    try:
        header = msgpack.unpackb(parts[0], strict_map_key=False, ext_hook=lambda code, data: None)
        return REGISTRY[header[1]].__name__
    except (ValueError, TypeError, KeyError, IndexError):
        return "?"  # a test's own bytes
