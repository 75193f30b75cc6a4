"""Prints the output of many tasks on one terminal: lines that do not mix, each with the name of its task."""

from __future__ import annotations

from collections import deque
from typing import Any

from rich.console import Console
from rich.style import Style

from tfmini.json_log import json_line, relayed
from tfmini.tools.sink import Sink
from tfmini.tools.supervision import TaskId

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
_LAST_LINES = 20
SHOW_AFTER_S = 0.1
"""How long a line stays without an end until its beginning is shown: most have their end by then."""
AGAIN_AFTER_S = 5.0
"""The same where another task's line has ended its beginning: bars of several tasks would show nothing else."""
_LONGEST_LINE = 1 << 16  # bytes; a longer line is split, which bounds the memory for output without newlines


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


class OutputLines:
    """Splits one task's output into lines, writes them to the sink, and keeps the last ones.

    A line without an end, such as a prompt or a progress bar, is shown when it has been so for a moment, unless
    another task's line comes: then the rest of it follows on a line of its own. After each carriage return the
    prefix is written again, since the terminal writes over it.

    Args:
      prefix: of each line.
      json_task: the name of the task; not "": each line becomes a JSON object (`tfmini.json_log`) without a prefix.

    Attributes:
      due: when `show` should be called; None: the last line has ended, or is shown.
    """

    def __init__(self, prefix: bytes, sink: Sink, json_task: str = "") -> None:
        self._prefix = b"" if json_task else prefix
        self._json_task = json_task
        self._sink = sink
        self._held = b""  # what is not shown of the last line
        self._begun: bytes | None = None  # what is shown of it; None: nothing
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)
        self.due: float | None = None

    def feed(self, data: bytes, now: float = 0.0) -> None:
        """Handle output of the task that came at a time in seconds."""
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) > _LONGEST_LINE:
            lines.append(self._held)
            self._held = b""
        if lines:
            if text := b"".join([self._ended(line) for line in lines]):
                self._sink.write(text)
            self.due = None
        if not self._held:
            self.due = None
        elif self._sink.line_of is self:
            self.show()
        elif self.due is None:
            self.due = now + (SHOW_AFTER_S if self._begun is None else AGAIN_AFTER_S)

    def show(self) -> None:
        """Write what there is of the last line."""
        self.due = None
        shown, self._held = _whole_characters(self._held)
        if not shown:
            return
        if self._json_task:
            self._sink.write(self._record(shown) + b"\n")
        else:
            self._sink.write(self._in_place(shown), line_of=self)
        self._begun = _visible((self._begun or b"") + shown)[-_LONGEST_LINE:]

    def end(self) -> None:
        """Write a last line without newline."""
        if self._held or self._begun is not None:
            self.feed(b"\n")

    def last_lines(self) -> list[str]:
        """The last lines of the task, oldest first, at most 20."""
        return [line.decode("utf-8", errors="replace") for line in self._last]

    def _ended(self, rest: bytes) -> bytes:
        """What to write for the rest of a line that has ended."""
        begun, self._begun = self._begun, None
        self._last.append(_visible((begun or b"") + rest))
        is_open = self._sink.line_of is self
        if begun is not None and not rest and not is_open:
            return b""  # all of it is shown, and ended by somebody else's line
        text = self._record(rest) if self._json_task else self._in_place(rest)
        self._sink.line_of = None
        return text + b"\n"

    def _in_place(self, text: bytes) -> bytes:
        """A part of a line, as it follows what the sink has: with the prefix at each beginning."""
        text, end = (text[:-1], b"\r") if text.endswith(b"\r") else (text, b"")
        if self._sink.line_of is not self:
            before = b"" if self._sink.line_of is None else b"\n"
            text, before = text.removeprefix(b"\r"), before + self._prefix
        else:
            before = b""
        return before + text.replace(b"\r", b"\r" + self._prefix) + end

    def _record(self, line: bytes) -> bytes:
        text = relayed(line, self._json_task)
        return (text or json_line(line.strip(b"\r").decode(errors="replace"), self._json_task)).encode()


def _visible(line: bytes) -> bytes:
    """What a terminal shows of a line that was written over."""
    return line.removesuffix(b"\r").rpartition(b"\r")[2]


def _whole_characters(text: bytes) -> tuple[bytes, bytes]:
    """The text up to its last whole character, and the rest. A carriage return at the end waits for its newline."""
    end = len(text) - text.endswith(b"\r")
    for back in range(1, min(4, end) + 1):
        byte = text[end - back]
        if byte & 0xC0 == 0xC0:  # the first byte of a character of two to four bytes
            size = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            end -= back if back < size else 0
            break
        if byte < 0x80:
            break
    return text[:end], text[end:]
