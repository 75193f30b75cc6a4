"""Distribution strategies of one replica in a process (``tf.distribute``), so that code written for strategies runs.

A strategy replicates a step to several devices. In TensorFlow 1's cluster model a program replicates steps with
explicit devices instead (`tf.device`, `tf.train.replica_device_setter`, `tf.train.SyncReplicasOptimizer`). So
tfmini has only strategies of one replica in a process: the default strategy and `OneDeviceStrategy`. `MirroredStrategy`
equals the latter and refuses several devices; with `ParameterServerStrategy` each worker is a replica that updates the
variables on the ps by itself. `tfmini.train.replicas.mirrored_workers` has the strategy whose workers step together.

Code runs in one of two contexts. In the *replica context* it builds one replica; a program starts there, and
functions given to `Strategy.experimental_run_v2` run there. In the *cross-replica context*, inside
`Strategy.scope` and functions given to `ReplicaContext.merge_call`, it works on all replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.core_types import TensorLike
from tfmini.data.dataset import Dataset
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import colocate_with
from tfmini.graph.scoping import device as device_scope
from tfmini.layers.losses import LAST_REDUCTION, Reduction
from tfmini.ops import control
from tfmini.ops.array.identity import identity
from tfmini.ops.math import reductions
from tfmini.ops.variables.base import variable_creator_scope
from tfmini.placement.device_setter import replica_device_setter
from tfmini.protos import ConfigProto


@export("tf.distribute.ReduceOp")
class ReduceOp:
    """The kinds of reduction over replicas (``tf.distribute.ReduceOp``)."""

    SUM = "SUM"
    MEAN = "MEAN"


@export("tf.distribute.InputContext")
class InputContext:
    """What an input function of a strategy is told (``tf.distribute.InputContext``).

    Args:
      num_input_pipelines, input_pipeline_id: into how many parts the data may be split, and which part this is.
      num_replicas_in_sync: replicas that take a step together.
    """

    def __init__(self, num_input_pipelines: int = 1, input_pipeline_id: int = 0, num_replicas_in_sync: int = 1) -> None:
        self.num_input_pipelines = num_input_pipelines
        self.input_pipeline_id = input_pipeline_id
        self.num_replicas_in_sync = num_replicas_in_sync

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The part of a batch that each replica takes; ValueError when it cannot be divided."""
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size} is not divisible by `num_replicas_in_sync`"
                f" {self.num_replicas_in_sync}"
            )
        return global_batch_size // self.num_replicas_in_sync


def _resource_variable(next_creator: Callable[..., Any], **arguments: Any) -> Any:
    """Makes a resource variable, as the strategies of TensorFlow do whatever the caller asks for."""
    return next_creator(**{**arguments, "use_resource": True})


@export("tf.distribute.ReplicaContext", "tf.contrib.distribute.ReplicaContext")
class ReplicaContext:
    """The context of a replica's function (``tf.distribute.ReplicaContext``)."""

    replica_id_in_sync_group = 0

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas that take a step together."""
        return self.strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of this replica."""
        return self.strategy.worker_devices

    def merge_call(
        self, merge_fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs ``merge_fn(strategy, *args, **kwargs)`` in the cross-replica context."""
        with _entered(self.strategy, None):
            return merge_fn(self.strategy, *args, **(kwargs or {}))

    def all_reduce(self, reduce_op: object, value: TensorLike) -> Any:
        """The sum or the mean of the replicas' values: with one replica the value itself."""
        return self.strategy.all_reduce(reduce_op, value)


class InputIterator:
    """What `Strategy.make_dataset_iterator` returns: an iterator to be initialized before its first element."""

    def __init__(self, dataset: Dataset) -> None:
        self._iterator = dataset.make_initializable_iterator()
        self.initializer = self._iterator.initializer
        self.get_next = self._iterator.get_next

    def initialize(self) -> list[Operation]:
        """The operations that start the iterator anew."""
        return [self.initializer]


@export("tf.distribute.Strategy", "tf.contrib.distribute.DistributionStrategy")
class Strategy:
    """A strategy of one replica, on ``device`` or the graph's current device (``tf.distribute.Strategy``)."""

    num_replicas_in_sync = 1
    experimental_between_graph = False  # whether each worker builds a graph of its own

    def __init__(self, device: str = "") -> None:
        self._device = device

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The device of the replica, if the strategy has chosen one."""
        return (self._device,) if self._device else ()

    parameter_devices = worker_devices

    @property
    def extended(self) -> Strategy:
        """The strategy itself, which has the methods of TensorFlow's ``StrategyExtended``."""
        return self

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """A context in which this is the current strategy and code runs in the cross-replica context.

        Raises:
          RuntimeError: when another strategy's scope is active.
        """
        current = get_strategy()
        if current not in (_DEFAULT, self):
            raise RuntimeError(f"Must not nest tf.distribute.Strategy scopes: {self} inside {current}.")
        if self is _DEFAULT:
            yield self
            return
        with _entered(self, None), _on(self._device), variable_creator_scope(_resource_variable):
            yield self

    def experimental_run(self, fn: Callable[..., Any], input_iterator: Any = None) -> Any:
        """Calls ``fn`` in the replica context, with the next element of ``input_iterator`` if given."""
        with self.scope():
            args = () if input_iterator is None else (input_iterator.get_next(),)
            return self.experimental_run_v2(fn, args)

    def experimental_run_v2(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls ``fn(*args, **kwargs)`` in the replica context."""
        with self.scope():
            return self.call_for_each_replica(fn, args, kwargs)

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls ``fn(*args, **kwargs)`` in the replica context."""
        with self.replica_scope(True):
            return fn(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def replica_scope(self, in_replica: bool) -> Iterator[None]:
        """A block of the replica context, or of the cross-replica context, on the strategy's own device."""
        replica = ReplicaContext(self) if in_replica else None if self is not _DEFAULT else get_replica_context()
        with _entered(self, replica), _on(self._device):
            yield

    def reduce(self, reduce_op: object, value: TensorLike, axis: int | None = None) -> Any:
        """The value, reduced along ``axis`` if given; a reduction over one replica changes nothing."""
        if axis is None:
            return value
        mean = str(getattr(reduce_op, "value", reduce_op)) == ReduceOp.MEAN
        reduction = reductions.reduce_mean if mean else reductions.reduce_sum
        return reduction(convert_to_tensor(value), axis=axis)

    def all_reduce(self, reduce_op: object, value: Any) -> Any:
        """What `ReplicaContext.all_reduce` returns: the value itself, since there is one replica."""
        return value

    @contextlib.contextmanager
    def reduced(self, pairs: Sequence[tuple[Any, Any]]) -> Iterator[Sequence[tuple[Any, Any]]]:
        """(gradient, variable) of a replica -> those of all together, to be applied in the block.

        Raises:
          ValueError: a variable belongs to another strategy, whose replicas would miss the gradient.
        """
        for _, variable in pairs:
            if getattr(variable, "distribute_strategy", self) is not self:
                raise ValueError(
                    f"The variable {variable.name} was made under {variable.distribute_strategy}: apply its gradients"
                    " there, in a function that `strategy.experimental_run_v2` calls."
                )
        yield pairs

    def input_context(self) -> InputContext:
        """What this process tells an input function."""
        return InputContext()

    def experimental_local_results(self, value: TensorLike) -> tuple[Any, ...]:
        """A tuple of the replicas' values, which has one element."""
        return (value,)

    unwrap = experimental_local_results

    def group(self, value: TensorLike, name: str | None = None) -> Operation:
        """An operation that runs ``value`` (a tensor or operation)."""
        return control.group(value, name=name)

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        """The data set itself, since one replica takes all of it."""
        return dataset

    def experimental_distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Any]) -> Any:
        """The data set that the function makes."""
        return dataset_fn(self.input_context())

    def experimental_make_numpy_dataset(self, numpy_input: Any, session: object = None) -> Dataset:
        """A data set of the rows of arrays, which the graph holds."""
        return Dataset.from_tensor_slices(numpy_input)

    def make_dataset_iterator(self, dataset: Dataset) -> InputIterator:
        """An iterator of a data set for `experimental_run`."""
        return InputIterator(dataset)

    def make_input_fn_iterator(
        self, input_fn: Callable[[InputContext], Dataset], replication_mode: object = None
    ) -> Any:
        """An iterator of the data set that ``input_fn`` makes of an `InputContext`."""
        return InputIterator(input_fn(self.input_context()))

    def configure(
        self, session_config: ConfigProto | None = None, cluster_spec: Any = None, task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:  # fmt: skip
        """Does nothing: a strategy of one replica is ready at once."""

    def update_config_proto(self, config_proto: ConfigProto) -> ConfigProto:
        """The ConfigProto as it is."""
        return config_proto

    # ---- of TensorFlow's ``StrategyExtended`` -------------------------------------------------------------------

    def update(
        self, var: Any, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:  # fmt: skip
        """Calls ``fn(var, *args, **kwargs)`` beside the variable, in the cross-replica context.

        Args:
          var: a variable.
          fn: it returns a structure of tensors and operations.
          args, kwargs: further arguments.
          group: whether a result stands for those of all replicas; else it is a tuple of theirs, of length one.
        """
        with colocate_with(var):
            return self.update_non_slot(None, fn, (var, *args), kwargs, group)

    def update_non_slot(
        self, colocate_with: object, fn: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None, group: bool = True,
    ) -> Any:  # fmt: skip
        """Calls ``fn(*args, **kwargs)``, which updates what is no slot of a variable; see `update`.

        Args:
          colocate_with: without effect here; TensorFlow takes what `non_slot_devices` returns.
        """
        with _entered(self, None), _on(self._device):
            result = fn(*args, **(kwargs or {}))
        return result if group else nest.map_structure(self.experimental_local_results, result)

    def non_slot_devices(self, var_list: Sequence[Any]) -> Any:
        """What `update_non_slot` takes: this strategy's device, else the first variable by name."""
        return self.worker_devices or min(var_list, key=lambda variable: str(variable.name))

    def colocate_vars_with(self, colocate_with_variable: Any) -> contextlib.AbstractContextManager[Any]:
        """A block whose variables are made beside the given one."""
        return colocate_with(colocate_with_variable)

    def reduce_to(self, reduce_op: object, value: TensorLike, destinations: object) -> Any:
        """The value: one replica's reduction."""
        return value

    def batch_reduce_to(self, reduce_op: object, value_destination_pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        """The values of the pairs."""
        return [value for value, _ in value_destination_pairs]

    def read_var(self, replica_local_var: Any) -> Any:
        """The variable's value."""
        return identity(replica_local_var)

    def value_container(self, value: Any) -> Any:
        """The value itself."""
        return value

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._device or 'the current devices'}>"


@export("tf.distribute.OneDeviceStrategy", "tf.contrib.distribute.OneDeviceStrategy")
class OneDeviceStrategy(Strategy):
    """Places the ops in its scope on one device (``tf.distribute.OneDeviceStrategy``)."""


@export("tf.distribute.MirroredStrategy")
class MirroredStrategy(Strategy):
    """``tf.distribute.MirroredStrategy`` of one device.

    Args:
      devices: a list of one device; default: the CPU.
      cross_device_ops: accepted and ignored, since there is one replica.

    Raises:
      UnimplementedError: when several devices are given.
    """

    def __init__(self, devices: Sequence[str] | str | None = None, cross_device_ops: Any = None) -> None:
        names = [devices] if isinstance(devices, str) else list(devices or ["/device:CPU:0"])
        if len(names) != 1:
            raise errors.UnimplementedError.of(
                f"{type(self).__name__} runs on one device in tfmini, not on {len(names)} ({', '.join(names)}). Build"
                " one tower per device with tf.device, or start a process per replica, with"
                " tf.distribute.experimental.MultiWorkerMirroredStrategy in its place."
            )
        super().__init__("/" + names[0].lstrip("/"))


@export("tf.contrib.distribute.MirroredStrategy")
class ContribMirroredStrategy(MirroredStrategy):
    """`MirroredStrategy` with a number of GPUs in place of their names (``tf.contrib.distribute.MirroredStrategy``).

    Args:
      devices: a list of one device.
      num_gpus, num_gpus_per_worker: 1 for the first GPU, 0 or None for the CPU.
      cross_device_ops, auto_shard_dataset, cross_tower_ops: without effect on one replica.

    Raises:
      ValueError: when devices and a number of GPUs are given, or two numbers that differ.
      UnimplementedError: for several devices.
    """

    def __init__(
        self,
        devices: Sequence[str] | str | None = None,
        num_gpus: int | None = None,
        num_gpus_per_worker: int | None = None,
        cross_device_ops: object = None,
        auto_shard_dataset: bool = False,
        cross_tower_ops: object = None,
    ) -> None:
        if num_gpus is not None and num_gpus_per_worker is not None and num_gpus != num_gpus_per_worker:
            raise ValueError("`num_gpus` and `num_gpus_per_worker` cannot be set to different values.")
        count = num_gpus if num_gpus is not None else num_gpus_per_worker
        if count and devices:
            raise ValueError("Must only specify one of `devices` and `num_gpus`.")
        super().__init__([f"/device:GPU:{gpu}" for gpu in range(count)] if count else devices)


@export("tf.distribute.experimental.CentralStorageStrategy")
class CentralStorageStrategy(MirroredStrategy):
    """One device beside the variables (``tf.distribute.experimental.CentralStorageStrategy``)."""

    def __init__(self, compute_devices: Sequence[str] | None = None, parameter_device: str | None = None) -> None:
        super().__init__(compute_devices or parameter_device)


@export("tf.distribute.experimental.ParameterServerStrategy")
class ParameterServerStrategy(Strategy):
    """Variables on the ps in turn, ops on this worker (``tf.distribute.experimental.ParameterServerStrategy``).

    Each worker updates the variables by itself: `tf.train.replica_device_setter` does the placing, in an `Estimator`
    by TF_CONFIG.

    Args:
      cluster_resolver: knows the cluster and this task, for `scope`; without one, all is on this task.
    """

    experimental_between_graph = True

    def __init__(self, cluster_resolver: Any = None) -> None:
        super().__init__()
        self._setter = None
        if cluster_resolver is not None and "ps" in cluster_resolver.cluster_spec().jobs:
            own = f"/job:{cluster_resolver.task_type}/task:{cluster_resolver.task_id}"
            self._setter = replica_device_setter(worker_device=own, cluster=cluster_resolver.cluster_spec())

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """See `Strategy.scope`."""
        inside = get_strategy() is self
        with super().scope(), _on(None if inside else self._setter):
            yield self


@export("tf.contrib.distribute.ParameterServerStrategy")
class ContribParameterServerStrategy(ParameterServerStrategy):
    """`ParameterServerStrategy` on the CPU of each worker (``tf.contrib.distribute.ParameterServerStrategy``).

    Raises:
      UnimplementedError: for several GPUs in a worker.
    """

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        if num_gpus_per_worker > 1:
            MirroredStrategy([f"/device:GPU:{gpu}" for gpu in range(num_gpus_per_worker)])
        super().__init__()


class _DistributeConfig(NamedTuple):
    train_distribute: Any = None
    eval_distribute: Any = None
    remote_cluster: Any = None


@export("tf.contrib.distribute.DistributeConfig")
class DistributeConfig(_DistributeConfig):
    """The strategies of `RunConfig`'s ``experimental_distribute`` (``tf.contrib.distribute.DistributeConfig``).

    Args:
      train_distribute, eval_distribute: strategies of one replica.
      remote_cluster: only None is supported.
    """

    __slots__ = ()


_DEFAULT = Strategy()
_current: ContextVar[tuple[Strategy, ReplicaContext | None]] = ContextVar(
    "strategy", default=(_DEFAULT, ReplicaContext(_DEFAULT))
)


def _on(device: Any) -> contextlib.AbstractContextManager[Any]:
    """A block on a device, or by a device function; without one, devices stay as they are (`tf.device` of None
    would undo those around it)."""
    return device_scope(device) if device else contextlib.nullcontext()


@contextlib.contextmanager
def _entered(strategy: Strategy, replica: ReplicaContext | None) -> Iterator[None]:
    token = _current.set((strategy, replica))
    try:
        yield
    finally:
        _current.reset(token)


@export(
    "tf.distribute.get_strategy",
    "tf.contrib.distribute.get_strategy",
    "tf.contrib.distribute.get_distribution_strategy",
)
def get_strategy() -> Strategy:
    """The current strategy, or the default one outside of all scopes (``tf.distribute.get_strategy``)."""
    return _current.get()[0]


@export(
    "tf.distribute.has_strategy",
    "tf.contrib.distribute.has_strategy",
    "tf.contrib.distribute.has_distribution_strategy",
)
def has_strategy() -> bool:
    """Whether a strategy's scope is active (``tf.distribute.has_strategy``)."""
    return get_strategy() is not _DEFAULT


@export("tf.distribute.get_replica_context", "tf.contrib.distribute.get_replica_context")
def get_replica_context() -> ReplicaContext | None:
    """The current replica context; None in the cross-replica context (``tf.distribute.get_replica_context``)."""
    return _current.get()[1]


@export("tf.distribute.in_cross_replica_context", "tf.contrib.distribute.in_cross_replica_context")
def in_cross_replica_context() -> bool:
    """Whether code runs in the cross-replica context (``tf.distribute.in_cross_replica_context``)."""
    return get_replica_context() is None


# ---- The losses of an estimator's replicas -------------------------------------------------------------------------
# The gradients of all replicas are added up. So an estimator's optimizers of `tf.train` divide the loss by the number
# of replicas, unless it is a sum over examples: TensorFlow takes the reduction of the last loss of `tf.losses` for it.

_IS_SHARED, _IS_SCALED = "losses_are_shared", "loss_is_scaled"


def share_losses() -> None:
    """From here on `shared_loss` divides the losses of the default graph."""
    get_default_graph().attachments[_IS_SHARED] = True


def shared_loss(loss: Any) -> Any:
    """A loss as an optimizer takes it: divided by the number of replicas in an estimator, unless it is a sum."""
    found, count = get_default_graph().attachments, get_strategy().num_replicas_in_sync
    found[_IS_SCALED] = count > 1 and _IS_SHARED in found and found.get(LAST_REDUCTION) != Reduction.SUM
    return loss * (1.0 / count) if found[_IS_SCALED] else loss


def loss_of_all(loss: Any) -> Any:
    """The loss that an estimator reports: the replicas' mean where `shared_loss` has divided it, else the sum."""
    mean = get_default_graph().attachments.get(_IS_SCALED, False)
    return get_strategy().reduce(ReduceOp.MEAN if mean else ReduceOp.SUM, loss)
