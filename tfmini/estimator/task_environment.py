"""Which task of which cluster this process is, by TF_CONFIG, in the terms of ``tf.estimator``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfmini.cluster import ClusterSpec, tf_config_cluster
from tfmini.export import export


@export("tf.contrib.learn.TaskType")
class TaskType:
    """The kinds of tasks (``tf.contrib.learn.TaskType``)."""

    MASTER, PS, WORKER, CHIEF, EVALUATOR = "master", "ps", "worker", "chief", "evaluator"


class TaskEnvironment(NamedTuple):
    """A task and its cluster.

    Attributes:
      cluster_spec: the tasks that train; empty on one machine and for the evaluator.
      task_type, task_id: this task.
      master: the target of its training sessions; "" for a session in this process.
      evaluation_master: the target of its evaluation sessions.
      is_chief: whether it initializes and saves the model.
      num_ps_replicas, num_worker_replicas: tasks with variables; tasks that train, the chief included.
      global_id_in_cluster: the chief is 0, then other tasks by name and index, then the ps; None for the evaluator.
      service: what TF_CONFIG says of the service that started the tasks.
    """

    cluster_spec: ClusterSpec
    task_type: str
    task_id: int
    master: str
    evaluation_master: str
    is_chief: bool
    num_ps_replicas: int
    num_worker_replicas: int
    global_id_in_cluster: int | None
    service: Any


def task_environment(tf_config: Mapping[str, Any]) -> TaskEnvironment:
    """The task that the object of TF_CONFIG describes.

    Raises:
      ValueError: when the cluster has no chief, or the task is not in it.
    """
    cluster = tf_config_cluster(tf_config)
    service = tf_config.get("service")
    if service is not None and not isinstance(service, dict):
        raise ValueError(f'If "service" is set in TF_CONFIG, it must be a dict. Given {type(service)}.')
    if not cluster:
        return _alone(tf_config, cluster)
    chief = TaskType.MASTER if TaskType.MASTER in cluster.jobs else TaskType.CHIEF
    if chief == TaskType.MASTER and TaskType.CHIEF in cluster.jobs:
        raise ValueError("If `master` node exists in `cluster`, job `chief` is not supported.")
    task_type, task_id = _checked_task(cluster, tf_config.get("task") or {}, chief)
    if task_type != TaskType.EVALUATOR:
        return _member(tf_config, cluster, chief, task_type, task_id)
    if chief == TaskType.MASTER:
        raise ValueError("If `master` node exists in `cluster`, task_type `evaluator` is not supported.")
    evaluation_master = tf_config.get("eval_session_master", "")
    # The evaluator reads checkpoints and is not part of the training cluster.
    return TaskEnvironment(ClusterSpec({}), task_type, task_id, "", evaluation_master, False, 0, 0, None, service)


def _alone(tf_config: Mapping[str, Any], cluster: ClusterSpec) -> TaskEnvironment:
    task = tf_config.get("task") or {}
    task_type, task_id = task.get("type", TaskType.WORKER), int(task.get("index", 0))
    if task_type != TaskType.WORKER:
        raise ValueError(f'If "cluster" is not set in TF_CONFIG, task type must be WORKER, not {task_type!r}.')
    if task_id != 0:
        raise ValueError(f'If "cluster" is not set in TF_CONFIG, task index must be 0, not {task_id}.')
    master, evaluation = tf_config.get("session_master", ""), tf_config.get("eval_session_master", "")
    return TaskEnvironment(cluster, task_type, 0, master, evaluation, True, 0, 1, 0, tf_config.get("service"))


def _member(
    tf_config: Mapping[str, Any], cluster: ClusterSpec, chief: str, task_type: str, task_id: int
) -> TaskEnvironment:
    counts = {job: cluster.num_tasks(job) for job in cluster.jobs}
    return TaskEnvironment(
        cluster,
        task_type,
        task_id,
        tf_config.get("session_master") or _target(cluster, task_type, task_id),
        "",
        task_type == chief,
        counts.get(TaskType.PS, 0),
        counts.get(TaskType.WORKER, 0) + counts[chief],
        _order(cluster, chief).index((task_type, task_id)),
        tf_config.get("service"),
    )


def _target(cluster: ClusterSpec, task_type: str, task_id: int) -> str:
    if len(list(cluster.tasks())) == 1:
        return ""  # a single task needs no server
    address = cluster.task_address(task_type, task_id)
    return address if "://" in address else f"grpc://{address}"


def _order(cluster: ClusterSpec, chief: str) -> list[tuple[str, int]]:
    others = sorted(job for job in cluster.jobs if job not in (chief, TaskType.PS))
    jobs = [chief, *others, *([TaskType.PS] if TaskType.PS in cluster.jobs else [])]
    return [(job, index) for job in jobs for index in sorted(cluster.task_indices(job))]


def _checked_task(cluster: ClusterSpec, task: Mapping[str, Any], chief: str) -> tuple[str, int]:
    if chief not in cluster.jobs:
        raise ValueError(
            f'If "cluster" is set in TF_CONFIG, it must have one "{chief}" node; it has {", ".join(cluster.jobs)}.'
        )
    if cluster.num_tasks(chief) > 1:
        raise ValueError(f'The "cluster" in TF_CONFIG must have only one "{chief}" node.')
    task_type, task_id = task.get("type"), task.get("index")
    if not task_type:
        raise ValueError('If "cluster" is set in TF_CONFIG, task type must be set.')
    if task_id is None:
        raise ValueError('If "cluster" is set in TF_CONFIG, task index must be set.')
    task_id = int(task_id)
    if task_id < 0:
        raise ValueError("Task index must be non-negative number.")
    source = "Note that these values may be coming from the TF_CONFIG environment variable."
    if task_type == TaskType.EVALUATOR:
        return task_type, task_id
    if task_type not in cluster.jobs:
        raise ValueError(f"{task_type} is not a valid task_type in the cluster_spec:\n{cluster}\n\n{source}")
    if task_id not in cluster.task_indices(task_type):
        raise ValueError(
            f"{task_id} is not a valid task_id for task_type {task_type} in the cluster_spec:\n{cluster}\n\n{source}"
        )
    return task_type, task_id
