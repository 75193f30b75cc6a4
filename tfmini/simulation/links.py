"""Machines joined by links: when a message that is sent now arrives.

Each machine has a NIC with two directions. A direction carries one message after the other, in the order of sending;
the receiver's direction begins as soon as the first byte is there. So neither direction ever carries more bytes than
its rate allows. Between tasks of one machine there is no NIC: bytes cost CPU time only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfmini.simulation.profile import Link, Machine, Profile


@dataclass(frozen=True)
class Cluster:
    """Where tasks are.

    Attributes:
      hosts: full task name -> the name of its host.
      machines: host -> its type.
      local, link: between tasks of one host, and between hosts.
    """

    hosts: Mapping[str, str]
    machines: Mapping[str, Machine]
    local: Link
    link: Link

    @classmethod
    def on_one_machine(cls, tasks: list[str], profile: Profile) -> Cluster:
        """All tasks on the profile's default machine."""
        return cls(dict.fromkeys(tasks, "host"), {"host": profile.machine}, profile.local, profile.local)

    @classmethod
    def on_own_machines(cls, tasks: list[str], profile: Profile, link: str) -> Cluster:
        """Each task on a machine of its own (the profile's default), joined by a link: see `Profile.link`."""
        hosts = {task: task for task in tasks}
        return cls(hosts, dict.fromkeys(tasks, profile.machine), profile.local, profile.link(link))

    def between(self, source: str, target: str) -> Link:
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

    cluster: Cluster
    sent: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    received: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    carried: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    _free: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))

    def arrival(self, source: str, target: str, nbytes: int, now: float, messages: int = 1) -> float:
        """When ``nbytes`` that leave the task ``source`` now are all at the task ``target``."""
        self.carried[source, target] += nbytes
        here, there = self.cluster.hosts[source], self.cluster.hosts[target]
        link = self.cluster.between(source, target)
        if here == there:
            return now + link.latency_s
        seconds = nbytes / link.bytes_per_s
        begin = max(now, self._free[here, "out"])
        self._free[here, "out"] = begin + seconds
        first = max(begin + link.latency_s, self._free[there, "in"])
        self._free[there, "in"] = first + seconds
        for usage in (self.sent[here], self.received[there]):
            usage.nbytes += nbytes
            usage.messages += messages
            usage.busy_s += seconds
        return first + seconds
