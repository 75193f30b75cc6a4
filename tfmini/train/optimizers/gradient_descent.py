"""The gradient descent optimizer."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.casting import cast
from tfmini.ops.training import update_ops
from tfmini.ops.variables.scatter_ops import resource_scatter_ops
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


@export("tf.train.GradientDescentOptimizer")
class GradientDescentOptimizer(FusedOptimizer):
    """var -= learning_rate * gradient (``tf.train.GradientDescentOptimizer``).

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      use_locking, name: as in `Optimizer`.
    """

    _ops = update_ops.gradient_descent

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name, {"learning_rate": learning_rate})

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"alpha": self._tensors["learning_rate"]}

    def _dense_gradient(self, grad: Tensor) -> dict[str, Tensor]:
        return {"delta": grad}

    def _rate(self, var: Any) -> Tensor:
        rate: Tensor = cast(self._tensors["learning_rate"], var.dtype.base_dtype)
        return rate

    # Subtraction handles repeated indices, so rows need not be summed first.

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        delta = IndexedSlices(grad.values * self._rate(var), grad.indices, grad.dense_shape)
        return var.scatter_sub(delta, use_locking=self._use_locking)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        delta = -grad * self._rate(handle)
        return resource_scatter_ops["add"](handle.handle, indices, delta)
