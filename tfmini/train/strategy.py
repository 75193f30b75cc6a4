"""Distribution strategies of one replica (``tf.distribute``), so that code written for strategies runs.

A strategy replicates a step to several devices. In TensorFlow 1's cluster model a program replicates steps with
explicit devices instead (`tf.device`, `tf.train.replica_device_setter`, `tf.train.SyncReplicasOptimizer`). So
tfmini has only strategies of one replica: the default strategy and `OneDeviceStrategy`. `MirroredStrategy`
equals the latter and refuses several devices.

Code runs in one of two contexts. In the *replica context* it builds one replica; a program starts there, and
functions given to `Strategy.experimental_run_v2` run there. In the *cross-replica context*, inside
`Strategy.scope` and functions given to `ReplicaContext.merge_call`, it works on all replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from tfmini import errors
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import colocate_with
from tfmini.graph.scoping import device as device_scope
from tfmini.ops import control
from tfmini.ops.array.identity import identity
from tfmini.ops.math import reductions


@export("tf.distribute.ReduceOp")
class ReduceOp:
    """The kinds of reduction over replicas (``tf.distribute.ReduceOp``)."""

    SUM = "SUM"
    MEAN = "MEAN"


@export("tf.distribute.ReplicaContext")
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

    def all_reduce(self, reduce_op: Any, value: TensorLike) -> Any:
        """The value itself, since there is one replica."""
        return value


@export("tf.distribute.Strategy")
class Strategy:
    """A strategy of one replica, on ``device`` or the graph's current device (``tf.distribute.Strategy``)."""

    num_replicas_in_sync = 1

    def __init__(self, device: str = "") -> None:
        self._device = device
        self.worker_devices: tuple[str, ...] = (device,) if device else ()

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
        with _entered(self, None), device_scope(self._device or None):
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
        with _entered(self, ReplicaContext(self)), device_scope(self._device or None):
            return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: TensorLike, axis: int | None = None) -> Any:
        """The value, reduced along ``axis`` if given; a reduction over one replica changes nothing."""
        if axis is None:
            return value
        mean = str(getattr(reduce_op, "value", reduce_op)) == ReduceOp.MEAN
        reduction = reductions.reduce_mean if mean else reductions.reduce_sum
        return reduction(convert_to_tensor(value), axis=axis)

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
        self, colocate_with: Any, fn: Callable[..., Any], args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None, group: bool = True,
    ) -> Any:  # fmt: skip
        """Calls ``fn(*args, **kwargs)``, which updates what is no slot of a variable; see `update`.

        Args:
          colocate_with: without effect here; TensorFlow takes what `non_slot_devices` returns.
        """
        with _entered(self, None), device_scope(self._device or None):
            result = fn(*args, **(kwargs or {}))
        return result if group else nest.map_structure(self.experimental_local_results, result)

    def non_slot_devices(self, var_list: Sequence[Any]) -> Any:
        """What `update_non_slot` takes: this strategy's device, else the first variable by name."""
        return self.worker_devices or min(var_list, key=lambda variable: str(variable.name))

    def colocate_vars_with(self, colocate_with_variable: Any) -> contextlib.AbstractContextManager[Any]:
        """A block whose variables are made beside the given one."""
        return colocate_with(colocate_with_variable)

    def reduce_to(self, reduce_op: Any, value: TensorLike, destinations: Any) -> Any:
        """The value: one replica's reduction."""
        return value

    def batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
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


@export("tf.distribute.OneDeviceStrategy")
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
                f"MirroredStrategy runs on one device in tfmini, not on {len(names)} ({', '.join(names)}). Build one "
                "tower per device with tf.device, or one replica per task with tf.train.replica_device_setter."
            )
        super().__init__("/" + names[0].lstrip("/"))


_DEFAULT = Strategy()
_current: ContextVar[tuple[Strategy, ReplicaContext | None]] = ContextVar(
    "strategy", default=(_DEFAULT, ReplicaContext(_DEFAULT))
)


@contextlib.contextmanager
def _entered(strategy: Strategy, replica: ReplicaContext | None) -> Iterator[None]:
    token = _current.set((strategy, replica))
    try:
        yield
    finally:
        _current.reset(token)


@export("tf.distribute.get_strategy")
def get_strategy() -> Strategy:
    """The current strategy, or the default one outside of all scopes (``tf.distribute.get_strategy``)."""
    return _current.get()[0]


@export("tf.distribute.has_strategy")
def has_strategy() -> bool:
    """Whether a strategy's scope is active (``tf.distribute.has_strategy``)."""
    return get_strategy() is not _DEFAULT


@export("tf.distribute.get_replica_context")
def get_replica_context() -> ReplicaContext | None:
    """The current replica context; None in the cross-replica context (``tf.distribute.get_replica_context``)."""
    return _current.get()[1]


@export("tf.distribute.in_cross_replica_context")
def in_cross_replica_context() -> bool:
    """Whether code runs in the cross-replica context (``tf.distribute.in_cross_replica_context``)."""
    return get_replica_context() is None
