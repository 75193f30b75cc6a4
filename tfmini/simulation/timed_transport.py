"""Connections that take time: the CPU of both sides, and the NICs between them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgpack

from tfmini.rpc.codec import kind_of
from tfmini.rpc.connection_messages import Heartbeat
from tfmini.rpc.messages import CollectiveData, RunGraph, RunGraphReply, SendTensors
from tfmini.rpc.records import REGISTRY
from tfmini.simulation.prediction import Event
from tfmini.simulation.simulated_transport import SimulatedConnection, SimulatedTransport

if TYPE_CHECKING:
    from tfmini.simulation.timed_host import TimedHost

_TENSORS = {cls.row.kind: 3 + [field.name for field in cls.row.fields].index(name) for cls, name in (
    (SendTensors, "values"), (RunGraph, "feed_values"), (RunGraphReply, "values"), (CollectiveData, "values"),
)}  # fmt: skip
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


class TimedConnection(SimulatedConnection):
    """One end of a connection."""

    host: TimedHost
    _under_way = 0

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
        leave = partial(self._leave, other, list(parts), nbytes, label, counts)
        if host.recording is None:
            leave(None)
            return
        part_s = host.machine.part_s if kind is RunGraph else 0.0
        host.recording.charge(part_s + link.send_s + link.copy_s(nbytes), f"sends {label}")
        host.recording.then(leave)

    def _leave(
        self, other: TimedConnection, parts: list[Any], nbytes: int, label: str, counts: bool, cause: Event | None
    ) -> None:
        network = self.host.network
        event = Event(label, f"{self.host.name} -> {other.host.name}", network.now(), cause)
        network.nics.send(self.host.name, other.host.name, nbytes, partial(other._arrive, parts, nbytes, counts, event))

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
