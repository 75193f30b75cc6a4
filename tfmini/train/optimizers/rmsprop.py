"""RMSProp: steps by the gradient over a decayed mean of its magnitude."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.ops import array_filling, training_dense, training_sparse
from tfmini.ops.initializers import ones_initializer
from tfmini.train.fused_optimizer import FusedOptimizer, UpdateOps

_OPS = UpdateOps(
    training_dense.apply_rms_prop,
    training_dense.resource_apply_rms_prop,
    training_sparse.sparse_apply_rms_prop,
    training_sparse.resource_sparse_apply_rms_prop,
)
_CENTERED_OPS = UpdateOps(
    training_dense.apply_centered_rms_prop,
    training_dense.resource_apply_centered_rms_prop,
    training_sparse.sparse_apply_centered_rms_prop,
    training_sparse.resource_sparse_apply_centered_rms_prop,
)


class RMSPropOptimizer(FusedOptimizer):
    """rms is a decayed mean of gradient²; var -= learning_rate * gradient / sqrt(rms + epsilon), with momentum.

    ``tf.train.RMSPropOptimizer``. Slots: ``rms`` (ones at first), ``momentum``, and ``mg`` if centered.

    Args:
      learning_rate, decay, momentum, epsilon: numbers, scalar tensors or functions that return one.
      use_locking, name: as for `Optimizer`.
      centered: divide by the estimated standard deviation: rms less the square of ``mg``, a
        decayed mean of the gradient.
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        hyper = {"learning_rate": learning_rate, "decay": decay, "momentum": momentum, "epsilon": epsilon}
        super().__init__(use_locking, name, hyper)
        self._centered = centered

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            dtype = v.dtype.base_dtype
            if v.get_shape().is_fully_defined():
                ones: Any = ones_initializer(dtype=dtype)
            else:
                ones = array_filling.ones_like(v)
            self._get_or_make_slot_with_initializer(v, ones, v.get_shape(), dtype, "rms", self._name)
            if self._centered:
                self._zeros_slot(v, "mg", self._name)
            self._zeros_slot(v, "momentum", self._name)

    def _ops(self) -> UpdateOps:
        return _CENTERED_OPS if self._centered else _OPS

    def _operands(self, var: Any) -> dict[str, Any]:
        slots = {"ms": "rms", "mom": "momentum"}
        if self._centered:
            slots["mg"] = "mg"
        return {
            **slots,
            "lr": self._tensors["learning_rate"],
            "rho": self._tensors["decay"],
            "momentum": self._tensors["momentum"],
            "epsilon": self._tensors["epsilon"],
        }
