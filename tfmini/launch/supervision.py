"""The decisions of `tfmini launch` about its tasks: a state machine without processes or clock.

`Supervision.handle` takes events and returns instructions, which a driver carries out in order.

* The tasks of `SERVICE_JOBS` (ps) are services; all others are working tasks. When every working task has ended with
  exit code 0, the services are stopped and the run has succeeded. A cluster of services only runs until they end.
* The first task that fails decides the run: all other tasks are stopped, and its exit code is the run's. With
  `keep_going`, the other working tasks finish first if a working task fails. A service that ends with exit code 0
  has not failed (scripts stop their ps through queues); any other end of a service fails the run, also with
  `keep_going`.
* A working task that was told to end by somebody else, and has left in good order, has not failed: the others go on.
* A task that a signal has killed, that is lost with its host, or that was told to end by somebody else is started again
  so many times as `restarts` says. One whose script has failed is not: it would fail again.
* A rank of a collective is not started again when it could only wait: when another rank has ended with exit code 0, or
  in an elastic group the leader. The work is done then, and the rank has not failed. One that was started again before,
  and has not met the others yet, is stopped.
* `scale` lets workers join and leave a run. One that has joined late does not fail the run; one that leaves may end as
  it likes. `add_services` lets ps join it.
* A task inside `Server.join` counts as a service as long as it is there: in-graph scripts have all workers but one
  there. When the last working task has ended with exit code 0, it is stopped with the services. If all tasks are
  inside `Server.join` and none has ended, the run continues, since clients may come from outside.
* An evaluator is a working task: it ends by itself when it has evaluated the last step of the training.
* Whatever ends a run early (a failed task, a signal, the time limit), the working tasks are told first, by SIGTERM, or
  by SIGINT after a SIGINT. The services are stopped when all of them have ended: a chief saves its checkpoint, and
  the variables are there. A second signal kills all tasks.
* A task that has not ended within the grace time after a request is killed.
"""

from __future__ import annotations

import collections
import enum
import itertools
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tfmini.exit_codes import ExitCode

SERVICE_JOBS = frozenset({"ps"})
WORKER_JOB, PS_JOB, EVALUATOR_JOB = "worker", "ps", "evaluator"
_MOST_MORE = 256  # ps that join at once

_RANK_JOBS = {job: place for place, job in enumerate(("chief", "master", "worker"))}


class TaskId(NamedTuple):
    """A task of the launched cluster; prints as `worker/0`."""

    job: str
    task: int

    def __str__(self) -> str:
        return f"{self.job}/{self.task}"


# ---------------------------------------------------------------- events


@dataclass(frozen=True)
class TaskExited:
    """A process has ended. `returncode` is its exit code, or minus the signal that killed it."""

    task: TaskId
    returncode: int


@dataclass(frozen=True)
class ServerJoined:
    """A task has called `Server.join`, or has left it (`joined` is false)."""

    task: TaskId
    joined: bool


@dataclass(frozen=True)
class TaskMet:
    """A task has met others in a collective, so it is a rank. In an elastic group the others can go on without it."""

    task: TaskId
    elastic: bool


@dataclass(frozen=True)
class SignalReceived:
    """The launcher itself has received a signal to end (Ctrl-C, SIGTERM, a closed terminal or pipe)."""

    signum: int


@dataclass(frozen=True)
class TimeLimitReached:
    """The user's time limit of the run (`limit_s` seconds) is over."""

    limit_s: float


@dataclass(frozen=True)
class GraceExpired:
    """The grace time started by the latest `StartGrace` is over."""


Event = TaskExited | ServerJoined | TaskMet | SignalReceived | TimeLimitReached | GraceExpired


# ---------------------------------------------------------------- instructions


@dataclass(frozen=True)
class SendSignal:
    """Send `signum` to the process groups of these tasks."""

    tasks: tuple[TaskId, ...]
    signum: int


@dataclass(frozen=True)
class StartGrace:
    """Start the grace time; replaces a running one."""


@dataclass(frozen=True)
class PrintNote:
    """Print a message.

    Attributes:
      level: of the log (``--log-json``).
      task, returncode: the task that it is about, and how its process has ended.
    """

    text: str
    level: str = field(default="INFO", compare=False)
    task: TaskId | None = field(default=None, compare=False)
    returncode: int | None = field(default=None, compare=False)

    def facts(self) -> dict[str, str | int]:
        """What a program reads of it: ``level``, and where they are known ``task``, ``exit_code`` and ``signal``."""
        found: dict[str, str | int] = {"level": self.level}
        if self.task is not None:
            found["task"] = str(self.task)
        if self.returncode is not None:
            found["exit_code"] = exit_code(self.returncode)
            if self.returncode < 0:
                found["signal"] = describe_exit(self.returncode).rpartition(" ")[2]
        return found


@dataclass(frozen=True)
class RunOver:
    """Every process has ended. `failed` is the first task that failed; `summary` is empty after success."""

    exit_code: int
    failed: TaskId | None
    summary: str


@dataclass(frozen=True)
class StartTasks:
    """Find places for these tasks, which are new or have ended, and start them."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True)
class Dismiss:
    """Send SIGTERM to these tasks, and SIGKILL after a grace time of their own; give their places back at their end."""

    tasks: tuple[TaskId, ...]


Instruction = SendSignal | StartGrace | PrintNote | RunOver | StartTasks | Dismiss


class ScaleError(Exception):
    """The run cannot get that number of workers. The text says why."""


class TaskPhase(enum.Enum):
    """The phase of a run. Phases advance in this order."""

    RUNNING = "running"
    WORKERS_ENDING = "the working tasks have received a signal, the services have not"
    STOPPING = "all remaining tasks have received a signal to end"
    KILLING = "all remaining tasks have received SIGKILL"
    FINISHED = "finished"


@dataclass(frozen=True)
class _Verdict:
    exit_code: int
    failed: TaskId | None
    summary: str


def describe_exit(returncode: int) -> str:
    """`exit code 3`, or `killed by SIGKILL`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def exit_code(returncode: int) -> int:
    """A shell's exit code of a process: 128 and the number of the signal that killed it."""
    return returncode if returncode >= 0 else 128 - returncode


_NAMED = 12  # tasks in a message, at most; of more, the first and the last


def some(tasks: Iterable[object]) -> str:
    """Tasks, or texts about one each, for a message: of many, the first and the last."""
    names = list(map(str, tasks))
    return ", ".join(names) if len(names) <= _NAMED else f"{names[0]} … {names[-1]} ({len(names):,} tasks)"


def _worker(index: int) -> TaskId:
    return TaskId(WORKER_JOB, index)


class Supervision:
    """The decisions of one run. Pass events in the order in which they happened.

    Args:
      keep_going: when a working task fails, the others finish first.
      restarts: how often each task is started again.
      most_workers: how many the run may be scaled to; None: any number.
    """

    def __init__(
        self, tasks: Iterable[TaskId], *, keep_going: bool = False, restarts: int = 0, most_workers: int | None = None
    ) -> None:
        self._most_workers = most_workers
        self._alive: dict[TaskId, None] = dict.fromkeys(tasks)  # a set that keeps the order for messages
        if not self._alive:
            raise ValueError("A cluster needs at least one task.")
        self._serves = {task for task in self._alive if task.job in SERVICE_JOBS}
        if len(self._serves) == len(self._alive):
            self._serves = set()
        self._joined: set[TaskId] = set()  # working tasks inside `Server.join`
        self._work_done = False  # whether a working task has ended with exit code 0
        self._keep_going = keep_going
        self._restarts = restarts
        self._restarted: collections.Counter[TaskId] = collections.Counter()
        self._ranks: dict[TaskId, bool] = {}  # whether their group is elastic
        self._leader = min(self._alive, key=lambda task: (_RANK_JOBS.get(task.job, len(_RANK_JOBS)), task.task))
        self._finished_ranks: set[TaskId] = set()
        self._back: set[TaskId] = set()  # ranks that were started again and have not met the others since
        self._late: set[TaskId] = set()  # working tasks that have joined the run
        self._dismissed: set[TaskId] = set()
        self._verdict: _Verdict | None = None
        self.phase = TaskPhase.RUNNING

    def handle(self, event: Event) -> list[Instruction]:
        """Handles one event; returns the instructions in order.

        Raises:
          ValueError: a task exits that is not running.
        """
        match event:
            case TaskExited(task, returncode):
                return self._task_exited(task, returncode)
            case ServerJoined(task, joined):
                return self._task_joined(task, joined)
            case TaskMet(task, elastic):
                self._ranks[task] = elastic
                self._back.discard(task)
                return []
            case SignalReceived(signum):
                return self._signal_received(signum)
            case TimeLimitReached(limit_s):
                return self._time_limit_reached(limit_s)
            case GraceExpired():
                return self._grace_expired()

    def _working(self) -> list[TaskId]:
        return [task for task in self._alive if task not in self._serves and task not in self._joined]

    def _task_joined(self, task: TaskId, joined: bool) -> list[Instruction]:
        if task not in self._alive or task in self._serves:
            return []
        if not joined:
            self._joined.discard(task)
            return []
        self._joined.add(task)
        if self._working() or self.phase not in (TaskPhase.RUNNING, TaskPhase.WORKERS_ENDING):
            return []
        if self._work_done or self.phase is TaskPhase.WORKERS_ENDING:
            return self._stop_all()
        return [PrintNote("Every task is inside server.join(): the cluster runs until you end it (Ctrl-C).")]

    def _task_exited(self, task: TaskId, returncode: int) -> list[Instruction]:
        if task not in self._alive:
            raise ValueError(f"{task} is not running")
        if self._comes_back(task, returncode):
            return self._start_again(task, returncode)
        del self._alive[task]
        done: list[Instruction] = []
        if self.phase is TaskPhase.RUNNING:
            done += self._judge(task, returncode)
            self._back.discard(task)
            done += self._release_stranded()
        self._joined.discard(task)  # a later worker of this number has not joined
        if not self._alive:
            return [*done, self._finish()]
        over = self._work_done or self._joined.isdisjoint(self._alive)
        if not self._working() and (self.phase is TaskPhase.WORKERS_ENDING or self.phase is TaskPhase.RUNNING and over):
            done += self._stop_all()
        return done

    def _judge(self, task: TaskId, returncode: int) -> list[Instruction]:
        """Handles the end of a task in the phase `RUNNING`."""
        working = self._working()
        others = f"{some(working)} still running" if working else "the others have finished"
        spared = bool(working) or self._work_done  # whether the run needs this task no more
        if task in self._dismissed and spared:
            self._dismissed.discard(task)
            return [PrintNote(f"{task} has left the run, as asked.", "INFO", task, returncode)]
        if task in self._late and returncode != 0 and spared:
            text = f"{task}, which had joined the run, failed ({describe_exit(returncode)}); {others}."
            return [PrintNote(text, "WARNING", task, returncode)]
        if returncode == ExitCode.LEFT and task not in self._serves and spared:
            text = f"{task} was told to end (SIGTERM) and has left; {others}."
            return [PrintNote(text, "INFO", task, returncode)]
        if self._comes_too_late(task, returncode):
            how = f"{task} ended ({describe_exit(returncode)}) when the ranks that it needs had finished"
            text = f"{how}: it is not started again, and has not failed the run; {others}."
            return [PrintNote(text, "WARNING", task, returncode)]
        if returncode != 0:
            return self._task_failed(task, returncode)
        if task in self._ranks:
            self._finished_ranks.add(task)
        if task in self._serves and working:
            text = f"{task} has ended (exit code 0); {some(working)} still running."
            return [PrintNote(text, "INFO", task, returncode)]
        if task not in self._serves and task not in self._joined:
            self._work_done = True
        if working and all(other.job == EVALUATOR_JOB for other in working):
            return [PrintNote(f"The training has ended; {some(working)} may have its last checkpoint to evaluate.")]
        return []

    def _comes_back(self, task: TaskId, returncode: int) -> bool:
        lost = returncode < 0 or returncode == ExitCode.LEFT
        allowed = self.phase is TaskPhase.RUNNING and task not in self._dismissed and not self._could_only_wait(task)
        return lost and allowed and self._restarted[task] < self._restarts

    def _could_only_wait(self, task: TaskId) -> bool:
        """Whether a rank would wait for others that have finished, if it was started again."""
        if not self._ranks.get(task, False):
            return task in self._ranks and bool(self._finished_ranks)
        others = self._ranks.keys() - {task}
        return self._leader in self._finished_ranks or others <= self._finished_ranks

    def _release_stranded(self) -> list[Instruction]:
        """Stops ranks that were started again when the others were about to finish: nobody can tell them."""
        stranded = tuple(task for task in self._alive if task in self._back and self._could_only_wait(task))
        if not stranded or self.phase is not TaskPhase.RUNNING:
            return []
        self._back.difference_update(stranded)
        self._dismissed.update(stranded)
        return [PrintNote(f"the ranks that {some(stranded)} would wait for have finished."), Dismiss(stranded)]

    def _comes_too_late(self, task: TaskId, returncode: int) -> bool:
        """Whether a rank has only missed the end: it was killed when it might have been started again, or it was.

        Having come back, the rank of an elastic group finds that its leader has ended, which is an error there.
        """
        if returncode == 0 or not self._could_only_wait(task):
            return False
        return self._restarts > 0 if returncode < 0 else self._ranks[task] and self._restarted[task] > 0

    def _start_again(self, task: TaskId, returncode: int) -> list[Instruction]:
        self._restarted[task] += 1
        if task in self._ranks:
            self._back.add(task)
        self._joined.discard(task)
        how = "was told to end (SIGTERM)" if returncode == ExitCode.LEFT else f"was {describe_exit(returncode)}"
        count = f"{self._restarted[task]} of {self._restarts}"
        note = PrintNote(f"{task} {how}; starting it again ({count}).", "WARNING", task, returncode)
        return [note, StartTasks((task,))]

    def scale(self, workers: int) -> list[Instruction]:
        """Lets workers join the run, or leave it, until so many are there.

        Raises:
          ScaleError: this run cannot get that number of workers now.
        """
        present = sorted(task for task in self._alive if task.job == WORKER_JOB and task not in self._dismissed)
        self._check_scale(workers, present)
        if len(present) > workers:
            leaving = tuple(present[workers:])
            self._dismissed.update(leaving)
            return [PrintNote(f"asking {some(leaving)} to leave the run."), Dismiss(leaving)]
        free = (task for task in map(_worker, itertools.count()) if task not in self._alive)
        joining = tuple(itertools.islice(free, workers - len(present)))
        if not joining:
            return [PrintNote(f"{workers} workers are there already.")]
        self._alive.update(dict.fromkeys(joining))
        self._late.update(joining)
        return [PrintNote(f"starting {some(joining)}, to join the run."), StartTasks(joining)]

    def add_services(self, more: int) -> list[Instruction]:
        """Starts further ps, which serve like the others.

        Raises:
          ScaleError: this run cannot get them now.
        """
        if self.phase is not TaskPhase.RUNNING or self._work_done:
            raise ScaleError("the run is ending.")
        if not self._serves:
            raise ScaleError("it has no ps beside workers.")
        if not 0 < more <= _MOST_MORE:
            raise ScaleError(f"between 1 and {_MOST_MORE} ps can join at once.")
        last = max(task.task for task in self._numbered_services())
        joining = tuple(TaskId(PS_JOB, last + 1 + i) for i in range(more))
        self._alive.update(dict.fromkeys(joining))
        self._serves.update(joining)
        return [PrintNote(f"starting {some(joining)}, to take variables."), StartTasks(joining)]

    def _numbered_services(self) -> list[TaskId]:
        """The ps that there are or have been: no number is used twice."""
        return [task for task in self._serves if task.job == PS_JOB]

    def _check_scale(self, workers: int, present: list[TaskId]) -> None:
        if self.phase is not TaskPhase.RUNNING or self._work_done:
            raise ScaleError("the run is ending.")
        if not present:
            raise ScaleError("it has no workers of its own: its clients come from outside.")
        if self._most_workers is not None and workers > self._most_workers:
            raise ScaleError(f"this machine has too few cores; at most {self._most_workers} workers may share them.")
        if workers < 1:
            raise ScaleError("one worker must stay.")
        if joined := [task for task in present if task in self._joined]:
            raise ScaleError(f"{some(joined)} serves inside server.join(), as the graph of another task needs it.")

    def _task_failed(self, task: TaskId, returncode: int) -> list[Instruction]:
        how = describe_exit(returncode)
        if self._verdict is None:
            self._verdict = _Verdict(exit_code(returncode), task, f"{task} failed first: {how}")
        others = [other for other in self._working() if other != task]
        if self._keep_going and task not in self._serves and others:
            return [PrintNote(f"{task} failed ({how}); continuing with {some(others)}.", "ERROR", task, returncode)]
        if not self._alive:
            return []
        note = PrintNote(f"{task} failed ({how}); stopping {some(self._alive)}.", "ERROR", task, returncode)
        return [note, *self._end_early()]

    def _end_early(self, signum: int = signal.SIGTERM) -> list[Instruction]:
        """Tells the working tasks to end; the services follow when there are none."""
        working = self._working()
        if not working:
            return self._stop_all()
        self.phase = TaskPhase.WORKERS_ENDING
        return [SendSignal(tuple(working), signum), StartGrace()]

    def _stop_all(self) -> list[Instruction]:
        joined = [task for task in self._alive if task in self._joined]
        notes: list[Instruction] = []
        if joined and self.phase is TaskPhase.RUNNING and self._verdict is None:
            notes = [PrintNote(f"The working tasks have finished; stopping {some(joined)} inside server.join().")]
        self.phase = TaskPhase.STOPPING
        return [*notes, SendSignal(tuple(self._alive), signal.SIGTERM), StartGrace()]

    def _kill_all(self) -> list[Instruction]:
        self.phase = TaskPhase.KILLING
        return [SendSignal(tuple(self._alive), signal.SIGKILL)]

    def _signal_received(self, signum: int) -> list[Instruction]:
        if self.phase is not TaskPhase.RUNNING:
            return self._kill_all() if self._alive else []
        name = signal.Signals(signum).name
        if self._verdict is None:
            self._verdict = _Verdict(128 + signum, None, f"ended by {name}")
        # Scripts handle SIGINT as the launcher does; all other signals become SIGTERM.
        forwarded = signal.SIGINT if signum == signal.SIGINT else signal.SIGTERM
        return [PrintNote(f"{name}: ending the cluster.", "WARNING"), *self._end_early(forwarded)]

    def _time_limit_reached(self, limit_s: float) -> list[Instruction]:
        if self.phase is not TaskPhase.RUNNING:
            return []  # the grace time of the remaining tasks is already running
        running = some(self._alive)
        if self._verdict is None:
            self._verdict = _Verdict(
                ExitCode.TIMED_OUT, None, f"timed out after {limit_s:g} s; still running then: {running}"
            )
        note = PrintNote(f"The time limit of {limit_s:g} s is over; stopping {running}.", "ERROR")
        return [note, *self._end_early()]

    def _grace_expired(self) -> list[Instruction]:
        if self.phase not in (TaskPhase.WORKERS_ENDING, TaskPhase.STOPPING):
            return []
        note = PrintNote(f"{some(self._alive)} did not end within the grace time; killing.", "WARNING")
        return [note, *self._kill_all()]

    def _finish(self) -> RunOver:
        self.phase = TaskPhase.FINISHED
        verdict = self._verdict or _Verdict(0, None, "")
        return RunOver(verdict.exit_code, verdict.failed, verdict.summary)
