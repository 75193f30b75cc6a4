"""``tf.train.experimental.MixedPrecisionLossScaleOptimizer``: wraps an optimizer and scales its loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.operation import Operation
from tfmini.ops import control
from tfmini.ops.flow.cond import smart_cond
from tfmini.train.optimizers import loss_scale as loss_scales
from tfmini.train.optimizers.optimizer import Optimizer
from tfmini.train.optimizers.optimizer_inputs import GradAndVar
from tfmini.train.strategy import Strategy, get_replica_context


@export("tf.train.experimental.MixedPrecisionLossScaleOptimizer")
class MixedPrecisionLossScaleOptimizer(Optimizer):
    """Multiplies the loss by a loss scale and divides the gradients by it.

    With a `DynamicLossScale`, a step whose gradients are not finite updates only the loss scale, but neither
    the variables nor the global step.

    Args:
      opt: the optimizer that applies the gradients.
      loss_scale: a `LossScale`, a number, or ``"dynamic"``.

    Raises:
      ValueError: when ``opt`` is no `Optimizer`.
    """

    def __init__(self, opt: Optimizer, loss_scale: Any) -> None:
        if not isinstance(opt, Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        super().__init__(opt._use_locking, opt.get_name())
        self._optimizer = opt
        self._loss_scale = loss_scales.get(loss_scale)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[GradAndVar]:
        """As `Optimizer.compute_gradients`; the returned gradients are those of the unscaled loss."""
        scaled = (loss() if callable(loss) else loss) * self._loss_scale()
        pairs = self._optimizer.compute_gradients(
            scaled, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        factor = 1 / self._loss_scale()
        return [(None if grad is None else _times(grad, factor), var) for grad, var in pairs]

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """As `Optimizer.apply_gradients`, in the steps in which the loss scale permits it.

        Raises:
          ValueError: in the cross-replica context of a strategy.
        """
        replica = get_replica_context()
        if replica is None:
            raise ValueError("apply_gradients() must be called in a replica context.")
        pairs = tuple(grads_and_vars)
        if not isinstance(self._loss_scale, loss_scales.DynamicLossScale):
            return self._optimizer.apply_gradients(pairs, global_step, name)
        return replica.merge_call(self._apply_if_finite, (pairs, global_step, name or self.get_name()))  # type: ignore[no-any-return]

    def _apply_if_finite(
        self, strategy: Strategy, pairs: tuple[GradAndVar, ...], global_step: Any, name: str
    ) -> Operation:
        update, may_apply = self._loss_scale.update([grad for grad, _ in pairs])

        def apply() -> Operation:
            call = self._optimizer.apply_gradients
            return strategy.group(strategy.call_for_each_replica(call, (pairs, global_step, name + "-wrapped")))

        return control.group(smart_cond(may_apply, apply, control.no_op), update, name=name)


def _times(grad: Any, factor: Any) -> Any:
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(grad.values * factor, grad.indices, grad.dense_shape)
    return grad * factor
