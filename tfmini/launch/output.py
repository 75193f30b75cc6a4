"""Prints the output of many tasks on one terminal: lines that do not mix, each with the name of its task."""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading
import time
from collections import deque
from typing import Any

from rich.console import Console
from rich.style import Style

from tfmini.json_log import json_line, message_of, relayed
from tfmini.launch.supervision import TaskId

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

    def log(self, text: str, **facts: Any) -> None:  # type: ignore[override]  # rich's is for people
        """Prints one message with further fields, such as ``level``, ``task`` and ``exit_code``."""
        self.file.write(json_line(text, str(facts.pop("task", "")), logger="tfmini.launch", **facts) + "\n")


class OutputLines:
    """Splits one task's output into lines, writes them to the sink, and keeps the last ones.

    A line without an end, such as a prompt or a progress bar, is shown when it has been so for a moment, unless
    another task's line comes: then the rest of it follows on a line of its own. After each carriage return the
    prefix is written again, since the terminal writes over it.

    Args:
      prefix: of each line.
      json_task: the name of the task; not "": each line becomes a JSON object (`tfmini.library_log`) without a prefix.

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
        lines = [line.decode("utf-8", errors="replace") for line in self._last]
        return [message_of(line) for line in lines] if self._json_task else lines

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


# ---- sink ----------------------------------------
# The launcher's own output: a thread writes it, so that a reader who does not read cannot stop the launcher.
# A pager that waits, a terminal after Ctrl-S and a stuck log collector block whoever writes to them, and a blocked
# launcher would obey no signal. A descriptor without blocking is no way out: its mode is shared with other processes.

_FULL = 1 << 20  # bytes
_MOST = 1 << 24  # bytes
_PIECE = 4096  # bytes per write: with larger ones a slow reader would look like one who does not read
_LOOK_S = 0.2


class Sink:
    """Writes to a descriptor in a thread; after a broken pipe it discards the output.

    Python's buffered stdout would fail again at exit, for the unwritten lines, and change the exit code. The
    descriptor of `fileno` is readable when `broken` becomes true, and when there is room again after `is_full`.

    Attributes:
      broken: whether nobody can read the output any more.
      is_full: whether the reader is far behind: the tasks should wait.
      may_lose: whether output may be lost, if the reader is very far behind, because the tasks cannot wait.
      line_of: whose line has no end yet, so that others must not write into it; None: the last line has ended.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.broken = self.is_full = self.may_lose = False
        self.line_of: object | None = None
        self._waiting: deque[bytes] = deque()
        self._size = 0  # of what waits, with what is being written
        self._written = 0
        self._lost = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._read_wake, self._write_wake = os.pipe()
        os.set_blocking(self._write_wake, False)

    def fileno(self) -> int:
        """For a selector; see the class."""
        return self._read_wake

    def woken(self) -> None:
        """Takes the news that made `fileno` readable."""
        os.read(self._read_wake, 4096)

    def write(self, data: bytes, line_of: object | None = None) -> None:
        """Lets the thread write ``data``; never blocks. ``line_of``: who has left its last line without an end."""
        with self._changed:
            if self.broken:
                return
            self.line_of = line_of
            if self.may_lose and self._size > _MOST:
                self._lost += len(data)
                return
            self._waiting.append(data)
            self._size += len(data)
            self.is_full = self.is_full or self._size > _FULL
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tfmini-output", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def end_line(self) -> None:
        """Ends a line that has no end yet, for output of somebody else."""
        if self.line_of is not None:
            self.write(b"\n")

    def is_behind(self) -> bool:
        """Whether there is output that the reader has not taken."""
        return self._size > 0

    def drain(self, patience_s: float | None = None) -> None:
        """Waits until everything is written, or for so long without progress (None: without limit)."""
        with self._changed:
            if self._lost:
                self._waiting.append(b"\ntfmini: %d bytes of output were lost, since nobody read it.\n" % self._lost)
                self._lost = 0
            before, since = self._written, time.monotonic()
            while self._size and not self.broken:
                # Not longer: the kernel may give Ctrl-C to the other thread, which does not end the wait of this one.
                self._changed.wait(_LOOK_S)
                if self._written != before:
                    before, since = self._written, time.monotonic()
                elif patience_s is not None and time.monotonic() - since >= patience_s:
                    return

    def close(self) -> None:
        """Lets the thread end as soon as it has written what waits."""
        with self._changed:
            self._waiting.append(b"")
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                data = self._waiting.popleft()
            if not data:
                return
            view = memoryview(data)
            while view and not self.broken:
                view = view[self._wrote(view[:_PIECE]) :]

    def _wrote(self, piece: memoryview) -> int:
        """Writes a piece, or a part of it; returns how much."""
        try:
            count = os.write(self._fd, piece)
        except BlockingIOError:  # somebody else has set this mode
            select.select([], [self._fd], [], _LOOK_S)
            return 0
        except OSError:  # a broken pipe, or a terminal that is gone
            self._break()
            return 0
        with self._changed:
            self._size -= count
            self._written += count
            if self.is_full and self._size <= _FULL // 2:
                self.is_full = False
                self._wake()
            self._changed.notify_all()
        return count

    def _break(self) -> None:
        with self._changed:
            self.broken, self.is_full = True, False
            self._waiting.clear()
            self._size = 0
            self._wake()
            self._changed.notify_all()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is readable in any case
            os.write(self._write_wake, b"x")


class SinkStream(io.TextIOBase):
    """A text stream to a sink, for messages beside the tasks' output.

    Args:
      is_drawing: the texts draw over each other; those that nobody would see in time are left out.
    """

    def __init__(self, sink: Sink, instead_of: Any, is_drawing: bool = False) -> None:
        self._sink, self._instead_of, self._is_drawing = sink, instead_of, is_drawing

    def write(self, text: str) -> int:
        """Passes a text on; never blocks."""
        if text and not (self._is_drawing and self._sink.is_behind()):
            self._sink.end_line()
            self._sink.write(text.encode(errors="replace"))
        return len(text)

    def isatty(self) -> bool:
        """Whether the stream in whose place this one is is a terminal."""
        return bool(self._instead_of.isatty())

    def fileno(self) -> int:
        """That of the other stream."""
        return int(self._instead_of.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """For rich, which draws with characters of the encoding."""
        return "utf-8"


def standard_sinks() -> tuple[Sink, Sink]:
    """The sinks of standard output and standard error: one, if both are the same file, so that the order stays."""
    out = Sink(1)
    return out, out if os.path.samestat(os.fstat(1), os.fstat(2)) else Sink(2)
