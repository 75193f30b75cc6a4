"""Applies the decisions of `Supervision` to the tasks of an engine, in one thread with one selector."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tfmini.cluster import ClusterSpec
from tfmini.exit_codes import ExitCode
from tfmini.launch.control import Control
from tfmini.launch.engine import (
    WARN_S,
    Engine,
    EngineError,
    TaskCommand,
    TaskRequest,
)
from tfmini.launch.output import OutputLines, Sink
from tfmini.launch.progress import LaunchProgress
from tfmini.launch.supervision import (
    EVALUATOR_JOB,
    Dismiss,
    Event,
    GraceExpired,
    Instruction,
    PrintNote,
    RunOver,
    ScaleError,
    SendSignal,
    ServerJoined,
    SignalReceived,
    StartGrace,
    StartTasks,
    Supervision,
    TaskExited,
    TaskId,
    TaskMet,
    TaskPhase,
    TimeLimitReached,
    some,
)
from tfmini.library_log import MEETS, MEETS_ELASTIC
from tfmini.rpc.keys import INSECURE_ENV, KEYS_ENV, keys_in_memory

_LONGEST_LINE = 2000  # characters, of a line for `tfmini logs`

CommandsOf = Callable[[ClusterSpec, Mapping[TaskId, int]], dict[TaskId, TaskCommand]]
"""Makes the commands of all tasks from their addresses and from the cores that each has."""


@dataclass(frozen=True)
class RunLimits:
    """Limits in seconds.

    Attributes:
      grace_s: between SIGTERM and SIGKILL.
      time_limit_s: of the whole run (None: no limit).
      start_s: until every task has a place.
    """

    grace_s: float
    time_limit_s: float | None = None
    start_s: float = 300.0


@contextlib.contextmanager
def received_signals() -> Iterator[socket.socket]:
    """Yields a socket that receives the number of each signal as one byte, within the block."""
    read, write = socket.socketpair()
    read.setblocking(False)
    write.setblocking(False)
    wanted = [signal.SIGCHLD]
    # Signals that the parent process made this one ignore (nohup, a background job of a shell) stay ignored.
    wanted += [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
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
    """One run of a cluster. Call `run` once, in the main thread (it installs signal handlers).

    It is the `Events` of its engine.
    """

    engine: Engine
    requests: Sequence[TaskRequest]
    commands_of: CommandsOf
    supervision: Supervision
    limits: RunLimits
    sink: Sink
    prefixes: Mapping[TaskId, bytes]
    say: Callable[[PrintNote], None]
    on_places: Callable[[ClusterSpec], None] = lambda cluster: None
    display: LaunchProgress = field(default_factory=lambda: LaunchProgress([], None))
    log_json: bool = False
    request_of: Callable[[TaskId], TaskRequest] = TaskRequest
    control: Control | None = None

    _outputs: dict[TaskId, OutputLines] = field(default_factory=dict, init=False)
    _places: dict[TaskId, str] = field(default_factory=dict, init=False)
    _cpus: dict[TaskId, int] = field(default_factory=dict, init=False)
    _unshown: dict[TaskId, OutputLines] = field(default_factory=dict, init=False)  # with lines without an end
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector, init=False)
    _holds: bool = field(default=False, init=False)  # whether the engine holds the output back
    _started: bool = field(default=False, init=False)
    _limit_at: float | None = field(default=None, init=False)
    _grace_at: float | None = field(default=None, init=False)
    _sink_reported: bool = field(default=False, init=False)
    _broken: str = field(default="", init=False)
    _finish: RunOver | None = field(default=None, init=False)
    _homeless: dict[TaskId, float] = field(default_factory=dict, init=False)  # until when it may wait for a place
    _ready: list[TaskId] = field(default_factory=list, init=False)  # such as have got one
    _leaving: dict[TaskId, float] = field(default_factory=dict, init=False)  # when it is killed
    _late_ps: set[TaskId] = field(default_factory=set, init=False)

    def run(self) -> RunOver:
        """Start every task, and return when all have ended.

        Raises:
          OSError: a process could not be started; the others have been killed.
          EngineError: the engine has no places for the tasks, or not in time.
        """
        self._outputs = {request.task: self._output_of(request.task) for request in self.requests}
        with received_signals() as signals, self._selector:
            self._selector.register(signals, selectors.EVENT_READ, lambda: self._take_signals(signals))
            self._selector.register(self.sink, selectors.EVENT_READ, self.sink.woken)
            if self.control is not None:
                self._selector.register(self.control, selectors.EVENT_READ, self._take_orders)
            if self.limits.time_limit_s is not None:
                self._limit_at = time.monotonic() + self.limits.time_limit_s
            try:
                self.engine.reserve(self.requests, self, self._selector)
                self._wait_for_places()
                if self._finish is None:
                    self._start()
                while self._finish is None:
                    self._wait()
                return self._finish
            finally:
                self.display.close()
                self.engine.close(1 if self._finish is None else self._finish.exit_code)

    def scale(self, workers: int) -> str:
        """Lets workers join the run, or leave it, until so many are there; returns what is done.

        Raises:
          ScaleError: that is impossible.
        """
        if type(workers) is not int:  # from a socket
            raise ScaleError("the number of workers is no number.")
        if not self._started:
            raise ScaleError("its tasks have no places yet.")
        if not self.engine.adds_tasks:
            raise ScaleError("its engine cannot start tasks later.")
        instructions = self.supervision.scale(workers)
        self._carry_out(instructions)
        return next(each.text for each in instructions if isinstance(each, PrintNote))

    def add_ps(self, more: int) -> str:
        """Lets ps join the run, as `scale`. Only they see themselves in the cluster: no graph places on them."""
        if type(more) is not int or not self._started or not self.engine.adds_tasks:
            raise ScaleError("its tasks have no places yet, or its engine cannot start tasks later.")
        instructions = self.supervision.add_services(more)
        self._late_ps.update(task for each in instructions if isinstance(each, StartTasks) for task in each.tasks)
        self._carry_out(instructions)
        return next(each.text for each in instructions if isinstance(each, PrintNote))

    def _take_orders(self) -> None:
        assert self.control is not None
        self.control.answer({"workers": self.scale, "ps": self.add_ps, "logs": self._recent_lines})

    def _recent_lines(self, wanted: str) -> dict[str, list[str]]:
        """The last lines of each task, or of the one that is wanted."""
        return {
            str(task): [line[:_LONGEST_LINE] for line in output.last_lines()]
            for task, output in sorted(self._outputs.items())
            if wanted in ("", str(task))
        }

    def _output_of(self, task: TaskId) -> OutputLines:
        return OutputLines(self.prefixes[task], self.sink, str(task) if self.log_json else "")

    def last_lines(self, task: TaskId) -> list[str]:
        """The last lines that a task wrote."""
        return self._outputs[task].last_lines()

    def _wait_for_places(self) -> None:
        begun = time.monotonic()
        until, warn_s = begun + self.limits.start_s, WARN_S
        while len(self._places) < len(self.requests) and self._finish is None:
            if self._broken:
                raise EngineError(self._broken)
            now = time.monotonic()
            if now >= until:
                raise EngineError(
                    f"After {self.limits.start_s:g} s, these tasks have no place: {some(self._missing())}. The "
                    f"engine may lack free resources, or its processes cannot connect to this one. Ask for fewer or "
                    f"smaller tasks, or for more time by --start-within."
                )
            if now >= begun + warn_s:
                gives_up = f"the run gives up after {self.limits.start_s:g} s"
                self._say(f"for {warn_s:g} s, {some(self._missing())} wait for a place; {gives_up}.", "WARNING")
                warn_s *= 2
            self._wait(min(until, begun + warn_s))

    def _missing(self) -> list[str]:
        return [str(request.task) for request in self.requests if request.task not in self._places]

    def _spec(self, seen_by: TaskId | None = None) -> ClusterSpec:
        """The cluster of all tasks that are there or have been: a task that left keeps its number.

        Only those among ``seen_by`` see the ps that have joined: all graphs must spread variables over the same ps.
        """
        hidden = self._late_ps if seen_by is not None and seen_by not in self._late_ps else ()
        jobs: dict[str, dict[int, str]] = {}
        for job, index in dict.fromkeys([request.task for request in self.requests] + sorted(self._places)):
            if TaskId(job, index) not in hidden and job != EVALUATOR_JOB:  # that is outside of the cluster
                jobs.setdefault(job, {})[index] = self._places[TaskId(job, index)]
        return ClusterSpec(jobs)

    def _start(self) -> None:
        spec = self._spec()
        outside = [str(request.task) for request in self.requests if request.task.job == EVALUATOR_JOB]
        self._say("starting " + some([*(f"{t.job}/{t.task} at {t.address}" for t in spec.tasks()), *outside]))
        self.on_places(spec)
        self._started = True
        self.display.started()
        self.engine.start(self.commands_of(spec, self._cpus))

    def _find_places(self, tasks: Sequence[TaskId]) -> None:
        """Asks for places during the run: for tasks that have joined it, or have ended and start again."""
        for task in tasks:
            self._homeless[task] = time.monotonic() + self.limits.start_s
            self._outputs[task] = self._outputs.get(task) or self._output_of(task)
        for task in tasks:
            if task in self._homeless:  # else it was told to end when another one found no place
                self._find_place(task)

    def _find_place(self, task: TaskId) -> None:
        try:
            self.engine.add([self.request_of(task)])
        except EngineError as error:
            self._say(str(error), "ERROR", task)
            self._has_no_place(task)

    def _has_no_place(self, task: TaskId) -> None:
        self.engine.withdraw(task)
        self.ended(task, ExitCode.NOT_STARTED)

    def _start_later(self) -> None:
        """Starts the tasks that have got places during the run.

        It starts one after the other: if one cannot be started, the others run, or have been told to end before.
        """
        if not self._ready:
            return
        spec = self._spec()
        self._say("starting " + some(f"{task} at {self._places[task]}" for task in self._ready))
        self.on_places(spec)
        while self._ready:
            task = self._ready.pop(0)
            try:
                self.engine.start(self.commands_of(self._spec(task), {task: self._cpus[task]}))
            except OSError as error:
                self._say(f"Could not start {task}: {error}", "ERROR", task)
                self._has_no_place(task)

    def _dismiss(self, tasks: Sequence[TaskId]) -> None:
        """Asks tasks to leave the run, while the others go on."""
        self._leaving |= dict.fromkeys(tasks, time.monotonic() + self.limits.grace_s)
        self._signal(tasks, signal.SIGTERM)

    def _signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        """Signals tasks. One that has not been started yet has ended therewith."""
        idle = [task for task in tasks if task in self._homeless or task in self._ready]
        self.engine.signal([task for task in tasks if task not in idle], signum)
        for task in idle:
            self._ready = [other for other in self._ready if other != task]
            self.engine.withdraw(task)
            self.ended(task, -signum)

    def _wait(self, until: float | None = None) -> None:
        self._start_later()
        if self._finish is not None:
            return
        later = [at for at in (*self._homeless.values(), *self._leaving.values()) if at < math.inf]
        later += [output.due for output in self._unshown.values() if output.due is not None]
        deadlines = [at for at in (self._limit_at, self._grace_at, until, *later) if at is not None]
        timeout = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        self._hold_output()
        for key, _ in self._selector.select(timeout):
            if self._selector.get_map().get(key.fd) is key:  # else what came before it has ended its task
                key.data()
        if self.sink.broken and not self._sink_reported:
            self._sink_reported = True
            self._dispatch(SignalReceived(signal.SIGPIPE))
        self._check_deadlines()

    def _hold_output(self) -> None:
        """Lets the tasks wait while nobody reads their output. When they are to end, they wait no more."""
        is_running = self.supervision.phase is TaskPhase.RUNNING
        self.sink.may_lose = not is_running
        if self._holds != (self.sink.is_full and is_running):
            self._holds = not self._holds
            self.engine.hold_output(self._holds)

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for task, output in list(self._unshown.items()):
            if output.due is not None and now >= output.due:
                with self.display.cleared():
                    output.show()
            if output.due is None:
                del self._unshown[task]
        if self._limit_at is not None and now >= self._limit_at:
            self._limit_at = None
            self._dispatch(TimeLimitReached(self.limits.time_limit_s or 0.0))
        if self._grace_at is not None and now >= self._grace_at:
            self._grace_at = None
            self._dispatch(GraceExpired())
        for task in [task for task, at in self._leaving.items() if now >= at]:
            self._leaving[task] = math.inf
            self._say(f"{task} did not leave within the grace time; killing it.", "WARNING", task)
            self.engine.signal([task], signal.SIGKILL)
        for task in [task for task, at in self._homeless.items() if now >= at]:
            self._say(f"{task} has found no place within {self.limits.start_s:g} s.", "ERROR", task)
            self._has_no_place(task)

    def _take_signals(self, signals: socket.socket) -> None:
        for signum in signals.recv(4096):
            if signum == signal.SIGCHLD:
                self.engine.reap()
            else:
                self._dispatch(SignalReceived(signum))

    # ---------------------------------------------------------------- events of the engine

    def placed(self, task: TaskId, address: str, cpus: int) -> None:
        """See `Events.placed`."""
        self.display.placed(task)
        self._places[task] = address
        self._cpus[task] = cpus
        if self._homeless.pop(task, None) is not None:
            self._ready.append(task)

    def output(self, task: TaskId, data: bytes) -> None:
        """See `Events.output`."""
        output = self._outputs[task]
        with self.display.cleared():
            output.feed(data, time.monotonic())
        if output.due is not None:
            self._unshown[task] = output
        self._hold_output()  # at once: other tasks' output may be next

    def joined(self, task: TaskId, joined: bool) -> None:
        """See `Events.joined`."""
        self._dispatch(ServerJoined(task, joined))

    def progress(self, task: TaskId, words: str) -> None:
        """See `Events.progress`."""
        if words in (MEETS, MEETS_ELASTIC):
            self._dispatch(TaskMet(task, elastic=words == MEETS_ELASTIC))
        else:
            self.display.told(task, words)

    def ended(self, task: TaskId, returncode: int) -> None:
        """See `Events.ended`."""
        self._homeless.pop(task, None)
        self.display.ended(task)
        self._outputs[task].end()
        if self._leaving.pop(task, None) is not None:
            self.engine.withdraw(task)
        self._dispatch(TaskExited(task, returncode))

    def note(self, text: str, task: TaskId | None = None) -> None:
        """See `Events.note`."""
        self._say(text, "INFO" if task is None else "WARNING", task)

    def _say(self, text: str, level: str = "INFO", task: TaskId | None = None) -> None:
        self.say(PrintNote(text, level, task))

    def broken(self, reason: str) -> None:
        """See `Events.broken`."""
        self._broken = self._broken or reason

    def _dispatch(self, event: Event) -> None:
        if not self._started:  # there is no task yet that could get a signal
            self._finish = _finish_before_start(event)
            return
        instructions = self.supervision.handle(event)
        self._hold_output()  # tasks that are to end may have to write before
        self._carry_out(instructions)

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendSignal(tasks, signum):
                    self._signal(tasks, signum)
                case StartTasks(tasks):
                    self._find_places(tasks)
                case Dismiss(tasks):
                    self._dismiss(tasks)
                case StartGrace():
                    self._grace_at = time.monotonic() + self.limits.grace_s
                case PrintNote():
                    self.say(instruction)
                case RunOver():
                    self._finish = instruction


def _finish_before_start(event: Event) -> RunOver:
    match event:
        case SignalReceived(signum):
            return RunOver(128 + signum, None, f"ended by {signal.Signals(signum).name} before all tasks had a place")
        case TimeLimitReached(limit_s):
            return RunOver(ExitCode.TIMED_OUT, None, f"timed out after {limit_s:g} s, before all tasks had a place")
    raise ValueError(f"{event} before the tasks have started")


# ---- The key of a run: only the tasks of the run can connect to its servers ----------------------------------------


@contextmanager
def key_of_run() -> Iterator[str]:
    """Yields the path of the secret file with a new key; "" if the user has chosen keys, or to do without."""
    if os.environ.get(KEYS_ENV) or os.environ.get(INSECURE_ENV) == "1":
        yield ""
        return
    with keys_in_memory() as path:
        yield path
