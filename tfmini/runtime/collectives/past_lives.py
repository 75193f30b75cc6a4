"""What a task remembers of lives that have ended: those of its groups (epochs), and those of other tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.devices import parse
from tfmini.rpc.messages import CollectiveEnd
from tfmini.runtime.collectives.calls import PARTIAL, RANK_JOBS, About, CollectiveCall

ENDED = "its process has ended"  # of a task whose script has not failed
UNFINISHED = "its script has ended in the middle of its training"  # such as by `sys.exit`
is_training = threading.Event()  # set while the latest session of mirrored workers here has not ended in good order
RETURN_S = 30.0
"""Ranks wait so long for the return of one whose server was stopped: its process may start another one."""
_REMEDY = (
    "The other ranks cannot go on without it. Let all ranks run the same collectives: the same number of steps on each"
    " (tf.train.StopAtStepHook, or data that repeat); if a rank has failed, its error is the cause."
)


@dataclass
class PastLife:
    """The latest life of a group that has ended for a device.

    Attributes:
      finished: the number of finished steps; -1 if it is not known, `PARTIAL` in the middle of one.
      latest: the id of the last step with a result, which may still have calls to come; 0 for none.
      why: what ended it.
      is_told: whether a call got that error; else the next one gets it.
    """

    finished: int
    latest: int
    why: errors.OpError
    is_told: bool


class PastLives:
    """The latest `PastLife` of each device in each group. Guarded by the executor's lock."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, str], PastLife] = {}

    def finished_before(self, call: CollectiveCall) -> int:
        """The number of steps that a device has finished before that of a call; -1 if that does not matter."""
        life = self.of.get((call.about.group_key, call.about.device))
        return -1 if life is None or call.about.begins else life.finished

    def refusal(self, call: CollectiveCall) -> errors.OpError | None:
        """Why a call cannot begin the next life of its group; None if it can.

        It cannot if its step has results of the last life, or if nobody here has been told of that life's end: the
        other ranks may begin the next life with another step, such as the first one of a rank that was restarted.
        The broadcast with which a session begins can always, since it gives all ranks the same variables.
        """
        life = self.of.get((call.about.group_key, call.about.device))
        if life is None:
            return None
        is_in_it = life.latest != 0 and life.latest == call.wait.step.step_id
        is_news, life.is_told = not (life.is_told or call.about.begins), True
        if is_in_it:
            life.finished = PARTIAL
        if not (is_in_it or is_news):
            return None
        text = f"{call.describe()} cannot run: its group has ended: {life.why.message}"
        return errors.from_code(life.why.error_code, text, task=life.why.task)


class _Ended(NamedTuple):
    news: CollectiveEnd
    final_at: float


class EndedTasks:
    """The tasks that take part in no collective any more, because they have come to their end. Guarded as above.

    Attributes:
      groups: by group key: the tasks of its members, where they are known before the group forms.
    """

    def __init__(self) -> None:
        self.groups: dict[int, tuple[str, ...]] = {}
        self._of: dict[str, _Ended] = {}

    def add(self, news: CollectiveEnd, now: float) -> float:
        """Notes an end; returns in how many seconds nobody need wait for the task any more, -1 if it is no news."""
        known = self._of.get(news.task)
        if known is not None and known.news.incarnation == news.incarnation:
            return -1.0
        rest_s = 0.0 if news.is_final else RETURN_S
        self._of[news.task] = _Ended(news, now + rest_s)
        return rest_s

    def returned(self, task: str, incarnation: int) -> None:
        """A task is here, perhaps as another process."""
        ended = self._of.get(task)
        if ended is not None and ended.news.incarnation != incarnation:
            del self._of[task]

    def news(self) -> list[CollectiveEnd]:
        """All ends."""
        return [ended.news for ended in self._of.values()]

    def error(self, task: str, who: str, needed: str) -> errors.OpError | None:
        """The error of ranks that need one which has ended; None if it has not. It is no preemption to recover from.

        Args:
          who: the ranks of the task; ``needed``: by whom, in what.
        """
        ended = self._of.get(task)
        if ended is None:
            return None
        return errors.UnknownError.of(f"{who} has ended{needed}: {ended.news.why}. {_REMEDY}", task=task)

    def refusal(self, about: About, tasks: Iterable[str], leader: str, now: float) -> errors.OpError | None:
        """Why a group can never form; None if it can."""
        gone = [task for task, ended in self._of.items() if ended.final_at <= now]
        if leader in gone:
            gone = [leader]
        elif about.group_key in self.groups:
            gone = [task for task in gone if task in self.groups[about.group_key]]
        else:  # each rank has a task of its own where ranks have names for their collectives
            left = [task for task in tasks if task not in gone and parse(task).job in RANK_JOBS]
            gone = gone if about.is_named and len(left) < (about.least or about.group_size) else []
        if not gone:
            return None
        return self.error(gone[0], gone[0], f", needed for the {about.cause}")


# ---- Messages that come before this rank knows of them: bounded, and dropped when nobody takes them ----------------

MESSAGE_LIMIT = 100_000
BYTE_LIMIT = 4 << 30  # of groups that a task does not know yet, and of one member's collectives that it has not called
KEEP_S = 300.0  # seconds between two calls of `sweep`
_MESSAGE_BYTES = 256  # what a message takes beside its values


def size_of(message: object) -> int:
    """The bytes that a message takes."""
    nbytes: int = sum(value.nbytes for value in getattr(message, "values", ()))
    return _MESSAGE_BYTES + nbytes


def too_many_bytes(who: str, what: str) -> errors.OpError:
    """The error of a group of which one rank is far behind the others."""
    return errors.ResourceExhaustedError.of(
        f"{who} can keep no more messages {what}: {BYTE_LIMIT} bytes or {MESSAGE_LIMIT} messages wait, since the other"
        " ranks are far ahead of it. Let all ranks begin together, or reduce less at a time."
    )


class _Kept:
    """The messages of one epoch."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.bytes = 0
        self.senders: set[str] = set()
        self.is_old = False


class EarlyMessages:
    """Messages of groups that a task does not know yet, by epoch. Not thread-safe: the executor guards them.

    Args:
      task: who keeps them, for errors.
      refuse: called with an epoch that has lost messages and the error that its group must get.
    """

    def __init__(self, task: str, refuse: Callable[[int, errors.OpError], None]) -> None:
        self._task = task
        self._refuse = refuse
        self._epochs: dict[int, _Kept] = {}
        self._is_swept = False
        self.bytes = self.count = 0

    def add(self, message: Any, sender: str) -> bool:
        """Keeps a message of a task, or refuses its group if there are too many; returns whether to begin to sweep."""
        size = size_of(message)
        if self.count >= MESSAGE_LIMIT or self.bytes + size > BYTE_LIMIT:
            self.drop(message.epoch)
            self._refuse(message.epoch, too_many_bytes(self._task, "of collective groups that it has not joined yet"))
            return False
        kept = self._epochs.setdefault(message.epoch, _Kept())
        kept.messages.append(message)
        kept.bytes += size
        kept.senders.add(sender)
        self.bytes += size
        self.count += 1
        begins, self._is_swept = not self._is_swept, True
        return begins

    def take(self, epoch: int, rank: int) -> list[Any]:
        """Takes out the messages for one rank of a group."""
        kept = self._epochs.get(epoch)
        if kept is None:
            return []
        found = [message for message in kept.messages if message.rank == rank]
        kept.messages = [message for message in kept.messages if message.rank != rank]
        size = sum(map(size_of, found))
        kept.bytes -= size
        self.bytes -= size
        self.count -= len(found)
        if not kept.messages:
            del self._epochs[epoch]
        return found

    def drop(self, epoch: int) -> None:
        """Forgets the messages of a group."""
        kept = self._epochs.pop(epoch, None)
        if kept is not None:
            self.bytes -= kept.bytes
            self.count -= len(kept.messages)

    def epochs_of(self, sender: str) -> list[int]:
        """The groups of which a task has sent messages."""
        return [epoch for epoch, kept in self._epochs.items() if sender in kept.senders]

    def refuse_lost(self, epochs: list[int], sender: str, why: str) -> None:
        """Refuses groups, if their messages are still here: the task that sent them is gone."""
        for epoch in epochs:
            if epoch in self._epochs:
                text = f"{sender} was lost by {self._task}, which had not joined its collective group yet: {why}"
                self.drop(epoch)
                self._refuse(epoch, errors.UnavailableError.of(text, task=sender))

    def sweep(self) -> bool:
        """Refuses the groups that were here at the last sweep already; returns whether to come again."""
        for epoch in [epoch for epoch, kept in self._epochs.items() if kept.is_old]:
            text = f"{self._task} has not joined its collective group {KEEP_S:g} s after another rank has begun."
            self.drop(epoch)
            self._refuse(epoch, errors.ResourceExhaustedError.of(text))
        for kept in self._epochs.values():
            kept.is_old = True
        self._is_swept = bool(self._epochs)
        return self._is_swept
