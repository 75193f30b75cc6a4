"""Tasks as processes of this machine: `tfmini launch` without ``--on``."""

from __future__ import annotations

import os
import selectors
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfmini.launch_report import REPORT_ENV, parse_progress, parse_report, report_variable
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.rpc.keys import KEYS_ENV
from tfmini.tools.engine import EngineError, EngineOptions, Events, TaskCommand, TaskRequest
from tfmini.tools.ports import ReservedCluster, reserve_cluster
from tfmini.tools.processes import Guardian, TaskProcess
from tfmini.tools.supervision import SERVICE_JOBS, TaskId


@dataclass
class _Child:
    process: TaskProcess
    ended: bool = False
    writes: bool = True  # its output is open


class LocalEngine:
    """Starts each task as a child process on a free port of the loopback interface.

    A task that is started again has the same port.
    """

    adds_tasks = True
    restarts_all = False

    def __init__(self, options: EngineOptions) -> None:
        self._port_base = options.port_base
        self._children: dict[TaskId, _Child] = {}
        self._clusters: dict[TaskId, ReservedCluster] = {}  # a task that joins later has one of its own
        self._guardian: Guardian | None = None
        self._reports: TaskReports | None = None
        self._holds = False

    def reserve(self, requests: Sequence[TaskRequest], events: Events, selector: selectors.BaseSelector) -> None:
        """Binds a port for each task; see `Engine.reserve`."""
        self._events, self._selector = events, selector
        self._reserve([request.task for request in requests], self._port_base)
        self._reports = TaskReports(events.joined, selector, events.progress)
        self._place(list(self._clusters))

    def _reserve(self, tasks: list[TaskId], port_base: int | None) -> None:
        try:
            reserved = reserve_cluster(tasks, port_base, until_close=True)
        except (OSError, OverflowError) as error:
            remedy = "; leave out --port-base, or choose another" if port_base else ""
            raise EngineError(f"No ports for the cluster: {str(error).rstrip('.')}{remedy}.") from None
        self._clusters |= dict.fromkeys(tasks, reserved)

    def _place(self, tasks: list[TaskId]) -> None:
        share = max(1, usable_cpus() // len(self._clusters))
        for task in tasks:
            self._events.placed(task, self._clusters[task].spec.task_address(*task), share)

    def add(self, requests: Sequence[TaskRequest]) -> None:
        """Listens again at the ports of tasks that have ended, and at new ports for others; see `Engine.add`."""
        for task in (request.task for request in requests):
            self.withdraw(task)
            if task not in self._clusters:
                self._reserve([task], self._port_base and self._port_base + len(self._clusters))
                continue
            try:
                self._clusters[task].listen_again(task)
            except OSError as error:
                raise EngineError(f"The port of {task} is taken: {error}.") from None
        self._place([request.task for request in requests])

    def withdraw(self, task: TaskId) -> None:
        """Releases what an ended task has left, but for its port."""
        child = self._children.pop(task, None)
        if child is not None:
            self._end_output(child)
            child.process.close()

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        """Starts the processes; see `Engine.start`."""
        assert self._reports is not None
        self._guardian = self._guardian or Guardian()
        for task, command in commands.items():
            listener = self._clusters[task].listeners[task]
            environment = task_environment(command, listener.fileno(), self._reports)
            if command.key_file:
                environment[KEYS_ENV] = command.key_file
            fds = [listener.fileno(), self._reports.write]
            process = TaskProcess(task_argv(command), environment, self._guardian, fds)
            # From now on only the task holds its port: otherwise peers of a dead task would wait in the backlog.
            listener.close()
            self._children[task] = _Child(process)
            if not self._holds:
                self._listen_to(task)

    def _listen_to(self, task: TaskId) -> None:
        child = self._children[task]
        self._selector.register(child.process.output, selectors.EVENT_READ, lambda: self._take_output(task, child))

    def hold_output(self, is_held: bool) -> None:
        """Reads no output, so that the tasks wait when their pipes are full; see `Engine.hold_output`."""
        self._holds = is_held
        for task, child in self._children.items():
            if is_held:
                self._end_output(child)
            elif child.writes:
                self._listen_to(task)

    def signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        """Signals the process groups of tasks."""
        for task in tasks:
            self._children[task].process.signal_group(signum)

    def reap(self) -> None:
        """Reports the tasks that have ended."""
        # If several tasks ended, services come first: their failure may be the cause of their workers' failure.
        for task in sorted(self._children, key=lambda task: task.job not in SERVICE_JOBS):
            child = self._children[task]
            returncode = None if child.ended else child.process.poll()
            if returncode is not None:
                child.ended = True
                while self._take_output(task, child):
                    pass
                child.writes = False
                self._end_output(child)
                self._events.ended(task, returncode)

    def close(self, exit_code: int) -> None:
        """Kills the processes that still run, and releases the ports."""
        for child in self._children.values():
            child.process.close()
        if self._guardian is not None:
            self._guardian.__exit__()
        for reserved in self._clusters.values():
            reserved.close()
        if self._reports is not None:
            self._reports.close()

    def _take_output(self, task: TaskId, child: _Child) -> bool:
        """Passes on the available output; returns whether there may be more."""
        data = child.process.read()
        if data == b"":  # a task may close its output before it ends
            child.writes = False
            self._end_output(child)
        elif data:
            self._events.output(task, data)
        return bool(data)

    def _end_output(self, child: _Child) -> None:
        if child.process.output in self._selector.get_map():
            self._selector.unregister(child.process.output)


class TaskReports:
    """The pipe in which tasks of this machine report `Server.join` and long work (see `tfmini.launch_report`).

    Attributes:
      write: the end that tasks inherit.
    """

    def __init__(
        self, on_report: Callable[[TaskId, bool], None], selector: selectors.BaseSelector,
        on_progress: Callable[[TaskId, str], None] = lambda task, words: None,
    ) -> None:  # fmt: skip
        self._on_report, self._selector, self._on_progress = on_report, selector, on_progress
        self._read, self.write = os.pipe()
        self._partial = ""
        selector.register(self._read, selectors.EVENT_READ, self._take)

    def _take(self) -> None:
        # The pipe never ends, since this process holds both ends.
        lines = (self._partial + os.read(self._read, 65536).decode(errors="replace")).split("\n")
        self._partial = lines.pop()
        for line in lines:
            found = parse_report(line)
            if found is not None:
                self._on_report(TaskId(*found[:2]), found[2])
            elif (told := parse_progress(line)) is not None:
                self._on_progress(TaskId(*told[:2]), told[2])

    def close(self) -> None:
        """Closes both ends."""
        if self._read in self._selector.get_map():
            self._selector.unregister(self._read)
        os.close(self._read)
        os.close(self.write)


def task_argv(command: TaskCommand) -> list[str]:
    """The command line of a task on this machine."""
    return [sys.executable, "-m", "tfmini", *command.arguments]


def task_environment(command: TaskCommand, listen_fd: int, reports: TaskReports) -> dict[str, str]:
    """The environment of a task on this machine, without its key."""
    inherited = {LISTEN_FD_ENV: str(listen_fd), REPORT_ENV: report_variable(reports.write)}
    return {**command.defaults, **os.environ, **command.role, **inherited}


def usable_cpus() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux; respects taskset and container limits
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
