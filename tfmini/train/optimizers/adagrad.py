"""The Adagrad optimizer: a learning rate per element, which decreases with the sum of squared gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.training import update_ops
from tfmini.ops.variables.initializers import constant_initializer
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


def check_initial_accumulator(value: float, name: str = "initial_accumulator_value") -> None:
    """Raises ValueError unless the value is positive; zero would lead to a division by zero."""
    if value <= 0.0:
        raise ValueError(f"{name} must be positive: {value}")


@export("tf.train.AdagradOptimizer")
class AdagradOptimizer(FusedOptimizer):
    """accumulator += gradient²; var -= learning_rate * gradient / sqrt(accumulator).

    ``tf.train.AdagradOptimizer``. Slot: ``accumulator``.

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      initial_accumulator_value: a positive number.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: when the initial value is not positive.
    """

    _ops = update_ops.adagrad

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        check_initial_accumulator(initial_accumulator_value)
        super().__init__(use_locking, name, {"learning_rate": learning_rate})
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            dtype = v.dtype.base_dtype
            if v.get_shape().is_fully_defined():
                initializer: Any = constant_initializer(self._initial_accumulator_value, dtype=dtype)
            else:
                initializer = self._filled_like(v, dtype)
            self._get_or_make_slot_with_initializer(
                v, initializer, v.get_shape(), dtype, "accumulator", self._name
            )

    def _filled_like(self, var: Any, dtype: Any) -> Callable[[], Tensor]:
        def initial_value() -> Tensor:
            filled: Tensor = cast(array_filling.fill(array_shape.shape(var), self._initial_accumulator_value), dtype)
            return filled

        return initial_value

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"accum": "accumulator", "lr": self._tensors["learning_rate"]}
