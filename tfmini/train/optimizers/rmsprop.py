"""The RMSProp optimizer: divides the gradient by the root of a decayed mean of its square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.ops.array import filling as array_filling
from tfmini.ops.training import update_ops
from tfmini.ops.variables.initializers import ones_initializer
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


@export("tf.train.RMSPropOptimizer")
class RMSPropOptimizer(FusedOptimizer):
    """rms is a decayed mean of gradient²; var -= learning_rate * gradient / sqrt(rms + epsilon), with momentum.

    ``tf.train.RMSPropOptimizer``. Slots: ``rms`` (initially ones), ``momentum``, and ``mg`` if centered.

    Args:
      learning_rate, decay, momentum, epsilon: numbers, scalar tensors or functions that return one.
      use_locking, name: as in `Optimizer`.
      centered: divide by the estimated standard deviation instead, whose square is ``rms`` less ``mg²``; ``mg``
        is a decayed mean of the gradient.
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
        self._ops = update_ops.centered_rms_prop if centered else update_ops.rms_prop

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
