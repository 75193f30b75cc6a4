"""Applies the decisions of `Supervision` to real processes, in one thread with one selector."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tfmini.launch_report import parse_report
from tfmini.tools.output import Sink, TaskOutput
from tfmini.tools.processes import Guardian, TaskProcess
from tfmini.tools.supervision import (
    SERVICE_JOBS,
    Event,
    Finish,
    GraceExpired,
    Note,
    SendSignal,
    SignalReceived,
    StartGrace,
    Supervision,
    TaskExited,
    TaskId,
    TaskJoined,
    TimeLimitReached,
)


@dataclass(frozen=True)
class TaskCommand:
    """The command of one task. `listener` reserves its port; the task inherits the descriptor with the same number.

    `report` is the write end of the pipe in which it reports `Server.join` (see `tfmini.launch_report`).
    """

    argv: list[str]
    env: dict[str, str]
    listener: socket.socket
    prefix: bytes
    report: int


@dataclass(frozen=True)
class RunLimits:
    """Limits in seconds: `time_limit_s` of the run (None: no limit), `grace_s` between SIGTERM and SIGKILL."""

    grace_s: float
    time_limit_s: float | None = None


@dataclass
class _Child:
    process: TaskProcess
    output: TaskOutput
    ended: bool = False


@contextlib.contextmanager
def _received_signals() -> Iterator[socket.socket]:
    """Yields a socket that receives the number of each signal as one byte, within the block."""
    read, write = socket.socketpair()
    read.setblocking(False)
    write.setblocking(False)
    wanted = [signal.SIGCHLD]
    # Signals that the parent process made this one ignore (nohup, a background job of a shell) stay ignored.
    wanted += [
        s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN
    ]
    old_fd = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    old_handlers = {number: signal.signal(number, lambda *_: None) for number in wanted}
    try:
        yield read
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_fd)
        read.close()
        write.close()


@dataclass
class ClusterRun:
    """One run of a cluster. Call `run` once, in the main thread (it installs signal handlers)."""

    commands: dict[TaskId, TaskCommand]
    supervision: Supervision
    limits: RunLimits
    sink: Sink
    say: Callable[[str], None]
    reports: int

    _children: dict[TaskId, _Child] = field(default_factory=dict, init=False)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector, init=False)
    _limit_at: float | None = field(default=None, init=False)
    _grace_at: float | None = field(default=None, init=False)
    _sink_reported: bool = field(default=False, init=False)
    _partial_report: str = field(default="", init=False)
    _finish: Finish | None = field(default=None, init=False)

    def run(self) -> Finish:
        """Start every task, and return when all processes have ended.

        Raises:
          OSError: a process could not be started; the others have been killed.
        """
        with _received_signals() as signals, Guardian() as guardian, self._selector:
            self._selector.register(signals, selectors.EVENT_READ, lambda: self._take_signals(signals))
            self._selector.register(self.reports, selectors.EVENT_READ, self._take_reports)
            try:
                self._start(guardian)
                while self._finish is None:
                    self._wait()
                return self._finish
            finally:
                for child in self._children.values():
                    child.process.close()

    def last_lines(self, task: TaskId) -> list[str]:
        """The last lines that a task wrote."""
        return self._children[task].output.last_lines()

    def _start(self, guardian: Guardian) -> None:
        if self.limits.time_limit_s is not None:
            self._limit_at = time.monotonic() + self.limits.time_limit_s
        for task, command in self.commands.items():
            process = TaskProcess(command.argv, command.env, guardian, [command.listener.fileno(), command.report])
            # From now on only the task holds its port: otherwise peers of a dead task would wait in the backlog.
            command.listener.close()
            child = self._children[task] = _Child(process, TaskOutput(command.prefix, self.sink))
            self._selector.register(
                process.output, selectors.EVENT_READ, lambda child=child: self._take_output(child)
            )

    def _wait(self) -> None:
        deadlines = [at for at in (self._limit_at, self._grace_at) if at is not None]
        timeout = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        for key, _ in self._selector.select(timeout):
            key.data()
        if self.sink.broken and not self._sink_reported:
            self._sink_reported = True
            self._dispatch(SignalReceived(signal.SIGPIPE))
        self._check_deadlines()

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if self._limit_at is not None and now >= self._limit_at:
            self._limit_at = None
            self._dispatch(TimeLimitReached(self.limits.time_limit_s or 0.0))
        if self._grace_at is not None and now >= self._grace_at:
            self._grace_at = None
            self._dispatch(GraceExpired())

    def _take_signals(self, signals: socket.socket) -> None:
        for signum in signals.recv(4096):
            if signum == signal.SIGCHLD:
                self._reap()
            else:
                self._dispatch(SignalReceived(signum))

    def _take_reports(self) -> None:
        """Read which tasks are inside `Server.join`. (The pipe never ends, since this process holds both ends.)"""
        lines = (self._partial_report + os.read(self.reports, 65536).decode()).split("\n")
        self._partial_report = lines.pop()
        for line in lines:
            found = parse_report(line)
            if found is not None:
                self._dispatch(TaskJoined(TaskId(*found[:2]), found[2]))

    def _reap(self) -> None:
        # If several tasks ended, services come first: their failure may be the cause of their workers' failure.
        for task in sorted(self._children, key=lambda task: task.job not in SERVICE_JOBS):
            child = self._children[task]
            returncode = None if child.ended else child.process.poll()
            if returncode is not None:
                child.ended = True
                while self._take_output(child):
                    pass
                self._end_output(child)
                self._dispatch(TaskExited(task, returncode))

    def _take_output(self, child: _Child) -> bool:
        """Pass on the available output; returns whether there may be more."""
        data = child.process.read()
        if data == b"":  # a task may close its output before it ends
            self._end_output(child)
        elif data:
            child.output.feed(data)
        return bool(data)

    def _end_output(self, child: _Child) -> None:
        child.output.end()
        if child.process.output in self._selector.get_map():
            self._selector.unregister(child.process.output)

    def _dispatch(self, event: Event) -> None:
        for instruction in self.supervision.handle(event):
            match instruction:
                case SendSignal(tasks, signum):
                    for task in tasks:
                        self._children[task].process.signal_group(signum)
                case StartGrace():
                    self._grace_at = time.monotonic() + self.limits.grace_s
                case Note(text):
                    self.say(text)
                case Finish():
                    self._finish = instruction
