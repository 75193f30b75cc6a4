"""The Adagrad dual averaging optimizer: variables are computed from the sums of all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.scoping import colocate_with, device
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import identity
from tfmini.ops.training import update_ops
from tfmini.train.optimizers.adagrad import check_initial_accumulator
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


@export("tf.train.AdagradDAOptimizer")
class AdagradDAOptimizer(FusedOptimizer):
    """var = -learning_rate * sign(G) * max(\\|G\\| - l1 * T, 0) / (l2 * T * learning_rate + sqrt(GG)).

    G and GG are the sums of the gradients and of their squares, T is ``global_step + 1``. A sparse gradient
    updates only its own rows.
    ``tf.train.AdagradDAOptimizer``. Slots: ``gradient_accumulator``, ``gradient_squared_accumulator``.

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      global_step: an int64 tensor or variable that counts the steps.
      initial_gradient_squared_accumulator_value: a positive number.
      l1_regularization_strength, l2_regularization_strength: numbers.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: when the initial value is not positive.
    """

    _ops = update_ops.adagrad_da

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        initial = initial_gradient_squared_accumulator_value
        check_initial_accumulator(initial, "initial_gradient_squared_accumulator_value")
        super().__init__(use_locking, name, {"learning_rate": learning_rate})
        self._initial = initial
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength
        self._global_step = global_step
        self._next_step: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            dtype = v.dtype.base_dtype
            with colocate_with(v):
                zeros = constant(0.0, shape=v.get_shape(), dtype=dtype)
                squares = constant(self._initial, shape=v.get_shape(), dtype=dtype)
            self._get_or_make_slot(v, zeros, "gradient_accumulator", self._name)
            self._get_or_make_slot(v, squares, "gradient_squared_accumulator", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        with colocate_with(self._tensors["learning_rate"]):
            step: Any = identity(self._global_step)
            self._next_step = step + 1

    def _operands(self, var: Any) -> dict[str, Any]:
        dtype = var.dtype.base_dtype
        with device(var.device):
            global_step = identity(self._next_step)
        return {
            "gradient_accumulator": "gradient_accumulator",
            "gradient_squared_accumulator": "gradient_squared_accumulator",
            "lr": self._tensors["learning_rate"],
            "l1": cast(self._l1, dtype),
            "l2": cast(self._l2, dtype),
            "global_step": global_step,
        }
