"""Adadelta: steps whose size follows the sizes of earlier steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.ops import training_dense, training_sparse
from tfmini.train.fused_optimizer import FusedOptimizer, UpdateOps

_OPS = UpdateOps(
    training_dense.apply_adadelta,
    training_dense.resource_apply_adadelta,
    training_sparse.sparse_apply_adadelta,
    training_sparse.resource_sparse_apply_adadelta,
)


class AdadeltaOptimizer(FusedOptimizer):
    """step = gradient * sqrt(mean of step² + epsilon) / sqrt(mean of gradient² + epsilon); var -= learning_rate * step.

    ``tf.train.AdadeltaOptimizer``. Slots: ``accum``, ``accum_update``.

    Args:
      learning_rate, rho (the decay of the means), epsilon: numbers, scalar tensors or functions that return one.
      use_locking, name: as for `Optimizer`.
    """

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

    def _ops(self) -> UpdateOps:
        return _OPS

    def _operands(self, var: Any) -> dict[str, Any]:
        return {"accum": "accum", "accum_update": "accum_update", **self._tensors}
