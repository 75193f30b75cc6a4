"""`ClusterSpec`, the jobs, tasks and addresses of a cluster; checks of addresses; TF_CONFIG.

A cluster is a set of named jobs; a job is a set of numbered tasks; a task is one process with one address.
This module opens no socket. `ClusterSpec` keeps addresses unchanged and accepts any string, as in
TensorFlow; a server calls the stricter `check_server_cluster` before it binds.
"""

from __future__ import annotations

import functools
import json
import operator
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tfmini import errors
from tfmini.export import export

if TYPE_CHECKING:
    from tfmini.protos import ClusterDef

_NOT_A_CLUSTER = (
    "`cluster` must be a dictionary mapping one or more job names to lists of network addresses, or a "
    "`ClusterDef` protocol buffer"
)
# An index is also the length of a list (`ClusterSpec.job_tasks`), so a short text must not name a huge one.
_MOST_TASKS = 1 << 20

_Jobs = dict[str, dict[int, str]]


class ClusterTask(NamedTuple):
    """One task of a cluster."""

    job: str
    task: int
    address: str

    @property
    def name(self) -> str:
        """`/job:ps/task:0`."""
        return f"/job:{self.job}/task:{self.task}"


def _text(value: object, kind: str) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if not isinstance(value, str):
        raise TypeError(f"{kind} {value!r} must be bytes or unicode")
    return value


def _numbered(job: object, tasks: object) -> dict[Any, Any]:
    if isinstance(tasks, (list, tuple)):
        return dict(enumerate(tasks))
    if isinstance(tasks, dict):
        return tasks
    raise _bad_tasks(job, tasks)


def _bad_tasks(job: object, got: object) -> TypeError:
    return TypeError(f"The tasks for job {job!r} must be a list or a dictionary from integers to strings. Got {got!r}.")


def _task_index(job: str, index: Any) -> int:
    try:
        number = operator.index(index)
    except TypeError:
        raise _bad_tasks(job, index) from None
    if not 0 <= number < _MOST_TASKS:
        raise ValueError(f"Task index {number} in job {job!r} must not be negative, nor {_MOST_TASKS} or more.")
    return number


def _jobs_of_dict(cluster: dict[Any, Any]) -> _Jobs:
    # The forms are checked first, then names and addresses, as in TensorFlow.
    numbered = {job: _numbered(job, tasks) for job, tasks in cluster.items()}
    return {
        _text(job, "Job name"): {
            _task_index(job, index): _text(address, "Task address") for index, address in tasks.items()
        }
        for job, tasks in numbered.items()
    }


def _is_cluster_def(value: object) -> bool:
    """Whether `value` is a ClusterDef message of tfmini or TensorFlow, without importing protobuf."""
    descriptor = getattr(type(value), "DESCRIPTOR", None)
    return getattr(descriptor, "name", None) == "ClusterDef"


@export("tf.train.ClusterSpec")
class ClusterSpec:
    """The jobs, tasks and addresses of a cluster (`tf.train.ClusterSpec`).

    Args:
      cluster: a dict from job name to a list (or tuple) of addresses, a dict from job name to a dict {task
        index: address} (a *sparse* job), a ClusterDef, or another ClusterSpec. Names and addresses may be bytes;
        they are kept as str.

    Raises:
      TypeError: another type, a job whose tasks are neither list nor dict of integers, a job name or
        address that is no string.
      ValueError: a negative task index.
    """

    def __init__(self, cluster: Mapping[str, Any] | ClusterDef | ClusterSpec) -> None:
        self._jobs: _Jobs
        if isinstance(cluster, dict):
            self._jobs = _jobs_of_dict(cluster)
            self._def_order = sorted(self._jobs)
        elif isinstance(cluster, ClusterSpec):
            self._jobs = {job: dict(cluster._jobs[job]) for job in cluster._def_order}
            self._def_order = list(cluster._def_order)
        elif _is_cluster_def(cluster):
            message: Any = cluster
            self._jobs = {job.name: dict(job.tasks) for job in message.job}
            self._def_order = list(self._jobs)
        else:
            raise TypeError(f"{_NOT_A_CLUSTER}. Got {cluster!r}.")

    @property
    def jobs(self) -> list[str]:
        """The job names, in the order of the given dict or ClusterDef."""
        return list(self._jobs)

    def _job(self, job_name: str) -> dict[int, str]:
        try:
            return self._jobs[job_name]
        except KeyError:
            raise ValueError(f"No such job in cluster: {job_name!r}") from None

    def num_tasks(self, job_name: str) -> int:
        """The number of tasks of a job. Raises ValueError for an unknown job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The task indices of the job, ascending. Raises ValueError for an unknown job."""
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of one task. Raises ValueError for an unknown job or task."""
        job = self._job(job_name)
        try:
            return job[task_index]
        except KeyError:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}") from None

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job in a list indexed by task, with None for missing tasks of a sparse job.

        Raises:
          ValueError: the job is unknown or empty.
        """
        job = self._job(job_name)
        if not job:
            raise ValueError(f"Job {job_name!r} has no tasks")
        return [job.get(index) for index in range(max(job) + 1)]

    def as_dict(self) -> dict[str, Any]:
        """Job name -> addresses: a list if the indices are 0..n-1, else a dict ({} for an empty job)."""
        return {job: self._as_value(job) for job in self._jobs}

    def _as_value(self, job: str) -> list[str | None] | dict[int, str]:
        tasks = self._jobs[job]
        if tasks and max(tasks) + 1 == len(tasks):
            return self.job_tasks(job)
        return {index: tasks[index] for index in sorted(tasks)}

    def as_cluster_def(self) -> ClusterDef:
        """A new ClusterDef message: jobs sorted by name, or in the order of the original ClusterDef."""
        from tfmini import protos  # protobuf is slow to import

        message = protos.ClusterDef()
        for name in self._def_order:
            job = message.job.add(name=name)
            for index, address in self._jobs[name].items():
                job.tasks[index] = address
        return message

    def tasks(self) -> Iterator[ClusterTask]:
        """Yields all tasks, by job as in `jobs` and by ascending index. (Not in TensorFlow.)"""
        for job, tasks in self._jobs.items():
            for index in sorted(tasks):
                yield ClusterTask(job, index, tasks[index])

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        # As in TensorFlow, a dict {job: {index: address}} with the same content is equal, too.
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    def __str__(self) -> str:
        return "ClusterSpec({" + ", ".join(f"{job!r}: {self._as_value(job)!r}" for job in sorted(self._jobs)) + "})"

    __repr__ = __str__


# ---------------------------------------------------------------- addresses


class HostPort(NamedTuple):
    """A network address. `host` has no brackets; port 0 asks the system to choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@functools.lru_cache(maxsize=4096)
def parse_address(address: str) -> HostPort:
    """Split `host:port` or `[ipv6]:port`.

    Raises:
      ValueError: with a short reason without the address, for use inside a longer message.
    """
    if "://" in address:
        raise ValueError(f"write it without '{address.split('://')[0]}://'")
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError("it has no port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 host needs brackets, as in [::1]:2222")
    if not host or any(c.isspace() or c in "/[]" for c in host):
        raise ValueError(f"'{host}' is not a host name")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"'{port}' is not a port number (0 to 65535)")
    return HostPort(host, int(port))


def check_server_cluster(cluster: ClusterSpec, job_name: str, task_index: int, may_move: bool = False) -> HostPort:
    """Check a cluster for the server of one of its tasks; return the address of that task.

    Only the server's own address may have port 0 (the system chooses), or every one if tasks learn the real addresses
    elsewhere (`may_move`). `localhost` and `127.0.0.1` are the same host.

    Raises:
      InternalError: the job is not in the cluster (TensorFlow's class and words).
      InvalidArgumentError: the task is not in the job (likewise), an address is not `host:port`, or two tasks have the
        same address.
    """
    _check_membership(cluster, job_name, task_index)
    own: HostPort | None = None
    seen: dict[HostPort, ClusterTask] = {}
    for task in cluster.tasks():
        is_own = (task.job, task.task) == (job_name, task_index)
        address = _checked_address(task, is_own or may_move)
        if is_own:
            own = address
        if address.port or not may_move:
            _check_unshared(task, address, seen)
    assert own is not None, "membership was checked above"
    return own


def _check_membership(cluster: ClusterSpec, job_name: str, task_index: int) -> None:
    if job_name not in cluster.jobs:
        known = ", ".join(repr(job) for job in cluster.jobs) or "none"
        raise errors.InternalError.of(
            f'Job "{job_name}" was not defined in cluster. The jobs of this cluster: {known}.'
        )
    if task_index not in cluster.task_indices(job_name):
        indices = ", ".join(map(str, cluster.task_indices(job_name))) or "none"
        raise errors.InvalidArgumentError.of(
            f'Task {task_index} was not defined in job "{job_name}". The tasks of this job: {indices}.',
        )


def _checked_address(task: ClusterTask, is_own: bool) -> HostPort:
    try:
        address = parse_address(task.address)
    except ValueError as reason:
        message = f'The address "{task.address}" of {task.name} is not of the form host:port: {reason}.'
        if is_own:
            message = f'Could not parse port for local server from "{task.address}". {message}'
        raise errors.InvalidArgumentError.of(message) from None
    if address.port == 0 and not is_own:
        raise errors.InvalidArgumentError.of(
            f'The address "{task.address}" of {task.name} has port 0, which only a server\'s own address may have: '
            "no peer could connect to it. Give the port on which the task listens."
        )
    return address


def _check_unshared(task: ClusterTask, address: HostPort, seen: dict[HostPort, ClusterTask]) -> None:
    host = "127.0.0.1" if address.host == "localhost" else address.host.lower()
    other = seen.setdefault(HostPort(host, address.port), task)
    if other is not task:
        raise errors.InvalidArgumentError.of(
            f'{other.name} and {task.name} have the same address "{task.address}" in the ClusterSpec. '
            "Every task needs its own port."
        )


# ---------------------------------------------------------------- TF_CONFIG


class TfConfig(NamedTuple):
    """The content of TF_CONFIG: the cluster (possibly empty), and this process's task or None, None."""

    cluster: ClusterSpec
    task_type: str | None
    task_id: int | None


TASK_TYPES = ("chief", "master", "ps", "worker", "evaluator")


def cluster_from_tf_config(env: Mapping[str, str] | None = None) -> TfConfig:
    """Read `{"cluster": {job: [address, …]}, "task": {"type": …, "index": …}}` from the variable TF_CONFIG.

    `env` defaults to the process's environment. If the variable is unset or empty, the cluster is empty and the
    task None. The evaluator is outside the cluster; every other task must be in it. `index` defaults to 0.

    Raises:
      ValueError: the text is no JSON object, a part has the wrong form, or the task is not in the cluster.
    """
    config = tf_config_object(env)
    cluster = tf_config_cluster(config)
    task_type, task_id = _tf_config_task(tf_config_task(config), cluster)
    return TfConfig(cluster, task_type, task_id)


def tf_config_object(env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON object in TF_CONFIG; {} if it is unset or empty.

    Raises:
      ValueError: the text is no JSON object.
    """
    text = (os.environ if env is None else env).get("TF_CONFIG") or "{}"
    with errors.reading(f"TF_CONFIG is not valid JSON: {text[:200]}", ValueError):
        config = json.loads(text)
    return _json_object(config, "TF_CONFIG must be a JSON object with 'cluster' and 'task'")


def _json_object(value: object, rule: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"{rule}, got: {value!r}")


def tf_config_cluster(config: Mapping[str, Any]) -> ClusterSpec:
    """The cluster of a `tf_config_object`; empty if it has none.

    Raises:
      ValueError: the cluster has the wrong form.
    """
    jobs = _json_object(config.get("cluster") or {}, "'cluster' in TF_CONFIG must map job names to addresses")
    try:
        # JSON has only string keys, so a sparse job arrives as {"3": address}.
        return ClusterSpec({job: _with_integer_keys(tasks) for job, tasks in jobs.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"'cluster' in TF_CONFIG is wrong: {error}") from None


def tf_config_task(config: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a `tf_config_object`; {} if it has none.

    Raises:
      ValueError: it is no object.
    """
    return _json_object(config.get("task") or {}, "'task' in TF_CONFIG must be an object with 'type' and 'index'")


def _with_integer_keys(tasks: object) -> Any:
    return {int(index): address for index, address in tasks.items()} if isinstance(tasks, dict) else tasks


def _tf_config_task(task: dict[str, Any], cluster: ClusterSpec) -> tuple[str | None, int | None]:
    if not task:
        return None, None
    task_type, index = task.get("type"), task.get("index", 0)
    if not isinstance(task_type, str) or (task_type not in TASK_TYPES and task_type not in cluster.jobs):
        raise ValueError(
            f"The task type {task_type!r} in TF_CONFIG is neither one of {', '.join(TASK_TYPES)} nor a job of its "
            f"cluster ({', '.join(cluster.jobs) or 'empty'})."
        )
    task_id = tf_config_index(index)
    if cluster and task_type != "evaluator":
        _check_tf_config_member(cluster, task_type, task_id)
    return task_type, task_id


def tf_config_index(index: Any) -> int:
    """The number that TF_CONFIG gives as a task's index, also as a text. Raises ValueError if it is none."""
    try:
        return int(index)
    except (TypeError, ValueError, OverflowError):  # JSON has infinity
        raise ValueError(f"The task index {index!r} in TF_CONFIG must be an integer.") from None


def _check_tf_config_member(cluster: ClusterSpec, task_type: str, task_id: int) -> None:
    indices = cluster.task_indices(task_type) if task_type in cluster.jobs else []
    if task_id not in indices:
        raise ValueError(
            f"TF_CONFIG says that this process is /job:{task_type}/task:{task_id},"
            f" which is not in its cluster: {cluster}"
        )
