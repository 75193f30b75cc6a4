"""The momentum optimizer, optionally with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.ops.training import update_ops
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


@export("tf.train.MomentumOptimizer")
class MomentumOptimizer(FusedOptimizer):
    """accumulator = momentum * accumulator + gradient; var -= learning_rate * accumulator.

    ``tf.train.MomentumOptimizer``. Slot: ``momentum``.

    Args:
      learning_rate, momentum: numbers, scalar tensors or functions that return one.
      use_locking, name: as in `Optimizer`.
      use_nesterov: use Nesterov momentum, with TensorFlow's approximation.
    """

    _ops = update_ops.momentum

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

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"accum": "momentum", "lr": self._tensors["learning_rate"], "momentum": self._tensors["momentum"]}

    def _attrs(self) -> dict[str, Any]:
        return {"use_nesterov": self._use_nesterov}
