"""The Adadelta optimizer, which scales each step by the size of earlier steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.ops.training import update_ops
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


@export("tf.train.AdadeltaOptimizer")
class AdadeltaOptimizer(FusedOptimizer):
    """step = gradient * sqrt(E[step²] + epsilon) / sqrt(E[gradient²] + epsilon); var -= learning_rate * step.

    ``tf.train.AdadeltaOptimizer``. E is a decayed mean. Slots: ``accum``, ``accum_update``.

    Args:
      learning_rate, rho (the decay of the means), epsilon: numbers, scalar tensors or functions that return one.
      use_locking, name: as in `Optimizer`.
    """

    _ops = update_ops.adadelta

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name, {"lr": learning_rate, "rho": rho, "epsilon": epsilon})

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            self._zeros_slot(v, "accum", self._name)
            self._zeros_slot(v, "accum_update", self._name)

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"accum": "accum", "accum_update": "accum_update", **self._tensors}
