"""``tf.distribute.experimental.MultiWorkerMirroredStrategy``: several workers that take each step together.

Each worker is a process with a graph, a session and a copy of all variables. The copies begin with the values of the
chief: an initial value is broadcast, and a monitored session broadcasts what the chief has restored. They stay the
same, since optimizers apply the sum of the gradients of all workers (`MultiWorkerMirroredStrategy.reduced`), and what a
replica assigns to a variable itself is reduced by the variable's aggregation (`MirroredVariable`). The chief alone
writes checkpoints and summaries. There is no recovery: the loss of a worker ends the others.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from tfmini import dtypes, errors
from tfmini.cluster import ClusterSpec, tf_config_cluster, tf_config_object, tf_config_task
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.identity import cast
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.growing.variable import EmbeddingVariable
from tfmini.ops.math import reductions
from tfmini.ops.variables.assignment import sliced_assign
from tfmini.ops.variables.base import VariableAggregation, VariableSynchronization, variable_creator_scope
from tfmini.ops.variables.resource_variable import BaseResourceVariable, ResourceVariable, UnreadVariable
from tfmini.protos import ConfigProto
from tfmini.runtime.collectives.past_lives import ENDED, is_training
from tfmini.train.optimizers.fused_optimizer import GradientDescentOptimizer
from tfmini.train.replicas import all_reduce
from tfmini.train.replicas.elastic import Ranks
from tfmini.train.saving_hooks import SummarySaverHook
from tfmini.train.sessions.monitored_session import WORKERS, MonitoredSession, UnrecoveredSession
from tfmini.train.strategy import (
    ContribMirroredStrategy,
    InputContext,
    MirroredStrategy,
    ReduceOp,
    Strategy,
    get_replica_context,
    get_strategy,
)

_log = logging.getLogger("tensorflow")
_GROUP = 2  # not that of `tf.train.AllReduceOptimizer`


@export("tf.distribute.experimental.CollectiveCommunication")
class CollectiveCommunication(Enum):
    """How workers reduce gradients (``tf.distribute.experimental.CollectiveCommunication``): always as tfmini does."""

    AUTO, RING, NCCL = "AUTO", "RING", "NCCL"


class _Copied(BaseResourceVariable):
    """What a variable of which each worker has a copy does otherwise: its writes by replicas are combined.

    Attributes:
      distribute_strategy: the strategy of the workers.
    """

    distribute_strategy: MultiWorkerMirroredStrategy

    def _as_value(self, value: TensorLike) -> Tensor:
        return self.distribute_strategy.combined(self, super()._as_value(value))

    def _after(self, op: Operation, read_value: bool = True) -> Any:
        made = super()._after(op, read_value)
        return copied(made, _AssignedVariable, self) if read_value else made

    def scatter_rows(self, *args: Any, **kwargs: Any) -> Any:
        self._check_outside_of_replicas()
        return super().scatter_rows(*args, **kwargs)

    def scatter_points(self, *args: Any, **kwargs: Any) -> Any:
        self._check_outside_of_replicas()
        return super().scatter_points(*args, **kwargs)

    def __getitem__(self, where: Any) -> Tensor:
        part = super().__getitem__(where)

        def assign(value: TensorLike, name: str | None = None) -> Tensor:
            self._check_outside_of_replicas()
            return sliced_assign(part, value, name)

        part.assign = assign  # type: ignore[attr-defined]
        return part

    def _check_outside_of_replicas(self) -> None:
        alone = self.synchronization is VariableSynchronization.ON_READ and not _is_combined(self)
        if self.distribute_strategy.is_in_replica() and not alone:
            raise NotImplementedError(
                f"The replicas of {self.distribute_strategy} cannot change a part of {self.name}: their copies would"
                " differ. Assign the whole value, or leave it to an optimizer, which takes IndexedSlices."
            )


class MirroredVariable(_Copied, ResourceVariable):
    """This worker's copy of a variable that all workers have; see `MultiWorkerMirroredStrategy.combined`."""


class _AssignedVariable(_Copied, UnreadVariable):
    """The result of an assignment to one."""


def copied(made: Any, kind: type, like: Any) -> Any:
    """A variable that was made, as one of a kind of `_Copied` with the strategy and the settings of another."""
    made.__class__ = kind
    made.distribute_strategy = like.distribute_strategy
    made._synchronization, made._aggregation = like.synchronization, like.aggregation
    return made


def _is_combined(variable: Any) -> bool:
    return variable.aggregation in (VariableAggregation.SUM, VariableAggregation.MEAN)


@export("tf.distribute.experimental.MultiWorkerMirroredStrategy")
class MultiWorkerMirroredStrategy(MirroredStrategy):
    """A replica in each worker of TF_CONFIG (``tf.distribute.experimental.MultiWorkerMirroredStrategy``).

    The workers are the chief and the tasks of the job ``worker``. A program gives it to `tf.estimator.RunConfig` and
    calls `tf.estimator.train_and_evaluate`; or it starts a `tf.train.Server` on each worker, builds its graph in
    `scope` and runs it there. Without TF_CONFIG, and on the evaluator, there is one worker.

    Args:
      communication: without effect.

    Raises:
      ValueError: the task of TF_CONFIG is no worker and no evaluator, or is missing.
    """

    experimental_between_graph = experimental_should_init = True
    _gpu = ""  # the device of each worker's replica, if it is no CPU

    def __init__(self, communication: CollectiveCommunication = CollectiveCommunication.AUTO) -> None:
        super().__init__(self._gpu or None)
        self.ranks = Ranks(1)
        config = tf_config_object()
        cluster = tf_config_cluster(config)
        if cluster:
            task = tf_config_task(config)
            self.configure(None, cluster, task.get("type"), task.get("index"))

    def configure(
        self, session_config: ConfigProto | None = None, cluster_spec: Any = None, task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:  # fmt: skip
        """Takes the workers from a cluster, and prepares the ConfigProto of their sessions.

        Args:
          session_config: it is changed as `update_config_proto` says.
          cluster_spec: what a `tf.train.ClusterSpec` is made of; None: the workers stay as they are.
          task_type, task_id: this process's task.
        """
        cluster = ClusterSpec(cluster_spec or {})
        if cluster:
            if task_type is None or task_id is None:
                raise ValueError("When `cluster_spec` is given, you must also specify `task_type` and `task_id`.")
            self._take_workers(cluster, task_type, int(task_id))
        if session_config is not None:
            session_config.CopyFrom(self.update_config_proto(session_config))

    def _take_workers(self, cluster: ClusterSpec, job: str, index: int) -> None:
        if job == "evaluator":
            return
        workers = [(each.job, each.task) for each in cluster.tasks() if each.job in ("chief", "worker")]
        workers.sort()  # the chief is rank 0
        if (job, index) not in workers:
            raise ValueError(
                f"Unexpected task /job:{job}/task:{index} of {type(self).__name__}: its workers are the chief and the"
                f" tasks of the job worker, here {workers}. Start no ps and no master with it."
            )
        if len(workers) > 1:
            task = f"/job:{job}/task:{index}"
            self._device = task + self._gpu
            self.ranks = Ranks(len(workers), workers.index((job, index)), _GROUP, task)

    @property
    def num_replicas_in_sync(self) -> int:  # type: ignore[override]
        """The number of workers."""
        return self.ranks.size

    @property
    def is_chief(self) -> bool:
        """Whether this worker's values are those that all begin with, and that are saved."""
        return self.ranks.rank == 0

    should_checkpoint = should_save_summary = is_chief

    def update_config_proto(self, config_proto: ConfigProto) -> ConfigProto:
        """A copy of a ConfigProto by which a session knows its own task only, and waits for no other."""
        made = copy.deepcopy(config_proto)
        if self.ranks.size > 1:
            del made.device_filters[:]
            made.device_filters.append(str(self.ranks.device))
        return made

    # ---- Contexts and variables ----

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """See `Strategy.scope`. Variables made in it are `MirroredVariable`."""
        with self._mirroring(), super().scope():
            yield self

    @contextlib.contextmanager
    def replica_scope(self, in_replica: bool) -> Iterator[None]:
        """See `Strategy.replica_scope`."""
        with self._mirroring(), super().replica_scope(in_replica):
            yield

    def is_in_replica(self) -> bool:
        """Whether code builds a replica of this strategy."""
        return self.ranks.size > 1 and get_strategy() is self and get_replica_context() is not None

    def _mirroring(self) -> contextlib.AbstractContextManager[Any]:
        """A block in which variables are made by `_make`."""
        if self.ranks.size == 1 or self._make in get_default_graph()._variable_creator_stack:
            return contextlib.nullcontext()
        get_default_graph().attachments[WORKERS] = self
        return variable_creator_scope(self._make)

    def _make(self, make: Callable[..., Any], **kwargs: Any) -> Any:
        collections, value = kwargs.get("collections"), kwargs.get("initial_value")
        own: list[Tensor] = []
        if kwargs.get("variable_def") is None and (collections is None or GraphKeys.GLOBAL_VARIABLES in collections):
            kwargs["initial_value"] = lambda: self._of_chief(value, kwargs.get("dtype"), own)
        made = make(**{**kwargs, "use_resource": True})
        if type(made) is not ResourceVariable:
            return made
        made.distribute_strategy = self  # type: ignore[attr-defined]
        if own:  # `initialized_value` computes the initial value, too, and a worker may do so alone
            made._initial_value = own[0]
        return copied(made, MirroredVariable, made)

    def _of_chief(self, value: Any, dtype: Any, own: list[Tensor]) -> Any:
        """The chief's initial value of a variable; strings, which no collective carries, are each worker's own."""
        own.append(convert_to_tensor(value() if callable(value) else value, dtype=dtype))
        if own[0].dtype.base_dtype == dtypes.string:
            return own[0]
        return self.ranks.broadcast(own[0], name=f"{get_default_graph().get_name_scope()}/of_chief")

    def combined(self, variable: Any, value: Tensor) -> Tensor:
        """What is assigned to a variable where this replica assigns a value: the sum or mean of all replicas' values.

        Raises:
          ValueError: the variable does not say how they are combined.
        """
        if not self.is_in_replica() or variable.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            return value
        if _is_combined(variable):
            return self.ranks.all_reduce(value, mean=variable.aggregation is VariableAggregation.MEAN)
        if variable.synchronization is VariableSynchronization.ON_READ:
            return value
        raise ValueError(
            f"You must specify an aggregation method to update {variable.name}, a MirroredVariable, in Replica Context:"
            " give `aggregation` to tf.Variable or tf.get_variable, such as tf.VariableAggregation.MEAN."
        )

    # ---- Reductions ----

    @contextlib.contextmanager
    def reduced(self, pairs: Sequence[tuple[Any, Any]]) -> Iterator[Sequence[tuple[Any, Any]]]:
        """(gradient, variable) of this replica -> the sums of all replicas' gradients, applied in the block.

        Raises:
          RuntimeError: in the cross-replica context, which has no gradient of a replica.
          UnimplementedError: for a table that grows, since each worker would have rows of its own.
        """
        if self.ranks.size == 1:
            with super().reduced(pairs):
                yield pairs
            return
        if not self.is_in_replica():
            raise RuntimeError(
                "Optimizers apply gradients in a replica context: call `minimize` or `apply_gradients` in a function"
                " that `strategy.experimental_run_v2` calls, or in the model function of an estimator."
            )
        found = [pair for pair in pairs if pair[0] is not None]
        for _, variable in found:
            if isinstance(variable, EmbeddingVariable):
                raise errors.UnimplementedError.of(
                    f"{self} has no tables that grow, such as {variable.name}: they belong on a ps, with"
                    " tf.distribute.experimental.ParameterServerStrategy."
                )
        reducer = all_reduce.AllReduceOptimizer(
            GradientDescentOptimizer(1.0), self.ranks.size, self.ranks.rank, _GROUP, mean=False,
            device=self.ranks.device, name="MirroredWorkers",
        )  # fmt: skip
        with self.replica_scope(False):
            yield reducer.reduce_pairs(found) if found else pairs

    def all_reduce(self, reduce_op: object, value: Any) -> Any:
        """The sums or means of the replicas' tensors, in a structure; each replica's gradient is reduced likewise."""
        return nest.map_structure(lambda each: self._reduced(each, _is_mean(reduce_op)), value)

    def _reduced(self, value: Any, mean: bool) -> Any:
        if not isinstance(value, IndexedSlices):
            return all_reduce.all_reduce(self.ranks, value, mean=mean)
        values = value.values / float(self.ranks.size) if mean else value.values
        rows, indices = (all_reduce.all_gather(self.ranks, each) for each in (values, value.indices))
        return IndexedSlices(rows, indices, value.dense_shape)

    def reduce(self, reduce_op: object, value: Any, axis: int | None = None) -> Any:
        """`all_reduce`; with ``axis``, also over that axis of each replica's tensor, whose lengths may differ."""
        if self.ranks.size == 1:
            return super().reduce(reduce_op, value, axis)
        if axis is None:
            return self.all_reduce(reduce_op, value)
        value = convert_to_tensor(value)
        total = self._reduced(reductions.reduce_sum(value, axis), False)
        if not _is_mean(reduce_op):
            return total
        return total / self._reduced(cast(shape_of(value)[axis], total.dtype), False)

    def reduce_to(self, reduce_op: object, value: Any, destinations: object) -> Any:
        """`all_reduce`: all workers have the result."""
        return self.all_reduce(reduce_op, value)

    def batch_reduce_to(self, reduce_op: object, value_destination_pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        """`all_reduce` of the values of the pairs."""
        return [self.all_reduce(reduce_op, value) for value, _ in value_destination_pairs]

    # ---- Inputs ----

    def input_context(self) -> InputContext:
        """Each worker reads its own part of the data."""
        return InputContext(self.ranks.size, self.ranks.rank, self.ranks.size)

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        """The data set itself on one worker.

        Raises:
          UnimplementedError: for several workers.
        """
        self._check_one_worker("divides no data set between workers")
        return dataset

    def make_dataset_iterator(self, dataset: Any) -> Any:
        """See `Strategy.make_dataset_iterator` and `experimental_distribute_dataset`."""
        return super().make_dataset_iterator(self.experimental_distribute_dataset(dataset))

    def _check_one_worker(self, what: str) -> None:
        if self.ranks.size > 1:
            raise errors.UnimplementedError.of(
                f"{self} {what}: give a function to make_input_fn_iterator, or to"
                " experimental_distribute_datasets_from_function, which takes an InputContext ctx and makes this"
                " worker's part, such as dataset.shard(ctx.num_input_pipelines, ctx.input_pipeline_id) in batches of"
                " ctx.get_per_replica_batch_size(global_batch_size)."
            )

    # ---- Sessions ----

    def check_summaries(self, secs: float | None) -> None:
        """Refuses to write summaries every so many seconds.

        Raises:
          ValueError: there is such a period: the clock of each worker would have its own step, and a summary that is
            reduced needs all workers in the same step.
        """
        if secs and secs > 0:
            raise ValueError(
                f"save_summaries_secs={secs} cannot be met by the {self.ranks.size} workers of {type(self).__name__} in"
                " the same steps: give save_summaries_steps, the same to all of them."
            )

    def unwritten_summaries(self, steps: int, scaffold: Any) -> SummarySaverHook:
        """A hook that computes summaries when the chief does, since their ops may be collectives."""
        return SummarySaverHook(steps, None, summary_writer=_Unwritten(), scaffold=scaffold)  # type: ignore[arg-type]

    def monitored_session(self, creator: Any, hooks: list[Any], stop_grace_period_secs: float) -> MonitoredSession:
        """The session of `tf.train.MonitoredTrainingSession`: all workers begin with the chief's values.

        It does not recover. A worker that is lost ends the others, with the error that names it. When a worker's script
        is over, since its data were the shortest, that is the end of the data for the others.
        """
        first = all_reduce.BroadcastVariablesHook(self.ranks)
        return _WorkerSession(creator, [first, *hooks], stop_grace_period_secs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.ranks.size} workers on {self._device}>"


@export("tf.contrib.distribute.CollectiveAllReduceStrategy")
class CollectiveAllReduceStrategy(MultiWorkerMirroredStrategy):
    """`MultiWorkerMirroredStrategy` under its older name (``tf.contrib.distribute.CollectiveAllReduceStrategy``)."""

    def __init__(
        self,
        num_gpus_per_worker: int = 0,
        communication: CollectiveCommunication = CollectiveCommunication.AUTO,
    ) -> None:
        if num_gpus_per_worker:
            self._gpu = ContribMirroredStrategy(num_gpus=num_gpus_per_worker)._device
        super().__init__(communication)


class _WorkerSession(UnrecoveredSession):
    def __init__(self, *args: Any) -> None:
        is_training.set()
        super().__init__(*args)

    def _close_internal(self, kind: Any = None, error: BaseException | None = None) -> None:
        super()._close_internal(kind, error)
        if kind is None:
            is_training.clear()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().run(*args, **kwargs)
        except errors.UnknownError as error:
            if ENDED not in error.message:
                raise
            _log.warning("Training ends here, since it has ended elsewhere: %s", errors.without_tags(error.message))
            raise errors.OutOfRangeError.of("Another worker has come to the end of its data.") from error


class _Unwritten:
    """A writer of summaries that writes nothing."""

    def add_summary(self, summary: object, step: int) -> None:
        """Drops a summary."""

    add_session_log = add_summary

    def flush(self) -> None:
        """Has nothing to write."""


def _is_mean(reduce_op: object) -> bool:
    return str(getattr(reduce_op, "value", reduce_op)) == ReduceOp.MEAN
