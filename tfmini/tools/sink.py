"""The launcher's own output: a thread writes it, so that a reader who does not read cannot stop the launcher.

A pager that waits, a terminal after Ctrl-S and a stuck log collector block whoever writes to them, and a blocked
launcher would obey no signal. A descriptor without blocking is no way out: its mode is shared with other processes.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading
from collections import deque
from typing import Any

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
            while self._size and not self.broken:
                before = self._written
                self._changed.wait(patience_s)
                if patience_s is not None and self._written == before:
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
