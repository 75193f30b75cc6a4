"""What a task sends in collectives: the counters so far, by task, and the record of one exchange for a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfmini.collectives.schedules import Send
from tfmini.collectives.shared_reduce import SharedReduce
from tfmini.locks import lock
from tfmini.runtime.collectives.exchange import Exchange, GroupMember
from tfmini.runtime.trace.record import ExchangeEvent, clock


@dataclass(frozen=True)
class CollectiveTraffic:
    """What a task has sent in collectives since it began (`tf.train.Server.collective_traffic`).

    Attributes:
      bytes: of tensor data. Data that other ranks read from shared memory count once for each reader.
      messages: all messages, also those that announce a place in shared memory or wake a rank.
      bytes_to, messages_to: the same by the full name of the receiver's task. The task itself is among them if
        several of its devices are ranks.
    """

    bytes: int = 0
    messages: int = 0
    bytes_to: Mapping[str, int] = field(default_factory=dict)
    messages_to: Mapping[str, int] = field(default_factory=dict)


class Counters:
    """The counters of one task; safe to use from several threads."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[int, int]] = {}  # bytes and messages, by task
        self._lock = lock("traffic")

    def data(self, member: GroupMember, exchange: Exchange, sends: Iterable[Send]) -> None:
        """Counts messages with tensor data. The caller holds the exchange's lock, so that its result comes later."""
        for send in sends:
            self._count(member, exchange, send.rank, send.values.nbytes, 1)

    def shared(self, member: GroupMember, exchange: Exchange, nbytes: int) -> None:
        """Counts data in shared memory, of which each other rank reads its part."""
        others = [rank for rank in range(len(member.members)) if rank != member.rank]
        for i, rank in enumerate(others):
            part = nbytes * (i + 1) // len(others) - nbytes * i // len(others)
            self._count(member, exchange, rank, part, 0)

    def signal(self, member: GroupMember, exchange: Exchange | None, rank: int) -> None:
        """Counts a message without tensor data."""
        self._count(member, exchange, rank, 0, 1)

    def _count(self, member: GroupMember, exchange: Exchange | None, rank: int, nbytes: int, messages: int) -> None:
        task = member.tasks[rank]
        with self._lock:
            bytes_before, messages_before = self._sent.get(task, (0, 0))
            self._sent[task] = bytes_before + nbytes, messages_before + messages
            if exchange is not None:
                before = exchange.sent.get(rank, (0, 0))
                exchange.sent[rank] = before[0] + nbytes, before[1] + messages

    def snapshot(self) -> CollectiveTraffic:
        """The counts so far."""
        sent = self._sent.copy()
        nbytes, messages = ({task: counts[i] for task, counts in sent.items()} for i in (0, 1))
        return CollectiveTraffic(sum(nbytes.values()), sum(messages.values()), nbytes, messages)


def note(member: GroupMember, exchange: Exchange) -> None:
    """Adds an exchange that has its result to the trace of its step, if the step is traced."""
    run: Any = getattr(exchange.call.wait.step, "run", None)
    trace = getattr(run, "trace", None)
    if trace is not None:
        end = clock()
        sent = tuple((member.members[rank], *counts) for rank, counts in sorted(exchange.sent.items()))
        start = end - int(exchange.waited_s * 1e9)
        trace.exchanges.append(
            ExchangeEvent(exchange.call.node, start, end, isinstance(exchange.schedule, SharedReduce), sent)
        )
