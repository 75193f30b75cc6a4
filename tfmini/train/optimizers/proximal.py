"""Proximal optimizers: a gradient step, then shrinkage towards 0 (L1 and L2 regularization)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import colocate_with
from tfmini.ops.array.constant import constant
from tfmini.ops.training import update_ops
from tfmini.train.optimizers.adagrad import check_initial_accumulator
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


class _ProximalOptimizer(FusedOptimizer):
    def __init__(self, use_locking: bool, name: str, learning_rate: Any, l1: Any, l2: Any) -> None:
        hyper = {
            "learning_rate": learning_rate,
            "l1_regularization_strength": l1,
            "l2_regularization_strength": l2,
        }
        super().__init__(use_locking, name, hyper)

    def _strengths(self) -> dict[str, Any]:
        return {
            "l1": self._tensors["l1_regularization_strength"],
            "l2": self._tensors["l2_regularization_strength"],
        }


@export("tf.train.ProximalGradientDescentOptimizer")
class ProximalGradientDescentOptimizer(_ProximalOptimizer):
    """step = var - learning_rate * gradient; var = sign(step) * max(\\|step\\| - rate * l1, 0) / (1 + rate * l2).

    ``tf.train.ProximalGradientDescentOptimizer``. No slots.

    Args:
      learning_rate, l1_regularization_strength, l2_regularization_strength: numbers, scalar tensors or
        functions that return one.
      use_locking, name: as in `Optimizer`.
    """

    _ops = update_ops.proximal_gradient_descent

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(use_locking, name, learning_rate, l1_regularization_strength, l2_regularization_strength)

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"alpha": self._tensors["learning_rate"], **self._strengths()}

    def _dense_gradient(self, grad: Tensor) -> dict[str, Tensor]:
        return {"delta": grad}


@export("tf.train.ProximalAdagradOptimizer")
class ProximalAdagradOptimizer(_ProximalOptimizer):
    """`ProximalGradientDescentOptimizer` with Adagrad's rate per element: learning_rate / sqrt(accumulator).

    ``tf.train.ProximalAdagradOptimizer``. Slot: ``accumulator``.

    Args:
      learning_rate, l1_regularization_strength, l2_regularization_strength: numbers, scalar tensors or
        functions that return one.
      initial_accumulator_value: a positive number.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: when the initial value is not positive.
    """

    _ops = update_ops.proximal_adagrad

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        check_initial_accumulator(initial_accumulator_value)
        super().__init__(use_locking, name, learning_rate, l1_regularization_strength, l2_regularization_strength)
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            with colocate_with(v):
                value = constant(self._initial_accumulator_value, shape=v.get_shape(), dtype=v.dtype.base_dtype)
            self._get_or_make_slot(v, value, "accumulator", self._name)

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"accum": "accumulator", "lr": self._tensors["learning_rate"], **self._strengths()}
