"""Plain gradient descent."""

from __future__ import annotations

from typing import Any

from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.graph import handle_of
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops import training_dense
from tfmini.ops.casting import cast
from tfmini.train.optimizer import Optimizer


class GradientDescentOptimizer(Optimizer):
    """var -= learning_rate * gradient (``tf.train.GradientDescentOptimizer``).

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      use_locking, name: as for `Optimizer`.
    """

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._learning_rate_tensor: Any = None

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyper_parameter(self._learning_rate, "learning_rate")

    def _rate(self, var: Any) -> Tensor:
        rate: Tensor = cast(self._learning_rate_tensor, var.dtype.base_dtype)
        return rate

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        update = training_dense.apply_gradient_descent(
            var._ref(), self._rate(var), grad, use_locking=self._use_locking
        )
        return update.op  # type: ignore[no-any-return]

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Operation:
        return training_dense.resource_apply_gradient_descent(  # type: ignore[no-any-return]
            handle.handle, self._rate(handle), grad, use_locking=self._use_locking
        )

    # Subtraction takes repeated rows as they are: no need to add them up first.

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        delta = IndexedSlices(grad.values * self._rate(var), grad.indices, grad.dense_shape)
        return var.scatter_sub(delta, use_locking=self._use_locking)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        delta = -grad * self._rate(handle)
        return handle_of("ResourceScatterAdd")(handle.handle, indices, delta)  # type: ignore[no-any-return]
