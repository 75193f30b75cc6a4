"""Tasks as processes of this machine: `tfmini launch` without ``--on``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from tfmini.cluster import ClusterSpec
from tfmini.launch.engine import EngineError, EngineOptions, Events, TaskCommand, TaskRequest
from tfmini.launch.supervision import SERVICE_JOBS, TaskId
from tfmini.library_log import REPORT_ENV, parse_progress, parse_report, report_variable
from tfmini.listen_fd import LISTEN_FD_ENV
from tfmini.rpc.keys import KEYS_ENV


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
    """The pipe in which tasks of this machine report `Server.join` and long work (see `tfmini.library_log`).

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


# ---- Child processes of a launcher: each task is a process group, and no process outlives the launcher -------------
# Each task is the leader of a session and process group, so that a signal reaches all processes of the script and no
# others. When the leader ends, the rest of its group is killed. If the launcher is killed, the guardian (`guardian.py`)
# kills the groups; each task registers with it before exec. A task starts with SIGINT's default action, and SIGINT
# blocked; `tools/script.py` unblocks it after its imports, so that Ctrl-C shows no traceback of them.

_GUARDIAN = Path(__file__).with_name("guardian.py")


class Guardian:
    """The process that kills the tasks of a killed launcher. Use as a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARDIAN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
        )

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the guardian was killed: continue without it
            os.write(self._process.stdin.fileno(), line.encode("ascii"))

    def register_self(self) -> None:
        """Register the calling process. Called in the child before exec, so that no group is ever unregistered."""
        self._tell(f"+{os.getpid()}\n")

    def release(self, group: int) -> None:
        """Unregister a group, before the system can reuse its number."""
        self._tell(f"-{group}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class TaskProcess:
    """One running task. `output` is its merged standard output and error, non-blocking.

    It ignores the signals `ignored`, until it changes that itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        guardian: Guardian,
        keep_fds: Sequence[int],
        ignored: Sequence[int] = (),
    ) -> None:
        self._guardian = guardian
        self._ignored = ignored
        # preexec_fn is safe here: the other threads of the launcher (`output.py`, the bars) hold no lock that it takes.
        self._popen = subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=keep_fds,
            preexec_fn=self._prepare,  # noqa: PLW1509
        )
        assert self._popen.stdout is not None
        self.output: IO[bytes] = self._popen.stdout
        os.set_blocking(self.output.fileno(), False)

    def _prepare(self) -> None:
        """Prepare the child between fork and exec."""
        self._guardian.register_self()
        # The launcher ignores SIGINT if its shell did (``nohup … &``). The task, in its own session, does not.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for signum in self._ignored:
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    @property
    def pid(self) -> int:
        """The process id of the leader, which is also the id of the group."""
        return self._popen.pid

    def signal_group(self, signum: int) -> None:
        """Send a signal to every process of the group; does nothing if there is none."""
        if self._popen.returncode is None:  # the system does not reuse the number before the leader is reaped
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
                os.killpg(self.pid, signum)

    def poll(self) -> int | None:
        """The leader's exit code (minus the signal that killed it) if it has ended, else None.

        When it detects the end, it kills the rest of the group.
        """
        if self._popen.returncode is None and self._leader_has_ended():
            self._kill_group()
        return self._popen.returncode

    def _kill_group(self) -> None:
        self.signal_group(signal.SIGKILL)
        self._guardian.release(self.pid)
        self._popen.wait()

    def _leader_has_ended(self) -> bool:
        # With WNOWAIT the leader stays a zombie, so that the system does not reuse its group number meanwhile.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def read(self) -> bytes | None:
        """The output since the last read; b"" at its end, None if there is none now."""
        try:
            return os.read(self.output.fileno(), 65536)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Kill the group if it runs, and release the descriptors."""
        if self._popen.returncode is None:
            self._kill_group()
        self.output.close()


# ---- ports ----------------------------------------
# Reserves ports for a local cluster: listening sockets hold them until the tasks own them (see `tfmini.listen_fd`).
# If tasks may be restarted, a second socket per port, which does not listen, reserves it in the meantime. The task's
# listener must set SO_REUSEADDR, as ZeroMQ does.

_HOST = "127.0.0.1"
_BACKLOG = 512  # connections that may arrive before the task has started; the kernel may have a lower limit


@dataclass(frozen=True)
class ReservedCluster:
    """A cluster on this machine, the listening socket of each task, and sockets that reserve ports until `close`."""

    spec: ClusterSpec
    listeners: dict[TaskId, socket.socket]
    holders: list[socket.socket]

    def listen_again(self, task: TaskId) -> socket.socket:
        """A listening socket at the port of a task that has ended; the port must have been reserved until `close`.

        It replaces the one before, which a task that could not be started has left.

        Raises:
          OSError: that is impossible.
        """
        port = int(self.spec.task_address(*task).rpartition(":")[2])
        self.listeners[task].close()
        self.listeners[task] = _bind(task, port, listens=True)
        return self.listeners[task]

    def close(self) -> None:
        """Release the ports that no task has inherited."""
        for reserved in (*self.listeners.values(), *self.holders):
            reserved.close()


def reserve_cluster(
    tasks: Iterable[TaskId], port_base: int | None = None, until_close: bool = False
) -> ReservedCluster:
    """Reserve a loopback address for every task: free ports, or `port_base`, `port_base + 1`, … in order.

    Args:
      until_close: reserve the ports until `close`, also while no task uses them.

    Raises:
      OSError: a port of the wanted range is in use; the text names the task and the port.
    """
    jobs: dict[str, dict[int, str]] = {}
    listeners: dict[TaskId, socket.socket] = {}
    holders: list[socket.socket] = []
    reserved = ReservedCluster(ClusterSpec({}), listeners, holders)
    try:
        for number, task in enumerate(tasks):
            port = 0 if port_base is None else port_base + number
            if until_close:  # before the listener, since no other socket can bind a port with a listener
                holders.append(_bind(task, port))
                port = holders[-1].getsockname()[1]
            listeners[task] = _bind(task, port, listens=True)
            jobs.setdefault(task.job, {})[task.task] = f"{_HOST}:{listeners[task].getsockname()[1]}"
    except OSError:
        reserved.close()
        raise
    return ReservedCluster(ClusterSpec(jobs), listeners, holders)


def _bind(task: TaskId, port: int, listens: bool = False) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As for ZeroMQ's own listeners: a port is free as soon as its last owner has ended.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # ZeroMQ adopts the listener; its I/O thread must not block if a connection ends before it is accepted.
    bound.setblocking(False)
    try:
        bound.bind((_HOST, port))
        if listens:
            bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot reserve {_HOST}:{port} for {task}: {error.strerror}") from None
    return bound
