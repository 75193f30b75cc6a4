"""Who chooses a task for a variable: `replica_device_setter`, its strategies, contrib's chooser, and plans.

The device function reads only `op.type` and `op.device` of an operation; strategies may read more. It runs for every
operation, so it must be fast: merged device strings are cached.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.cluster import ClusterSpec
from tfmini.devices import DeviceSpec, canonical_name, merge_device
from tfmini.export import export
from tfmini.graph.op_types import ops_with
from tfmini.shapes import TensorShape

if TYPE_CHECKING:
    from tfmini.protos import ClusterDef

_log = logging.getLogger(__name__)

STANDARD_PS_OPS = ops_with("on_ps")
"""The op types that go to a parameter server by default. Queues are not among them."""


class _RoundRobinStrategy:
    """Tasks 0, 1, …, n-1, 0, … in the order of calls. AdaNet replaces it, by TensorFlow's name and module."""

    def __init__(self, num_tasks: int) -> None:
        self._num_tasks = num_tasks
        self._next = 0

    def __call__(self, op: Any) -> int:
        task = self._next
        self._next = (task + 1) % self._num_tasks
        return task


class _ReplicaDeviceFunction:
    """The function that `replica_device_setter` returns: Operation -> device string."""

    def __init__(
        self,
        ps_device: str,
        worker_device: str,
        merge_devices: bool,
        ps_ops: Collection[str],
        ps_strategy: Callable[[Any], int],
    ) -> None:
        self._ps = canonical_name(ps_device)
        self._ps_job = DeviceSpec.from_string(ps_device).job
        self._has_ps = bool(ps_device)
        self._worker = canonical_name(worker_device)
        self._merge = merge_devices
        self._ps_ops = ps_ops
        self._plan = ps_strategy if isinstance(ps_strategy, PlacementPlan) else None
        self._strategy = ps_strategy if self._plan is None else self._plan.task_of

    def __call__(self, op: Any) -> str:
        requested = op.device or ""
        if requested and not self._merge:
            return requested
        if self._has_ps and op.type in self._ps_ops:
            return merge_device(self._ps_device_for(op, requested), requested)
        if self._plan is not None and op.name in self._plan.ops:
            requested = self._plan(op)
        return merge_device(self._worker, requested)

    def partitioner_of(self, name: str) -> Callable[..., list[int]] | None:
        """The partitioner of a variable that the plan cuts; None for all others."""
        return None if self._plan is None else self._plan.partitioner_of(name)

    def _ps_device_for(self, op: Any, requested: str) -> str:
        job = DeviceSpec.from_string(requested).job if requested else None
        if self._ps_job and (not job or job == self._ps_job):
            # The strategy is called even if the request names a task, which then overrides the result. TensorFlow does
            # the same, and the placement of later variables, also in old checkpoints, depends on it.
            return merge_device(self._ps, f"/task:{self._task_of(op)}")
        return self._ps

    def _task_of(self, op: Any) -> int:
        return int(self._strategy(op))


@export("tf.train.replica_device_setter")
def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: ClusterSpec | ClusterDef | dict[str, Any] | None = None,
    ps_ops: Collection[str] | None = None,
    ps_strategy: Callable[[Any], int] | None = None,
) -> Callable[[Any], str] | None:
    """A device function that puts variables on parameter servers and the rest on the worker
    (`tf.train.replica_device_setter`).

    Variables are distributed over the ps tasks in creation order, so every worker must create the same variables in
    the same order. The fields of an inner `tf.device` are kept. With a sparse ps job, only the number of its tasks
    counts, not their indices, as in TensorFlow.

    Args:
      ps_tasks: number of ps tasks; with `cluster`, the size of the job that `ps_device` names.
      ps_device: device of the ps job; "" to place nothing there.
      worker_device: device for all other ops; "" for none.
      merge_devices: if False, ops that request a device already keep it unchanged (deprecated).
      cluster: ClusterSpec, ClusterDef or dict.
      ps_ops: op types that go to the ps job; default `STANDARD_PS_OPS`.
      ps_strategy: Operation -> ps task; default round robin. A `tfmini.placement.plan` also cuts variables and
        moves other ops.

    Returns:
      A function Operation -> device string; None when there are no ps tasks. (Note that `tf.device(None)`
      hides outer device scopes.)

    Raises:
      TypeError: `cluster` or `ps_tasks` has a wrong type, or `ps_strategy` is not callable.
      ValueError: a device string does not parse, or a plan is for more ps tasks.
    """
    if not hasattr(ps_tasks, "__index__"):
        kind = type(ps_tasks).__name__
        raise TypeError(f"ps_tasks must be the number of ps tasks, got {kind}. A ClusterSpec is given as cluster=….")
    if cluster is not None:
        spec = cluster if isinstance(cluster, ClusterSpec) else ClusterSpec(cluster)
        job = DeviceSpec.from_string(ps_device).job
        ps_tasks = spec.num_tasks(job) if job in spec.jobs else 0
    if ps_tasks == 0:
        return None
    if not merge_devices:
        _log.warning("DEPRECATION: It is recommended to set merge_devices=true in replica_device_setter")
    strategy = _RoundRobinStrategy(ps_tasks) if ps_strategy is None else ps_strategy
    if not callable(strategy):
        raise TypeError("ps_strategy must be callable")
    if isinstance(strategy, PlacementPlan) and strategy.tasks > ps_tasks:
        raise ValueError(
            f"The plan is for {strategy.tasks} ps tasks, but there are {ps_tasks}. Run `tfmini place` again."
        )
    return _ReplicaDeviceFunction(
        ps_device or "",
        worker_device or "",
        merge_devices,
        STANDARD_PS_OPS if ps_ops is None else ps_ops,
        strategy,
    )


@export("tf.contrib.training.GreedyLoadBalancingStrategy")
class GreedyLoadBalancingStrategy:
    """Gives each op to the ps task with the least load so far (`tf.contrib.training.GreedyLoadBalancingStrategy`).

    Ties go to the lowest task. The result depends on the order in which variables are created.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        """`load_fn` maps an Operation to its load, in any unit that it uses throughout."""
        self._load_fn = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op: Any) -> int:
        task = min(range(len(self._loads)), key=self._loads.__getitem__)
        self._loads[task] += self._load_fn(op)
        return task


@export("tf.contrib.training.RandomStrategy")
class RandomStrategy:
    """Chooses a ps task by a hash of the op name (`tf.contrib.training.RandomStrategy`): the same in every process."""

    def __init__(self, num_ps_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_ps_tasks
        self._seed = seed

    def __call__(self, op: Any) -> int:
        digest = hashlib.md5(f"{op.name}_{self._seed}".encode(), usedforsecurity=False)
        return int.from_bytes(digest.digest(), "big") % self._num_tasks


@export("tf.contrib.training.byte_size_load_fn")
def byte_size_load_fn(op: Any) -> int:
    """Size in bytes of the value of a variable op (`tf.contrib.training.byte_size_load_fn`).

    For a resource variable this is the size of the handle's dtype: use it with ref variables.

    Raises:
      ValueError: the op has not exactly one output, or its shape is not fully defined.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op} must have a single output")
    shape = op.outputs[0].get_shape()
    if not shape.is_fully_defined():
        # A device function may be called before the op's shape is inferred; the attr exists from the start.
        shape = TensorShape(op.get_attr("shape"))
    shape.assert_is_fully_defined()
    return int(shape.num_elements() * op.outputs[0].dtype.size)


# ---- ``tf.contrib.framework.VariableDeviceChooser``: variables on parameter servers, one after the other -----------


@export("tf.contrib.framework.VariableDeviceChooser")
class VariableDeviceChooser:
    """A device function for ``tf.device`` that gives each op the next parameter server.

    Args:
      num_tasks: number of parameter servers; 0: the devices name no job.
      job_name: their job.
      device_type, device_index, replica: the rest of the devices' names.
    """

    def __init__(
        self, num_tasks: int = 0, job_name: str = "ps", device_type: str = "CPU", device_index: int = 0,
        replica: int | None = None,
    ) -> None:  # fmt: skip
        self._num_tasks, self._job = num_tasks, job_name if num_tasks else None
        self._device = {"device_type": device_type, "device_index": device_index, "replica": replica}
        self._next = 0

    def __call__(self, op: Any) -> str:
        task = self._next % self._num_tasks if self._num_tasks else None
        self._next += 1
        return DeviceSpec(job=self._job, task=task, **self._device).to_string()  # type: ignore[arg-type]


# ---- plans ----------------------------------------
# `PlacementPlan`: which variable goes to which ps, as `tfmini place` proposes it, and as a model in use follows it.
# A plan is a device function, for `tf.device`, and a strategy, for ``ps_strategy=`` of `replica_device_setter`. It
# knows variables and ops by name, so every worker that builds the same model gets the same placement.
#
# ``tf.get_variable`` asks the device functions in force for a partitioner (`partitioner_of`), so that a plan also cuts
# variables of a model that does not know of it. Such a variable still is one table for embedding lookups: id i is row
# i, as before it was cut.

_FORMAT = "tfmini placement plan 1"
_LIST = re.compile(r"\[([^\[\]{}\"]+)\]")  # of numbers
_REMEDY = "Run `tfmini place` again."


@dataclass(frozen=True)
class PlacementPlan:
    """A placement. Calling it with an operation returns its device, as a device function does.

    Attributes:
      tasks: the number of ps tasks that the plan is for.
      variables: name of a variable, or of a part (``emb/part_0``) -> ps task.
      partitions: name of a variable that is cut -> its number of parts per axis.
      ops: names of other ops that the plan moves -> ps task.
      job: the ps job.
      predicted: what `tfmini place` predicted, in seconds per step, and for which cluster. Nothing depends on it.
    """

    tasks: int
    variables: Mapping[str, int]
    partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ops: Mapping[str, int] = field(default_factory=dict)
    job: str = "ps"
    predicted: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.tasks, int) or self.tasks < 1 or not isinstance(self.job, str):
            raise ValueError(f"The plan must be for a positive number of tasks of a job, not {self.tasks!r}.")
        for kind in ("variables", "ops"):
            for name, task in getattr(self, kind).items():
                if not isinstance(task, int) or not 0 <= task < self.tasks:
                    raise ValueError(f"The plan puts {name} on task {task!r}, but it is for {self.tasks} ps tasks.")
        for name, counts in self.partitions.items():
            if not counts or any(not isinstance(count, int) or count < 1 for count in counts):
                raise ValueError(f"The plan cuts {name} into {counts!r}; it takes a positive number of parts per axis.")

    def __call__(self, op: Any) -> str:
        """The device of an op: that of its variable or move; else what it requests already, "" for nothing."""
        requested = op.device or ""
        task = self.task_of(op) if op.type in STANDARD_PS_OPS else self.ops.get(op.name)
        return requested if task is None else merge_device(f"/job:{self.job}/task:{task}", requested)

    def task_of(self, op: Any) -> int:
        """The ps task of a variable. One that the plan does not know gets a task by its name, with a warning."""
        task = self.variables.get(op.name)
        if task is None:
            digest = hashlib.md5(op.name.encode(), usedforsecurity=False).digest()
            task = int.from_bytes(digest, "big") % self.tasks
            _log.warning(
                "The plan does not know the variable %s; it goes to %s %d. %s", op.name, self.job, task, _REMEDY
            )
        return task

    def partitioner_of(self, name: str) -> Callable[..., list[int]] | None:
        """The partitioner of a variable that the plan cuts, for ``tf.get_variable``; None for all others."""
        counts = self.partitions.get(name)
        return None if counts is None else VariableCut(name, counts)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return {"format": _FORMAT, **asdict(self)}

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the file that `plan` reads.

        Raises:
          OSError: it cannot be written.
        """
        text = json.dumps(self.to_json(), indent=1)
        Path(path).write_text(_LIST.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")


class VariableCut:
    """The partitioner of one variable of a plan: ``(shape, dtype)`` -> number of parts per axis."""

    by_plan = True  # not by the model: lookups still see one table

    def __init__(self, name: str, counts: Sequence[int]) -> None:
        self._name, self._counts = name, list(counts)

    def __call__(self, shape: Any, dtype: Any = None) -> list[int]:
        """Raises ValueError if the variable has another shape than when the plan was made."""
        sizes = shape.as_list()
        if len(sizes) != len(self._counts) or any(n > size for n, size in zip(self._counts, sizes)):
            raise ValueError(
                f"The plan cuts {self._name} into {self._counts} parts, but it has shape {sizes}. {_REMEDY}"
            )
        return list(self._counts)


def plan(path: str | PathLike[str]) -> PlacementPlan:
    """Reads a plan of `tfmini place`.

    Use it as ``tf.device(tfmini.placement.plan("plan.json"))``, or as ``ps_strategy=`` of `replica_device_setter`.

    Raises:
      OSError: the file cannot be read.
      ValueError: it is no plan, or contradicts itself.
    """
    with errors.reading(f"{path} is not JSON", ValueError, "A plan is written by `tfmini place`."):
        found = json.loads(Path(path).read_text())
    if not isinstance(found, dict) or found.pop("format", None) != _FORMAT:
        raise ValueError(f'{path} is no plan: it lacks "format": "{_FORMAT}". A plan is written by `tfmini place`.')
    with errors.reading(f"{path} is not valid", ValueError, also_own=True):
        return PlacementPlan(**found)
