"""Bars for long work, on a terminal only: they appear after half a second and disappear at the end of the work."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TextIO

from tfmini import library_log, progress
from tfmini.cluster import tf_config_object
from tfmini.launch.supervision import TaskId
from tfmini.text import printable

if TYPE_CHECKING:
    from rich.console import Console


DELAY_S = 0.5
_UNITS = ("B", "kB", "MB", "GB", "TB")


class Bar:
    """One piece of work. It is drawn only if the work lasts longer than the delay."""

    def __init__(self, bars: Bars, text: str, total: int | None, unit: str) -> None:
        self.text, self.total, self.unit = printable(text), total, unit
        self.done = 0
        self.row: Any = None  # rich's number, once it is drawn
        self._bars = bars

    def advance(self, amount: int) -> None:
        """So much more is done."""
        self.update(self.done + amount)

    def update(self, done: int, text: str | None = None) -> None:
        """The amount that is done in all; with another text if one is given."""
        self.done, self.text = done, self.text if text is None else printable(text)
        self._bars.changed(self)

    def end(self) -> None:
        """Removes the bar."""
        self._bars.ended(self)

    def amount(self) -> str:
        """``1.2 of 3.4 GB``, ``3 of 16 tasks``; "" without a total."""
        return "" if self.total is None else amount(self.done, self.total, self.unit)


def amount(done: int, total: int, unit: str) -> str:
    """How much of how much, for people."""
    if unit != "B":
        return f"{done:,} of {total:,} {unit}".rstrip()
    power = min(len(_UNITS) - 1, max(0, (len(str(total)) - 1) // 3))
    scale = 1000**power
    return f"{done / scale:.1f} of {total / scale:.1f} {_UNITS[power]}" if power else f"{done} of {total} B"


class Bars:
    """The bars of one terminal. Safe from several threads; rich is imported when the first bar is drawn."""

    def __init__(self, console: Console | None = None, delay_s: float = DELAY_S) -> None:
        self._console, self._delay_s = console, delay_s
        self._lock = threading.RLock()
        self._timers: dict[Bar, threading.Timer] = {}
        self._drawn: list[Bar] = []
        self._progress: Any = None
        self._cleared = 0

    def begin(self, text: str, total: int | None = None, unit: str = "") -> Bar:
        """A new piece of work; a `progress.Listener`."""
        bar = Bar(self, text, total, unit)
        timer = threading.Timer(self._delay_s, self._draw, (bar,))
        timer.daemon = True
        with self._lock:
            self._timers[bar] = timer
        timer.start()
        return bar

    def changed(self, bar: Bar) -> None:
        """Draws new values of a bar; rich limits how often the screen changes."""
        with self._lock:
            if bar.row is not None:
                self._progress.update(bar.row, completed=bar.done, description=bar.text, amount=bar.amount())

    def ended(self, bar: Bar) -> None:
        """Removes a bar."""
        with self._lock:
            timer = self._timers.pop(bar, None)
            if bar in self._drawn:
                self._drawn.remove(bar)
                self._progress.remove_task(bar.row)
                bar.row = None
                if not self._drawn:
                    self._progress.stop()
        if timer is not None:
            timer.cancel()

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """The screen without bars, for other output."""
        with self._lock:
            is_shown = bool(self._drawn) and not self._cleared
            self._cleared += 1
            if is_shown:
                self._progress.stop()
            try:
                yield
            finally:
                self._cleared -= 1
                if self._drawn and not self._cleared:
                    self._progress.start()

    def close(self) -> None:
        """Removes all bars."""
        with self._lock:
            bars = [*self._timers, *self._drawn]
        for bar in bars:
            self.ended(bar)

    def _draw(self, bar: Bar) -> None:
        with self._lock:
            if self._timers.pop(bar, None) is None:  # it has ended meanwhile
                return
            if self._progress is None:
                self._progress = _rich_progress(self._console)
            total = bar.total
            bar.row = self._progress.add_task(bar.text, total=total, completed=bar.done, amount=bar.amount())
            self._drawn.append(bar)
            if len(self._drawn) == 1 and not self._cleared:
                self._progress.start()


def _rich_progress(console: Console | None) -> Any:
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=30),
        TextColumn("{task.fields[amount]}", markup=False), TimeElapsedColumn(),
    )  # fmt: skip
    # The output of a script must not pass through rich, which would replace sys.stdout under its feet.
    return Progress(
        *columns, console=console or RichConsole(stderr=True), transient=True, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip


def is_terminal(stream: TextIO) -> bool:
    """Whether bars can be drawn on a stream."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def shown() -> Iterator[None]:
    """Shows the long work of this process on stderr, within the block, if stderr is a terminal."""
    if not is_terminal(sys.stderr):
        yield
        return
    bars = Bars()
    progress.listen(bars.begin)
    try:
        yield
    finally:
        progress.listen(None)
        bars.close()


# ---- progress reports ----------------------------------------
# A launched task tells its launcher about long work, and the launcher shows the tasks that are starting or at work.
# The lines go through the pipe of `tfmini.library_log`, as ``JOB TASK serves`` and ``JOB TASK works DONE TOTAL UNIT
# TEXT`` (TOTAL is -1 if it is unknown, UNIT is - if there is none), and ``JOB TASK rests`` at the end.

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
    if not library_log.is_launched():
        return None
    try:
        task = tf_config_object(environment).get("task", {})
    except ValueError:  # what uses the variable says what is wrong with it
        return None
    if "type" not in task or "index" not in task:
        return None

    def send(words: str) -> None:
        library_log.send_progress(str(task["type"]), int(task["index"]), words)

    return lambda text, total, unit: ReportedWork(send, time.monotonic, text, total, unit)


@contextmanager
def work_shown() -> Iterator[None]:
    """Long work of this process is shown within the block: by its launcher if it has one, else on its terminal."""
    listener = reporter()
    if listener is None:
        with shown():
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
        """A task has sent a line of `library_log.send_progress`."""
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
