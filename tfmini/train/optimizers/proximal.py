"""Proximal optimizers: a plain step, followed by shrinking towards 0 (L1 and L2 regularization)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.graph.operation import Tensor
from tfmini.ops import training_dense, training_sparse
from tfmini.ops.constant import constant
from tfmini.ops.scoping import colocate_with
from tfmini.train.adagrad import check_initial_accumulator
from tfmini.train.fused_optimizer import FusedOptimizer, UpdateOps

_DESCENT_OPS = UpdateOps(
    training_dense.apply_proximal_gradient_descent,
    training_dense.resource_apply_proximal_gradient_descent,
    training_sparse.sparse_apply_proximal_gradient_descent,
    training_sparse.resource_sparse_apply_proximal_gradient_descent,
)
_ADAGRAD_OPS = UpdateOps(
    training_dense.apply_proximal_adagrad,
    training_dense.resource_apply_proximal_adagrad,
    training_sparse.sparse_apply_proximal_adagrad,
    training_sparse.resource_sparse_apply_proximal_adagrad,
)


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


class ProximalGradientDescentOptimizer(_ProximalOptimizer):
    """step = var - learning_rate * gradient; var = sign(step) * max(\\|step\\| - rate * l1, 0) / (1 + rate * l2).

    ``tf.train.ProximalGradientDescentOptimizer``. No slots.

    Args:
      learning_rate, l1_regularization_strength, l2_regularization_strength: numbers, scalar tensors or
        functions that return one.
      use_locking, name: as for `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(use_locking, name, learning_rate, l1_regularization_strength, l2_regularization_strength)

    def _ops(self) -> UpdateOps:
        return _DESCENT_OPS

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"alpha": self._tensors["learning_rate"], **self._strengths()}

    def _dense_gradient(self, grad: Tensor) -> dict[str, Tensor]:
        return {"delta": grad}


class ProximalAdagradOptimizer(_ProximalOptimizer):
    """Like `ProximalGradientDescentOptimizer`, with Adagrad's rate per element: learning_rate / sqrt(accumulator).

    ``tf.train.ProximalAdagradOptimizer``. Slot: ``accumulator``.

    Args:
      learning_rate, l1_regularization_strength, l2_regularization_strength: numbers, scalar tensors or
        functions that return one.
      initial_accumulator_value: a positive number.
      use_locking, name: as for `Optimizer`.

    Raises:
      ValueError: when the initial value is not positive.
    """

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

    def _ops(self) -> UpdateOps:
        return _ADAGRAD_OPS

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"accum": "accumulator", "lr": self._tensors["learning_rate"], **self._strengths()}
