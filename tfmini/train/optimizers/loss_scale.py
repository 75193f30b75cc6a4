"""Loss scales (``tf.train.experimental.LossScale``): the number a loss is multiplied by.

Small gradients of float16 tensors would vanish; a larger loss makes every gradient larger, and the
optimizer (`tfmini.train.loss_scale_optimizer`) divides them by the same number before it uses them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tfmini import dtypes
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops import control, math_elementwise, math_unary, reduce_functions
from tfmini.ops.cond import cond
from tfmini.ops.constant import constant
from tfmini.ops.resource_variable import ResourceVariable


class LossScale(ABC):
    """Base class (``tf.train.experimental.LossScale``)."""

    def __init__(self) -> None:
        self._weights: dict[tuple[str, Any], Any] = {}

    @abstractmethod
    def __call__(self) -> Tensor:
        """The loss scale now, a float32 scalar."""

    @abstractmethod
    def update(self, grads: Any) -> tuple[Operation, bool | Tensor]:
        """What to do after a step with these gradients.

        Args:
          grads: gradients, already divided by the scale, in any nesting; None is skipped.

        Returns:
          The operation that changes the scale, and whether the gradients may be applied (a bool or a
          bool tensor).
        """

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like this."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LossScale:
        """The loss scale that `get_config` described."""
        return cls(**config)

    def _add_weight(self, name: str, initial_value: Any, dtype: Any = None) -> Any:
        """A variable of this loss scale, once per name and graph.

        Raises:
          RuntimeError: when there is one already.
        """
        key = (name, get_default_graph())
        if key in self._weights:
            raise RuntimeError(f"Duplicate variables detected. {key}")
        variable = ResourceVariable(initial_value, trainable=False, name=name, dtype=dtype)
        self._weights[key] = variable
        return variable


class FixedLossScale(LossScale):
    """A loss scale that never changes (``tf.train.experimental.FixedLossScale``).

    Args:
      loss_scale_value: a Python number.

    Raises:
      ValueError: when it is no number or less than 1.
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

    def update(self, grads: Any) -> tuple[Operation, bool | Tensor]:
        return control.no_op(), True

    def __repr__(self) -> str:
        return f"FixedLossScale({self._value})"

    def get_config(self) -> dict[str, Any]:
        return {"loss_scale_value": self._value}


class DynamicLossScale(LossScale):
    """A loss scale as high as the gradients allow (``tf.train.experimental.DynamicLossScale``).

    After ``increment_period`` steps in a row with finite gradients it is multiplied by ``multiplier``
    (unless that overflows); after a step with an infinite or NaN gradient it is divided by it, down
    to 1, and that step's gradients are not applied.
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

    def update(self, grads: Any) -> tuple[Operation, bool | Tensor]:
        is_finite = _all_finite([grad for grad in nest.flatten(grads) if grad is not None])
        return cond(is_finite, self._after_good_step, self._after_bad_step), is_finite

    def _after_good_step(self) -> Any:
        due = self._num_good_steps + 1 >= self.increment_period
        return cond(due, self._raise_scale, lambda: self._num_good_steps.assign_add(1).op)

    def _raise_scale(self) -> Operation:
        raised = self._current_loss_scale * self.multiplier
        assign = cond(
            math_unary.is_finite(raised), lambda: self._current_loss_scale.assign(raised).op, control.no_op
        )
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
    finite = [reduce_functions.reduce_all(math_unary.is_finite(grad)) for grad in grads]
    return reduce_functions.reduce_all(convert_to_tensor(finite))


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
