"""``tf.estimator.RunConfig``: how and where an estimator runs; its place in the cluster comes from TF_CONFIG."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tfmini import protos
from tfmini.cluster import ClusterSpec, tf_config_cluster, tf_config_object
from tfmini.export import export
from tfmini.runtime.process import default_target
from tfmini.train.checkpointing.assign import warm_start

_log = logging.getLogger("tensorflow")
# Default of arguments for which None means "never".
_USE_DEFAULT: Any = object()
_DEFAULT_SECS = 600
_REPLACEABLE = (
    "model_dir", "tf_random_seed", "save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs",
    "session_config", "keep_checkpoint_max", "keep_checkpoint_every_n_hours", "log_step_count_steps",
    "train_distribute", "device_fn", "protocol", "eval_distribute", "experimental_distribute",
    "experimental_max_worker_delay_secs", "session_creation_timeout_secs",
)  # fmt: skip


@export("tf.estimator.RunConfig")
class RunConfig:
    """The settings of an `Estimator`'s runs (``tf.estimator.RunConfig``).

    Args:
      model_dir: directory of checkpoints and summaries.
      tf_random_seed: seed of each graph.
      save_summary_steps: steps between summaries.
      save_checkpoints_steps, save_checkpoints_secs: the period of checkpoints; default 600 seconds; None, None: never.
      session_config: the sessions' ConfigProto; in a cluster the default has device filters, so that workers do not
        wait for each other.
      keep_checkpoint_max: number of checkpoints to keep; 0 or None keeps all.
      keep_checkpoint_every_n_hours: hours between checkpoints that are kept for ever.
      log_step_count_steps: steps between logs of loss and speed.
      train_distribute, eval_distribute: strategies in whose contexts the model is built (for predictions no strategy
        is used). In a cluster of a chief and workers, `MultiWorkerMirroredStrategy` trains them in step. With any
        strategy, worker 0 is the chief of a cluster that has none.
      experimental_distribute: a `DistributeConfig` with both of them in one.
      device_fn: a device function for training, in place of `tf.train.replica_device_setter`.
      protocol: the protocol of the servers.
      experimental_max_worker_delay_secs: at most so many seconds does a worker wait before it trains.
      session_creation_timeout_secs: seconds that a worker waits for the chief.

    The cluster and the task are read from the environment variable TF_CONFIG.

    Raises:
      ValueError: when a value, or TF_CONFIG, makes no sense.
      NotImplementedError: for a strategy of a remote cluster, one of a single worker in a cluster, and one that keeps
        copies of the variables beside parameter servers.
    """

    @staticmethod
    def _task_of(tf_config: Mapping[str, Any]) -> TaskEnvironment:
        return task_environment(tf_config)

    def __init__(
        self,
        model_dir: str | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int = 100,
        save_checkpoints_steps: int | None = _USE_DEFAULT,
        save_checkpoints_secs: float | None = _USE_DEFAULT,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: object = None,
        device_fn: Callable[..., Any] | None = None,
        protocol: str | None = None,
        eval_distribute: object = None,
        experimental_distribute: object = None,
        experimental_max_worker_delay_secs: float | None = None,
        session_creation_timeout_secs: float = 7200,
    ) -> None:
        steps, secs = _periods(save_checkpoints_steps, save_checkpoints_secs)
        # A rank of Horovod, whose sessions have a default target, is no task of an estimator's cluster.
        tf_config = {} if default_target() else tf_config_object()
        if tf_config:
            _log.info("TF_CONFIG environment variable: %s", tf_config)
        self._values: dict[str, Any] = {
            "model_dir": _model_dir(tf_config, model_dir),
            "tf_random_seed": tf_random_seed,
            "save_summary_steps": save_summary_steps,
            "save_checkpoints_steps": steps,
            "save_checkpoints_secs": secs,
            "session_config": session_config,
            "keep_checkpoint_max": keep_checkpoint_max,
            "keep_checkpoint_every_n_hours": keep_checkpoint_every_n_hours,
            "log_step_count_steps": log_step_count_steps,
            "train_distribute": train_distribute,
            "device_fn": device_fn,
            "protocol": protocol,
            "eval_distribute": eval_distribute,
            "experimental_distribute": experimental_distribute,
            "experimental_max_worker_delay_secs": experimental_max_worker_delay_secs,
            "session_creation_timeout_secs": session_creation_timeout_secs,
        }
        _check(self._values)
        strategies = (train_distribute, experimental_distribute)
        self._environment = (
            self._task_of(tf_config) if strategies == (None, None) else task_environment(tf_config, TaskType.WORKER)
        )
        _check_strategies(self._values, self._environment)
        if session_config is None:
            self._values["session_config"] = _filtered_config(self._environment)

    def replace(self, **kwargs: Any) -> RunConfig:
        """A copy with other values for some settings.

        Raises:
          ValueError: when a setting cannot be replaced, or both periods of checkpoints are given.
        """
        for name in kwargs:
            if name not in _REPLACEABLE:
                raise ValueError(f"Replacing {name} is not supported. Allowed properties are {list(_REPLACEABLE)}.")
        made = copy.copy(self)
        made._values = {**self._values, **kwargs}
        one, other = "save_checkpoints_steps", "save_checkpoints_secs"
        if kwargs.get(one) is not None and kwargs.get(other) is not None:
            raise ValueError(_BOTH)
        for given, left in ((one, other), (other, one)):
            if given in kwargs and left not in kwargs and kwargs[given] is not None:
                made._values[left] = None
        _check(made._values)
        _check_strategies({**made._values, "experimental_distribute": None}, self._environment)
        return made

    def __getattr__(self, name: str) -> Any:
        if name in vars(self).get("_values", ()):
            return self._values[name]
        if name in TaskEnvironment._fields and "_environment" in vars(self):
            return getattr(self._environment, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values, *self._environment._fields})


_BOTH = "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set."


def _periods(steps: Any, secs: Any) -> tuple[int | None, float | None]:
    """The periods of checkpoints in steps and in seconds; the default applies if neither is given."""
    if steps is _USE_DEFAULT and secs is _USE_DEFAULT:
        return None, _DEFAULT_SECS
    if secs is _USE_DEFAULT:
        return steps, None
    if steps is _USE_DEFAULT:
        return None, secs
    if steps is not None and secs is not None:
        raise ValueError(_BOTH)
    return steps, secs


def _model_dir(tf_config: dict[str, Any], given: str | None) -> str | None:
    """The directory of the argument or of TF_CONFIG."""
    if given == "":
        raise ValueError("model_dir should be non-empty.")
    listed = tf_config.get("model_dir")
    if listed == "":
        raise ValueError("model_dir in TF_CONFIG should be non-empty.")
    if given and listed and given != listed:
        raise ValueError(
            "`model_dir` provided in RunConfig construct, if set, must have the same value as the model_dir in"
            f" TF_CONFIG, if set. model_dir: {given}, TF_CONFIG[model_dir]: {listed}."
        )
    return given or listed


def _check(values: dict[str, Any]) -> None:
    for name in ("save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs", "keep_checkpoint_max"):
        if values[name] is not None and values[name] < 0:
            raise ValueError(f"{name} should be >= 0")
    for name in ("keep_checkpoint_every_n_hours", "session_creation_timeout_secs"):
        if values[name] is not None and values[name] <= 0:
            raise ValueError(f"{name} should be > 0")
    if values["session_config"] is not None and not isinstance(values["session_config"], protos.ConfigProto):
        raise ValueError("session_config must be instance of ConfigProto")
    if values["protocol"] not in (None, "grpc", "zmq", "grpc+verbs"):
        raise ValueError('protocol should be "grpc" or "zmq"')
    if values["device_fn"] is not None and not callable(values["device_fn"]):
        raise ValueError('device_fn must be callable with exactly one argument "op".')


def _check_strategies(values: dict[str, Any], task: TaskEnvironment) -> None:
    """Splits ``experimental_distribute`` into its strategies, and refuses those that would be more than one replica."""
    both = values["experimental_distribute"]
    if both is not None:
        if both.remote_cluster:
            raise NotImplementedError(f"RunConfig(experimental_distribute=) with a remote cluster: {_TASKS_WAY}")
        for name in ("train_distribute", "eval_distribute"):
            if values[name] is not None:
                raise ValueError(f"Setting `{name}` is not allowed together with `experimental_distribute`.")
            values[name] = getattr(both, name)
    trains: Any = values["train_distribute"]
    if trains is None or task.num_worker_replicas < 2:
        return
    if not trains.experimental_between_graph:
        raise NotImplementedError(f"RunConfig(train_distribute={trains}) in a cluster of several workers: {_TASKS_WAY}")
    trains.configure(cluster_spec=task.cluster_spec, task_type=task.task_type, task_id=task.task_id)
    if trains.num_replicas_in_sync > 1 and task.num_ps_replicas:
        raise NotImplementedError(f"RunConfig(train_distribute={trains}) keeps no variables on a ps: {_TASKS_WAY}")
    if trains.num_replicas_in_sync > 1 and values["session_config"] is not None:
        values["session_config"] = trains.update_config_proto(values["session_config"])


_TASKS_WAY = (
    "start a process for each task with TF_CONFIG, and tf.estimator.train_and_evaluate: with ps and no strategy, or"
    " ParameterServerStrategy; or without ps and with tf.distribute.experimental.MultiWorkerMirroredStrategy."
)


def _filtered_config(task: TaskEnvironment) -> Any:
    """A worker sees the ps and itself, so that it neither waits for the other workers nor fails with them."""
    own = {
        TaskType.MASTER: ["/job:ps", "/job:master"],
        TaskType.CHIEF: ["/job:ps", "/job:chief"],
        TaskType.WORKER: ["/job:ps", f"/job:worker/task:{task.task_id}"],
        TaskType.PS: ["/job:ps", "/job:worker", "/job:chief", "/job:master"],
    }
    if not task.cluster_spec or task.task_type not in own:
        return None
    return protos.ConfigProto(allow_soft_placement=True, device_filters=own[task.task_type])


def default_session_config() -> Any:
    """The ConfigProto of sessions for which nobody chose one."""
    return protos.ConfigProto(allow_soft_placement=True)


# ---- Which task of which cluster this process is, by TF_CONFIG, in the terms of ``tf.estimator`` -------------------


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


def task_of_contrib_learn(tf_config: Mapping[str, Any]) -> TaskEnvironment:
    """The task as ``tf.contrib.learn`` takes it: worker 0 is the chief, in the cloud the master is."""
    cluster = tf_config_cluster(tf_config)
    if not cluster:
        return _alone(tf_config, cluster)
    chief = TaskType.MASTER if tf_config.get("environment") == "cloud" else TaskType.WORKER
    task = tf_config.get("task") or {}
    task_type, task_id = task.get("type", chief), int(task.get("index") or 0)
    counts = {job: cluster.num_tasks(job) for job in cluster.jobs}
    return TaskEnvironment(
        cluster,
        task_type,
        task_id,
        _target(cluster, task_type, task_id),
        "",
        (task_type, task_id) == (chief, 0),
        counts.get(TaskType.PS, 0),
        counts.get(TaskType.WORKER, 0) + counts.get(TaskType.MASTER, 0),
        [(each.job, each.task) for each in cluster.tasks()].index((task_type, task_id)),
        None,
    )


def task_environment(tf_config: Mapping[str, Any], leads: str = TaskType.CHIEF) -> TaskEnvironment:
    """The task that the object of TF_CONFIG describes.

    Args:
      leads: the job whose task 0 is the chief, in a cluster with neither chief nor master.

    Raises:
      ValueError: when the cluster has no chief, or the task is not in it.
    """
    cluster = tf_config_cluster(tf_config)
    service = tf_config.get("service")
    if service is not None and not isinstance(service, dict):
        raise ValueError(f'If "service" is set in TF_CONFIG, it must be a dict. Given {type(service)}.')
    if not cluster:
        return _alone(tf_config, cluster)
    chief = next((job for job in (TaskType.MASTER, TaskType.CHIEF) if job in cluster.jobs), leads)
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
        (task_type, task_id) == (chief, 0),
        counts.get(TaskType.PS, 0),
        sum(counts.get(job, 0) for job in {TaskType.WORKER, chief}),
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
            " The option --chief of `tfmini launch`, `inspect`, `simulate` and `place` adds it."
        )
    if cluster.num_tasks(chief) > 1 and chief != TaskType.WORKER:
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


# ---- ``tf.estimator.WarmStartSettings``: which variables an estimator's training starts with -----------------------


class _WarmStartSettings(NamedTuple):
    ckpt_to_initialize_from: Any
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Any = None
    var_name_to_prev_var_name: Any = None


@export("tf.estimator.WarmStartSettings")
class WarmStartSettings(_WarmStartSettings):
    """The arguments of `warm_start` (``tf.estimator.WarmStartSettings``).

    Args:
      ckpt_to_initialize_from: a checkpoint's prefix, or its directory.
      vars_to_warm_start: a regex for trainable variables, or a list; None for only those with a vocabulary.
      var_name_to_vocab_info: name of a variable -> `VocabInfo`.
      var_name_to_prev_var_name: name of a variable -> its name in the checkpoint.

    Raises:
      ValueError: without a checkpoint.
    """

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: str | bytes,
        vars_to_warm_start: str | Sequence[Any] | None = ".*",
        var_name_to_vocab_info: Mapping[str, Any] | None = None,
        var_name_to_prev_var_name: Mapping[str, str] | None = None,
    ) -> WarmStartSettings:
        if not ckpt_to_initialize_from:
            raise ValueError("`ckpt_to_initialize_from` MUST be set in WarmStartSettings")
        return super().__new__(
            cls,
            ckpt_to_initialize_from,
            vars_to_warm_start,
            var_name_to_vocab_info or {},
            var_name_to_prev_var_name or {},
        )

    def apply(self) -> None:
        """Makes the initializers of the default graph's variables load from the checkpoint."""
        _log.info("Warm-starting with WarmStartSettings: %s", tuple(self))
        warm_start(*self)


def warm_start_settings(given: Any) -> WarmStartSettings | None:
    """The settings of the argument ``warm_start_from``: None, settings, or a checkpoint.

    Raises:
      ValueError: for something else.
    """
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if isinstance(given, (str, bytes)):
        return WarmStartSettings(ckpt_to_initialize_from=given)
    raise ValueError(f"warm_start_from must be a string or a WarmStartSettings, instead got {type(given)}")
