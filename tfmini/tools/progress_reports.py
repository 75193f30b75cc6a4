"""A launched task tells its launcher about long work, and the launcher shows the tasks that are starting or at work.

The lines go through the pipe of `tfmini.launch_report`, as ``JOB TASK serves`` and ``JOB TASK works DONE TOTAL UNIT
TEXT`` (TOTAL is -1 if it is unknown, UNIT is - if there is none), and ``JOB TASK rests`` at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from tfmini import launch_report, progress
from tfmini.cluster import tf_config_object
from tfmini.tools import progress_bars
from tfmini.tools.progress_bars import DELAY_S, Bar, Bars
from tfmini.tools.supervision import TaskId

_BETWEEN_S = 0.3
_NAMED = 3


class ReportedWork:
    """A piece of work of a launched task; a `progress.Work`. It is reported if it lasts longer than the delay."""

    def __init__(self, send: Callable[[str], None], now: Callable[[], float], text: str, total: int | None, unit: str):
        self._send, self._now = send, now
        self._about = f"{-1 if total is None else total} {unit or '-'} {text}"
        self._done = 0
        self._next_at = now() + DELAY_S
        self._told = False

    def advance(self, amount: int) -> None:
        """So much more is done; reported now and then."""
        self._done += amount
        if self._now() >= self._next_at:
            self._next_at = self._now() + _BETWEEN_S
            self._told = True
            self._send(f"works {self._done} {self._about}")

    def end(self) -> None:
        """The work is over."""
        if self._told:
            self._send("rests")


def reporter(environment: Mapping[str, str] = os.environ) -> Callable[[str, int | None, str], ReportedWork] | None:
    """The listener of a launched task; None if this process is none."""
    if not launch_report.is_launched():
        return None
    try:
        task = tf_config_object(environment).get("task", {})
    except ValueError:  # what uses the variable says what is wrong with it
        return None
    if "type" not in task or "index" not in task:
        return None

    def send(words: str) -> None:
        launch_report.send_progress(str(task["type"]), int(task["index"]), words)

    return lambda text, total, unit: ReportedWork(send, time.monotonic, text, total, unit)


@contextmanager
def work_shown() -> Iterator[None]:
    """Long work of this process is shown within the block: by its launcher if it has one, else on its terminal."""
    listener = reporter()
    if listener is None:
        with progress_bars.shown():
            yield
        return
    progress.listen(listener)
    try:
        yield
    finally:
        progress.listen(None)


class LaunchProgress:
    """What the launcher shows: how many tasks have a place, how many serve, and the long work of each.

    Args:
      bars: of the terminal; None: nothing is shown.
    """

    def __init__(self, tasks: list[TaskId], bars: Bars | None) -> None:
        self._bars = bars
        self._missing = {"place": dict.fromkeys(tasks), "serve": dict.fromkeys(tasks)}
        self._count = len(tasks)
        self._phases: dict[str, Bar] = {}
        self._works: dict[TaskId, Bar] = {}

    def placed(self, task: TaskId) -> None:
        """The engine has found a place for a task."""
        self._step("place", "waiting for places for", task)

    def started(self) -> None:
        """The engine starts all tasks. This is shown until one of them serves or writes: some have no server."""
        if self._bars is not None:
            self._phases["start"] = self._bars.begin(f"starting {self._count} tasks", None)

    def told(self, task: TaskId, words: str) -> None:
        """A task has sent a line of `launch_report.send_progress`."""
        if self._bars is None:
            return
        kind, *rest = words.split(" ", 4)
        if kind == "serves":
            self._end_phase("start")
            self._step("serve", "waiting for the servers of", task)
        elif kind == "rests":
            self._rest(task)
        elif kind == "works" and len(rest) == 4:
            self._work(self._bars, task, *rest)

    def ended(self, task: TaskId) -> None:
        """A task has ended: the others may never come."""
        for phase in list(self._phases):
            self._end_phase(phase)
        self._missing["serve"].clear()
        self._rest(task)

    def cleared(self) -> AbstractContextManager[None]:
        """The screen without bars, for other output."""
        self._end_phase("start")
        return nullcontext() if self._bars is None else self._bars.cleared()

    def close(self) -> None:
        """Removes everything from the screen."""
        if self._bars is not None:
            self._bars.close()

    def _step(self, phase: str, text: str, task: TaskId) -> None:
        missing = self._missing[phase]
        if self._bars is None or missing.pop(task, self) is self:
            return
        if not missing:
            self._end_phase(phase)
            return
        if phase not in self._phases:  # the first one: before it, scripts without servers look the same
            self._phases[phase] = self._bars.begin(text, self._count, "tasks")
        names = ", ".join(map(str, list(missing)[:_NAMED])) + (" …" if len(missing) > _NAMED else "")
        self._phases[phase].update(self._count - len(missing), f"{text} {names}")

    def _end_phase(self, phase: str) -> None:
        if phase in self._phases:
            self._phases.pop(phase).end()

    def _work(self, bars: Bars, task: TaskId, done: str, total: str, unit: str, text: str) -> None:
        if not (done.isdecimal() and total.lstrip("-").isdecimal()):
            return
        if task not in self._works:
            known = int(total) if int(total) >= 0 else None
            self._works[task] = bars.begin(f"{task}: {text}", known, unit.removeprefix("-"))
        self._works[task].update(int(done))

    def _rest(self, task: TaskId) -> None:
        if task in self._works:
            self._works.pop(task).end()
