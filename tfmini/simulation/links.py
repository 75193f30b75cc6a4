"""Machines joined by links: when a message that is sent now arrives.

Each machine has a NIC with two directions. A direction carries one message after the other: the sender's in the order
of sending, the receiver's in the order in which their first bytes come. So neither direction ever carries more bytes
than its rate allows. Between tasks of one machine there is no NIC: bytes cost CPU time only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfmini.simulation.cores import VirtualClock
from tfmini.simulation.profile import LinkProfile, Machine, Profile


@dataclass(frozen=True)
class Topology:
    """Where tasks are.

    Attributes:
      hosts: full task name -> the name of its host.
      machines: host -> its type.
      local, link: between tasks of one host, and between hosts.
    """

    hosts: Mapping[str, str]
    machines: Mapping[str, Machine]
    local: LinkProfile
    link: LinkProfile

    @classmethod
    def on_one_machine(cls, tasks: list[str], profile: Profile) -> Topology:
        """All tasks on the profile's default machine."""
        return cls(dict.fromkeys(tasks, "host"), {"host": profile.machine}, profile.local, profile.local)

    @classmethod
    def on_own_machines(cls, tasks: list[str], profile: Profile, link: str) -> Topology:
        """Each task on a machine of its own (the profile's default), joined by a link: see `Profile.link`."""
        hosts = {task: task for task in tasks}
        return cls(hosts, dict.fromkeys(tasks, profile.machine), profile.local, profile.link(link))

    @classmethod
    def of(cls, tasks: list[str], profile: Profile, link: str) -> Topology:
        """Each task on a machine of its own, joined by ``link``; "": all on one machine."""
        return cls.on_own_machines(tasks, profile, link) if link else cls.on_one_machine(tasks, profile)

    def between(self, source: str, target: str) -> LinkProfile:
        """The link from task to task."""
        return self.local if self.hosts[source] == self.hosts[target] else self.link


@dataclass
class Usage:
    """What one direction of a NIC has carried: bytes, messages, and seconds in which it was busy."""

    nbytes: int = 0
    messages: int = 0
    busy_s: float = 0.0


@dataclass
class Nics:
    """The NICs of a cluster.

    Attributes:
      sent, received: by host. ``carried``: bytes by (source, target) task, also within a host.
    """

    cluster: Topology
    clock: VirtualClock
    sent: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    received: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    carried: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    _free: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))

    def reset(self) -> None:
        """Forgets what was carried so far."""
        for usage in (self.sent, self.received, self.carried):
            usage.clear()

    def send(self, source: str, target: str, nbytes: int, arrived: Callable[[], None], messages: int = 1) -> None:
        """Bytes leave the task ``source`` now; ``arrived`` is called when all of them are at the task ``target``."""
        self.carried[source, target] += nbytes
        here, there = self.cluster.hosts[source], self.cluster.hosts[target]
        link = self.cluster.between(source, target)
        if here == there:
            self.clock.call_later(link.latency_s, arrived)
            return
        seconds = nbytes / link.bytes_per_s
        wait_s = self._pass(self.sent[here], (here, "out"), nbytes, messages, seconds) + link.latency_s
        self.clock.call_later(wait_s, self._receive, there, nbytes, messages, seconds, arrived)

    def _receive(self, host: str, nbytes: int, messages: int, seconds: float, arrived: Callable[[], None]) -> None:
        """The first byte has come."""
        wait_s = self._pass(self.received[host], (host, "in"), nbytes, messages, seconds)
        self.clock.call_later(wait_s + seconds, arrived)

    def _pass(self, usage: Usage, direction: tuple[str, str], nbytes: int, messages: int, seconds: float) -> float:
        """Takes the next free time of a direction; returns how long it is until then."""
        now = self.clock.now()
        begin = max(now, self._free[direction])
        self._free[direction] = begin + seconds
        usage.nbytes += nbytes
        usage.messages += messages
        usage.busy_s += seconds
        return begin - now
