"""The cluster resolver for job steps of Slurm (``tf.distribute.cluster_resolver.SlurmClusterResolver``)."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Mapping

from tfmini.cluster import ClusterSpec
from tfmini.export import export
from tfmini.train.cluster_resolver import ClusterResolver, url_of

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


@export("tf.distribute.cluster_resolver.SlurmClusterResolver")
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
