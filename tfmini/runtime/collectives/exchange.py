"""One member of a group, and one exchange of it: the state behind `executor`."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tfmini import errors
from tfmini.collectives.fingerprints import Fingerprint
from tfmini.runtime.collectives.calls import Call
from tfmini.runtime.collectives.early_messages import BYTE_LIMIT, size_of, too_many_bytes
from tfmini.runtime.collectives.groups import PARTIAL
from tfmini.runtime.collectives.past_lives import PastLife
from tfmini.runtime.collectives.stages import Stages

_REMEMBERED_STEPS = 64


class Exchange:
    """The n-th run of one collective by one member. ``lock`` guards the schedule.

    Attributes:
      sent: rank -> the bytes and the messages that it has been sent.
      again: a thread that could not have the lock asks its holder to look once more.
    """

    def __init__(self, call: Call, count: int, step: int, now: Callable[[], float]) -> None:
        self.call = call
        self.schedule: Any = None
        self.count = count
        self.step = step
        self.lock = threading.Lock()
        self.finished = False
        self.again = False
        self._now = now
        self.began_at = now()
        self.sent: dict[int, tuple[int, int]] = {}
        self.present: set[int] = set()  # ranks that are known to take part
        self.suspects: dict[int, Any] = {}  # rank -> its probe of another exchange, until it answers about this one
        self.warn_after_s = 0.0

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The collective that this rank takes part in, for other ranks to compare with theirs."""
        return self.call.about.fingerprint._replace(step=self.step)

    @cached_property
    def packed(self) -> str:
        """The fingerprint as a field of messages."""
        return self.fingerprint.pack()

    @property
    def key(self) -> tuple[int, int]:
        return self.call.instance, self.count

    @property
    def waited_s(self) -> float:
        return self._now() - self.began_at

    def finish(self) -> bool:
        """Whether the schedule has just been completed: true once. To be called with the lock held."""
        if self.finished or not self.schedule.done:
            return False
        self.finished = True
        return True


class Member:
    """One device of this task in one epoch of a group.

    Attributes:
      least: with how many members an elastic group may begin; 0: it is not elastic.
      epoch: its number, 0 until the leader has answered.
      has_joined: whether a call has asked the leader, or is about to.
      withdraw: tells the leader that this task no longer waits for that answer.
      queued: calls that wait for that answer.
      early: data for exchanges that have not been called here yet.
      lost: a member was lost from which no call under way needs anything; the next call fails.
      stages: where all ranks share memory; ``pids``: of all ranks, where they may read each other's.
      is_ordered: whether its steps have come one after the other so far.
      answered: how many collectives of its latest step have given their results.
      running: instance -> the exchange of it that is under way in shared memory; ``later``: calls behind it.
    """

    def __init__(self, group_key: int, group_size: int, device: str, joined_at: float, least: int = 0) -> None:
        self.group_key, self.group_size, self.device, self.least = group_key, group_size, device, least
        self.epoch = 0
        self.has_joined = False
        self.rank = -1
        self.members: list[str] = []
        self.tasks: list[str] = []
        self.withdraw: Callable[[], None] = lambda: None
        self.queued: list[Call] = []
        self.exchanges: dict[tuple[int, int], Exchange] = {}
        self.early: dict[tuple[int, int], list[Any]] = {}
        self.early_bytes = 0
        self.counts: dict[int, int] = {}
        self.lost: errors.OpError | None = None
        self.over = False
        self.joined_at = joined_at
        self.warn_after_s = 0.0
        self.stages: Stages | None = None
        self.pids: list[int] = []
        self.running: dict[int, Exchange] = {}
        self.later: dict[int, collections.deque[Call]] = {}
        self._steps: collections.deque[int] = collections.deque(maxlen=_REMEMBERED_STEPS)
        self._ordinal = self.answered = 0
        self.is_ordered = True

    def enter(self, epoch: int, members: list[str], steps: int) -> None:
        """The leader has answered."""
        self.epoch, self.members, self._ordinal = epoch, members, steps
        self.tasks = [device[: device.index("/device:")] for device in members]
        self.rank = members.index(self.device)

    def step_of(self, step_id: int) -> int:
        """The number of a step among those that use this group, 0 when they overlap: then their order means nothing."""
        if not self._steps or self._steps[-1] != step_id:
            self._ordinal += 1
            self.answered = 0
            if step_id in self._steps or self.exchanges:
                self.is_ordered = False
            self._steps.append(step_id)
        return self._ordinal if self.is_ordered else 0

    def is_running(self, call: Call) -> bool:
        """Whether an earlier call of a collective has no result yet."""
        return (call.instance, self.counts.get(call.instance, 0) - 1) in self.exchanges

    def keep(self, key: tuple[int, int], message: Any) -> errors.OpError | None:
        """Keeps data for an exchange that has not been called here yet; returns the error if they are too many."""
        self.early_bytes += size_of(message)
        if self.early_bytes > BYTE_LIMIT:
            return too_many_bytes(self.who(self.rank), "of collectives that it has not called yet")
        self.early.setdefault(key, []).append(message)
        return None

    def take_early(self, key: tuple[int, int]) -> list[Any]:
        """Takes out the data that are here for an exchange."""
        found = self.early.pop(key, [])
        self.early_bytes -= sum(map(size_of, found))
        return found

    def past(self, calls: list[Call], extra: Call | None, why: errors.OpError) -> PastLife:
        """This life, when it has ended.

        Args:
          calls: those that were under way; ``extra``: one that has not begun, and gets the error as well.
        """
        latest = self._steps[-1] if self._steps and self.answered else 0
        is_interrupted = bool(calls) or extra is not None and latest == extra.wait.step.step_id
        finished = PARTIAL if is_interrupted and self.answered else self._ordinal - is_interrupted
        is_told = bool(calls) or extra is not None
        return PastLife(finished, latest, why, is_told) if self.is_ordered else PastLife(-1, 0, why, is_told)

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not (self.queued or self.exchanges or self.later)

    def take_calls(self) -> list[Call]:
        """The calls that have no answer yet; none of them is kept."""
        later = [call for calls in self.later.values() for call in calls]
        calls = [*self.queued, *(exchange.call for exchange in self.exchanges.values()), *later]
        for exchange in self.exchanges.values():
            exchange.finished = True
        self.queued, self.exchanges, self.early, self.later = [], {}, {}, {}
        self.early_bytes = 0
        return calls

    def who(self, rank: int) -> str:
        """A rank for people."""
        return f"rank {rank} ({self.members[rank]})"

    def oldest(self) -> Exchange | None:
        """The exchange that has waited longest."""
        return min(self.exchanges.values(), key=lambda e: e.began_at, default=None)

    def waits_for(self, task: str) -> bool:
        """Whether an exchange needs something from a task."""
        missing = (rank for exchange in self.exchanges.values() for rank in exchange.schedule.missing())
        return any(self.tasks[rank] == task for rank in missing)

    def ranks_of(self, task: str) -> str:
        """The ranks of a task, for people."""
        return ", ".join(self.who(rank) for rank, other in enumerate(self.tasks) if other == task)

    def part_of(self, task: str) -> str:
        """The ranks of a task and what this member waits for, for people."""
        ranks = self.ranks_of(task)
        oldest = self.oldest()
        doing = f" in {oldest.call.describe()}: {oldest.fingerprint}" if oldest else f" of group {self.group_key}"
        return f"{ranks}{doing}"
