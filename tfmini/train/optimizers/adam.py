"""The Adam optimizer: steps computed from decayed means of the gradient and of its square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies
from tfmini.ops import control
from tfmini.ops.array.casting import cast
from tfmini.ops.math import unary as math_unary
from tfmini.ops.training import update_ops
from tfmini.train.optimizers.fused_optimizer import FusedOptimizer


@export("tf.train.AdamOptimizer")
class AdamOptimizer(FusedOptimizer):
    """m and v are decayed means of the gradient and its square; var -= rate * m / (sqrt(v) + epsilon).

    ``tf.train.AdamOptimizer``. At step t, ``rate`` is ``learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)``,
    which corrects the bias of the initial zeros in m and v. Slots: ``m``, ``v``. The powers of the betas are
    variables of the optimizer, on the device of the first variable.

    A sparse gradient updates all rows, like a dense one with zeros; so it costs as much as a dense one.

    Args:
      learning_rate, beta1, beta2, epsilon: numbers, scalar tensors or functions that return one.
      use_locking, name: as in `Optimizer`.
    """

    _ops = update_ops.adam

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        hyper = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        super().__init__(use_locking, name, hyper)

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        graph = get_default_graph()
        return (
            self._get_non_slot_variable("beta1_power", graph=graph),
            self._get_non_slot_variable("beta2_power", graph=graph),
        )

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        # The first variable by name is the same on every worker, whatever the order of the gradients.
        first = min(var_list, key=lambda v: v.name)
        for power, beta in (("beta1_power", "beta1"), ("beta2_power", "beta2")):
            self._create_non_slot_variable(self._call_if_callable(self._hyper[beta]), power, first)
        for v in var_list:
            self._zeros_slot(v, "m", self._name)
            self._zeros_slot(v, "v", self._name)

    def _operands(self, var: Any) -> dict[str, Any]:
        beta1_power, beta2_power = self._get_beta_accumulators()
        return {
            "m": "m",
            "v": "v",
            "beta1_power": convert_to_tensor(beta1_power),
            "beta2_power": convert_to_tensor(beta2_power),
            "lr": self._tensors["learning_rate"],
            "beta1": self._tensors["beta1"],
            "beta2": self._tensors["beta2"],
            "epsilon": self._tensors["epsilon"],
        }

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        def scatter_add(slot: Any, values: Tensor) -> Any:
            return raw_ops.ScatterAdd(slot._ref(), grad.indices, values, use_locking=self._use_locking)

        return self._whole_update(grad.values, var, scatter_add)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        def scatter_add(slot: Any, values: Tensor) -> Any:
            with control_dependencies([raw_ops.ResourceScatterAdd(slot.handle, indices, values)]):
                return slot.value()

        return self._whole_update(grad, handle, scatter_add)

    def _whole_update(self, grad: Any, var: Any, scatter_add: Callable[[Any, Tensor], Any]) -> Operation:
        """Decays m and v in all rows, adds the gradient's rows, and updates the whole variable."""
        dtype = var.dtype.base_dtype
        beta1_power, beta2_power = (cast(convert_to_tensor(p), dtype) for p in self._get_beta_accumulators())
        rate, beta1, beta2, epsilon = (cast(t, dtype) for t in self._tensors.values())
        rate = rate * math_unary.sqrt(1 - beta2_power) / (1 - beta1_power)
        m = self._decayed(var, "m", beta1, grad * (1 - beta1), scatter_add)
        v = self._decayed(var, "v", beta2, (grad * grad) * (1 - beta2), scatter_add)
        root = math_unary.sqrt(v)
        step = rate * m / (root + epsilon)
        moved = var.assign_sub(step, use_locking=self._use_locking, read_value=False)
        return control.group(moved, m, v)

    def _decayed(
        self, var: Any, slot_name: str, beta: Any, rows: Any, scatter_add: Callable[[Any, Tensor], Any]
    ) -> Any:
        slot = self.get_slot(var, slot_name)
        decay = slot.assign(slot * beta, use_locking=self._use_locking, read_value=False)
        with control_dependencies([decay]):
            return scatter_add(slot, rows)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        with control_dependencies(update_ops):
            beta1_power, beta2_power = self._get_beta_accumulators()
            with colocate_with(beta1_power):
                powers = [
                    power.assign(power * self._tensors[beta], use_locking=self._use_locking, read_value=False)
                    for power, beta in ((beta1_power, "beta1"), (beta2_power, "beta2"))
                ]
        return control.group(*update_ops, *powers, name=name_scope)
