"""``tf.train.experimental.MixedPrecisionLossScaleOptimizer``: wraps an optimizer and scales its loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops import control
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import cast
from tfmini.ops.flow.cond import cond, smart_cond
from tfmini.ops.math import elementwise as math_elementwise
from tfmini.ops.math import reductions
from tfmini.ops.math import unary as math_unary
from tfmini.ops.math.comparison import equal, logical_not
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.resource_variable import ResourceVariable
from tfmini.train.optimizers.optimizer import GradAndVar, MixIn, Optimizer
from tfmini.train.strategy import ReduceOp, Strategy, get_replica_context, get_strategy

# ---- Loss scales for mixed precision training (``tf.train.experimental.LossScale``) --------------------------------
# Small gradients of float16 tensors underflow. Therefore the loss is multiplied by the loss scale, and the
# optimizer (`tfmini.train.optimizers.loss_scale`) divides the gradients by it.


@export("tf.train.experimental.LossScale")
class LossScale(ABC):
    """Base class of loss scales (``tf.train.experimental.LossScale``)."""

    def __init__(self) -> None:
        self._weights: dict[tuple[str, Any], Any] = {}

    @abstractmethod
    def __call__(self) -> Tensor:
        """The current loss scale, a float32 scalar."""

    @abstractmethod
    def update(self, grads: Sequence[Any]) -> tuple[Operation, bool | Tensor]:
        """Updates the scale after a step with the given gradients.

        Args:
          grads: nested structure of gradients, divided by the scale; None is skipped.

        Returns:
          (the operation that updates the scale, whether the gradients may be applied: a bool or bool tensor).
        """

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, for `from_config`."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LossScale:
        """A loss scale from the result of `get_config`."""
        return cls(**config)

    def _add_weight(self, name: str, initial_value: TensorLike, dtype: DTypeLike | None = None) -> Any:
        """Makes a variable of this loss scale; raises RuntimeError if the graph has one of that name."""
        key = (name, get_default_graph())
        if key in self._weights:
            raise RuntimeError(f"Duplicate variables detected. {key}")
        variable = ResourceVariable(initial_value, trainable=False, name=name, dtype=dtype)
        self._weights[key] = variable
        return variable


@export("tf.train.experimental.FixedLossScale")
class FixedLossScale(LossScale):
    """A loss scale that never changes (``tf.train.experimental.FixedLossScale``).

    Args:
      loss_scale_value: a Python number.

    Raises:
      ValueError: when the value is not a number of at least 1.
    """

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        if not isinstance(loss_scale_value, (int, float)):
            raise ValueError("loss_scale_value must be a Python int or float.")
        if loss_scale_value < 1:
            raise ValueError("loss_scale_value must be at least 1.")
        self._value = float(loss_scale_value)

    def __call__(self) -> Tensor:
        return convert_to_tensor(self._value)

    def update(self, grads: Sequence[Any]) -> tuple[Operation, bool | Tensor]:
        return control.no_op(), True

    def __repr__(self) -> str:
        return f"FixedLossScale({self._value})"

    def get_config(self) -> dict[str, Any]:
        return {"loss_scale_value": self._value}


@export("tf.train.experimental.DynamicLossScale")
class DynamicLossScale(LossScale):
    """A loss scale that adapts to the gradients (``tf.train.experimental.DynamicLossScale``).

    After ``increment_period`` consecutive steps with finite gradients, the scale is multiplied by ``multiplier``
    unless that overflows. After a step with an infinite or NaN gradient it is divided by ``multiplier``, but
    never below 1, and the gradients of that step are not applied.
    """

    def __init__(
        self, initial_loss_scale: float = 2**15, increment_period: int = 2000, multiplier: float = 2.0
    ) -> None:
        super().__init__()
        self.initial_loss_scale = float(initial_loss_scale)
        self.increment_period = int(increment_period)
        self.multiplier = float(multiplier)
        self._current_loss_scale = self._add_weight("current_loss_scale", self.initial_loss_scale, dtypes.float32)
        # Steps with finite gradients since the scale last changed.
        self._num_good_steps = self._add_weight("good_steps", 0, dtypes.int64)

    def __call__(self) -> Tensor:
        return convert_to_tensor(self._current_loss_scale)

    def update(self, grads: Sequence[Any]) -> tuple[Operation, bool | Tensor]:
        is_finite = _all_finite([grad for grad in nest.flatten(grads) if grad is not None])
        return cond(is_finite, self._after_good_step, self._after_bad_step), is_finite

    def _after_good_step(self) -> Any:
        due = self._num_good_steps + 1 >= self.increment_period
        return cond(due, self._raise_scale, lambda: self._num_good_steps.assign_add(1).op)

    def _raise_scale(self) -> Operation:
        raised = self._current_loss_scale * self.multiplier
        assign = cond(math_unary.is_finite(raised), lambda: self._current_loss_scale.assign(raised).op, control.no_op)
        return control.group(assign, self._num_good_steps.assign(0))

    def _after_bad_step(self) -> Operation:
        lowered = math_elementwise.maximum(self._current_loss_scale / self.multiplier, 1.0)
        return control.group(self._num_good_steps.assign(0), self._current_loss_scale.assign(lowered))

    def __repr__(self) -> str:
        return (
            f"DynamicLossScale(initial_loss_scale={self.initial_loss_scale}, "
            f"increment_period={self.increment_period}, multiplier={self.multiplier})"
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_loss_scale": self.initial_loss_scale,
            "increment_period": self.increment_period,
            "multiplier": self.multiplier,
        }


def _all_finite(grads: list[Any]) -> Tensor:
    if not grads:
        return constant(True)
    finite = [reductions.reduce_all(math_unary.is_finite(grad)) for grad in grads]
    found, strategy = reductions.reduce_all(convert_to_tensor(finite)), get_strategy()
    if strategy.num_replicas_in_sync == 1:
        return found
    return equal(strategy.all_reduce(ReduceOp.SUM, cast(logical_not(found), dtypes.int32)), 0)


def get(identifier: Any) -> Any:
    """A loss scale from a number, ``"dynamic"``, a loss scale or None.

    Raises:
      ValueError: for anything else.
    """
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    if isinstance(identifier, (int, float)):
        return FixedLossScale(identifier)
    if identifier == "dynamic":
        return DynamicLossScale()
    raise ValueError(f"Could not interpret loss scale identifier: {identifier}")


# ---- loss scale optimizer ------------------------------------------------------------


@export("tf.train.experimental.MixedPrecisionLossScaleOptimizer")
class MixedPrecisionLossScaleOptimizer(Optimizer):
    """Multiplies the loss by a loss scale and divides the gradients by it.

    With a `DynamicLossScale`, a step whose gradients are not finite updates only the loss scale, but neither
    the variables nor the global step.

    Args:
      opt: the optimizer that applies the gradients.
      loss_scale: a `LossScale`, a number, or ``"dynamic"``.

    Raises:
      ValueError: when ``opt`` is no `Optimizer`.
    """

    def __init__(self, opt: Optimizer, loss_scale: TensorLike | Callable[[], Any]) -> None:
        if not isinstance(opt, Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        super().__init__(opt._use_locking, opt.get_name())
        self._optimizer = opt
        self._loss_scale = get(loss_scale)

    def compute_gradients(
        self,
        loss: TensorLike | Callable[[], Any],
        var_list: Sequence[Any] | None = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: TensorLike | Callable[[], Any] | None = None,
    ) -> list[GradAndVar]:
        """As `Optimizer.compute_gradients`; the returned gradients are those of the unscaled loss."""
        scaled = (loss() if callable(loss) else loss) * self._loss_scale()
        pairs = self._optimizer.compute_gradients(
            scaled, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        factor = 1 / self._loss_scale()
        return [(None if grad is None else _times(grad, factor), var) for grad, var in pairs]

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """As `Optimizer.apply_gradients`, in the steps in which the loss scale permits it.

        Raises:
          ValueError: in the cross-replica context of a strategy.
        """
        replica = get_replica_context()
        if replica is None:
            raise ValueError("apply_gradients() must be called in a replica context.")
        pairs = tuple(grads_and_vars)
        if not isinstance(self._loss_scale, DynamicLossScale):
            return self._optimizer.apply_gradients(pairs, global_step, name)
        return replica.merge_call(self._apply_if_finite, (pairs, global_step, name or self.get_name()))  # type: ignore[no-any-return]

    def _apply_if_finite(
        self, strategy: Strategy, pairs: tuple[GradAndVar, ...], global_step: Variable, name: str
    ) -> Operation:
        update, may_apply = self._loss_scale.update([grad for grad, _ in pairs])

        def apply() -> Operation:
            call = self._optimizer.apply_gradients
            return strategy.group(strategy.call_for_each_replica(call, (pairs, global_step, name + "-wrapped")))

        return control.group(smart_cond(may_apply, apply, control.no_op), update, name=name)


def _times(grad: Tensor | IndexedSlices, factor: TensorLike) -> Any:
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(grad.values * factor, grad.indices, grad.dense_shape)
    return grad * factor


# ---- Base class of optimizers that wrap another optimizer and use its slots ----------------------------------------


class OptimizerWrapper(MixIn):
    """Forwards all methods to the wrapped optimizer ``opt``; subclasses override some of them."""

    def __init__(self, opt: Optimizer, use_locking: bool, name: str) -> None:
        super().__init__(use_locking, name)
        self._opt = opt

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients` of the wrapped optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Operation:
        """`Optimizer.apply_gradients` of the wrapped optimizer."""
        return self._opt.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """`Optimizer.get_slot` of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: object, **kwargs: object) -> list[str]:
        """`Optimizer.get_slot_names` of the wrapped optimizer."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """`Optimizer.variables` of the wrapped optimizer."""
        return self._opt.variables()


@export("tf.contrib.tpu.CrossShardOptimizer", "tf.tpu.CrossShardOptimizer")
class CrossShardOptimizer(OptimizerWrapper, Optimizer):
    """Averages gradients over the shards of a TPU (``tf.tpu.CrossShardOptimizer``); without a TPU there is one shard.

    Args:
      opt: the optimizer that applies the gradients.
      reduction: ``tf.losses.Reduction.MEAN`` or ``SUM``; over one shard they are the same.
      name: of the optimizer.
      group_assignment: None, since one shard makes no groups.

    Raises:
      ValueError: for another reduction, or with groups.
    """

    def __init__(
        self,
        opt: Optimizer,
        reduction: str = "weighted_mean",
        name: str = "CrossShardOptimizer",
        group_assignment: Any = None,
    ) -> None:
        if reduction not in ("weighted_sum", "weighted_mean"):
            raise ValueError(f"Unsupported reduction: {reduction}.")
        if group_assignment:
            raise ValueError(
                f"group_assignment {group_assignment} is for several shards, but without a TPU there is one."
            )
        super().__init__(opt, False, name)
