"""Tasks as processes of this machine: `tfmini launch` without ``--on``."""

from __future__ import annotations

import dataclasses
import functools
import os
import selectors
import socket
import sys
from collections.abc import Callable, Mapping, Sequence

from tfmini.launch_report import REPORT_ENV, parse_progress, parse_report, report_variable
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.rpc.keys import KEYS_ENV
from tfmini.tools.engine import EngineError, EngineOptions, Events, TaskCommand, TaskRequest
from tfmini.tools.ports import ReservedCluster, reserve_cluster
from tfmini.tools.processes import Guardian, TaskProcess
from tfmini.tools.supervision import SERVICE_JOBS, TaskId


class LocalTask:
    """The process of a task on this machine, and what comes of it.

    Args:
      command: what it runs.
      listener: the socket of its address. From now on only the task holds it: otherwise peers of a dead task would wait
        in the backlog.
      on_output: gets its output, as it comes.
      ignored: signals that it ignores.

    Raises:
      OSError: it could not be started.
    """

    def __init__(
        self,
        command: TaskCommand,
        listener: socket.socket,
        reports: TaskReports,
        guardian: Guardian,
        selector: selectors.BaseSelector,
        on_output: Callable[[bytes], None],
        ignored: Sequence[int] = (),
    ) -> None:
        self._selector, self._on_output = selector, on_output
        self._writes = True  # its output is open
        self.returncode: int | None = None
        inherited = {LISTEN_FD_ENV: str(listener.fileno()), REPORT_ENV: report_variable(reports.write)}
        environment = {**command.defaults, **os.environ, **command.role, **inherited}
        fds = [listener.fileno(), reports.write]
        self.process = TaskProcess(task_argv(command), environment, guardian, fds, ignored)
        listener.close()

    def listen(self, is_wanted: bool) -> None:
        """Reads the output as it comes, or lets the task wait as soon as it has written more than a pipe holds."""
        output = self.process.output
        listens = output in self._selector.get_map()
        if listens and not is_wanted:
            self._selector.unregister(output)
        elif not listens and is_wanted and self._writes:
            self._selector.register(output, selectors.EVENT_READ, self._take_output)

    def _take_output(self) -> bool:
        """Passes on the available output; returns whether there may be more."""
        data = self.process.read()
        if data == b"":  # a task may close its output before it ends
            self._end_output()
        elif data:
            self._on_output(data)
        return bool(data)

    def _end_output(self) -> None:
        self._writes = False
        self.listen(False)

    def has_ended(self) -> bool:
        """Whether it has ended since the last question. Then its output has been passed on, and `returncode` is set."""
        if self.returncode is not None:
            return False
        returncode = self.process.poll()
        if returncode is None:
            return False
        while self._take_output():
            pass
        self._end_output()
        self.returncode = returncode
        return True

    def signal(self, signum: int) -> None:
        """Sends a signal to its process group."""
        self.process.signal_group(signum)

    def close(self) -> None:
        """Kills the process if it runs, and releases its output."""
        self._end_output()
        self.process.close()


class LocalEngine:
    """Starts each task as a child process on a free port of the loopback interface.

    A task that is started again has the same port.
    """

    adds_tasks = True
    restarts_all = False

    def __init__(self, options: EngineOptions) -> None:
        self._port_base = options.port_base
        self._children: dict[TaskId, LocalTask] = {}
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
            child.close()

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        """Starts the processes; see `Engine.start`."""
        assert self._reports is not None
        self._guardian = self._guardian or Guardian()
        for task, command in commands.items():
            if command.key_file:
                command = dataclasses.replace(command, role=command.role | {KEYS_ENV: command.key_file})
            listener = self._clusters[task].listeners[task]
            on_output = functools.partial(self._events.output, task)
            child = LocalTask(command, listener, self._reports, self._guardian, self._selector, on_output)
            self._children[task] = child
            child.listen(not self._holds)

    def hold_output(self, is_held: bool) -> None:
        """Reads no output, so that the tasks wait when their pipes are full; see `Engine.hold_output`."""
        self._holds = is_held
        for child in self._children.values():
            child.listen(not is_held)

    def signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        """Signals the process groups of tasks."""
        for task in tasks:
            self._children[task].signal(signum)

    def reap(self) -> None:
        """Reports the tasks that have ended."""
        # If several tasks ended, services come first: their failure may be the cause of their workers' failure.
        for task in sorted(self._children, key=lambda task: task.job not in SERVICE_JOBS):
            child = self._children[task]
            if child.has_ended() and child.returncode is not None:
                self._events.ended(task, child.returncode)

    def close(self, exit_code: int) -> None:
        """Kills the processes that still run, and releases the ports."""
        for child in self._children.values():
            child.close()
        if self._guardian is not None:
            self._guardian.__exit__()
        for reserved in self._clusters.values():
            reserved.close()
        if self._reports is not None:
            self._reports.close()


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


def usable_cpus() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux; respects taskset and container limits
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
