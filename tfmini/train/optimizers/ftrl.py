"""FTRL-proximal ("follow the regularized leader"): sparse models from online learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfmini.ops import training_dense, training_sparse
from tfmini.ops.constant import constant
from tfmini.ops.scoping import colocate_with
from tfmini.train.fused_optimizer import FusedOptimizer, UpdateOps

_OPS = UpdateOps(
    training_dense.apply_ftrl,
    training_dense.resource_apply_ftrl,
    training_sparse.sparse_apply_ftrl,
    training_sparse.resource_sparse_apply_ftrl,
)
_SHRINKING_OPS = UpdateOps(
    training_dense.apply_ftrl_v2,
    training_dense.resource_apply_ftrl_v2,
    training_sparse.sparse_apply_ftrl_v2,
    training_sparse.resource_sparse_apply_ftrl_v2,
)


class FtrlOptimizer(FusedOptimizer):
    """The FTRL-proximal algorithm with L1 and L2 regularization (``tf.train.FtrlOptimizer``).

    accum += gradient²; linear += gradient + 2 * l2_shrinkage * var - (change of accum^-power) / learning_rate * var;
    var is the minimum of the regularized problem, 0 where \\|linear\\| <= l1. Slots: ``accum``, ``linear``.

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      learning_rate_power: how the rate falls with ``accum``, zero or negative.
      initial_accumulator_value, l1_regularization_strength, l2_regularization_strength,
      l2_shrinkage_regularization_strength: zero or positive numbers.
      use_locking, name: as for `Optimizer`.
      accum_name, linear_name: suffixes of the slots' names, default ``name``.

    Raises:
      ValueError: for a number of the wrong sign.
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
        self._accum_name = accum_name or name
        self._linear_name = linear_name or name

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            with colocate_with(v):
                value = constant(self._initial_accumulator_value, dtype=v.dtype.base_dtype, shape=v.get_shape())
                self._get_or_make_slot(v, value, "accum", self._accum_name)
                self._zeros_slot(v, "linear", self._linear_name)

    def _ops(self) -> UpdateOps:
        return _SHRINKING_OPS if self._shrinks else _OPS

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
