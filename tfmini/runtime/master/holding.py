"""The holds on the steps of a master's sessions: while variables move, no step begins that uses them.

A hold makes a move smooth, not correct. A task gives variables away only if nothing has changed them since they were
copied (`tfmini.runtime.moving`): a step that runs in spite of a hold costs another attempt, or fails with AbortedError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tfmini import errors
from tfmini.locks import Once, lock
from tfmini.rpc.calls import Outcome
from tfmini.runtime.master.following import VariableGroup, closed_under, plan_uses
from tfmini.runtime.master.master_session import MasterSession
from tfmini.runtime.master.registration import Plan
from tfmini.runtime.worker.departures import VariableKey

OnHeld = Callable[[Outcome[list[VariableGroup]]], None]


class _Hold:
    """One hold, and who waits until no step runs.

    Attributes:
      uses: whether a plan is held.
      answer: tells that person once.
      timers: of the lease and of the patience.
    """

    def __init__(self, move: int, task: str, uses: Callable[[Plan], bool], answered: OnHeld) -> None:
        self.move, self.task, self.uses = move, task, uses
        self._answered, self._once = answered, Once()
        self.timers: list[Any] = []

    @property
    def is_quiet(self) -> bool:
        """Whether it has been told."""
        return self._once.is_over

    def answer(self, outcome: Outcome[list[VariableGroup]]) -> None:
        """Tells that no step runs, or the error; later calls do nothing."""
        if self._once():
            self._answered(outcome)

    def stop(self) -> None:
        """Ends its timers."""
        for timer in self.timers:
            timer.cancel()


class StepHolds:
    """See the module.

    Args:
      task: of the master.
      sessions: those whose steps may be held.
      reactor: drives timers; None without a network, where nothing moves.
    """

    def __init__(self, task: str, sessions: Callable[[], list[MasterSession]], reactor: Any) -> None:
        self._task, self._sessions, self._reactor = task, sessions, reactor
        self._hold: _Hold | None = None
        self._lock = lock("moving")  # guards the exchange of `_hold`; several tasks may ask in several threads
        self._groups: list[VariableGroup] = []

    def groups_on(self, task: str) -> list[VariableGroup]:
        """Which variables of a task the graphs of the sessions keep together."""
        return [group for session in self._sessions() for group in session.groups_on(task)]

    def hold(
        self, move: int, task: str, keys: Iterable[VariableKey], whole: bool, lease_s: float, patience_s: float,
        answered: OnHeld,
    ) -> None:  # fmt: skip
        """Lets steps wait that use variables of a task, and all that is in a group with one of them.

        It calls back when none runs: with the groups, or after ``patience_s`` with the error.

        Args:
          move: a number. A later hold of the same number replaces the first; of another number, it is refused.
          whole: every step that uses the task.
          lease_s: after so long the steps go on, whether or not somebody has ended the hold.
        """
        groups = self.groups_on(task)
        found = closed_under(keys, groups)
        if not lease_s:
            answered(groups)
            return
        hold = _Hold(move, task, partial(plan_uses, task=task, keys=found, whole=whole), answered)
        with self._lock:
            before = self._hold
            is_free = before is None or before.move == move
            if is_free:
                self._hold, self._groups = hold, groups
        if not is_free:
            answered(errors.AbortedError.of(f"Other variables are moving, and {self._task} holds steps for them."))
            return
        if before is not None:
            before.stop()
        for session in self._sessions():
            self._hold_session(session, hold)
        hold.timers.append(self._reactor.call_later(lease_s, self.release, move, True))
        hold.timers.append(self._reactor.call_later(patience_s, self._late, hold, patience_s))
        self.halted_step_ended()

    def admit(self, session: MasterSession) -> None:
        """A session has been made: it is held like the others."""
        hold = self._hold
        if hold is not None:
            self._hold_session(session, hold)

    def _hold_session(self, session: MasterSession, hold: _Hold) -> None:
        session.hold(hold.uses, hold.task)
        if self._hold is not hold:  # it has ended meanwhile, perhaps before the session could be told
            session.release(True)

    def halted_step_ended(self) -> None:
        """A step of a halted plan has ended."""
        hold = self._hold
        if hold is not None and not hold.is_quiet and not self._running():
            hold.answer(self._groups)

    def task_lost(self, task: str) -> None:
        """The task is gone that held the steps: nobody else would end the hold before its lease is over."""
        hold = self._hold
        if hold is not None and hold.task == task and task != self._task:
            self.release(hold.move, True)

    def _running(self) -> list[Any]:
        return [step for session in self._sessions() for step in session.halted_steps()]

    def _late(self, hold: _Hold, patience_s: float) -> None:
        if hold.is_quiet:
            return
        running = self._running()
        if not running:
            hold.answer(self._groups)
            return
        plan = running[0].plan
        what = ", ".join((*plan.fetches, *plan.targets)[:3]) or "no fetches"
        tasks = ", ".join(part.task for part in running[0].waiting_parts())
        hold.answer(errors.DeadlineExceededError.of(
            f"{len(running)} steps of {self._task} that use the variables have not ended within {patience_s:g} s; the"
            f" oldest computes {what} and has no answer from {tasks}."
        ))  # fmt: skip

    def release(self, move: int, changed: bool) -> None:
        """Ends a hold, if it is of that move. ``changed``: its variables have moved, or nobody knows."""
        with self._lock:
            hold = self._hold
            if hold is None or hold.move != move:
                return
            self._hold = None
        hold.stop()
        hold.answer(errors.AbortedError.of(f"The hold on steps of {self._task} has ended."))
        for session in self._sessions():
            session.release(changed)
