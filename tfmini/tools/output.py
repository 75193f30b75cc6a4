"""The output of many tasks on one terminal: whole lines, each under the name of its task."""

from __future__ import annotations

import os
from collections import deque

from rich.console import Console
from rich.style import Style

from tfmini.tools.supervision import TaskId

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
_LAST_LINES = 20
_LONGEST_LINE = 1 << 16  # a longer one is cut, so that a task without newlines cannot fill our memory


class Sink:
    """A descriptor to write to, without buffer; once its reader is gone it swallows what it is given.

    Python's buffered stdout would fail again at exit over the lines that nobody took, and spoil the exit code.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.broken = False

    def write(self, data: bytes) -> None:
        """Write all of `data`, waiting for a slow reader."""
        view = memoryview(data)
        try:
            while view and not self.broken:
                view = view[os.write(self._fd, view) :]
        except BrokenPipeError:
            self.broken = True


def task_prefixes(tasks: list[TaskId], console: Console, *, colour: bool) -> dict[TaskId, bytes]:
    """`[ps/0] ` for each task, padded to one width; in colour when asked and when `console` shows colours."""
    width = max(len(str(task)) for task in tasks) + 2
    plain = not colour or console.no_color or console.color_system is None
    prefixes = {}
    for number, task in enumerate(tasks):
        label = f"[{task}]".ljust(width)
        shown = label if plain else Style(color=_COLOURS[number % len(_COLOURS)], bold=True).render(label)
        prefixes[task] = f"{shown} ".encode()
    return prefixes


class TaskOutput:
    """Cuts one task's output into lines, passes them on as bytes, and remembers the last ones."""

    def __init__(self, prefix: bytes, sink: Sink) -> None:
        self._prefix = prefix
        self._sink = sink
        self._partial = b""
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Take in what the task wrote."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        self._last.extend(lines)
        if lines:
            self._sink.write(b"".join(self._prefix + line + b"\n" for line in lines))

    def end(self) -> None:
        """Pass on a last line that lacks its newline."""
        if self._partial:
            self.feed(b"\n")

    def last_lines(self) -> list[str]:
        """The last lines the task wrote, oldest first, at most 20."""
        return [line.decode("utf-8", errors="replace") for line in self._last]
