"""The FTRL-proximal optimizer ("follow the regularized leader"), for sparse models and online learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.scoping import colocate_with
from tfmini.ops.array.constant import constant
from tfmini.ops.training import update_ops
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


@export("tf.train.FtrlOptimizer")
class FtrlOptimizer(FusedOptimizer):
    """The FTRL-proximal algorithm with L1 and L2 regularization (``tf.train.FtrlOptimizer``).

    accum += gradient²; linear += gradient + 2 * l2_shrinkage * var - (change of accum^-power) / learning_rate * var;
    var minimizes the regularized problem; it is 0 where \\|linear\\| <= l1. Slots: ``accum``, ``linear``.

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      learning_rate_power: exponent of ``accum`` in the learning rate, zero or negative.
      initial_accumulator_value, l1_regularization_strength, l2_regularization_strength,
      l2_shrinkage_regularization_strength: zero or positive numbers.
      use_locking, name: as in `Optimizer`.
      accum_name, linear_name: suffixes of the slots' names, default ``name``.

    Raises:
      ValueError: when a number has the wrong sign.
    """

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:
        strengths = {
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }
        for what, value in strengths.items():
            if value < 0.0:
                raise ValueError(f"{what} {value:f} needs to be positive or zero")
        if learning_rate_power > 0.0:
            raise ValueError(f"learning_rate_power {learning_rate_power:f} needs to be negative or zero")
        self._initial_accumulator_value = strengths.pop("initial_accumulator_value")
        hyper = {"learning_rate": learning_rate, **strengths, "learning_rate_power": learning_rate_power}
        super().__init__(use_locking, name, hyper)
        self._shrinks = l2_shrinkage_regularization_strength > 0.0
        self._ops = update_ops.ftrl_v2 if self._shrinks else update_ops.ftrl
        self._accum_name = accum_name or name
        self._linear_name = linear_name or name

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            with colocate_with(v):
                value = constant(self._initial_accumulator_value, dtype=v.dtype.base_dtype, shape=v.get_shape())
                self._get_or_make_slot(v, value, "accum", self._accum_name)
                self._zeros_slot(v, "linear", self._linear_name)

    def _operands(self, var: Any) -> dict[str, Any]:
        operands = {
            "accum": "accum",
            "linear": "linear",
            "lr": self._tensors["learning_rate"],
            "l1": self._tensors["l1_regularization_strength"],
            "l2": self._tensors["l2_regularization_strength"],
            "lr_power": self._tensors["learning_rate_power"],
        }
        if self._shrinks:
            operands["l2_shrinkage"] = self._tensors["l2_shrinkage_regularization_strength"]
        return operands
