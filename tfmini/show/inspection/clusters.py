"""Reads the cluster from counts, a ClusterSpec, TF_CONFIG, a JSON or YAML file, or the graph's device requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.cluster import ClusterSpec, cluster_from_tf_config
from tfmini.devices import device_name, parse
from tfmini.graph.node import Nodes
from tfmini.placement.placer import DeviceAttributes

_MOST_TASKS = 1 << 16
_LOCAL = {"localhost": [0]}
_FORM = '{"ps": ["host:port", …], "worker": […]}, or with counts {"ps": 2, "worker": 3}.'
Jobs = dict[str, list[int]]


def read_cluster(cluster: Any = None, ps: int | None = None, workers: int | None = None) -> Jobs | None:
    """Returns job -> task indices; None if no argument is given.

    Args:
      cluster: a ClusterSpec, ClusterDef, LocalCluster or dict, or the path of a JSON or YAML file with such a dict (or
        with a whole TF_CONFIG); a job's tasks may also be a count.
      ps, workers: numbers of tasks, instead of ``cluster``.

    Raises:
      ValueError: both are given, the file contains no cluster or no task, or is YAML and PyYAML is not installed.
      TypeError: ``cluster`` has another type.
      OSError: the file cannot be read.
    """
    if ps is not None or workers is not None:
        if cluster is not None:
            raise ValueError("Give a cluster or the numbers of ps and workers, not both.")
        counts = {"ps": ps or 0, "worker": 1 if workers is None else workers}
        _check_count(sum(counts.values()), "--ps and --workers")
        return _checked({job: list(range(count)) for job, count in counts.items() if count}, "--ps 0 --workers 0")
    if cluster is None:
        return None
    if isinstance(cluster, (str, Path)):
        return _of_mapping(_file(Path(cluster)), str(cluster))
    if isinstance(cluster, Mapping):
        return _of_mapping(cluster, "The cluster")
    spec = ClusterSpec(getattr(cluster, "cluster_spec", cluster))
    return _checked({job: spec.task_indices(job) for job in spec.jobs}, "The cluster")


def tf_config_master(environment: Mapping[str, str]) -> str | None:
    """The task of TF_CONFIG if it can be a client's task, else None."""
    config = cluster_from_tf_config(environment)
    if config.task_type in (None, "ps", "evaluator"):
        return None
    return f"/job:{config.task_type}/task:{config.task_id or 0}"


def _of_mapping(found: Mapping[str, Any], origin: str) -> Jobs:
    inner = found.get("cluster", found)
    if not isinstance(inner, Mapping):
        raise ValueError(f"{origin}: 'cluster' must map job names to lists of addresses (or counts), got {inner!r}.")
    _check_count(sum(tasks for tasks in inner.values() if isinstance(tasks, int)), origin)
    try:
        spec = ClusterSpec({job: _addresses(job, tasks) for job, tasks in inner.items() if tasks != 0})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{origin} contains no cluster: {error} Expected: {_FORM}") from None
    return _checked({job: spec.task_indices(job) for job in spec.jobs}, origin)


def _addresses(job: str, tasks: Any) -> Any:
    if isinstance(tasks, int) and not isinstance(tasks, bool):
        return [f"{job}{i}:0" for i in range(tasks)]
    if isinstance(tasks, Mapping):  # a sparse job; JSON has only string keys
        return {int(index): address for index, address in tasks.items()}
    return tasks


def _check_count(count: int, origin: str) -> None:
    """Refuses a number of tasks that a short text can name but no cluster has: each takes memory."""
    if count > _MOST_TASKS:
        raise ValueError(f"{origin} would need {count} tasks; at most {_MOST_TASKS} can be inspected.")


def _checked(jobs: Jobs, origin: str) -> Jobs:
    if not any(jobs.values()):
        raise ValueError(f"{origin} has no task: it needs at least one worker, for the client.")
    return jobs


def describe(jobs: Jobs) -> str:
    """The tasks, for messages: ``ps 0-1, worker 0``."""
    return ", ".join(f"{job} {min(tasks)}-{max(tasks)}" if len(tasks) > 1 else f"{job} {tasks[0]}"
                     for job, tasks in jobs.items() if tasks)  # fmt: skip


def tf_config_cluster(environment: Mapping[str, str]) -> Jobs | None:
    """The cluster of TF_CONFIG; None if TF_CONFIG is unset or its cluster empty."""
    if not environment.get("TF_CONFIG"):
        return None
    spec = cluster_from_tf_config(environment).cluster
    return read_cluster(spec) if spec is not None and spec.jobs else None


def _file(path: Path) -> dict[str, Any]:
    with errors.reading(str(path), ValueError, f"Expected: {_FORM}"):
        text = path.read_text()
        try:
            value = json.loads(text)
        except ValueError as error:
            value = _yaml(path, text, error)
    if not isinstance(value, dict):
        raise ValueError(f"{path} contains no cluster but a {type(value).__name__}. Expected: {_FORM}")
    return value


def _yaml(path: Path, text: str, json_error: ValueError) -> Any:
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        raise ValueError(f"{path} is not valid JSON: {json_error}. Expected: {_FORM}") from None
    try:
        import yaml  # type: ignore[import-untyped]  # optional: only YAML files need it
    except ImportError:
        raise ValueError(f"{path} is not JSON; to read YAML, install PyYAML (pip install pyyaml).") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is neither JSON nor YAML: {error}. Expected: {_FORM}") from None


def requested_jobs(nodes: Nodes) -> tuple[Jobs, str]:
    """The tasks in the graph's device requests, else one local task; and how they were guessed, "" for a local task."""
    found = _requests(nodes)
    if not found:
        return dict(_LOCAL), ""
    _check_count(sum(max(tasks) + 1 for tasks in found.values()), "The graph's devices")
    jobs = {job: list(range(max(tasks) + 1)) for job, tasks in found.items()}
    guess = f"no cluster was given, so it has the tasks that the graph's devices name: {describe(jobs)}"
    if not any(job in jobs for job in ("worker", "chief", "master", "localhost")):
        jobs["worker"] = [0]  # the master is a worker, also if no op requests one
        guess += "; and worker 0 for the client"
    return jobs, f"{guess}."


def _requests(nodes: Nodes) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for request in sorted({node.device for node in nodes.values() if node.device}):
        try:
            device = parse(request)
        except ValueError:  # the placer reports it, with the node
            continue
        if device.job is not None:
            found.setdefault(device.job, set()).add(device.task or 0)
    return found


def devices_of(jobs: Jobs, gpus: int = 0) -> list[DeviceAttributes]:
    """A CPU of each task, and so many GPUs of each but ps, which have none by themselves. Numbers as incarnations."""
    tasks = [(job, task) for job, numbers in jobs.items() for task in numbers]
    kinds = [(job, task, "CPU", 0) for job, task in tasks]
    kinds += [(job, task, "GPU", i) for job, task in tasks if job != "ps" for i in range(gpus)]
    return [DeviceAttributes(device_name(*each), each[2], 0, i + 1) for i, each in enumerate(kinds)]


def task_order(device: str) -> tuple[str, int, str]:
    """The sort key of a device: task 10 comes after task 9."""
    found = parse(device)
    return found.job or "", found.task or 0, found.local_name


def short(device: str) -> str:
    """``ps/0`` for ``/job:ps/replica:0/task:0/device:CPU:0``; other devices than the first CPU are added.

    What is no name of a device stays as it is: ``client``, or whatever a task calls its peers.
    """
    try:
        found = parse(device)
    except ValueError:
        return device
    local = "" if found.local_name in ("", "CPU:0") else f"/{found.local_name}"
    return f"{found.job}/{found.task}{local}" if found.job is not None else device


def group_label(job: str, indices: Iterable[int]) -> str:
    """``worker/0…7 ×8`` for tasks of a job, ``worker/0, 2 ×2``, ``worker/0`` for a single one; long lists are cut."""
    runs: list[list[int]] = []
    ordered = sorted(indices)
    for index in ordered:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    parts = [f"{a}" if a == b else f"{a}…{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs]
    text = ", ".join(parts) if len(parts) <= 3 else f"{', '.join(parts[:2])}, … {parts[-1]}"
    return f"{job}/{text} ×{len(ordered)}" if len(ordered) > 1 else f"{job}/{text}"


def client_device(jobs: Jobs, master: str | None, nodes: Nodes) -> str:
    """The full device name of the client's task: ``master``, else the only worker in the graph's devices, else the
    first chief or worker.

    Raises:
      ValueError: the cluster has no such task.
    """
    if master:
        try:
            wanted = parse(master)
        except ValueError as error:
            raise ValueError(f"The master must be a task such as /job:worker/task:0: {error}") from None
        if wanted.job is not None and (wanted.task or 0) in jobs.get(wanted.job, ()):
            return device_name(wanted.job, wanted.task or 0)
        raise ValueError(f"The cluster has no task {master}; it has {describe(jobs)}.")
    # In between-graph replication, a graph requests only its own worker, which is its client.
    own = _requests(nodes).get("worker", set())
    if len(own) == 1 and own <= set(jobs.get("worker", ())):
        return device_name("worker", own.pop())
    for job in ("chief", "master", "worker", *jobs):
        if jobs.get(job):
            return device_name(job, min(jobs[job]))
    raise ValueError("The cluster has no task.")
