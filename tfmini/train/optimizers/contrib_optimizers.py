"""``tf.contrib.opt``: relatives of Adam, and decoupled weight decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.ops import control
from tfmini.ops import training as training_ops
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.math.elementwise import maximum
from tfmini.ops.math.sums import clip_by_global_norm
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import sqrt
from tfmini.ops.variables.base import Variable
from tfmini.train.optimizers.fused_optimizer import AdamOptimizer, MomentumOptimizer
from tfmini.train.optimizers.optimizer import GradAndVar, MixIn, Optimizer, is_resource


def _scattered(kind: str, var: Any, indices: Tensor, values: Any, use_locking: bool) -> Any:
    """Adds the op that changes some rows of a variable: Add, Sub or Update."""
    if is_resource(var):
        return raw_ops.named(f"ResourceScatter{kind}")(var.handle, indices, values)
    return raw_ops.named(f"Scatter{kind}")(var._ref(), indices, values, use_locking=use_locking)


class _RowwiseAdam(AdamOptimizer):
    """Base class: a sparse gradient changes only its rows of the variable."""

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Operation:
        return self._rows_update(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Operation:
        return self._rows_update(grad, handle, indices)

    def _rows_update(self, grad: Tensor, var: Variable, indices: Tensor) -> Operation:
        dtype = var.dtype.base_dtype
        beta1_power, beta2_power = (cast(convert_to_tensor(p), dtype) for p in self._get_beta_accumulators())
        rate, beta1, beta2, epsilon = (cast(t, dtype) for t in self._tensors.values())
        rate = rate * sqrt(1 - beta2_power) / (1 - beta1_power)
        m, m_rows = self._slot_rows(var, "m", beta1, grad * (1 - beta1), indices)
        v, v_rows = self._slot_rows(var, "v", beta2, (grad * grad) * (1 - beta2), indices)
        step = rate * self._direction(m_rows, grad, beta1) / (sqrt(v_rows) + epsilon)
        return control.group(_scattered("Sub", var, indices, step, self._use_locking), m, v)

    def _slot_rows(self, var: Variable, name: str, beta: Any, rows: Tensor, indices: Tensor) -> tuple[Any, Tensor]:
        """Updates a slot; returns the op, and the slot's rows after it."""
        raise NotImplementedError

    def _direction(self, m_rows: Tensor, grad: Tensor, beta1: Any) -> Any:
        return m_rows

    def _rows_after(self, change: Any, slot: Any, indices: Tensor) -> Tensor:
        with control_dependencies([change]):
            return gather(slot.value() if is_resource(slot) else slot.read_value(), indices)


@export("tf.contrib.opt.NadamOptimizer")
class NadamOptimizer(_RowwiseAdam):
    """Adam with Nesterov momentum (``tf.contrib.opt.NadamOptimizer``); see `AdamOptimizer` for the arguments."""

    def _attrs(self) -> dict[str, Any]:
        return {"use_nesterov": True}

    def _slot_rows(self, var: Variable, name: str, beta: Any, rows: Tensor, indices: Tensor) -> tuple[Any, Tensor]:
        slot = self.get_slot(var, name)
        decay = slot.assign(slot * beta, use_locking=self._use_locking, read_value=False)
        with control_dependencies([decay]):
            added = _scattered("Add", slot, indices, rows, self._use_locking)
        return added, self._rows_after(added, slot, indices)

    def _direction(self, m_rows: Tensor, grad: Tensor, beta1: Any) -> Any:
        return grad * (1 - beta1) + beta1 * m_rows


@export("tf.contrib.opt.LazyAdamOptimizer")
class LazyAdamOptimizer(_RowwiseAdam):
    """Adam whose sparse gradients touch only their rows, of the slots too (``tf.contrib.opt.LazyAdamOptimizer``).

    It is faster than `AdamOptimizer` for large embeddings, and gives other results. See there for the arguments.
    """

    def _slot_rows(self, var: Variable, name: str, beta: Any, rows: Tensor, indices: Tensor) -> tuple[Any, Tensor]:
        slot = self.get_slot(var, name)
        new = beta * gather(slot, indices) + rows
        return _scattered("Update", slot, indices, new, self._use_locking), new


@export("tf.contrib.opt.AdaMaxOptimizer")
class AdaMaxOptimizer(AdamOptimizer):
    """Adam by the largest gradient (``tf.contrib.opt.AdaMaxOptimizer``); a sparse gradient changes only its rows.

    v is the largest of the decayed v and |gradient|, and var -= learning_rate / (1 - beta1^t) * m / (v + epsilon).
    See `AdamOptimizer` for the arguments.
    """

    _ops = training_ops.ada_max
    _powers = {"beta1_power": "beta1"}

    def __init__(
        self,
        learning_rate: TensorLike = 0.001,
        beta1: TensorLike = 0.9,
        beta2: TensorLike = 0.999,
        epsilon: TensorLike = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _get_beta_accumulators(self) -> Any:
        return self._power("beta1_power")

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Operation:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Operation:
        dtype = handle.dtype.base_dtype
        power = cast(convert_to_tensor(self._get_beta_accumulators()), dtype)
        rate, beta1, beta2, epsilon = (cast(t, dtype) for t in self._tensors.values())
        m, v = self.get_slot(handle, "m"), self.get_slot(handle, "v")
        m_rows = beta1 * gather(m, indices) + grad * (1 - beta1)
        v_rows = maximum(beta2 * gather(v, indices), absolute(grad))
        step = rate / (1 - power) * (m_rows / (v_rows + epsilon))
        return control.group(
            _scattered("Sub", handle, indices, step, self._use_locking),
            _scattered("Update", m, indices, m_rows, self._use_locking),
            _scattered("Update", v, indices, v_rows, self._use_locking),
        )


# ---- decoupled weight decay ----------------------------------------------------------------------------------------


@export("tf.contrib.opt.DecoupledWeightDecayExtension")
class DecoupledWeightDecayExtension(MixIn):
    """Lets an optimizer shrink the variables before each update (``tf.contrib.opt.DecoupledWeightDecayExtension``).

    ``class AdamW(DecoupledWeightDecayExtension, tf.train.AdamOptimizer)``: var -= weight_decay * var, then the update.

    Args:
      weight_decay: a number or a scalar tensor.
      **kwargs: for the optimizer.
    """

    def __init__(self, weight_decay: TensorLike | Callable[[], Any], **kwargs: Any) -> None:
        self._decay_var_list: list[Any] | None = None
        self._weight_decay = weight_decay
        self._weight_decay_tensor: Any = None
        super().__init__(**kwargs)

    def minimize(self, loss: Any, *args: Any, decay_var_list: Iterable[Any] | None = None, **kwargs: Any) -> Operation:
        """`Optimizer.minimize`; ``decay_var_list``: the variables to shrink, by default all that are updated."""
        self._decay_var_list = list(decay_var_list) if decay_var_list else None
        return super().minimize(loss, *args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[GradAndVar],
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Iterable[Any] | None = None,
    ) -> Operation:
        """`Optimizer.apply_gradients`; see `minimize`."""
        if decay_var_list:
            self._decay_var_list = list(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def _prepare(self) -> None:
        self._weight_decay_tensor = convert_to_tensor(self._call_if_callable(self._weight_decay), name="weight_decay")
        super()._prepare()

    def _after_decay(self, var: Any, rows: Tensor | None, update: Callable[..., Any], *args: Any) -> Any:
        """The update, after the decay of the whole variable or of the rows that it changes."""
        chosen = self._decay_var_list
        if chosen is not None and not any(one is var for one in chosen):
            return update(*args)
        lost = cast(self._weight_decay_tensor, var.dtype.base_dtype) * (var if rows is None else gather(var, rows))
        if rows is None:
            decay = var.assign_sub(lost, use_locking=self._use_locking, read_value=False)
        else:
            decay = _scattered("Sub", var, rows, lost, self._use_locking)
        with control_dependencies([decay]):
            return update(*args)

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        return self._after_decay(var, None, super()._apply_dense, grad, var)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return self._after_decay(handle, None, super()._resource_apply_dense, grad, handle)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        return self._after_decay(var, grad.indices, super()._apply_sparse, grad, var)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        return self._after_decay(handle, indices, super()._resource_apply_sparse, grad, handle, indices)


@export("tf.contrib.opt.extend_with_decoupled_weight_decay")
def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """A subclass of an optimizer with weight decay (``tf.contrib.opt.extend_with_decoupled_weight_decay``)."""

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):  # type: ignore[valid-type, misc]
        """Takes ``weight_decay`` first, and the arguments of the optimizer by keywords."""

        def __init__(self, weight_decay: TensorLike, *args: Any, **kwargs: Any) -> None:
            if args:
                raise TypeError(f"Give the arguments of {base_optimizer.__name__} by keywords, after weight_decay.")
            super().__init__(weight_decay, **kwargs)

    return OptimizerWithDecoupledWeightDecay


@export("tf.contrib.opt.MomentumWOptimizer")
class MomentumWOptimizer(DecoupledWeightDecayExtension, MomentumOptimizer):
    """`MomentumOptimizer` with weight decay (``tf.contrib.opt.MomentumWOptimizer``)."""

    def __init__(
        self,
        weight_decay: TensorLike,
        learning_rate: TensorLike,
        momentum: TensorLike,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            weight_decay, learning_rate=learning_rate, momentum=momentum, use_locking=use_locking, name=name,
            use_nesterov=use_nesterov,
        )  # fmt: skip


@export("tf.contrib.opt.AdamWOptimizer")
class AdamWOptimizer(DecoupledWeightDecayExtension, AdamOptimizer):
    """`AdamOptimizer` with weight decay (``tf.contrib.opt.AdamWOptimizer``)."""

    def __init__(
        self,
        weight_decay: TensorLike,
        learning_rate: TensorLike = 0.001,
        beta1: TensorLike = 0.9,
        beta2: TensorLike = 0.999,
        epsilon: TensorLike = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(
            weight_decay, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon,
            use_locking=use_locking, name=name,
        )  # fmt: skip


@export("tf.contrib.opt.clip_gradients_by_global_norm")
def clip_gradients_by_global_norm(gradients_variables: Sequence[GradAndVar], clip_norm: TensorLike = 20.0) -> Any:
    """The pairs with gradients whose norm together is at most ``clip_norm`` (``…clip_gradients_by_global_norm``)."""
    gradients, variables = zip(*gradients_variables)
    return list(zip(clip_by_global_norm(list(gradients), clip_norm)[0], variables))
