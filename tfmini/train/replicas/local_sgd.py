"""All-reduce workers that train alone for some steps, and then meet: local SGD and DiLoCo.

Each worker keeps all variables and updates them with its own gradients. After every ``period`` steps the workers
all-reduce once, in the buckets of `AllReduceOptimizer`, so a step sends a ``period``-th of its bytes on average:

* `LocalSGDOptimizer`: all go on from the mean of their variables (Stich, *Local SGD converges fast and communicates
  little*, 2019).
* `DiLoCoOptimizer`: the mean of what they have moved is the gradient of an outer optimizer, which updates the values
  that they had at the last meeting (Douillard et al., *DiLoCo*, 2023). All go on from there.

What the wrapped optimizer keeps, such as momentum, stays a worker's own. The counter of the steps is a global variable,
as are the values of the last meeting. So a checkpoint has them, and all workers count from the chief's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import colocate_with, control_dependencies, get_collection_ref, init_scope, name_scope
from tfmini.ops import control
from tfmini.ops.growing.variable import EmbeddingVariable
from tfmini.ops.variables.assignment import assign_add
from tfmini.train.optimizers.fused_optimizer import MomentumOptimizer
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer, increment_op
from tfmini.train.replicas.all_reduce import BUCKET_BYTES, AllReducing
from tfmini.train.replicas.compressed import ErrorFeedback
from tfmini.train.replicas.local_models import once_in

_RATE, _MOMENTUM = 0.7, 0.9  # of the outer optimizer in the paper on DiLoCo (arXiv:2311.08105)
_STEPS, _ANCHOR = "local_sgd_steps", "anchor"


class LocalSteps(AllReducing):
    """What `LocalSGDOptimizer` does, as a mix-in (see `MixIn`)."""

    def __init__(
        self,
        opt: Optimizer,
        num_workers: int,
        rank: int = 0,
        period: int = 10,
        group_key: int = 1,
        bucket_bytes: int = BUCKET_BYTES,
        device: str | Callable[..., Any] | None = None,
        use_locking: bool = False,
        name: str | None = None,
        least_workers: int = 0,
    ) -> None:
        if period < 1:
            raise ValueError(f"period must be at least 1, got {period}.")
        super().__init__(
            opt, num_workers, rank, group_key, bucket_bytes, True, device, use_locking,
            name or f"LocalSGD{opt.get_name()}", least_workers,
        )  # fmt: skip
        self._period = period

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients` of the wrapped optimizer: this worker's own."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """The operation that updates this worker's variables, meets the others if it is time, and then counts.

        Args:
          grads_and_vars, global_step, name: as in `Optimizer`. The global step counts the steps of a worker.

        Raises:
          ValueError: no variable of a worker has a gradient, or one is a table that grows.
        """
        pairs = list(grads_and_vars)
        copies = _own_variables(pairs, self._name)
        train_ops = get_collection_ref(GraphKeys.TRAIN_OP)
        before = list(train_ops)
        update = self._opt.apply_gradients(pairs)
        with init_scope():
            self._create_slots(copies)
        with name_scope(self._name if name is None else name) as scope:
            with control_dependencies([update]), colocate_with(copies[0]):
                steps = assign_add(self._get_non_slot_variable(_STEPS, copies[0].graph), 1)
            met = once_in(self._period, steps, lambda: self._meet(copies))
            done = _counted(met, global_step, scope)
        train_ops[:] = [*before, done]  # the wrapped optimizer's update is a part of the step
        return done

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        self._create_non_slot_variable(0, _STEPS, var_list[0])

    def variables(self) -> list[Any]:
        """`Optimizer.variables` of the wrapped optimizer and of this one."""
        return [*self._opt.variables(), *Optimizer.variables(self)]

    def _meet(self, copies: Sequence[Any]) -> Operation:
        """All-reduces once, and gives the variables the values that all workers go on from."""
        means = self.reduce_pairs([(copy.read_value(), copy) for copy in copies])
        return control.group(*(copy.assign(mean) for mean, copy in means))


@export("tf.train.LocalSGDOptimizer")
class LocalSGDOptimizer(LocalSteps, Optimizer):
    """Wraps an optimizer so that workers train alone, and take the mean of their variables after some steps.

    All workers must make the same number of steps. After the last one their variables are equal if it is a multiple of
    ``period``. Variables on a parameter server (``/job:ps``) are shared anyway: each worker updates them in each step.
    Only variables with a gradient are averaged; moving averages of a batch normalisation stay a worker's own.

    Args:
      opt: the optimizer of each worker.
      num_workers, rank, group_key, bucket_bytes, device, least_workers: as in `AllReduceOptimizer`.
      period: the steps from one meeting to the next.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: ``period`` is below 1, or the rank is not below ``num_workers``.
    """


@export("tf.train.DiLoCoOptimizer")
class DiLoCoOptimizer(LocalSteps, Optimizer):
    """Wraps an optimizer so that workers train alone, and an outer optimizer makes one step of what they did together.

    After each ``period`` steps, the gradient of the outer optimizer is the mean, over the workers, of the values at the
    last meeting less the present ones. With `GradientDescentOptimizer(1.0)` it is `LocalSGDOptimizer`. DiLoCo's own
    setting is AdamW for ``opt`` and a period of some hundred steps.

    Args:
      opt: the optimizer of each worker.
      num_workers, rank: as in `AllReduceOptimizer`.
      period: the steps from one meeting to the next.
      outer: the outer optimizer; default: Nesterov momentum of 0.9 with a learning rate of 0.7.
      compression: of what a worker has moved, as in `AllReduceOptimizer`.
      name: as in `Optimizer`.
      kwargs: other arguments of `LocalSGDOptimizer`.

    Raises:
      ValueError: as `LocalSGDOptimizer`; or there is no such compression.
    """

    def __init__(
        self,
        opt: Optimizer,
        num_workers: int,
        rank: int = 0,
        period: int = 100,
        outer: Optimizer | None = None,
        compression: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        name = name or f"DiLoCo{opt.get_name()}"
        super().__init__(opt, num_workers, rank, period, name=name, **kwargs)
        self._feedback = ErrorFeedback(compression, name)
        self._outer = outer or MomentumOptimizer(_RATE, _MOMENTUM, name=f"{name}Outer", use_nesterov=True)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        super()._create_slots(var_list)
        for copy in var_list:
            self._get_or_make_slot(copy, copy.initialized_value(), _ANCHOR, f"{self._name}_{_ANCHOR}")

    def variables(self) -> list[Any]:
        """`Optimizer.variables` of both optimizers and of this one."""
        return [*super().variables(), *self._outer.variables()]

    def _meet(self, copies: Sequence[Any]) -> Operation:
        anchors = [Optimizer.get_slot(self, copy, _ANCHOR) for copy in copies]
        moved = [(anchor.read_value() - copy.read_value(), copy) for anchor, copy in zip(anchors, copies)]
        means = [mean for mean, _ in self.reduce_pairs(moved)]
        with control_dependencies([self._outer.apply_gradients(list(zip(means, anchors)))]):
            return control.group(*(copy.assign(anchor.read_value()) for anchor, copy in zip(anchors, copies)))


def _own_variables(pairs: Sequence[GradAndVar], name: str) -> list[Any]:
    """The variables with a gradient that each worker has for itself."""
    found = [variable for grad, variable in pairs if grad is not None and "/job:ps" not in variable.device]
    if not found:
        raise ValueError(f"{name} averages the variables of workers, and none of those with a gradient is on a worker.")
    for variable in found:
        if isinstance(variable, EmbeddingVariable):
            raise ValueError(
                f"The table {variable.op.name!r} grows on each worker with other ids, so there is no mean of the"
                " workers' tables: put it on a ps, which all share."
            )
    return found


def _counted(met: Any, global_step: Any, name: str) -> Operation:
    """The end of a step, and the count of it."""
    if global_step is None:
        return control.group(met, name=name)
    with control_dependencies([met]), colocate_with(global_step):
        return increment_op(global_step, name)
