"""What a task remembers of the lives (epochs) of its groups that have ended: how far they came, and why they ended."""

from __future__ import annotations

from dataclasses import dataclass

from tfmini import errors
from tfmini.runtime.collectives.calls import Call
from tfmini.runtime.collectives.groups import PARTIAL


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

    def finished_before(self, call: Call) -> int:
        """The number of steps that a device has finished before that of a call; -1 if that does not matter."""
        life = self.of.get((call.about.group_key, call.about.device))
        return -1 if life is None or call.about.begins else life.finished

    def refusal(self, call: Call) -> errors.OpError | None:
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
