"""Bars for long work, on a terminal only: they appear after half a second and disappear at the end of the work."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from tfmini import progress
from tfmini.printable import printable

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
