"""Tasks as pods of a JobSet: `tfmini launch --on kubernetes` submits what `tfmini manifest` prints, and follows it.

The engine submits in `reserve`; a task has a place when its pod has a node. A thread asks the API server for the pods,
each second, and carries out the requests to end; a thread per pod reads its output. The engine's own thread decides
(`tfmini.engines.pods`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import selectors
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.engines.kubernetes_api import ApiError, KubernetesCluster, create_all
from tfmini.engines.loop_calls import LoopCalls
from tfmini.engines.manifest import Deployment, Object, jobset, name_of
from tfmini.engines.pods import Ended, Follow, Placed, PodBook, Told, is_over
from tfmini.rpc.keys import KEYS_ENV, keys_in_memory
from tfmini.tools.engine import EngineError, EngineOptions, Events, TaskCommand, TaskRequest
from tfmini.tools.supervision import SERVICE_JOBS, TaskId
from tfmini.trusted_files import open_trusted

_EVERY_S = 1.0
_END_S = 40.0  # for the last requests
_SOON_S = 1  # the grace of a ps whose workers have ended: it has nothing to save


class KubernetesEngine:
    """Runs the tasks as pods. JobSet's controller starts them, starts them again as a whole, and ends the ps pods."""

    adds_tasks = False
    restarts_all = True

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._requests: dict[TaskId, TaskRequest] = {}
        self._objects: list[Object] = []
        self._alive: set[TaskId] = set()
        self._stamps: dict[str, str] = {}  # pod -> the timestamp of its last line that was read
        self._lines: dict[str, list[bytes]] = {}
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._calls: LoopCalls | None = None
        self._threads: list[threading.Thread] = []
        self._begun = False
        self._held: list[Ended] = []  # ends before the run has begun
        self._is_deleted = False
        self._is_silent = False  # the API server does not answer
        self._may_read = threading.Event()
        self._may_read.set()

    def reserve(self, requests: Sequence[TaskRequest], events: Events, selector: selectors.BaseSelector) -> None:
        """Submits the JobSet; see `Engine.reserve`."""
        self._events = events
        self._requests = {request.task: request for request in requests}
        self._alive = set(self._requests)
        self._book = PodBook(list(self._requests), self._options.restarts)
        self._cluster = KubernetesCluster(self._options.namespace)
        deployment = _deployment(requests, self._options, self._cluster.namespace)
        self._spec = deployment.cluster()
        objects = jobset(deployment)
        create_all(self._cluster, objects)
        self._objects = objects
        events.note(f"submitted the JobSet {deployment.name} in the namespace {self._cluster.namespace}.")
        self._calls = LoopCalls(selector)
        self._run(self._poll)

    def add(self, requests: Sequence[TaskRequest]) -> None:
        """Is impossible: the JobSet has as many pods as it was made with."""
        raise EngineError("A JobSet starts all tasks at once.")

    def withdraw(self, task: TaskId) -> None:
        """Does nothing: a pod keeps its place as long as the JobSet is there."""

    def start(self, commands: Mapping[TaskId, TaskCommand]) -> None:
        """Lets the ends of the tasks through: their pods run already, and work out their commands themselves."""
        self._begun = True
        for end in self._held:
            self._tell(self._end, end)

    def signal(self, tasks: Sequence[TaskId], signum: int) -> None:
        """Has pods deleted: Kubernetes knows no other signals, and the set has no use for a part of its pods."""
        self._book.end()
        if not self._is_deleted:
            self._is_deleted = True
            self._orders.put(functools.partial(self._cluster.delete, self._objects[-1]))
        if signum == signal.SIGKILL:
            self._kill(tasks, 0)
        self._end_services()

    def _end_services(self) -> None:
        """A ps goes on for a while after it was told to end, for workers that save. Without any it may end."""
        if self._is_deleted and all(task.job in SERVICE_JOBS for task in self._alive):
            self._kill(list(self._alive), _SOON_S)

    def _kill(self, tasks: Sequence[TaskId], grace_s: int) -> None:
        pods = [pod for pod in map(self._book.pod_of, tasks) if pod]
        self._orders.put(functools.partial(self._cluster.kill, pods, grace_s))

    def hold_output(self, is_held: bool) -> None:
        """Lets the threads wait that read the output; the pods' files take it meanwhile. See `Engine.hold_output`."""
        (self._may_read.clear if is_held else self._may_read.set)()

    def reap(self) -> None:
        """Does nothing: no child process of this one belongs to the engine."""

    def close(self, exit_code: int) -> None:
        """Deletes the JobSet and its Secret, with all pods that are left."""
        self._may_read.set()
        for found in reversed(self._objects):
            self._orders.put(functools.partial(self._cluster.delete, found))
        if self._objects:
            self._kill(list(self._alive), 0)
        self._orders.put(None)
        until = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._calls is not None:
            self._calls.close()

    # ---------------------------------------------------------------- the engine's thread

    def _look(self, pods: Sequence[Object], over: bool) -> None:
        """Takes what the API server has said."""
        self._is_silent = False
        for finding in self._book.look(pods, over):
            match finding:
                case Placed(task, _):
                    cpus = self._requests[task].resources.cpus or 1
                    self._events.placed(task, self._spec.task_address(*task), cpus)
                case Follow(task, pod):
                    self._run(functools.partial(self._read, task, pod))
                case Told(text):
                    self._events.note(text)
                case Ended() if self._begun:
                    self._end(finding)
                case Ended():
                    self._held.append(finding)
        if over and self._book.missing:
            self._events.broken(f"The JobSet has ended before all tasks had a place. {self._first_end()}")

    def _end(self, end: Ended) -> None:
        self._alive.discard(end.task)
        self._events.ended(end.task, end.returncode)
        self._end_services()

    def _first_end(self) -> str:
        return f"{self._held[0].task} ended first: exit code {self._held[0].returncode}." if self._held else ""

    def _say_silent(self, error: str) -> None:
        if not self._is_silent:
            self._is_silent = True
            self._events.note(f"the API server does not answer ({error}); asking on.")

    # ---------------------------------------------------------------- other threads

    def _run(self, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._guarded, args=(work,), name="tfmini-kubernetes", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a mistake in here: it ends the launcher, which would wait for ever
            self._tell(_raise, error)

    def _tell(self, news: Callable[..., None], *values: Any) -> None:
        """Has the engine's thread call something."""
        assert self._calls is not None
        self._calls.put(news, *values)

    def _poll(self) -> None:
        """Asks for the pods, and carries out orders, until the order to end."""
        name = self._objects[-1]["metadata"]["name"]
        while True:
            try:
                pods, found = self._cluster.pods(name), self._cluster.jobset(name)
                self._tell(self._look, pods, not found or is_over(found))
            except ApiError as error:
                self._tell(self._say_silent, str(error))
            with contextlib.suppress(queue.Empty):
                order = self._orders.get(timeout=_EVERY_S)
                if order is None:
                    return
                try:
                    order()
                except ApiError as error:
                    self._tell(self._events.note, f"Kubernetes does not delete what belongs to {name}: {error}")

    def _read(self, task: TaskId, pod: str) -> None:
        """Reads the output of a pod until it ends, or the connection does."""
        with contextlib.suppress(ApiError):  # the book has it read again as long as there is something to read
            for stamp, line in self._cluster.log(pod, self._stamps.get(pod, "")):
                self._stamps[pod] = stamp
                self._may_read.wait()
                self._tell(self._events.output, task, line)
        self._tell(self._book.log_ended, task, pod)


def _raise(error: Exception) -> None:
    raise error


def _deployment(requests: Sequence[TaskRequest], options: EngineOptions, namespace: str) -> Deployment:
    """What is submitted. Its name is that of the script and one of its own, so that runs do not meet.

    Raises:
      EngineError: Kubernetes would refuse it.
    """
    deployment = Deployment(
        name=f"{name_of(options.script[0], 30)}-{os.urandom(3).hex()}",
        image=options.image,
        jobs=Counter(request.task.job for request in requests),
        script=options.script,
        namespace=namespace,
        resources={request.task.job: request.resources for request in requests},
        key=_key(),
        restarts=options.restarts,
        pack=options.pack,
    )
    try:
        deployment.check()
    except ValueError as error:
        raise EngineError(str(error)) from None
    return deployment


def _key() -> bytes:
    """The content of the user's key file, or a new key."""
    chosen = os.environ.get(KEYS_ENV)
    try:
        if chosen:
            with open_trusted(chosen, private=True) as file:
                return file.read()
    except (OSError, errors.PermissionDeniedError) as error:
        raise EngineError(f"The key file of {KEYS_ENV} cannot be read: {error}.") from None
    with keys_in_memory() as path:
        return Path(path).read_bytes()
