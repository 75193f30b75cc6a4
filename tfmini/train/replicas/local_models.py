"""Workers that train copies of the model and meet from time to time (``tf.contrib.opt``).

Each worker has the trainable variables on its own device. The parameter servers hold one center of each. After so many
local steps an elastic worker moves its copy and the center towards each other, without waiting for anybody
(`ElasticAverageOptimizer`); averaging workers wait for each other, and all go on from the mean of their copies
(`ModelAverageOptimizer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, device, name_scope
from tfmini.ops import control
from tfmini.ops.array.filling import fill
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import floormod
from tfmini.ops.math.sums import add_n
from tfmini.ops.nn.batch_norm import l2_loss
from tfmini.ops.queues.accumulators import ConditionalAccumulator
from tfmini.ops.queues.queues import FIFOQueue
from tfmini.ops.variables.functions import (
    Variable,
    global_variables,
    trainable_variables,
)
from tfmini.ops.variables.scope import get_variable
from tfmini.placement.wire_table import EVERY_STEPS
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.optimizers.loss_scale import OptimizerWrapper
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer
from tfmini.train.replicas.wrappers import exchanged_saver
from tfmini.train.session_run_hook import SessionRunHook

_CENTER, _LOCAL_CENTER = "global_center_variable", "local_center_variable"
_BETA = 0.9  # of the paper on elastic averaging (arXiv:1412.6651): moving rate times period times workers


def once_in(period: int, steps: Any, meet: Callable[[], Operation]) -> Any:
    """The op that runs ``meet`` in each step whose number is a multiple of the period."""
    is_time = equal(floormod(steps, period), 0)
    with get_default_graph()._attr_scope({EVERY_STEPS: period}):
        return cond(is_time, meet, control.no_op)


class _CopyGetter:
    """Base class of the custom getters: trainable variables become local ones of a worker.

    Attributes:
      worker_device: of this worker.
      centers: a worker's variable -> the shared one.
    """

    def __init__(self, worker_device: str) -> None:
        self.worker_device = worker_device
        self.centers: dict[Any, Any] = {}

    def __call__(
        self, getter: Callable[..., Any], name: str, trainable: Any, collections: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if trainable:
            copy = self._local(getter, name, *args, trainable=True, **kwargs)
            if not kwargs.get("reuse"):  # then it has its center
                self._make_centers(copy, getter, name, *args, **kwargs)
            return copy
        is_local = GraphKeys.LOCAL_VARIABLES in (collections or ())
        with device(self.worker_device) if is_local else nullcontext():
            return getter(name, *args, trainable=trainable, collections=collections, **kwargs)

    def _local(self, getter: Callable[..., Any], name: str, *args: Any, trainable: bool, **kwargs: Any) -> Any:
        with device(self.worker_device):
            return getter(name, *args, trainable=trainable, collections=[GraphKeys.LOCAL_VARIABLES], **kwargs)

    def _make_centers(self, copy: Any, getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError


@export("tf.contrib.opt.ElasticAverageCustomGetter")
class ElasticAverageCustomGetter(_CopyGetter):
    """The custom getter of variable scopes for `ElasticAverageOptimizer`. Use it under ``replica_device_setter``.

    ``tf.get_variable("w", …)`` then makes the worker's ``w``, the shared ``global_center_variable/w`` and
    ``local_center_variable/w``, the center as the worker saw it last (``tf.contrib.opt.ElasticAverageCustomGetter``).

    Args:
      worker_device: of this worker, such as ``/job:worker/task:0``.
    """

    def __init__(self, worker_device: str) -> None:
        super().__init__(worker_device)
        self.seen: dict[Any, Any] = {}  # a worker's variable -> its local center

    def _make_centers(self, copy: Any, getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> None:
        center = getter(f"{_CENTER}/{name}", *args, trainable=False, collections=[GraphKeys.GLOBAL_VARIABLES], **kwargs)
        seen = self._local(getter, f"{_LOCAL_CENTER}/{name}", *args, trainable=False, **kwargs)
        for own, shared, last in zip(*(map(_parts, (copy, center, seen)))):
            self.centers[own], self.seen[own] = shared, last


@export("tf.contrib.opt.ModelAverageCustomGetter")
class ModelAverageCustomGetter(_CopyGetter):
    """The custom getter of variable scopes for `ModelAverageOptimizer`. Use it under ``replica_device_setter``.

    ``tf.get_variable("w", …)`` then makes the worker's ``w`` and the shared ``global_center_variable/w``, which
    starts at the chief's ``w`` (``tf.contrib.opt.ModelAverageCustomGetter``).

    Args:
      worker_device: of this worker, such as ``/job:worker/task:0``.
    """

    def _make_centers(self, copy: Any, getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> None:
        for own in _parts(copy):
            self.centers[own] = Variable(
                own.initialized_value(), trainable=False, name=f"{_CENTER}/{own.op.name}",
                collections=[GraphKeys.GLOBAL_VARIABLES],
            )  # fmt: skip


def _parts(variable: Any) -> list[Any]:
    return [variable] if isinstance(variable, Variable) else list(variable)


class _LocalOptimizer(OptimizerWrapper, Optimizer):
    """Base class: local steps, and a meeting after every ``period`` of them."""

    def __init__(self, opt: Optimizer, getter: _CopyGetter, period: int, use_locking: bool, name: str) -> None:
        super().__init__(opt, use_locking, name)
        self._centers, self._period = getter.centers, period
        with device(getter.worker_device):
            self._local_step = get_variable(
                "local_step", initializer=0, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES]
            )

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Updates this worker's variables, and meets the others when it is time.

        The global step counts meetings.
        """
        pairs = list(grads_and_vars)
        before = set(global_variables())
        update = self._opt.apply_gradients(pairs, name=name)
        _make_local([v for v in global_variables() if v not in before])
        with control_dependencies([update]):
            steps = self._local_step.assign_add(1)
        updated = [var for gradient, var in pairs if gradient is not None]
        return once_in(self._period, steps, lambda: self._meet(updated, global_step))

    def _meet(self, updated: list[Any], global_step: Any) -> Operation:
        raise NotImplementedError

    def _from_centers(self, variables: Sequence[Any]) -> list[Any]:
        """The ops that give variables of this worker the values of the centers."""
        found = []
        for own in variables:
            with device(own.device):
                found.append(own.assign(self._centers[own].read_value()))
        return found


def _make_local(slots: Sequence[Any]) -> None:
    """Each worker initializes the slots of its own variables."""
    graph = get_default_graph()
    shared = graph.get_collection_ref(GraphKeys.GLOBAL_VARIABLES)
    for slot in slots:
        shared.remove(slot)
        graph.add_to_collection(GraphKeys.LOCAL_VARIABLES, slot)


class _InitHook(SessionRunHook):
    """Gives a worker's variables the values of the centers when its session begins."""

    def __init__(self, make_init_op: Callable[[], Operation]) -> None:
        self._make_init_op = make_init_op
        self._init_op: Any = None

    def begin(self) -> None:
        self._init_op = self._make_init_op()

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._init_op)


@export("tf.contrib.opt.ElasticAverageOptimizer")
class ElasticAverageOptimizer(_LocalOptimizer):
    """Asynchronous elastic averaging (``tf.contrib.opt.ElasticAverageOptimizer``; arXiv:1412.6651).

    After each ``communication_period`` local steps, with d = copy - center: copy -= moving_rate * d, and
    center += moving_rate * d. The loss gets rho / 2 * the squared distance from the center as it was seen last.

    Args:
      opt: the optimizer of the copies.
      num_worker: the number of workers.
      ea_custom_getter: the getter that made the variables.
      communication_period: local steps between two meetings.
      moving_rate: by default 0.9 / communication_period / num_worker.
      rho: by default moving_rate / the learning rate of ``opt``.
      use_locking, name: as in `Optimizer`.
      synchronous: the workers wait for each other once, before they begin.

    Raises:
      ValueError: when ``rho`` is left out and the learning rate of ``opt`` is not a number.
    """

    def __init__(
        self,
        opt: Optimizer,
        num_worker: int,
        ea_custom_getter: ElasticAverageCustomGetter,
        communication_period: int = 10,
        moving_rate: float | None = None,
        rho: float | None = None,
        use_locking: bool = True,
        synchronous: bool = False,
        name: str = "ElasticAverageOptimizer",
    ) -> None:
        super().__init__(opt, ea_custom_getter, communication_period, use_locking, name)
        self._num_worker, self._synchronous, self._seen = num_worker, synchronous, ea_custom_getter.seen
        self._moving_rate = _BETA / communication_period / num_worker if moving_rate is None else moving_rate
        self._rho = self._moving_rate / _learning_rate(opt) if rho is None else rho

    def compute_gradients(self, loss: Any, var_list: Any = None, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients` of the loss and the distance from the centers."""
        copies = list(var_list or trainable_variables())
        distance = add_n([l2_loss(copy - self._seen[copy]) for copy in copies])
        return self._opt.compute_gradients(loss + self._rho * distance, copies, *args, **kwargs)

    def _meet(self, updated: list[Any], global_step: Any) -> Operation:
        looks = [self._seen[copy].assign(self._centers[copy].read_value()) for copy in updated]
        changes = []
        for copy in updated:
            with control_dependencies(looks), device(copy.device):
                change = self._moving_rate * (copy.read_value() - self._seen[copy].read_value())
                changes.append(copy.assign_sub(change))
            with device(self._centers[copy].device):
                changes.append(self._centers[copy].assign_add(change))
        if global_step is not None:
            with colocate_with(global_step):
                changes.append(global_step.assign_add(1))
        return control.group(*changes)

    def get_init_op(self, task_index: int) -> Operation:
        """The op that gives this worker the values of the centers, and then waits for the others if synchronous."""
        copies = trainable_variables()
        ops = self._from_centers(copies)
        ops += [self._seen[copy].assign(self._centers[copy].read_value()) for copy in copies]
        if not self._synchronous:
            return control.group(*ops)
        with device(self._centers[copies[0]].device):
            queues = [
                FIFOQueue(self._num_worker, [dtypes.bool], shapes=[[]], shared_name=f"variable_init_sync_queue{i}")
                for i in range(self._num_worker)
            ]
        with control_dependencies(ops):
            tokens = [queue.enqueue(False) for i, queue in enumerate(queues) if i != task_index]
            return control.group(*tokens, queues[task_index].dequeue_many(self._num_worker - 1))

    def make_session_run_hook(self, is_chief: bool, task_index: int) -> SessionRunHook:
        """The hook for a `MonitoredTrainingSession` that runs `get_init_op`."""
        return _InitHook(lambda: self.get_init_op(task_index))

    def swapping_saver(self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any) -> Saver:
        """Returns a Saver that saves the centers under the names of the variables.

        Args:
          var_list, name, kwargs: see `tf.train.Saver`; by default all trainable variables.

        Raises:
          RuntimeError: when the getter has made no variable.
        """
        if not self._centers:
            raise RuntimeError(
                "There are no centers: make the model's variables by tf.get_variable, in a variable_scope with"
                " custom_getter=ea_custom_getter, before swapping_saver()."
            )
        chosen = trainable_variables() if var_list is None else var_list
        centers = {copy.op.name: center for copy, center in self._centers.items()}
        return exchanged_saver(chosen, lambda own, others: centers.get(own, others[own]), name=name, **kwargs)


def _learning_rate(opt: Any) -> Any:
    rate = getattr(opt, "_hyper", {}).get("learning_rate")
    if not isinstance(rate, int | float):
        raise ValueError(
            f"ElasticAverageOptimizer: pass rho, since {type(opt).__name__} has no number as learning rate."
        )
    return rate


@export("tf.contrib.opt.ModelAverageOptimizer")
class ModelAverageOptimizer(_LocalOptimizer):
    """Averages the copies after each ``interval_steps`` local steps (``tf.contrib.opt.ModelAverageOptimizer``).

    The workers wait for each other at that point, so all must make the same number of steps.

    Args:
      opt: the optimizer of the copies.
      num_worker: the number of workers.
      is_chief: whether this worker takes the means.
      ma_custom_getter: the getter that made the variables.
      interval_steps: local steps between two averages.
      use_locking, name: as in `Optimizer`.
    """

    def __init__(
        self,
        opt: Optimizer,
        num_worker: int,
        is_chief: bool,
        ma_custom_getter: ModelAverageCustomGetter,
        interval_steps: int = 100,
        use_locking: bool = True,
        name: str = "ModelAverageOptimizer",
    ) -> None:
        super().__init__(opt, ma_custom_getter, interval_steps, use_locking, name)
        self._num_worker, self._is_chief = num_worker, is_chief

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Updates this worker's variables, and averages them with the others' when it is time.

        Raises:
          ValueError: without gradients, or without ``global_step``, which counts the averages.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("ModelAverageOptimizer counts the averages: pass global_step")
        return super().apply_gradients(pairs, global_step, name)

    def _meet(self, updated: list[Any], global_step: Any) -> Operation:
        with colocate_with(global_step):
            may_go_on = FIFOQueue(-1, [dtypes.bool], shapes=[[]], shared_name="sync_queue")
        given: list[Any] = []
        means: list[Tensor] = []
        with name_scope(None, f"{self._name}/global"):
            for copy in updated:
                center = self._centers[copy]
                with device(center.device):
                    sums = ConditionalAccumulator(
                        copy.dtype.base_dtype, copy.get_shape(), shared_name=f"{center.name}/var_accum"
                    )
                    given.append(sums.apply_grad(copy.read_value(), local_step=global_step))
                    if self._is_chief:
                        means.append(sums.take_grad(self._num_worker))
        with control_dependencies(given):
            met = self._take_means(updated, means, global_step, may_go_on) if self._is_chief else may_go_on.dequeue()
        with control_dependencies([met]):
            return control.group(*self._from_centers(updated))

    def _take_means(self, updated: list[Any], means: list[Tensor], global_step: Any, may_go_on: FIFOQueue) -> Operation:
        """The chief gives the centers the means, counts, and lets the others go on."""
        changes = []
        for copy, mean in zip(updated, means):
            with device(self._centers[copy].device):
                changes.append(self._centers[copy].assign(mean))
        with colocate_with(global_step):
            changes.append(global_step.assign_add(1))
        with control_dependencies(changes), colocate_with(global_step):
            return may_go_on.enqueue_many(fill([self._num_worker - 1], False))

    def get_init_op(self) -> Operation:
        """The op that gives this worker the values of the centers."""
        return control.group(*self._from_centers(trainable_variables()))

    def make_session_run_hook(self) -> SessionRunHook:
        """The hook for a `MonitoredTrainingSession` that runs `get_init_op`."""
        return _InitHook(self.get_init_op)
