"""Which devices there are: from counts, a ClusterSpec, TF_CONFIG, a JSON or YAML file, or the graph's own requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfmini.cluster import ClusterSpec, cluster_from_tf_config
from tfmini.devices import device_name, parse
from tfmini.graph.node import Nodes
from tfmini.placement.placer import DeviceAttributes

_LOCAL = {"localhost": [0]}
Jobs = dict[str, list[int]]


def read_cluster(cluster: Any = None, ps: int | None = None, workers: int | None = None) -> Jobs | None:
    """Job -> task indices; None when nothing is said about a cluster.

    Args:
      cluster: a ClusterSpec, ClusterDef or dict, or the path of a JSON or YAML file with such a dict (or with a
        whole TF_CONFIG).
      ps, workers: numbers of tasks, instead of ``cluster``.

    Raises:
      ValueError: the file holds no cluster, or is YAML and PyYAML is not installed.
      OSError: the file cannot be read.
    """
    if ps is not None or workers is not None:
        counts = {"ps": ps or 0, "worker": 1 if workers is None else workers}
        return {job: list(range(count)) for job, count in counts.items() if count}
    if cluster is None:
        return None
    if isinstance(cluster, (str, Path)):
        cluster = _file(Path(cluster))
    spec = ClusterSpec(cluster)
    return {job: spec.task_indices(job) for job in spec.jobs}


def tf_config_cluster(environment: Mapping[str, str]) -> Jobs | None:
    """The cluster of TF_CONFIG, None when it is not set or empty."""
    if not environment.get("TF_CONFIG"):
        return None
    spec = cluster_from_tf_config(environment).cluster
    return read_cluster(spec) if spec is not None and spec.jobs else None


def _file(path: Path) -> dict[str, Any]:
    text = path.read_text()
    try:
        value = json.loads(text)
    except ValueError:
        try:
            import yaml  # type: ignore[import-untyped]  # optional: only YAML files need it
        except ImportError:
            raise ValueError(f"{path} is not JSON; to read YAML, install PyYAML (pip install pyyaml).") from None
        value = yaml.safe_load(text)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no cluster: a mapping from jobs to addresses is expected.")
    found = value.get("cluster", value)
    # YAML and JSON have tasks that are counts as well: {"ps": 2, "worker": 3}.
    return {
        job: [f"{job}{i}:0" for i in range(tasks)] if isinstance(tasks, int) else tasks for job, tasks in found.items()
    }


def requested_jobs(nodes: Nodes) -> Jobs:
    """The tasks that a graph's own device requests name, else one local task."""
    found: dict[str, set[int]] = {}
    for request in {node.device for node in nodes.values() if node.device}:
        try:
            device = parse(request)
        except ValueError:  # the placer reports it, with the node
            continue
        if device.job is not None:
            found.setdefault(device.job, set()).add(device.task or 0)
    # The master is a worker, whether or not an op asks for it.
    if found and not any(job in found for job in ("worker", "chief", "master", "localhost")):
        found["worker"] = {0}
    return {job: list(range(max(tasks) + 1)) for job, tasks in found.items()} or dict(_LOCAL)


def devices_of(jobs: Jobs) -> list[DeviceAttributes]:
    """One CPU per task, with numbers as incarnations."""
    names = [device_name(job, task) for job, tasks in jobs.items() for task in tasks]
    return [DeviceAttributes(name, "CPU", 0, i + 1) for i, name in enumerate(names)]


def client_device(jobs: Jobs, master: str | None) -> str:
    """The full device name of the client's task: the one asked for, else the first chief or worker.

    Raises:
      ValueError: the cluster has no such task.
    """
    if master:
        wanted = parse(master)
        for job, tasks in jobs.items():
            if wanted.job == job and (wanted.task or 0) in tasks:
                return device_name(job, wanted.task or 0)
        raise ValueError(f"The cluster has no task {master}; it has the jobs {', '.join(jobs)}.")
    for job in ("chief", "master", "worker", *jobs):
        if jobs.get(job):
            return device_name(job, min(jobs[job]))
    raise ValueError("The cluster has no task.")
