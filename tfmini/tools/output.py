"""Prints the output of many tasks on one terminal: whole lines, each with the name of its task."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from rich.console import Console
from rich.style import Style

from tfmini.json_log import json_line, relayed
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


class TaskPrefixes(dict[TaskId, bytes]):
    """The prefix `[ps/0] ` of each task, padded to one width; in colour if `colour` and `console` allow it.

    A task that comes later gets one of its own.
    """

    def __init__(self, tasks: list[TaskId], console: Console, *, colour: bool) -> None:
        super().__init__()
        self._width = max(len(str(task)) for task in tasks) + 2
        self._console = None if not colour or console.no_color or console.color_system is None else console
        for task in tasks:
            self.__missing__(task)

    def __missing__(self, task: TaskId) -> bytes:
        label = f"[{task}]".ljust(self._width)
        style = Style(color=_COLOURS[len(self) % len(_COLOURS)], bold=True)
        shown = label if self._console is None else style.render(label)
        self[task] = f"{shown} ".encode()
        return self[task]


class JsonConsole(Console):
    """A console for the launcher's own messages that prints each as a JSON object, to stderr."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def print(self, *objects: Any, **_: Any) -> None:
        """Prints one message."""
        text = " ".join(map(str, objects)).removeprefix("tfmini: ")
        self.file.write(json_line(text, "", logger="tfmini.launch") + "\n")


class TaskOutput:
    """Splits one task's output into lines, writes them to the sink, and keeps the last ones.

    Args:
      prefix: of each line.
      json_task: the name of the task; not "": each line becomes a JSON object (`tfmini.json_log`) without a prefix.
    """

    def __init__(self, prefix: bytes, sink: Sink, json_task: str = "") -> None:
        self._prefix = b"" if json_task else prefix
        self._json_task = json_task
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
            self._sink.write(b"".join(self._prefix + self._shown(line) + b"\n" for line in lines))

    def _shown(self, line: bytes) -> bytes:
        if not self._json_task:
            return line
        found = relayed(line, self._json_task) or json_line(line.decode(errors="replace"), self._json_task)
        return found.encode()

    def end(self) -> None:
        """Write a last line without newline."""
        if self._partial:
            self.feed(b"\n")

    def last_lines(self) -> list[str]:
        """The last lines of the task, oldest first, at most 20."""
        return [line.decode("utf-8", errors="replace") for line in self._last]
