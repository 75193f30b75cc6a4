"""``tf.contrib.opt``: relatives of Adam, decoupled weight decay, and matrices in place of Adagrad's squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies
from tfmini.ops import control
from tfmini.ops import training as training_ops
from tfmini.ops.array.constant import constant
from tfmini.ops.array.diagonals import eye
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.gather import gather, scatter_nd
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.decompositions import svd
from tfmini.ops.flow.cond import cond
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.linalg import norm
from tfmini.ops.math.comparison import greater, less, logical_and
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.elementwise import maximum, minimum, mod
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_max, reduce_min, reduce_sum
from tfmini.ops.math.sums import clip_by_global_norm
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import pow as power_op
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

    v is the largest of the decayed v and abs(gradient), and var -= learning_rate / (1 - beta1^t) * m / (v + epsilon).
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


# ---- updates by the history of all gradients: matrices in place of the squares of Adagrad ----------------------------


def _sizes(var: Variable) -> list[int]:
    """The sizes of a variable, which are known as it has slots."""
    return [size for size in var.shape.as_list() if size is not None]


def _at(parameter: Any, step: Tensor) -> Any:
    """A parameter, which may be a function of the step."""
    return parameter(step) if callable(parameter) else parameter


@export("tf.contrib.opt.ShampooOptimizer")
class ShampooOptimizer(Optimizer):
    """Adagrad with a matrix for each axis of a variable (Gupta et al., 2018; ``tf.contrib.opt.ShampooOptimizer``).

    The gradient's mean is multiplied, along each of n axes, by the sum of the gradients' products to the power
    ``-alpha / n``. Slots: ``gbar``, and for each axis ``Gbar_0`` … (and ``H_0`` … where powers are kept).

    Args:
      global_step: a number, tensor or variable.
      max_matrix_size: longer axes have the diagonal of their matrix only.
      gbar_decay, gbar_weight, mat_gbar_decay, mat_gbar_weight, learning_rate, alpha: numbers or functions of the step.
      svd_interval, precond_update_interval: after how many steps the powers, and the sums, are computed.
      epsilon: is added to the diagonals.
      use_iterative_root: powers by iteration in place of a singular value decomposition.
      use_locking, name: as in `Optimizer`.
    """

    def __init__(
        self, global_step: Any = 0, max_matrix_size: int = 768, gbar_decay: Any = 0.0, gbar_weight: Any = 1.0,
        mat_gbar_decay: Any = 1.0, mat_gbar_weight: Any = 1.0, learning_rate: Any = 1.0, svd_interval: Any = 1,
        precond_update_interval: Any = 1, epsilon: float = 1e-4, alpha: Any = 0.5, use_iterative_root: bool = False,
        use_locking: bool = False, name: str = "Shampoo",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self._global_step = cast(global_step, dtypes.float32)
        self._max_matrix_size, self._epsilon, self._use_iterative_root = max_matrix_size, epsilon, use_iterative_root
        self._gbar_decay, self._gbar_weight = gbar_decay, gbar_weight
        self._mat_gbar_decay, self._mat_gbar_weight = mat_gbar_decay, mat_gbar_weight
        self._rate, self._alpha = learning_rate, alpha
        self._svd_interval, self._precond_update_interval = svd_interval, precond_update_interval

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            with colocate_with(var):
                self._zeros_slot(var, "gbar", self._name)
                for axis, size in enumerate(_sizes(var)):
                    is_matrix = size <= self._max_matrix_size
                    if is_matrix and self._keeps_powers:
                        self._get_or_make_slot(var, eye(size), f"H_{axis}", self._name)
                    first = zeros([size, size] if is_matrix else [size])
                    self._get_or_make_slot(var, first, f"Gbar_{axis}", self._name)

    @property
    def _keeps_powers(self) -> bool:
        return callable(self._svd_interval) or self._svd_interval > 1

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        return self._updated(grad, var)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return self._updated(grad, handle)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        if _sizes(handle)[0] <= self._max_matrix_size or self._gbar_decay != 0.0:
            sizes = shape_of(handle, out_type=indices.dtype)
            return self._updated(scatter_nd(expand_dims(indices, 1), grad, sizes), handle)
        return self._updated(grad, handle, indices)

    def _updated(self, grad: Tensor, var: Variable, indices: Tensor | None = None) -> Any:
        step = self._global_step + 1
        change: Any = grad
        if indices is None:
            weighted = _at(self._gbar_weight, step) * grad
            change = _averaged(self.get_slot(var, "gbar"), self._gbar_decay, step, weighted)
        power = -_at(self._alpha, step) / len(_sizes(var))
        for axis, size in enumerate(_sizes(var)):
            if size <= self._max_matrix_size:
                matrix = self._matrix(grad, var, axis, step) / float(size)
                change = tensordot(change, self._power_of(matrix, var, axis, power, step), axes=([0], [0]))
            else:
                scale = self._diagonal(grad, var, axis, step, indices)
                power_of = where(greater(scale, 0), power_op(scale, power), zeros_like(scale))
                change = transpose(change, [*range(1, len(_sizes(var))), 0]) * power_of
        rate = _at(self._rate, step)
        if indices is not None:
            return _scattered("Add", var, indices, -rate * change, self._use_locking)
        return var.assign_sub(rate * change, use_locking=self._use_locking)

    def _matrix(self, grad: Tensor, var: Variable, axis: int, step: Tensor) -> Tensor:
        """The sum of the products of the gradients along all other axes, after this step."""
        slot, interval = self.get_slot(var, f"Gbar_{axis}"), _at(self._precond_update_interval, step)
        weight = _at(self._mat_gbar_weight, step) * interval

        def added() -> Tensor:
            axes = [other for other in range(len(_sizes(var))) if other != axis]
            product = tensordot(grad, grad, axes=(axes, axes))
            return _averaged(slot, self._mat_gbar_decay, step, weight * product)

        return cond(less(mod(step, interval), 1), added, slot.read_value)  # type: ignore[no-any-return]

    def _diagonal(self, grad: Tensor, var: Variable, axis: int, step: Tensor, indices: Tensor | None) -> Tensor:
        """The sum of the squares of the gradients along all other axes, after this step."""
        axes = [other for other in range(len(_sizes(var))) if other != axis]
        square, slot = grad * grad, self.get_slot(var, f"Gbar_{axis}")
        if axes:
            square = reduce_sum(square, axes) / (1.0 if indices is not None else float(_sizes(var)[axis]))
        weighted = _at(self._mat_gbar_weight, step) * square
        if axis or indices is None:
            return _averaged(slot, self._mat_gbar_decay, step, weighted)
        if self._mat_gbar_decay != 1.0:
            raise ValueError(f"{var.name}: sparse gradients of so many rows need mat_gbar_decay=1.0")
        with control_dependencies([_scattered("Add", slot, indices, weighted, self._use_locking)]):
            return gather(slot.read_value(), indices)

    def _power_of(self, matrix: Tensor, var: Variable, axis: int, power: Any, step: Tensor) -> Any:
        """The matrix to that power, computed now or in an earlier step."""
        compute = self._by_iteration if self._use_iterative_root else self._by_svd
        if not self._keeps_powers:
            return compute(matrix, power)
        slot = self.get_slot(var, f"H_{axis}")
        now = lambda: identity(slot.assign(compute(matrix, power)))  # noqa: E731
        return cond(less(mod(step, _at(self._svd_interval, step)), 1), now, slot.read_value)

    def _by_svd(self, matrix: Tensor, power: Any) -> Any:
        size = matrix.shape.as_list()[0]
        if size == 1:
            return power_op(matrix + self._epsilon, power)
        values, left, right = svd(matrix + self._epsilon * eye(size), full_matrices=True)
        return matmul(right * power_op(maximum(values, self._epsilon), power), transpose(left))

    def _by_iteration(self, matrix: Tensor, power: Any) -> Any:
        return matrix_inverse_pth_root(_square_root(matrix, self._epsilon), 2 * power)


def _averaged(slot: Any, decay: Any, step: Tensor, rest: Tensor) -> Tensor:
    """Adds ``rest`` to a slot that decays; returns its value then. One that decays at once stays as it is."""
    if not callable(decay) and decay == 0.0:
        return rest
    if not callable(decay) and decay == 1.0:
        return identity(slot.assign_add(rest))
    return identity(slot.assign_add((_at(decay, step) - 1) * slot.read_value() + rest))


def _square_root(matrix: Tensor, ridge: float) -> Any:
    """The square root of a positive semidefinite matrix, by Higham's iterations, until the error grows."""
    unit = eye(matrix.shape.as_list()[0])
    matrix = matrix + ridge * unit
    length = sqrt(reduce_sum(matrix * matrix))

    def body(i: Tensor, y: Tensor, _: Tensor, z: Tensor, error: Tensor, __: Tensor) -> list[Any]:
        factor = 0.5 * (3.0 * unit - matmul(z, y))
        after = matmul(y, factor)
        root = after * sqrt(length)
        rest = matrix - matmul(root, root)
        return [i + 1, after, y, matmul(factor, z), sqrt(reduce_sum(rest * rest)) / length, error]

    def goes_on(i: Tensor, *values: Tensor) -> Tensor:
        return logical_and(less(i, 100), less(values[3], values[4]))

    first = matrix / length
    found = while_loop(goes_on, body, [constant(0), first, first, unit, length, length + 1.0])
    return found[2] * sqrt(length)


def matrix_inverse_pth_root(matrix: Tensor, power: float) -> Any:
    """A positive definite matrix to the power ``-1 / p``, by Guo and Higham's iterations (Schur-Newton)."""
    size = matrix.shape.as_list()[0]
    if size == 1:
        return power_op(matrix, power)
    unit, count = eye(size), int(-1.0 / power)

    def body(i: Tensor, m: Tensor, x: Tensor) -> list[Any]:
        factor = (1 - power) * unit + power * m
        return [i + 1, matmul(_whole_power(factor, count), m), matmul(x, factor)]

    def goes_on(i: Tensor, m: Tensor, _: Tensor) -> Tensor:
        return logical_and(less(i, 100), greater(reduce_max(absolute(m - unit)), 1e-6))

    scale = (1 - 1 / power) / (2 * norm(matrix))
    return while_loop(goes_on, body, [constant(0), matrix * scale, unit * power_op(scale, -power)])[2]


def _whole_power(matrix: Tensor, exponent: int) -> Tensor:
    found = matrix
    for _ in range(exponent - 1):
        found = matmul(found, matrix)
    return found


@export("tf.contrib.opt.GGTOptimizer")
class GGTOptimizer(Optimizer):
    """Adagrad with the matrix of the last momenta (Agarwal et al., 2018; ``tf.contrib.opt.GGTOptimizer``).

    Its variables are ``global_step``, ``grad_buffer``, ``moment1`` and ``flat_grad``: of all gradients in one vector.

    Args:
      learning_rate: a number or scalar tensor.
      beta1: the decay of the momentum.
      use_locking, name: as in `Optimizer`.
      window: how many momenta are kept.
      eps: below this square root of an eigenvalue, directions without history stay as they are.
      svd_eps: is added to the diagonal of the momenta's products; ``sigma_eps`` to the roots of their eigenvalues.
    """

    def __init__(
        self, learning_rate: TensorLike = 0.001, beta1: TensorLike = 0.9, use_locking: bool = False, name: str = "GGT",
        window: int = 10, eps: TensorLike = 1e-4, svd_eps: TensorLike = 1e-6, sigma_eps: TensorLike = 1e-2,
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self._window = window
        self._numbers = {"lr": learning_rate, "beta1": beta1, "eps": eps, "svd_eps": svd_eps, "sigma_eps": sigma_eps}
        self._places: dict[str, tuple[int, int]] = {}
        self._changed: list[Any] = []

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        start, dtype, first = 0, var_list[0].dtype.base_dtype, min(var_list, key=lambda var: var.name)
        for var in sorted(var_list, key=lambda var: var.name):
            stop = start + math.prod(var.shape.as_list())
            self._places[var.name], start = (start, stop), stop
        sizes = {"global_step": [], "grad_buffer": [self._window, start], "moment1": [start], "flat_grad": [start]}
        for name, size in sizes.items():
            self._create_non_slot_variable(zeros(size, dtype), name, first)

    def _prepare(self) -> None:
        self._changed = []

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        self._changed.append(var)
        flat = self._get_non_slot_variable("flat_grad", var.graph)
        return _scattered("Update", flat, range_of(*self._places[var.name]), reshape(grad, [-1]), self._use_locking)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return self._apply_dense(grad, handle)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        raise TypeError(f"Sparse gradient updates, as of {var.op.name}, are not supported: use tf.convert_to_tensor.")

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        raise NotImplementedError(f"Sparse gradient updates, as of {handle.op.name}, are not supported.")

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        first = self._changed[0]
        dtype, graph = first.dtype.base_dtype, first.graph
        count, buffer, moment, flat = (self._get_non_slot_variable(name, graph) for name in
                                       ("global_step", "grad_buffer", "moment1", "flat_grad"))  # fmt: skip
        with control_dependencies(update_ops):
            numbers = {k: cast(self._hyper_parameter(v, k), dtype) for k, v in self._numbers.items()}
            step = count.read_value() + 1
            mean = numbers["beta1"] * moment.read_value() + (1 - numbers["beta1"]) * flat.read_value()
            row = mod(cast(step - 1, dtypes.int32), self._window)
            kept = _scattered("Update", buffer, row, mean, self._use_locking)
            with control_dependencies([kept]):
                history = transpose(buffer.read_value() / sqrt(minimum(step, cast(self._window, dtype))))
            direction = self._direction(history, expand_dims(mean, -1), numbers)
            updates = [count.assign(step).op, moment.assign(mean).op, kept]
            for var in self._changed:
                start, stop = self._places[var.name]
                change = numbers["lr"] * reshape(direction[start:stop], var.shape)
                updates.append(var.assign_sub(change, use_locking=self._use_locking))
        return control.group(*updates, name=name_scope)

    def _direction(self, history: Tensor, mean: Tensor, numbers: dict[str, Tensor]) -> Any:
        """The momentum times the inverse root of the history's matrix: [numbers, 1]."""
        damping = eye(self._window, dtype=mean.dtype) * numbers["svd_eps"]
        values, vectors, _ = svd(matmul(history, history, transpose_a=True) + damping)
        roots = sqrt(values)
        smallest = reduce_min(roots)
        along = matmul(vectors, matmul(history, mean, transpose_a=True), transpose_a=True)

        def back(scales: Tensor) -> Tensor:
            return matmul(history, matmul(vectors, expand_dims(scales, -1) * along))

        head = back(1.0 / power_op(roots + numbers["sigma_eps"], cast(3, mean.dtype)))
        tail = (mean - back(1.0 / values)) / smallest
        return cond(greater(smallest, numbers["eps"]), lambda: head + tail, lambda: identity(head))
