"""Optimizers of ``tf.contrib.opt`` around another one: averages of variables, gradients that come too late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import colocate_with, control_dependencies
from tfmini.ops import control, summary
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.shape import reshape
from tfmini.ops.flow.cond import cond
from tfmini.ops.variables.functions import global_variables
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.scope import get_variable
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.checkpointing.saver_builder import named_saveables
from tfmini.train.global_steps import get_global_step
from tfmini.train.optimizers.loss_scale import OptimizerWrapper
from tfmini.train.optimizers.moving_averages import ExponentialMovingAverage
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer


@export("tf.contrib.opt.MovingAverageOptimizer")
class MovingAverageOptimizer(OptimizerWrapper, Optimizer):
    """Keeps a moving average of each variable beside it (``tf.contrib.opt.MovingAverageOptimizer``).

    Train with `swapping_saver`: it saves the averages under the names of the variables. A plain Saver that restores
    such a checkpoint for an evaluation so has the averages.

    Args:
      opt: the optimizer that updates the variables.
      average_decay, num_updates: see `ExponentialMovingAverage`.
      sequential_update: average what an update has left. Else both happen at the same time, in any order.
    """

    def __init__(
        self,
        opt: Optimizer,
        average_decay: TensorLike = 0.9999,
        num_updates: TensorLike | None = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__(opt, False, opt.get_name())
        self._ema = ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._sequential_update = sequential_update
        self._swapped: dict[str, str] | None = None  # a variable's name -> its average's, and the reverse

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """The operation that updates the variables and their averages; see `Optimizer.apply_gradients`."""
        pairs = list(grads_and_vars)
        update = self._opt.apply_gradients(pairs, global_step=global_step, name=name)
        updated = [var for gradient, var in pairs if gradient is not None]
        with control_dependencies([update] if self._sequential_update else []):
            averaged = self._ema.apply(updated)
        names = {var.op.name: self._ema.average(var).op.name for var in updated}
        self._swapped = {**names, **{average: var for var, average in names.items()}}
        return control.group(update, averaged, name="train_with_avg")

    def swapping_saver(self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any) -> Saver:
        """Returns a Saver that exchanges variables and averages. Call it when all variables exist.

        Args:
          var_list, name, kwargs: see `tf.train.Saver`; by default all global variables.

        Raises:
          RuntimeError: before `apply_gradients` or `minimize`.
          ValueError: when ``var_list`` has one of a variable and its average.
        """
        if self._swapped is None:
            raise RuntimeError(
                "Call minimize() or apply_gradients() before swapping_saver(): there are no averages yet."
            )
        chosen = global_variables() if var_list is None else var_list
        return exchanged_saver(chosen, self._other, name=name, **kwargs)

    def _other(self, name: str, variables: Mapping[str, Any]) -> Any:
        """The average of a variable, or the variable of an average; others stay themselves."""
        assert self._swapped is not None
        other = self._swapped.get(name, name)
        if other not in variables:
            raise ValueError(
                f"swapping_saver exchanges {name!r} and {other!r}, and var_list has only the first: add the other, or"
                " leave out var_list."
            )
        return variables[other]


def exchanged_saver(
    var_list: Any, other: Callable[[str, Mapping[str, Any]], Any], name: str | None = None, **kwargs: Any
) -> Saver:
    """Returns a Saver that saves others under the keys of variables.

    Args:
      var_list: see `tf.train.Saver`.
      other: takes the name of a variable, and all of ``var_list`` by name; returns what to save instead.
      name, kwargs: see `tf.train.Saver`.
    """
    by_key = var_list if isinstance(var_list, dict) else named_saveables(var_list)
    parts = {
        key: list(saved) if isinstance(saved, list | tuple | PartitionedVariable) else [saved]
        for key, saved in by_key.items()
    }
    variables = {_name_of(part): part for each in parts.values() for part in each}
    exchanged = {
        key: [other(_name_of(part), variables) if _name_of(part) else part for part in each]
        for key, each in parts.items()
    }
    return Saver({key: each if len(each) > 1 else each[0] for key, each in exchanged.items()}, name=name, **kwargs)


def _name_of(saved: Any) -> str:
    return getattr(saved.op, "name", "")  # a saveable of a table may have no op


@export("tf.contrib.opt.DropStaleGradientOptimizer")
class DropStaleGradientOptimizer(OptimizerWrapper, Optimizer):
    """Drops gradients of asynchronous workers that are too late (``tf.contrib.opt.DropStaleGradientOptimizer``).

    A worker notes the global step before it computes a gradient. If more than ``staleness`` other updates have
    happened when it would apply it, it does not, and counts it in the variable ``stale_counter``, on the device of the
    global step.

    Args:
      opt: the optimizer that applies the gradients.
      staleness: the number of updates that a gradient may miss.
      use_locking, name: as in `Optimizer`.
    """

    def __init__(
        self, opt: Optimizer, staleness: TensorLike, use_locking: bool = False, name: str = "DropStaleGradient"
    ) -> None:
        super().__init__(opt, use_locking, name)
        self._staleness = staleness
        self._local_step: Any = None

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients`, after the global step has been noted.

        Raises:
          ValueError: when there is no global step.
        """
        step = get_global_step()
        if step is None:
            raise ValueError(_NO_STEP)
        with colocate_with(loss):
            self._local_step = step + 0
        with control_dependencies([self._local_step]):
            return self._opt.compute_gradients(identity(loss), *args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Applies the gradients unless they are stale; returns the number of those that were, so far.

        Raises:
          ValueError: without ``global_step``.
        """
        if global_step is None:
            raise ValueError(_NO_STEP)
        pairs = list(grads_and_vars)
        with colocate_with(global_step):
            dropped = get_variable("stale_counter", [], initializer=zeros_initializer(), trainable=False)

        def accept() -> Any:
            with control_dependencies([self._opt.apply_gradients(pairs, global_step=global_step, name=name)]):
                return identity(0.0)

        ready = [gradient.op for gradient, _ in pairs if gradient is not None]
        with control_dependencies(ready), colocate_with(global_step):
            staleness = reshape(global_step - self._local_step, [])
        late = cond(staleness <= self._staleness, accept, lambda: identity(1.0))
        counted = dropped.assign_add(late)
        summary.scalar("Gradient staleness percentage", dropped / cast(global_step + 1, dtypes.float32))
        return counted


_NO_STEP = "DropStaleGradientOptimizer compares global steps: pass global_step=tf.train.get_or_create_global_step()."
