"""What a task remembers of lives that have ended: those of its groups (epochs), and those of other tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tfmini import errors
from tfmini.devices import parse
from tfmini.rpc.messages import CollectiveEnd
from tfmini.runtime.collectives.calls import About, CollectiveCall
from tfmini.runtime.collectives.groups import PARTIAL, RANK_JOBS

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
