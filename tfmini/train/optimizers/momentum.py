"""Gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.ops import training_dense, training_sparse
from tfmini.train.fused_optimizer import FusedOptimizer, UpdateOps

_OPS = UpdateOps(
    training_dense.apply_momentum,
    training_dense.resource_apply_momentum,
    training_sparse.sparse_apply_momentum,
    training_sparse.resource_sparse_apply_momentum,
)


class MomentumOptimizer(FusedOptimizer):
    """accumulator = momentum * accumulator + gradient; var -= learning_rate * accumulator.

    ``tf.train.MomentumOptimizer``. Slot: ``momentum``.

    Args:
      learning_rate, momentum: numbers, scalar tensors or functions that return one.
      use_locking, name: as for `Optimizer`.
      use_nesterov: take the gradient's step from where the momentum leads (approximately).
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name, {"learning_rate": learning_rate, "momentum": momentum})
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            self._zeros_slot(v, "momentum", self._name)

    def _ops(self) -> UpdateOps:
        return _OPS

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"accum": "momentum", "lr": self._tensors["learning_rate"], "momentum": self._tensors["momentum"]}

    def _attrs(self) -> dict[str, Any]:
        return {"use_nesterov": self._use_nesterov}
