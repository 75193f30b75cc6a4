"""Connections that take time: the CPU of both sides, and the NICs between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgpack

from tfmini.rpc.codec import kind_of
from tfmini.rpc.connection_messages import Heartbeat, Hello, HelloReply
from tfmini.rpc.messages import CollectiveData, RunGraph, RunGraphReply, SendTensors
from tfmini.rpc.records import REGISTRY
from tfmini.simulation.prediction import Event
from tfmini.simulation.simulated_transport import SimulatedConnection, SimulatedTransport

if TYPE_CHECKING:
    from tfmini.simulation.timed_host import TimedHost

_TENSORS = {cls.row.kind: 3 + [field.name for field in cls.row.fields].index(name) for cls, name in (
    (SendTensors, "values"), (RunGraph, "feed_values"), (RunGraphReply, "values"), (CollectiveData, "values"),
)}  # fmt: skip
_HANDSHAKE = (Hello, HelloReply)
_GROUP = 3 + [field.name for field in SendTensors.row.fields].index("group")


def payload_of(parts: Sequence[Any]) -> tuple[type[Any] | None, int, int]:
    """The kind of a message, the bytes of its tensors, and the group of a SendTensors (else -1).

    The header, and messages without tensors of a step, count as no bytes: their cost is that of a message.
    """
    kind = kind_of(parts)
    position = _TENSORS.get(kind)
    if position is None:
        return REGISTRY.get(kind), 0, -1
    header = msgpack.unpackb(parts[0], strict_map_key=False)
    nbytes = sum(len(part) for part in parts[1:])
    nbytes += sum(len(entry[1]) for entry in header[position] if type(entry[1]) is bytes)
    return REGISTRY[kind], nbytes, header[_GROUP] if kind == SendTensors.row.kind else -1


class TimedTransport(SimulatedTransport):
    """The transport of a `TimedHost`."""

    @property
    def connection(self) -> type[SimulatedConnection]:
        return TimedConnection


class _Message:
    """A message that has been sent; ``leave`` is called with the event after which it may leave, once that is known."""

    __slots__ = ("leave", "cause", "is_ready")

    def __init__(self, leave: Callable[[Event | None], None]) -> None:
        self.leave = leave
        self.cause: Event | None = None
        self.is_ready = False


class TimedConnection(SimulatedConnection):
    """One end of a connection."""

    host: TimedHost
    _under_way = 0

    def __init__(self, host: TimedHost, address: str) -> None:
        super().__init__(host, address)
        self._unsent: deque[_Message] = deque()

    @property
    def activity(self) -> int:
        # A large message that is under way shows that its sender lives, as bytes of a real one do.
        return self._arrived + (round(self.host.network.now() * 1e3) if self._under_way else 0)

    def send(self, parts: Sequence[Any]) -> None:
        other = self._other
        if not self._sending or not isinstance(other, TimedConnection) or not self.host.alive:
            return
        kind, nbytes, group = payload_of(parts)
        host, network = self.host, self.host.network
        link = network.cluster.between(host.name, other.host.name)
        label = network.labels.get(group) or (kind.__name__ if kind is not None else "message")
        counts = kind is not Heartbeat
        other._under_way += 1
        network.under_way += counts
        network.work += counts
        message = _Message(partial(self._leave, other, list(parts), nbytes, label, counts))
        self._unsent.append(message)
        if host.recording is None:
            self._ready(message, None)
            return
        part_s = host.machine.part_s if kind is RunGraph else 0.0
        host.recording.charge(part_s + link.send_s + link.copy_s(nbytes), f"sends {label}")
        host.recording.then(partial(self._ready, message))

    def _ready(self, message: _Message, cause: Event | None) -> None:
        """The work before a message has been done. Of a task with several threads, an earlier one may still wait."""
        message.cause, message.is_ready = cause, True
        while self._unsent and self._unsent[0].is_ready:
            first = self._unsent.popleft()
            first.leave(first.cause)

    def _leave(
        self, other: TimedConnection, parts: list[Any], nbytes: int, label: str, counts: bool, cause: Event | None
    ) -> None:
        network = self.host.network
        event = Event(label, f"{self.host.name} -> {other.host.name}", network.now(), cause)
        arrived = partial(other._arrive, parts, nbytes, counts, event)
        if REGISTRY.get(kind_of(parts)) in _HANDSHAKE:
            # Its few bytes pass between those of other connections; behind gigabytes it would come too late.
            network.call_later(network.cluster.between(self.host.name, other.host.name).latency_s, arrived)
        else:
            network.nics.send(self.host.name, other.host.name, nbytes, arrived)

    def _arrive(self, parts: list[Any], nbytes: int, counts: bool, event: Event) -> None:
        self._under_way -= 1
        self.host.network.under_way -= counts
        event.end = self.host.network.now()
        if self.host.alive:
            self.host.submit(self._receive, (parts, nbytes, event), event)

    def _receive(self, parts: list[Any], nbytes: int, event: Event) -> None:
        recording = self.host.recording
        assert recording is not None
        link = self.host.network.cluster.between(event.task.partition(" -> ")[0], self.host.name)
        recording.charge(link.receive_s + link.copy_s(nbytes), f"receives {event.label}")
        recording.then(None)
        self._inbox.append(parts)
        self._arrived += nbytes + 1
        self._deliver()
