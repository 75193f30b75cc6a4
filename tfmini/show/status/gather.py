"""Asks the tasks of a cluster for their snapshots, all at once, within a bound."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tfmini import errors
from tfmini.export import export
from tfmini.jobs import Job, job_at, jobs_called, names_of, running_jobs
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.keys import Keys, load_keys
from tfmini.rpc.messages import GetTaskStatus, TraceStep
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.snapshot import SILENT, ClusterSnapshot, TaskSnapshot, from_json
from tfmini.text import printable

ANSWER_S = 0.8
_FIRST_S = 4.0  # longer, where not even one task has answered: this machine may be busy
_RATES_S = 0.35  # between two questions, where the first one found no rates
_TRACE_ANSWER_S = 30.0  # for the records of all tasks, after the step
_SCHEMES = ("zmq://", "grpc://", "tcp://")


@export("tf.cluster_status")
def gather(
    target: str, *, tasks: Mapping[str, str] | None = None, stacks: bool = False, rates: bool = True,
    timeout_s: float = ANSWER_S, keys: Keys | None = None,
) -> ClusterSnapshot:  # fmt: skip
    """What the tasks of a running cluster do now: all that `tfmini status --json` prints, as typed values.

    Args:
      target: any server of the cluster, ``host:port``; or a job of `tfmini launch`: its name, script or process id.
      tasks: full task name -> address, as far as they are known before the target has answered.
      stacks: with the Python stacks of all threads.
      rates: ask twice if a task has no rates yet.
      timeout_s: a task that has not answered by then is silent.
      keys: the cluster's; None: those of this process, or of the job.

    Raises:
      errors.UnavailableError: no task answers.
      errors.OpError: there is no such job, or several; the target refuses: its key or its version is another one.
    """
    with Gatherer(target, tasks=tasks, keys=keys) as gatherer:
        return gatherer.gather(stacks=stacks, rates=rates, timeout_s=timeout_s)


class Gatherer:
    """Asks one cluster. Its connections stay open between questions; methods may be called from any thread.

    Args:
      target: any server of the cluster: ``host:port``, with or without ``zmq://`` or ``grpc://``; or a running job of
        `tfmini launch`: its name, its script or its launcher's process id.
      tasks: full task name -> address, as far as they are known before the target has answered.
      keys: the cluster's. None: as servers and sessions of this process have; but those of the job, if ``target`` means
        one and ``tasks`` is None.

    Raises:
      errors.NotFoundError: no job of that name runs.
      errors.InvalidArgumentError: several do.

    Attributes:
      endpoint: with its connections, for other questions to the cluster.
    """

    def __init__(self, target: str, *, tasks: Mapping[str, str] | None = None, keys: Keys | None = None) -> None:
        job = _job_of(target) if tasks is None and keys is None else None
        if job is not None:
            tasks, keys = job.tasks, load_keys(job.key_file) if job.key_file else None
            target = target if ":" in target else next(iter(job.tasks.values()))
        self.target = target
        self._address = next((target[len(s) :] for s in _SCHEMES if target.startswith(s)), target)
        self._tasks = dict(tasks or {})
        self.endpoint = Endpoint(get_reactor(), "", secrets.randbits(62) | 1, keys=keys, lanes=False)
        self._one_at_a_time = threading.Lock()

    def gather(self, *, stacks: bool = False, rates: bool = False, timeout_s: float = ANSWER_S) -> ClusterSnapshot:
        """All tasks as they are now. One that does not answer in time is `SILENT`.

        Args:
          stacks: with the Python stacks of all threads.
          rates: ask again after a moment if a task has no rates, because this is the first question to it.

        Raises:
          errors.UnavailableError: no task answers.
          errors.OpError: the target refuses: its key is another one, or it runs another version.
        """
        with self._one_at_a_time:
            question = _Question(self.endpoint, dict(self._tasks), stacks, rates, timeout_s)
            began = time.monotonic()
            question.ask("" if self._address not in self._tasks.values() else None, self._address)
            reactor = get_reactor()
            if not reactor.drive(question.waiter, began + timeout_s) and not question.answers:
                reactor.drive(question.first, began + timeout_s + _FIRST_S)
            question.stop()
            if not question.answers:
                raise self._no_answer(question, timeout_s)
            self._tasks = dict(question.tasks)
        found = tuple(question.snapshot_of(task) for task in question.tasks)
        return ClusterSnapshot(self.target, time.time(), time.monotonic() - began, found)

    def trace(self, task: str, timeout_s: float = 30.0) -> bytes:
        """Traces the next training step of a task's sessions; returns a serialized StepStats.

        Args:
          task: full name of the task whose session runs the step; it was in a snapshot.

        Raises:
          errors.NotFoundError: there is no such task.
          errors.DeadlineExceededError: no such step has begun and ended in time.
          errors.OpError: the error of the step.
        """
        address = self._tasks.get(task)
        if address is None:
            raise errors.NotFoundError.of(f"The cluster at {self._address} has no task {task or 'without a name'}.")
        answered, answers = Waiter(), list[Any]()

        def take(answer: Any) -> None:
            answers.append(answer)
            answered.set()

        limit_s = timeout_s + _TRACE_ANSWER_S
        request = TraceStep(round(timeout_s * 1000))
        call = self.endpoint.peer(address, task).call(request, take, timeout_s=limit_s)
        if not get_reactor().drive(answered, time.monotonic() + limit_s + 1.0):
            call.cancel()
            raise errors.DeadlineExceededError.of(f"{task} has not answered within {limit_s:g} s.")
        if isinstance(answers[0], errors.OpError):
            raise answers[0]
        return bytes(answers[0].stats)

    def _no_answer(self, question: _Question, timeout_s: float) -> errors.OpError:
        refused = next((e for e in question.errors.values() if not isinstance(e, _USUAL)), None)
        if refused is not None:
            return refused
        why = next((e.message for e in question.errors.values()), f"no answer within {timeout_s + _FIRST_S:g} s")
        return errors.UnavailableError.of(
            f"No task of the cluster at {self._address} answers: {why.rstrip('.')}. Give the address of a server that"
            " runs, or the name of a job of `tfmini launch`."
        )

    def close(self) -> None:
        """Ends the connections."""
        self.endpoint.close("has been answered")

    def __enter__(self) -> Gatherer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _job_of(target: str) -> Job | None:
    """The running job that a target means; None for the address of a server that belongs to none."""
    jobs = running_jobs()
    if ":" in target:
        return job_at(target.rpartition("//")[2], jobs)
    found = jobs_called(target, jobs)
    if len(found) > 1:
        text = f"{len(found)} jobs are called {target}: give the name of one, {names_of(found)}."
        raise errors.InvalidArgumentError.of(text)
    if not found:
        known = f" The jobs are {names_of(jobs)}." if jobs else ""
        raise errors.NotFoundError.of(
            f"No job of `tfmini launch` called {target!r} runs here.{known} An address has the form HOST:PORT."
        )
    return found[0]


_USUAL = (errors.UnavailableError, errors.DeadlineExceededError, errors.CancelledError)


class _Question:
    """One round of questions to all tasks.

    Attributes:
      waiter: done when all have answered; ``first``: when one has.
      answers: by task; ``errors``: why there is none, by task ("": of the target, whose task is not known).
    """

    def __init__(self, endpoint: Endpoint, tasks: dict[str, str], stacks: bool, rates: bool, timeout_s: float) -> None:
        self.waiter, self.first = Waiter(), Waiter()
        self.tasks = tasks
        self.timeout_s = timeout_s
        self.answers: dict[str, TaskSnapshot] = {}
        self.errors: dict[str, errors.OpError] = {}
        self._endpoint = endpoint
        self._request = GetTaskStatus(stacks)
        self._rates = rates
        self._lock = threading.RLock()
        self._asked: set[str] = set()
        self._open = 0
        self._is_over = False

    def ask(self, first: str | None, address: str) -> None:
        """Begins: asks all known tasks, and the target (``first``) unless it is one of them."""
        with self._lock:
            self._open += 1  # until all have been asked
            for task, where in list(self.tasks.items()):
                self._ask(task, where)
            if first is not None:
                self._ask(first, address)
        self._closed_one()

    def stop(self) -> None:
        """Takes no more answers."""
        with self._lock:
            self._is_over = True

    def snapshot_of(self, task: str) -> TaskSnapshot:
        """The answer of a task, or why there is none."""
        found = self.answers.get(task)
        if found is not None:
            return found
        error = self.errors.get(task)
        why = (
            f"it has not answered within {self.timeout_s:g} s; it is starting or stopped, its interpreter is held, its"
            " machine is overloaded, or it is unreachable"
        )
        return TaskSnapshot(task, self.tasks[task], SILENT, why if error is None else error.message)

    def _ask(self, task: str, address: str) -> None:
        self._open += 1
        self._asked.add(task)
        try:
            peer = self._endpoint.peer(address, task or None)
        except errors.OpError as error:
            self._answered(task, error)
            return
        peer.call(self._request, lambda answer: self._answered(task, answer))

    def _answered(self, task: str, answer: Any) -> None:
        with self._lock:
            if self._is_over:
                return
            if isinstance(answer, errors.OpError):
                self.errors[task] = answer
            else:
                self._take(answer)
        if self.answers:
            self.first.set()
        self._closed_one()

    def _take(self, answer: Any) -> None:
        try:
            found = from_json(TaskSnapshot, answer.status, outside=True)
            tasks = {printable(task): printable(address) for task, address in answer.tasks.items()}
        except (ValueError, AttributeError) as error:
            self.errors[""] = errors.InternalError.of(f"a server gave an answer that cannot be read: {error}")
            return
        is_first = found.task not in self.answers
        self.answers[found.task] = found
        self.tasks.setdefault(found.task, tasks.get(found.task, found.address))
        self._asked.add(found.task)
        for task, address in tasks.items():
            self.tasks.setdefault(task, address)
            if task not in self._asked:
                self._ask(task, address)
        if is_first and self._rates and not found.window_s:
            self._open += 1
            get_reactor().call_later(_RATES_S, self._ask_again, found.task)

    def _ask_again(self, task: str) -> None:
        with self._lock:
            if not self._is_over:
                self._ask(task, self.tasks[task])
        self._closed_one()

    def _closed_one(self) -> None:
        with self._lock:
            self._open -= 1
            is_done = self._open == 0
        if is_done:
            self.waiter.set()
            self.first.set()


# ---- Numbers for people --------------------------------------------------------------------------------------------


def per_second(count: float) -> str:
    """``3.25``, ``54``, ``1,080``: so many a second."""
    return f"{count:.3g}" if count < 999.5 else f"{count:,.0f}"


def size(count: float) -> str:
    """``512 B``, ``3.2 MB``, …, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
