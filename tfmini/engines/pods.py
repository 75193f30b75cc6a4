"""What the pods of a JobSet say about the tasks of a run: decisions without I/O.

`PodBook.look` takes what the API server says of the pods, and returns what follows for the run. Pods are dictionaries,
as in the answers of the API server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini.tools.supervision import TaskId

Pod = Mapping[str, Any]
JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_NOT_KNOWN = "~"  # behind all times
_KILLED = (137, 143)
_GONE = 137  # the exit code of a pod that was deleted before it said one
_ORDINARY = frozenset({"ContainerCreating", "PodInitializing"})  # reasons to wait for a container


@dataclass(frozen=True)
class Placed:
    """The task has a node."""

    task: TaskId
    node: str


@dataclass(frozen=True)
class Follow:
    """The output of a pod is to be read; if it was read before, from there on."""

    task: TaskId
    pod: str


@dataclass(frozen=True)
class Ended:
    """The task has ended, its output has been read."""

    task: TaskId
    returncode: int


@dataclass(frozen=True)
class Told:
    """Something that the user should read."""

    text: str


Finding = Placed | Follow | Ended | Told


@dataclass
class _Task:
    """What is known of a task: which pod it has, and what has become of that."""

    attempt: int = -1
    pod: str = ""
    code: int | None = None
    finished: str = _NOT_KNOWN
    reading: bool = False
    read_after_end: bool = False
    reported: bool = False


class PodBook:
    """Turns what pods say into events of a run.

    The ends of tasks are reported when they are final: the JobSet starts all of them again when one fails, up to
    ``restarts`` times.
    """

    def __init__(self, tasks: Sequence[TaskId], restarts: int = 0) -> None:
        self._tasks = {task: _Task() for task in tasks}
        self._restarts = restarts
        self._attempt = 0
        self._placed: set[TaskId] = set()
        self._said: set[str] = set()
        self._ending = False

    def end(self) -> None:
        """The run is ending: nothing starts again."""
        self._ending = True

    @property
    def missing(self) -> list[TaskId]:
        """The tasks that have had no node so far."""
        return [task for task in self._tasks if task not in self._placed]

    def pod_of(self, task: TaskId) -> str:
        """The pod that a task has or had last; "" if it had none."""
        return self._tasks[task].pod

    def log_ended(self, task: TaskId, pod: str) -> None:
        """The output of a pod has been read up to what was its end then."""
        found = self._tasks[task]
        if found.pod == pod:
            found.reading = False
            found.read_after_end = found.code is not None

    def look(self, pods: Sequence[Pod], over: bool = False) -> list[Finding]:
        """What follows from all pods of the JobSet. ``over``: it has succeeded or failed, and starts nothing again."""
        findings: list[Finding] = []
        for pod in sorted(pods, key=lambda pod: _attempt_of(pod)):
            task = _task_of(pod)
            if task in self._tasks and _attempt_of(pod) >= self._tasks[task].attempt:
                findings += self._see(task, pod)
        there = {pod["metadata"]["name"] for pod in pods}
        for known in self._tasks.values():
            _miss(known, known.pod in there, over or self._ending)
        return findings + list(self._ends(over or self._ending))

    def _see(self, task: TaskId, pod: Pod) -> Iterator[Finding]:
        known, name, attempt = self._tasks[task], pod["metadata"]["name"], _attempt_of(pod)
        if attempt > self._attempt:
            self._attempt = attempt
            yield Told(f"the JobSet has started all tasks again ({attempt} of {self._restarts}).")
        if name != known.pod:
            self._tasks[task] = known = _Task(attempt, name, reported=known.reported)
        if pod.get("spec", {}).get("nodeName") and task not in self._placed:
            self._placed.add(task)
            yield Placed(task, pod["spec"]["nodeName"])
        yield from self._complaints(task, pod)
        state = _state_of(pod)
        if "terminated" in state and known.code is None:
            known.code, known.read_after_end = int(state["terminated"]["exitCode"]), False
            known.finished = state["terminated"].get("finishedAt") or _NOT_KNOWN
            if state["terminated"].get("reason") == "OOMKilled":
                yield Told(f"{task} was killed because it used more memory than it may.")
        elif pod.get("status", {}).get("phase") == "Failed" and known.code is None and "running" not in state:
            known.code = _GONE  # evicted, say: it has never had a container
            yield from self._once(task, str(pod["status"].get("reason", "")), str(pod["status"].get("message", "")))
        if ("running" in state or (known.code is not None and not known.read_after_end)) and not known.reading:
            known.reading = True
            yield Follow(task, name)

    def _complaints(self, task: TaskId, pod: Pod) -> Iterator[Told]:
        """Why a pod waits for a node or for its image."""
        for condition in pod.get("status", {}).get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                yield from self._once(task, condition.get("reason", ""), condition.get("message", ""))
        waiting = _state_of(pod).get("waiting") or {}
        if waiting.get("reason") not in _ORDINARY | {None}:
            yield from self._once(task, waiting["reason"], waiting.get("message", ""))

    def _once(self, task: TaskId, reason: str, message: str) -> Iterator[Told]:
        if f"{task} {reason}" not in self._said:
            self._said.add(f"{task} {reason}")
            yield Told(f"{task}: {reason}: {message}" if message else f"{task}: {reason}")

    def _ends(self, final: bool) -> Iterator[Finding]:
        """The ends of tasks, in their order: the first failure is the cause of the others, which were killed for it."""
        ended = {task: known for task, known in self._tasks.items() if known.code is not None and not known.reported}
        for task in sorted(ended, key=lambda task: (ended[task].finished, ended[task].code in _KILLED)):
            known = ended[task]
            starts_again = known.attempt < self._restarts and not final
            if not known.read_after_end or known.reading or starts_again:
                return
            known.reported = True
            yield Ended(task, known.code if known.code is not None else _GONE)


def _miss(known: _Task, is_there: bool, final: bool) -> None:
    """Takes note that a pod is gone, or will never come."""
    if is_there or not (known.pod or final):
        return
    known.read_after_end = True  # there is nothing left to read
    if known.code is None and final:
        known.code = _GONE


def is_over(jobset: Mapping[str, Any]) -> bool:
    """Whether a JobSet has succeeded or failed."""
    conditions = jobset.get("status", {}).get("conditions") or []
    return any(each["type"] in ("Completed", "Failed") and each["status"] == "True" for each in conditions)


def _task_of(pod: Pod) -> TaskId:
    labels, notes = pod["metadata"].get("labels") or {}, pod["metadata"].get("annotations") or {}
    index = str(labels.get(INDEX_LABEL, notes.get(INDEX_LABEL, "")))  # a label since Kubernetes 1.28
    return TaskId(labels.get(JOB_LABEL, ""), int(index) if index.isdecimal() else -1)


def _attempt_of(pod: Pod) -> int:
    found = str((pod["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, "0"))
    return int(found) if found.isdecimal() else 0


def _state_of(pod: Pod) -> Mapping[str, Any]:
    """{"waiting" or "running" or "terminated": …} of the only container; {} before it has a state."""
    containers = pod.get("status", {}).get("containerStatuses") or [{}]
    return {kind: each for kind, each in (containers[0].get("state") or {}).items() if each is not None}
