"""What a prediction says: step times, the use of tasks and links, and the critical path."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfmini.show.inspection.clusters import short
from tfmini.show.simulation.cores import VirtualClock
from tfmini.show.simulation.profile import LinkProfile, Machine, Profile

# ---- Machines joined by links: when a message that is sent now arrives ---------------------------------------------
# Each machine has a NIC with two directions. A direction carries one message after the other: the sender's in the order
# of sending, the receiver's in the order in which their first bytes come. So neither direction ever carries more bytes
# than its rate allows. A message of one packet does not wait for those of other connections: it passes between their
# packets, as in a real network. Between tasks of one machine there is no NIC: bytes cost CPU time only.

_PACKET_BYTES = 1500


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


@dataclass(slots=True)
class _UnderWay:
    """A message between two machines."""

    arrived: Callable[[], None]
    is_complete: bool = False


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
    _under_way: dict[tuple[str, str], list[_UnderWay]] = field(default_factory=lambda: defaultdict(list))

    def busy_s(self, host: str) -> tuple[float, float]:
        """For how long the NIC of a host has sent, and received, until now."""
        return self._until_now(self.sent[host], (host, "out")), self._until_now(self.received[host], (host, "in"))

    def _until_now(self, usage: Usage, direction: tuple[str, str]) -> float:
        """Without what is queued: a message counts as soon as its time is reserved."""
        return usage.busy_s - max(0.0, self._free[direction] - self.clock.now())

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
        message = _UnderWay(arrived)
        self._under_way[source, target].append(message)
        wait_s = self.reserve(self.sent[here], (here, "out"), nbytes, messages, seconds)
        first_s = (wait_s if nbytes > _PACKET_BYTES else 0.0) + link.latency_s
        self.clock.call_later(first_s, self._receive, source, target, nbytes, messages, seconds, message)

    def _receive(
        self, source: str, target: str, nbytes: int, messages: int, seconds: float, message: _UnderWay
    ) -> None:
        """The first byte has come."""
        host = self.cluster.hosts[target]
        wait_s = self.reserve(self.received[host], (host, "in"), nbytes, messages, seconds)
        last_s = (wait_s if nbytes > _PACKET_BYTES else 0.0) + seconds
        self.clock.call_later(last_s, self._complete, source, target, message)

    def _complete(self, source: str, target: str, message: _UnderWay) -> None:
        """All bytes of a message are there; it arrives when those sent before it on its connection have."""
        message.is_complete = True
        waiting = self._under_way[source, target]
        while waiting and waiting[0].is_complete:
            waiting.pop(0).arrived()

    def reserve(self, usage: Usage, direction: tuple[str, str], nbytes: int, messages: int, seconds: float) -> float:
        """Takes the next free time of a direction; returns how long it is until then."""
        now = self.clock.now()
        begin = max(now, self._free[direction])
        self._free[direction] = begin + seconds
        usage.nbytes += nbytes
        usage.messages += messages
        usage.busy_s += seconds
        return begin - now


# ---- The events of a simulation, and the prediction made of them ---------------------------------------------------

_NEAR = 2000  # the steps for which staleness is counted


class Event:
    """Work of one task, or a message on its way.

    Attributes:
      label: the op that takes most of the time, or what is sent.
      task: full task name; of a message, ``source -> target``.
      start, end: virtual seconds.
      cause: what it waited for last, or None.
    """

    __slots__ = ("label", "task", "start", "end", "cause")

    def __init__(self, label: str, task: str, start: float, cause: Event | None) -> None:
        self.label, self.task, self.start, self.end, self.cause = label, task, start, start, cause


@dataclass(frozen=True)
class Prediction:
    """The prediction of a run.

    Attributes:
      step_s: the median seconds of a step, as a client sees it.
      steps_s: the seconds of each step that counts, of all workers, in the order of their ends.
      throughput: steps per second of all workers together.
      busy: task -> the share of the time in which it computed, of one core; of the time of the steps that count.
      links: host -> the share of that time in which its NIC (sent, received) was busy.
      staleness: how many updates of other workers ended during a step, on average; 0 if all workers update together.
      nbytes: (source, target) task -> payload bytes of the whole run. ``steps``: how many steps it had.
      critical: the critical path of the latest step, first event first.
    """

    step_s: float
    steps_s: Sequence[float]
    throughput: float
    busy: Mapping[str, float]
    links: Mapping[str, tuple[float, float]]
    nbytes: Mapping[tuple[str, str], int]
    steps: int
    critical: Sequence[Event] = field(default=())
    staleness: float = 0.0

    def bottleneck(self) -> tuple[str, float]:
        """What is busy for the largest share of the time: the CPU of a task, or its network in one direction."""
        shares = {f"{short(task)} computing": share for task, share in self.busy.items()}
        for host, (sent, received) in self.links.items():
            shares[f"{short(host)} sending"], shares[f"{short(host)} receiving"] = sent, received
        name = max(shares, key=lambda key: shares[key])
        return name, shares[name]

    def quantile(self, share: float) -> float:
        """The seconds that this share of the steps did not exceed."""
        ordered = sorted(self.steps_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def path_to(event: Event | None, since: float = 0.0) -> list[Event]:
    """The chain of causes that ends with an event, first event first, from a time on."""
    path: list[Event] = []
    while event is not None and event.end > since:
        path.append(event)
        event = event.cause
    return path[::-1]


class Used(NamedTuple):
    """The seconds for which tasks and NICs have been busy until a moment: see `Prediction`."""

    now_s: float
    busy: Mapping[str, float]
    links: Mapping[str, tuple[float, float]]


def counted_of(steps: int, clients: int) -> slice:
    """Which of the ends of steps count: those while all clients run, without the first step of each."""
    last = clients * (steps - 1) if steps > 2 else clients * steps
    return slice(clients if steps > 1 else 0, last)


def prediction_of(
    ends: Sequence[tuple[int, float, float, Event]], clients: int, since: Used, until: Used, nics: Nics
) -> Prediction:
    """The prediction of a run.

    Args:
      ends: of each step, in the order of their ends: the number of its client, begin, end, and the last event.
      since, until: what was used at the begin and at the end of the steps that count.
    """
    counted = ends[counted_of(len(ends) // clients, clients)]
    seconds = max(until.now_s - since.now_s, 1e-12)
    steps_s = [end - began for _, began, end, _ in counted]
    last = ends[-1]
    others = [sum(began < each[2] <= end and each[0] != client for each in ends[-_NEAR:]) for client, began, end, _
              in counted[-_NEAR // 2 :]]  # fmt: skip
    return Prediction(
        step_s=statistics.median(steps_s), steps_s=steps_s, throughput=clients / statistics.mean(steps_s),
        busy={task: (busy_s - since.busy[task]) / seconds for task, busy_s in until.busy.items()},
        links={
            host: (min(1.0, (sent - since.links[host][0]) / seconds), min(1.0, (got - since.links[host][1]) / seconds))
            for host, (sent, got) in until.links.items()
        },
        nbytes=dict(nics.carried), steps=len(ends), critical=path_to(last[3], last[1]),
        staleness=statistics.mean(others),
    )  # fmt: skip


# ---- recordings ----------------------------------------
# What a thread does between two waits, and what it costs: pieces of CPU time, each with what happens after it.
# Code of a simulated task runs at once. Meanwhile its `Recording` collects what it costs and what leaves the task. Then
# the machine's cores play the pieces, so that a message leaves when the work before it has been done.

Effect = Callable[[Event], None]
"""Called when the CPU time before it has been spent, with the event that has ended."""


class RecordedPiece(NamedTuple):
    """Seconds of CPU, the op or message that takes most of them, what happens then, and the lock that it holds."""

    seconds: float
    label: str
    effect: Effect | None
    lock: str = ""


class Recording:
    """The pieces of one stretch.

    Args:
      is_pool: whether a thread of the pool runs it.

    Attributes:
      elapsed: seconds of CPU so far. ``factor``: by how much longer than on a warm and idle machine work takes now.
    """

    __slots__ = ("pieces", "elapsed", "factor", "is_pool", "_seconds", "_label", "_longest")

    def __init__(self, is_pool: bool = False) -> None:
        self.pieces: list[RecordedPiece] = []
        self.elapsed, self.factor, self.is_pool = 0.0, 1.0, is_pool
        self._seconds, self._label, self._longest = 0.0, "", 0.0

    def charge(self, seconds: float, label: str = "") -> None:
        """Spends seconds of CPU."""
        self._seconds += seconds
        self.elapsed += seconds
        if seconds > self._longest:
            self._longest, self._label = seconds, label

    def then(self, effect: Effect | None) -> None:
        """Ends a piece; the effect happens after what has been charged so far."""
        if self._seconds or effect is not None:
            self.pieces.append(RecordedPiece(self._seconds, self._label, effect))
        self._seconds, self._label, self._longest = 0.0, "", 0.0

    def charge_locked(self, seconds: float, label: str, lock: str) -> None:
        """Spends seconds of CPU while it holds a lock of the task."""
        self.then(None)
        self.elapsed += seconds
        self.pieces.append(RecordedPiece(seconds, label, None, lock))

    def take(self) -> list[RecordedPiece]:
        """The pieces so far, which are no longer in it."""
        self.then(None)
        pieces, self.pieces = self.pieces, []
        return pieces
