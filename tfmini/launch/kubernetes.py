"""Tasks as pods of a JobSet: `tfmini launch --on kubernetes` submits what `tfmini manifest` prints, and follows it.

The engine submits in `reserve`; a task has a place when its pod has a node. A thread asks the API server for the pods,
each second, and carries out the requests to end; a thread per pod reads its output. The engine's own thread decides
(`tfmini.launch.kubernetes`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import queue
import selectors
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.cluster import ClusterSpec, cluster_from_tf_config
from tfmini.exit_codes import ExitCode
from tfmini.launch.engine import EngineError, EngineOptions, Events, NamedRole, TaskCommand, TaskRequest
from tfmini.launch.hub import LoopCalls
from tfmini.launch.manifest import CLUSTER_ENV, JOB_ENV, Deployment, Object, jobset, name_of
from tfmini.launch.supervision import SERVICE_JOBS, TaskId
from tfmini.rpc.keys import KEYS_ENV, keys_in_memory
from tfmini.trusted_files import open_trusted

# ---- The requests of a launcher to an API server of Kubernetes, by the package kubernetes. All of them block -------

_GROUP, _VERSION, _PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
_OF_SET = "jobset.sigs.k8s.io/jobset-name"
_LIMIT_S = (5, 30)  # of a request: to connect, and to be answered
_SILENT_S = 3600  # after which a connection that reads output is made anew
_NOT_FOUND = 404


class ApiError(Exception):
    """The API server has refused a request, or does not answer. ``status`` is that of HTTP; 0: no answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class KubernetesCluster:
    """The cluster of the user's current context, or the one in which this process is a pod.

    Args:
      namespace: of all objects; "": that of the context.

    Raises:
      EngineError: the package or the configuration is missing.
    """

    def __init__(self, namespace: str = "") -> None:
        try:
            self._client: Any = importlib.import_module("kubernetes.client")
            self._urllib3: Any = importlib.import_module("urllib3")
        except ImportError:
            raise EngineError(
                "--on kubernetes needs the package kubernetes: pip install 'tfmini-cluster[kubernetes]'."
            ) from None
        self.namespace = namespace or _configure()
        self._core = self._client.CoreV1Api()
        self._custom = self._client.CustomObjectsApi()

    def create(self, found: Object) -> None:
        """Creates a JobSet or a Secret."""
        if found["kind"] == "Secret":
            self._ask(self._core.create_namespaced_secret, self.namespace, found)
        else:
            self._ask(self._custom.create_namespaced_custom_object, _GROUP, _VERSION, self.namespace, _PLURAL, found)

    def jobset(self, name: str) -> Object:
        """A JobSet; {} if there is none."""
        try:
            found = self._ask(
                self._custom.get_namespaced_custom_object, _GROUP, _VERSION, self.namespace, _PLURAL, name
            )
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return {}
            raise
        return dict(json.loads(found.data))

    def pods(self, name: str) -> list[Object]:
        """The pods of a JobSet."""
        answer = self._ask(self._core.list_namespaced_pod, self.namespace, label_selector=f"{_OF_SET}={name}")
        return list(json.loads(answer.data)["items"])

    def delete(self, found: Object) -> None:
        """Deletes a JobSet, whose pods get SIGTERM, or a Secret. What is gone already is no error."""
        name = found["metadata"]["name"]
        if found["kind"] == "Secret":
            self._delete(self._core.delete_namespaced_secret, name, self.namespace)
        else:
            self._delete(
                self._custom.delete_namespaced_custom_object, _GROUP, _VERSION, self.namespace, _PLURAL, name,
                propagation_policy="Background",
            )  # fmt: skip

    def kill(self, pods: Sequence[str], grace_s: int) -> None:
        """Deletes pods, which get SIGKILL after so many seconds."""
        for pod in pods:
            self._delete(self._core.delete_namespaced_pod, pod, self.namespace, grace_period_seconds=grace_s)

    def log(self, pod: str, since: str) -> Iterator[tuple[str, bytes]]:
        """(timestamp, line) of what a container writes, until it ends or the connection does.

        Args:
          since: leave out what is not behind this timestamp.
        """
        answer = self._ask(
            self._core.read_namespaced_pod_log, pod, self.namespace, follow=True, timestamps=True,
            _request_timeout=(_LIMIT_S[0], _SILENT_S),
        )  # fmt: skip
        partial = b""
        try:
            for data in answer.stream(65536):
                *lines, partial = (partial + data).split(b"\n")
                for line in lines:
                    if (found := _stamped(line))[0] > since:
                        yield found
            if partial and (found := _stamped(partial))[0] > since:
                yield found
        except self._urllib3.exceptions.HTTPError as error:
            raise ApiError(f"{type(error).__name__}: {error}") from None
        finally:
            answer.release_conn()

    def _delete(self, request: Any, *arguments: Any, **options: object) -> None:
        try:
            self._ask(request, *arguments, **options)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    def _ask(self, request: Any, *arguments: Any, **options: object) -> Any:
        """The answer as it came: the package has types of its own for some answers, which servers do not keep to."""
        try:
            answer = request(*arguments, **{"_request_timeout": _LIMIT_S, "_preload_content": False, **options})
            if answer.status >= 300:  # not every version of the package raises an error then
                raise ApiError(f"{answer.status} {answer.reason}: {_message(answer.data)}", answer.status)
            if not options.get("follow"):
                answer.read(cache_content=True)  # frees the connection
            return answer
        except self._client.ApiException as error:
            raise ApiError(f"{error.status} {error.reason}: {_message(error.body)}", int(error.status or 0)) from None
        except self._urllib3.exceptions.HTTPError as error:
            raise ApiError(f"{type(error).__name__}: {error}") from None


def _stamped(line: bytes) -> tuple[str, bytes]:
    stamp, _, text = line.partition(b" ")
    return stamp.decode(errors="replace"), text + b"\n"


def _configure() -> str:
    """Reads the user's configuration, or that of a pod; returns the namespace that it names."""
    config = importlib.import_module("kubernetes.config")
    try:
        config.load_kube_config()
        return str(config.list_kube_config_contexts()[1]["context"].get("namespace") or "default")
    except config.ConfigException as missing:
        try:
            config.load_incluster_config()
            with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
                return file.read().strip()
        except (config.ConfigException, OSError):
            raise EngineError(
                f"There is no configuration of Kubernetes ({missing}). Name one by KUBECONFIG; try `kubectl get pods`."
            ) from None


def _message(body: Any) -> str:
    """What the API server says of a refused request."""
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return (body.decode(errors="replace") if isinstance(body, bytes) else str(body or "")).strip()[:200]


def create_all(cluster: KubernetesCluster, objects: Sequence[Object]) -> None:
    """Creates objects in their order, or none of them.

    Raises:
      EngineError: the API server refuses.
    """
    made: list[Object] = []
    try:
        for found in objects:
            cluster.create(found)
            made.append(found)
    except ApiError as error:
        with contextlib.suppress(ApiError):
            for other in made:
                cluster.delete(other)
        raise EngineError(_explained(error, found["kind"], cluster.namespace)) from None


def _explained(error: ApiError, kind: str, namespace: str) -> str:
    remedy = {
        0: "Is this the right context? Try `kubectl get pods`.",
        401: "Log in again, or choose another context.",
        403: f"You may not create a {kind} in the namespace {namespace}.",
        _NOT_FOUND: f"Is there a namespace {namespace}? Is the JobSet controller installed (https://jobset.sigs.k8s.io)?",
    }.get(error.status, "")
    return f"Kubernetes does not take the {kind}: {error}. {remedy}".strip()


# ---- What the pods of a JobSet say about the tasks of a run: decisions without I/O ---------------------------------
# `PodBook.look` takes what the API server says of the pods, and returns what follows for the run. Pods are
# dictionaries, as in the answers of the API server.

Pod = Mapping[str, Any]
JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_NOT_KNOWN = "~"  # behind all times
_KILLED = (ExitCode.GONE, ExitCode.LEFT)
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
    """Something that the user should read; with a task, a warning about it."""

    text: str
    task: TaskId | None = None


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
                yield Told(f"{task} was killed because it used more memory than it may.", task)
        elif pod.get("status", {}).get("phase") == "Failed" and known.code is None and "running" not in state:
            known.code = ExitCode.GONE  # evicted, say: it has never had a container
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
            yield Told(f"{task}: {reason}: {message}" if message else f"{task}: {reason}", task)

    def _ends(self, final: bool) -> Iterator[Finding]:
        """The ends of tasks, in their order: the first failure is the cause of the others, which were killed for it."""
        ended = {task: known for task, known in self._tasks.items() if known.code is not None and not known.reported}
        for task in sorted(ended, key=lambda task: (ended[task].finished, ended[task].code in _KILLED)):
            known = ended[task]
            starts_again = known.attempt < self._restarts and not final
            if not known.read_after_end or known.reading or starts_again:
                return
            known.reported = True
            yield Ended(task, known.code if known.code is not None else ExitCode.GONE)


def _miss(known: _Task, is_there: bool, final: bool) -> None:
    """Takes note that a pod is gone, or will never come."""
    if is_there or not (known.pod or final):
        return
    known.read_after_end = True  # there is nothing left to read
    if known.code is None and final:
        known.code = ExitCode.GONE


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


# ---- kubernetes engine ------------------------------------------------------------

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
                case Told(text, task):
                    self._events.note(text, task)
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
        name=f"{name_of(next(word for word in options.script if word != '-m'), 30)}-{os.urandom(3).hex()}",
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


# ---- This process as a pod that Kubernetes has started: ``tfmini run --cluster kubernetes`` ------------------------

_INDEX_ENV = "JOB_COMPLETION_INDEX"


def member() -> NamedRole:
    """The role of this pod.

    Raises:
      EngineError: the variables of a JobSet and of a TFJob are missing.
    """
    return role_of_pod(os.environ)


def role_of_pod(env: Mapping[str, str]) -> NamedRole:
    """The role by the variables of a JobSet that `tfmini manifest` wrote, or by the TF_CONFIG of a TFJob."""
    if env.get(JOB_ENV) and env.get(CLUSTER_ENV):
        return _role_in_jobset(env[JOB_ENV], env[CLUSTER_ENV], env.get(_INDEX_ENV, ""))
    config = cluster_from_tf_config(env)
    if config.task_type is None or config.task_id is None:
        raise EngineError(
            f"This process has no role: neither {JOB_ENV} and {CLUSTER_ENV} are set, as in the pods of `tfmini"
            " manifest`, nor TF_CONFIG, as in those of a TFJob."
        )
    return NamedRole(config.task_type, config.task_id, config.cluster)


def _role_in_jobset(job: str, cluster: str, index: str) -> NamedRole:
    with errors.reading(f"{CLUSTER_ENV} is not as `tfmini manifest` writes it", EngineError):
        spec = ClusterSpec(json.loads(cluster))
    if not index.isdecimal():
        raise EngineError(f"{_INDEX_ENV} is not set: the Job of this pod must have completionMode Indexed.")
    if job not in spec.jobs or int(index) not in spec.task_indices(job):
        raise EngineError(
            f"{CLUSTER_ENV} has no task {job}/{index}, which {JOB_ENV} and {_INDEX_ENV} name. The manifest was changed"
            " by hand, or is of another cluster: print it anew."
        )
    return NamedRole(job, int(index), spec)
