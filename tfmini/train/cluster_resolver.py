"""Cluster resolvers, which find the tasks of a cluster (``tf.distribute.cluster_resolver``).

A resolver returns the current tasks (`ClusterResolver.cluster_spec`) and the target for a session
(`ClusterResolver.master`). The sources of the subclasses are an argument, several other resolvers,
``TF_CONFIG``, and Kubernetes.
"""

from __future__ import annotations

import collections
import itertools
import os
import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tfmini.cluster import ClusterSpec, tf_config_cluster, tf_config_index, tf_config_object, tf_config_task
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.protos import ConfigProto
from tfmini.runtime.client.session import Session

Tasks = list[str] | dict[int, str]
_JOB, _INDEX, _SCHEME = "The job of this process.", "The task index of this process.", "The scheme before addresses."


def url_of(address: str, rpc_layer: str | None) -> str:
    """The target of a session at an address, with a scheme if one is given."""
    return f"{rpc_layer}://{address}" if rpc_layer else address


@export("tf.distribute.cluster_resolver.ClusterResolver", "tf.contrib.cluster_resolver.ClusterResolver")
class ClusterResolver(ABC):
    """Base class of the resolvers (``tf.distribute.cluster_resolver.ClusterResolver``).

    A subclass also has the attributes ``task_type``, ``task_id`` and ``rpc_layer``.
    """

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """The current tasks of the cluster."""

    @abstractmethod
    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The target for a session on the given task; "" for a session in this process."""

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> dict[str, int]:
        """Device type -> number of devices, without CPUs; of one task if ``task_type`` and ``task_id`` are given.

        The devices are those of a session with the target `master`, made with ``config_proto``.
        """
        with Session(self.master(task_type, task_id), graph=Graph(), config=config_proto) as session:
            devices = session.list_devices()
        if task_type is not None and task_id is not None:
            devices = [d for d in devices if _is_on(d.name, task_type, task_id)]
        return dict(collections.Counter(d.device_type for d in devices if d.device_type != "CPU"))

    @property
    def environment(self) -> str:
        """The environment of the program; "" unless a subclass overrides it."""
        return ""


def _is_on(device: str, job: str, task: int) -> bool:
    parts = device.split("/")
    return f"job:{job}" in parts and f"task:{task}" in parts


@export("tf.distribute.cluster_resolver.SimpleClusterResolver", "tf.contrib.cluster_resolver.SimpleClusterResolver")
class SimpleClusterResolver(ClusterResolver):
    """Returns given values (``tf.distribute.cluster_resolver.SimpleClusterResolver``).

    Args:
      cluster_spec: a `ClusterSpec`.
      master: the result of `master` if no task is given.
      task_type, task_id: the task of this process.
      environment: the result of `environment`.
      num_accelerators: the result of `num_accelerators`, a dictionary from device type to number.
      rpc_layer: the scheme that `master` puts before an address.

    Raises:
      TypeError: when ``cluster_spec`` is no `ClusterSpec` or ``master`` no string.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: dict[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError("cluster_spec must be a ClusterSpec.")
        if not isinstance(master, str):
            raise TypeError("master must be a string.")
        self.task_type = task_type
        self.task_id = task_id
        self.rpc_layer = rpc_layer
        self._cluster_spec = cluster_spec
        self._master = master
        self._environment = environment
        self._num_accelerators = num_accelerators

    def cluster_spec(self) -> ClusterSpec:
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        address = self._master
        if task_type is not None and task_id is not None:
            address = self._cluster_spec.task_address(task_type, task_id)
        return url_of(address, rpc_layer or self.rpc_layer)

    @property
    def environment(self) -> str:
        return self._environment

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> dict[str, int]:
        return {} if self._num_accelerators is None else self._num_accelerators


def _overridable(
    name: str, doc: str, otherwise: Callable[[Any], Any], convert: Callable[[Any], Any] = lambda value: value
) -> Any:
    """A property whose value is ``self._given[name]``, or ``otherwise(self)`` if that is None."""

    def get(self: Any) -> Any:
        given = self._given[name]
        found = otherwise(self) if given is None else given
        return None if found is None else convert(found)

    def set_given(self: Any, value: object) -> None:
        self._given[name] = value

    return property(get, set_given, doc=doc)


@export("tf.distribute.cluster_resolver.UnionResolver", "tf.contrib.cluster_resolver.UnionClusterResolver")
class UnionClusterResolver(ClusterResolver):
    """Merges several resolvers (``tf.distribute.cluster_resolver.UnionResolver``).

    Jobs of the same name are merged: lists are concatenated; if one of them is a dictionary of task indices,
    the indices must be distinct. All other values are those of the first resolver, unless given as
    ``task_type=``, ``task_id=`` or ``rpc_layer=``.

    Raises:
      ValueError: when there is no resolver, or a keyword is unknown.
      TypeError: when an argument is no `ClusterResolver`.
    """

    def __init__(self, *args: ClusterResolver, **kwargs: Any) -> None:
        self._given = {name: kwargs.pop(name, None) for name in ("task_type", "task_id", "rpc_layer")}
        if kwargs:
            raise ValueError(f"Unexpected kwargs provided {kwargs!r}")
        if not args:
            raise ValueError("At least one ClusterResolver is required.")
        if not all(isinstance(resolver, ClusterResolver) for resolver in args):
            raise TypeError("All arguments must be a sub-class of `ClusterResolver.`")
        self._resolvers: tuple[Any, ...] = args

    def cluster_spec(self) -> ClusterSpec:
        """The merged tasks of all resolvers.

        Raises:
          KeyError: when two resolvers have the same task of a job.
        """
        parts: dict[str, list[Tasks]] = {}
        for resolver in self._resolvers:
            for job, tasks in resolver.cluster_spec().as_dict().items():
                parts.setdefault(job, []).append(tasks)
        return ClusterSpec({job: _joined(tasks) for job, tasks in parts.items()})

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        if task_type is not None and task_id is not None:
            return url_of(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self._given["rpc_layer"])
        return str(self._resolvers[0].master(rpc_layer=rpc_layer))

    task_type = _overridable("task_type", _JOB, lambda self: self._resolvers[0].task_type)
    task_id = _overridable("task_id", _INDEX, lambda self: self._resolvers[0].task_id)
    rpc_layer = _overridable("rpc_layer", _SCHEME, lambda self: self._resolvers[0].rpc_layer)

    @property
    def environment(self) -> str:
        return str(self._resolvers[0].environment)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> dict[str, int]:
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)  # type: ignore[no-any-return]


def _joined(parts: list[Tasks]) -> Tasks:
    if all(isinstance(tasks, list) for tasks in parts):
        return [address for tasks in parts for address in tasks]  # type: ignore[misc]
    merged: dict[int, str] = {}
    for tasks in parts:
        numbered = dict(enumerate(tasks)) if isinstance(tasks, list) else tasks
        twice = merged.keys() & numbered.keys()
        if twice:
            raise KeyError(f"Duplicate keys detected when merging two ClusterSpecs: {twice!r}")
        merged.update(numbered)
    return merged


@export("tf.distribute.cluster_resolver.TFConfigClusterResolver", "tf.contrib.cluster_resolver.TFConfigClusterResolver")
class TFConfigClusterResolver(ClusterResolver):
    """Reads ``TF_CONFIG`` at every call (``tf.distribute.cluster_resolver.TFConfigClusterResolver``).

    Args:
      task_type, task_id, rpc_layer: values in place of those in ``TF_CONFIG``.
      environment: the result of `environment`.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._given: dict[str, Any] = {"task_type": task_type, "task_id": task_id, "rpc_layer": rpc_layer}
        self._environment = environment

    task_type = _overridable("task_type", _JOB, lambda _: tf_config_task(tf_config_object()).get("type"), str)
    task_id = _overridable(
        "task_id", _INDEX, lambda _: tf_config_task(tf_config_object()).get("index"), tf_config_index
    )
    rpc_layer = _overridable("rpc_layer", _SCHEME, lambda _: tf_config_object().get("rpc_layer"), str)

    @property
    def environment(self) -> str:
        return self._environment  # type: ignore[return-value]  # TensorFlow returns None if none was given

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: ConfigProto | None = None
    ) -> dict[str, int]:
        job = self.task_type if task_type is None else task_type
        return super().num_accelerators(job, self.task_id if task_id is None else task_id, config_proto)

    def cluster_spec(self) -> ClusterSpec:
        return tf_config_cluster(tf_config_object())

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """``session_master`` of ``TF_CONFIG`` if present, "" for a cluster of one task, else the task's address.

        Raises:
          ValueError: neither ``TF_CONFIG`` nor the arguments name the task.
        """
        session_master = tf_config_object().get("session_master")
        if session_master is not None:
            return str(session_master)
        spec = self.cluster_spec()
        if sum(spec.num_tasks(job) for job in spec.jobs) <= 1:
            return ""
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            raise ValueError("'task' in TF_CONFIG must say which task this is, or task_type and task_id be given.")
        return url_of(spec.task_address(job, index), rpc_layer or self.rpc_layer)


@export(
    "tf.distribute.cluster_resolver.KubernetesClusterResolver", "tf.contrib.cluster_resolver.KubernetesClusterResolver"
)
class KubernetesClusterResolver(ClusterResolver):
    """Gets the running pods from Kubernetes (``tf.distribute.cluster_resolver.KubernetesClusterResolver``).

    Args:
      job_to_label_mapping: job name -> label selectors of its pods; default: pods with the label
        ``job-name=tensorflow`` are workers.
      tf_server_port: the port of every task.
      rpc_layer: the scheme before addresses.
      override_client: a Kubernetes API client with credentials; default: a client of the package
        ``kubernetes`` with the user's configuration.

    Raises:
      ImportError: when neither a client nor the package ``kubernetes`` is available.
    """

    def __init__(
        self,
        job_to_label_mapping: dict[str, list[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
    ) -> None:
        self._selectors = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._port = tf_server_port
        self._client = override_client or _kubernetes_client()
        self.task_type: str | None = None
        self.task_id: int | None = None
        self.rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """The addresses of the pods of each job, sorted by the pods' names.

        Raises:
          RuntimeError: when a pod is not in the phase ``Running``.
        """
        return ClusterSpec(
            {
                job: [address for selector in selectors for address in self._addresses(selector)]
                for job, selectors in self._selectors.items()
            }
        )

    def _addresses(self, selector: str) -> list[str]:
        pods = self._client.list_pod_for_all_namespaces(label_selector=selector).items
        ordered = sorted(pods, key=lambda pod: str(pod.metadata.name))
        for pod in ordered:
            if pod.status.phase != "Running":
                raise RuntimeError(f'Pod "{pod.metadata.name}" is not running; phase: "{pod.status.phase}"')
        return [f"{pod.status.host_ip}:{self._port}" for pod in ordered]

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            return ""
        return url_of(self.cluster_spec().task_address(job, index), rpc_layer or self.rpc_layer)


def _kubernetes_client() -> Any:
    try:
        client, config = import_module("kubernetes.client"), import_module("kubernetes.config")
    except ImportError as error:
        raise ImportError(
            "KubernetesClusterResolver needs the package kubernetes: `pip install kubernetes`, or pass a client "
            "as override_client."
        ) from error
    config.load_kube_config()
    return client.CoreV1Api()


# ---- The cluster resolver for job steps of Slurm (``tf.distribute.cluster_resolver.SlurmClusterResolver``) ---------

_MOST_HOSTS = 1 << 16
_HOSTS = re.compile(r"([^,\[\]]+)(?:\[([0-9,-]+)\])?(?:,|$)")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?(?:,|$)")


def expand_host_list(text: str) -> list[str]:
    """The hosts of Slurm's short form: ``n[08-10,12],m`` is n08, n09, n10, n12, m.

    Raises:
      ValueError: the text is no such list.
    """
    found: list[str] = []
    for prefix, ranges in _parts(_HOSTS, text, "hostlist"):
        if not ranges:
            found.append(prefix)
        for part in filter(None, ranges.split(",")):
            first, _, last = part.partition("-")
            begin, end = int(first), int(last or first) + 1
            _check_count(len(found) + end - begin, text)
            found += [f"{prefix}{n:0{len(first)}d}" for n in range(begin, end)]
    return found


def expand_tasks_per_node(text: str) -> list[int]:
    """The numbers of Slurm's short form: ``2(x3),1`` is 2, 2, 2, 1.

    Raises:
      ValueError: the text is no such list.
    """
    parts = _parts(_TASKS, text, "tasks-per-node list")
    _check_count(sum(int(times or 1) for _, times in parts), text)
    return [int(number) for number, times in parts for _ in range(int(times or 1))]


def _check_count(count: int, text: str) -> None:
    if count > _MOST_HOSTS:
        raise ValueError(f"{text!r} stands for {count} hosts; at most {_MOST_HOSTS} can be used")


def _parts(form: re.Pattern[str], text: str, what: str) -> list[tuple[str, str]]:
    parts, at = [], 0
    while at < len(text):
        match = form.match(text, at)
        if match is None:
            raise ValueError(f'Invalid {what} format "{text}": the part "{text[at:]}" cannot be read')
        parts.append((match[1], match[2] or ""))
        at = match.end()
    return parts


@export("tf.distribute.cluster_resolver.SlurmClusterResolver", "tf.contrib.cluster_resolver.SlurmClusterResolver")
class SlurmClusterResolver(ClusterResolver):
    """Finds the tasks of a job step of Slurm (``tf.distribute.cluster_resolver.SlurmClusterResolver``).

    The tasks of the step are numbered by Slurm; the first ones belong to the first job, and so on. The i-th task of a
    node has the port ``port_base + i``. `cluster_spec` sets `task_type` and `task_id`, and CUDA_VISIBLE_DEVICES.

    Args:
      jobs: job name -> number of tasks; default: all are workers.
      port_base: the port of the first task of each node.
      gpus_per_node: accelerators of a node; default: those that ``CUDA_VISIBLE_DEVICES`` or nvidia-smi name, or none.
        (TensorFlow fails on a node without nvidia-smi.)
      gpus_per_task: default: those of a node, divided by its most tasks.
      tasks_per_node: default: as Slurm says.
      auto_set_gpu: whether `cluster_spec` gives this task its own accelerators by CUDA_VISIBLE_DEVICES.
      rpc_layer: the scheme before addresses.

    Raises:
      RuntimeError: the process is in no job step, the step has another number of tasks than ``jobs``, or a node too
        few accelerators.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        self._rank = int(_variable("SLURM_PROCID"))
        self._jobs = {"worker": int(_variable("SLURM_STEP_NUM_TASKS"))} if jobs is None else dict(jobs)
        hosts = expand_host_list(_variable("SLURM_STEP_NODELIST"))
        counts = _tasks_per_node(tasks_per_node, len(hosts))
        most = max(counts, default=0)
        gpus = _gpus_of_this_node() if gpus_per_node is None else gpus_per_node
        self._gpus_per_task = gpus // max(1, most) if gpus_per_task is None else gpus_per_task
        if self._gpus_per_task * most > gpus:
            raise RuntimeError(
                f"Requested more GPUs per node than available: {most} tasks with {self._gpus_per_task} each; a node has"
                f" {gpus}."
            )
        self._places = [(host, i) for host, count in zip(hosts, counts) for i in range(count)]
        asked = sum(self._jobs.values())
        if asked != len(self._places):
            raise RuntimeError(f"Requested {asked} tasks but only {len(self._places)} were assigned.")
        self._port_base, self._sets_gpus = port_base, auto_set_gpu
        self.task_type: str | None = None
        self.task_id: int | None = None
        self.rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """The tasks of the step; sets `task_type` and `task_id` of this process."""
        addresses = iter([f"{host}:{self._port_base + i}" for host, i in self._places])
        cluster = {job: list(itertools.islice(addresses, count)) for job, count in self._jobs.items()}
        tasks = [(job, index) for job, count in self._jobs.items() for index in range(count)]
        self.task_type, self.task_id = None, None
        if self._rank < len(tasks):
            self.task_type, self.task_id = tasks[self._rank]
            if self._sets_gpus and self._gpus_per_task:
                first = self._places[self._rank][1] * self._gpus_per_task
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(first, first + self._gpus_per_task)))
        return ClusterSpec(cluster)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """(job, task index) of this process; (None, None) before `cluster_spec` was called."""
        return self.task_type, self.task_id

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            return ""
        return url_of(self.cluster_spec().task_address(job, index), rpc_layer or self.rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """The accelerators of each task."""
        return {"GPU": self._gpus_per_task}


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise RuntimeError(f"{name} not found in environment. Not running inside a SLURM step?")
    return value


def _tasks_per_node(given: int | None, nodes: int) -> list[int]:
    if given is not None:
        return [int(given)] * nodes
    return expand_tasks_per_node(_variable("SLURM_STEP_TASKS_PER_NODE"))


def _gpus_of_this_node() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len(visible.split(","))
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(listed.stdout.strip().splitlines())


@export("tf.distribute.cluster_resolver.TPUClusterResolver", "tf.contrib.cluster_resolver.TPUClusterResolver")
class TPUClusterResolver(ClusterResolver):
    """The cluster of a Cloud TPU (``TPUClusterResolver``): a class to name, not to make.

    Raises:
      NotImplementedError: always.
    """

    def __new__(cls, tpu: Any = None, *_: object, **__: object) -> TPUClusterResolver:
        raise NotImplementedError(
            f"TPUClusterResolver({tpu!r}): tfmini has no TPUs. Leave the resolver out (cluster=None) and give"
            " TPUEstimator use_tpu=False; TF_CONFIG, which `tfmini launch` sets, tells where the tasks are."
        )
