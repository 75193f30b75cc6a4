"""Prints the output of many tasks on one terminal: whole lines, each with the name of its task."""

from __future__ import annotations

import os
from collections import deque

from rich.console import Console
from rich.style import Style

from tfmini.tools.supervision import TaskId

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
_LAST_LINES = 20
_LONGEST_LINE = 1 << 16  # bytes; a longer line is split, which bounds the memory for output without newlines


class Sink:
    """Writes to a descriptor without a buffer; after a broken pipe it discards the output.

    Python's buffered stdout would fail again at exit, for the unwritten lines, and change the exit code.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.broken = False

    def write(self, data: bytes) -> None:
        """Write all of `data`; blocks while the reader is slow."""
        view = memoryview(data)
        try:
            while view and not self.broken:
                view = view[os.write(self._fd, view) :]
        except BrokenPipeError:
            self.broken = True


def task_prefixes(tasks: list[TaskId], console: Console, *, colour: bool) -> dict[TaskId, bytes]:
    """The prefix `[ps/0] ` of each task, padded to one width; in colour if `colour` and `console` allow it."""
    width = max(len(str(task)) for task in tasks) + 2
    plain = not colour or console.no_color or console.color_system is None
    prefixes = {}
    for number, task in enumerate(tasks):
        label = f"[{task}]".ljust(width)
        shown = label if plain else Style(color=_COLOURS[number % len(_COLOURS)], bold=True).render(label)
        prefixes[task] = f"{shown} ".encode()
    return prefixes


class TaskOutput:
    """Splits one task's output into lines, writes them to the sink, and keeps the last ones."""

    def __init__(self, prefix: bytes, sink: Sink) -> None:
        self._prefix = prefix
        self._sink = sink
        self._partial = b""
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Handle output of the task."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        self._last.extend(lines)
        if lines:
            self._sink.write(b"".join(self._prefix + line + b"\n" for line in lines))

    def end(self) -> None:
        """Write a last line without newline."""
        if self._partial:
            self.feed(b"\n")

    def last_lines(self) -> list[str]:
        """The last lines of the task, oldest first, at most 20."""
        return [line.decode("utf-8", errors="replace") for line in self._last]
