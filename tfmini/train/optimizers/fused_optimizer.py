"""The optimizers that update a variable with one op, such as ``ApplyAdagrad``.

Each one is a table: its update ops, and which slot or hyper-parameter goes into which input of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle
from tfmini.graph.scoping import colocate_with, control_dependencies, device, init_scope
from tfmini.ops import control
from tfmini.ops import training as training_ops
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.growing import ops as growing_ops
from tfmini.ops.growing.variable import EmbeddingVariable
from tfmini.ops.math import unary as math_unary
from tfmini.ops.training import UpdateOps
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.initializers import constant_initializer, ones_initializer
from tfmini.ops.variables.resource_ops import resource_scatter_ops
from tfmini.train.optimizers.optimizer import MixIn, Optimizer, is_resource, of_fixed_size, state_of

_ALIASES = {"lr": "learning_rate"}  # TensorFlow's private names of hyper-parameters
_RULE_ATTRS = {"update_slots": True}  # the defaults of attrs that are not False


class FusedUpdates(MixIn):
    """Derives the four kinds of update (dense or sparse, reference or resource) from one description.

    A subclass passes ``hyper`` (name of a hyper-parameter's tensor -> value, in the order of creation) to the
    constructor, and sets:

    Attributes:
      _ops: its update ops.
      _slot_inputs: input of the ops -> slot, by default of zeros.
      _tensor_inputs: input of the ops -> hyper-parameter.
      _gradient_input: the input of the dense ops for the gradient.
      _slot_fills: slot -> what it has at first, if that is not 0, for the rows of tables that grow.

    Subclasses of programs read and set hyper-parameters by TensorFlow's private names: ``_beta1``, ``_learning_rate``
    (Adam: ``_lr``). From `_prepare` on, the tensors have the ending ``_t`` or ``_tensor``.
    """

    _ops: UpdateOps
    _slot_inputs: Mapping[str, str] = {}
    _tensor_inputs: Mapping[str, str] = {}
    _gradient_input = "grad"
    _slot_fills: Mapping[str, float] = {}

    def __init__(self, use_locking: bool, name: str, hyper: Mapping[str, Any]) -> None:
        super().__init__(use_locking, name)
        self._hyper = dict(hyper)
        self._tensors: dict[str, Tensor] = {}

    def _operands(self, var: Variable) -> dict[str, Any]:
        """Input name -> slot name or tensor, for all inputs except variable, gradient and indices."""
        return {**self._slot_inputs, **{name: self._tensors[hyper] for name, hyper in self._tensor_inputs.items()}}

    def _attrs(self) -> dict[str, Any]:
        """Attrs of the update op besides ``use_locking``."""
        return {}

    def _prepare(self) -> None:
        own = {_ALIASES.get(name[1:], name[1:]): value for name, value in vars(self).items() if name[0] == "_"}
        self._hyper = {name: own.get(name, value) for name, value in self._hyper.items()}
        self._tensors = {name: self._hyper_parameter(value, name) for name, value in self._hyper.items()}

    if not TYPE_CHECKING:  # which would take every name for a member

        def __getattr__(self, name: str) -> Any:
            plain = name.removeprefix("_").removesuffix("_tensor").removesuffix("_t")
            values = vars(self).get("_hyper" if name == f"_{plain}" else "_tensors", {})
            found = next((key for key in (plain, _ALIASES.get(plain)) if key in values), None)
            return values[found] if found and name[0] == "_" else super().__getattr__(name)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in of_fixed_size(var_list):
            for slot in self._slot_inputs.values():
                self._zeros_slot(v, slot, self._name)

    def _filled(self, var: Variable, value: float) -> Tensor:
        """The initial value of a slot that has the shape of its variable."""
        with colocate_with(var):
            return constant(value, shape=var.get_shape(), dtype=var.dtype.base_dtype)

    def _fused_update(self, handle: OpHandle[Any] | None, var: Variable, **gradient: Any) -> Operation:
        if handle is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no update for the sparse gradient of {var.op.name!r}; make it dense with"
                " tf.convert_to_tensor(gradient)."
            )
        inputs: dict[str, Any] = {"var": state_of(var), **gradient}
        dtype = var.dtype.base_dtype
        for name, operand in self._operands(var).items():
            if isinstance(operand, str):
                inputs[name] = state_of(self.get_slot(var, operand))
            else:
                inputs[name] = operand if name == "global_step" else cast(operand, dtype)
        result = handle(**inputs, use_locking=self._use_locking, **self._attrs())
        return result if is_resource(var) else result.op  # type: ignore[no-any-return]

    def _apply_to_rows(self, grad: IndexedSlices, var: EmbeddingVariable, step: Any) -> Operation:
        update = self._ops.resource_dense.name.removeprefix("ResourceApply")
        found = growing_ops.updates().get(update)
        if found is None:
            return super()._apply_to_rows(grad, var, step)  # type: ignore[no-any-return]
        _, attr, inputs, states = found
        operands = self._operands(var)
        slots = [operands[name] for name in inputs[1:states]]
        numbers = [name for name in inputs[states:] if name != self._gradient_input]
        return var.apply_update(
            update, {f"{self._name}/{slot}": self._slot_fills.get(slot, 0.0) for slot in slots}, grad.indices,
            grad.values, [cast(operands[name], var.dtype) for name in numbers], step,
            self._attrs().get(attr, _RULE_ATTRS.get(attr, False)),
        )  # fmt: skip

    def _apply_dense(self, grad: Tensor, var: Variable) -> Operation:
        return self._fused_update(self._ops.dense, var, **{self._gradient_input: grad})

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Operation:
        return self._fused_update(self._ops.resource_dense, handle, **{self._gradient_input: grad})

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Operation:
        return self._fused_update(self._ops.sparse, var, grad=grad.values, indices=grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Operation:
        return self._fused_update(self._ops.resource_sparse, handle, grad=grad, indices=indices)


@export("tf.train.GradientDescentOptimizer")
class GradientDescentOptimizer(FusedUpdates, Optimizer):
    """var -= learning_rate * gradient (``tf.train.GradientDescentOptimizer``).

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      use_locking, name: as in `Optimizer`.
    """

    _ops = training_ops.gradient_descent
    _tensor_inputs = {"alpha": "learning_rate"}
    _gradient_input = "delta"

    def __init__(
        self, learning_rate: TensorLike | Callable[[], Any], use_locking: bool = False, name: str = "GradientDescent"
    ) -> None:
        super().__init__(use_locking, name, {"learning_rate": learning_rate})

    def _rate(self, var: Any) -> Tensor:
        rate: Tensor = cast(self._tensors["learning_rate"], var.dtype.base_dtype)
        return rate

    # Subtraction handles repeated indices, so rows need not be summed first.

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Variable) -> Any:
        delta = IndexedSlices(grad.values * self._rate(var), grad.indices, grad.dense_shape)
        return var.scatter_sub(delta, use_locking=self._use_locking)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        delta = -grad * self._rate(handle)
        return resource_scatter_ops["add"](handle.handle, indices, delta)


@export("tf.train.MomentumOptimizer")
class MomentumOptimizer(FusedUpdates, Optimizer):
    """accumulator = momentum * accumulator + gradient; var -= learning_rate * accumulator.

    ``tf.train.MomentumOptimizer``. Slot: ``momentum``.

    Args:
      learning_rate, momentum: numbers, scalar tensors or functions that return one.
      use_locking, name: as in `Optimizer`.
      use_nesterov: use Nesterov momentum, with TensorFlow's approximation.
    """

    _ops = training_ops.momentum
    _slot_inputs = {"accum": "momentum"}
    _tensor_inputs = {"lr": "learning_rate", "momentum": "momentum"}

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any],
        momentum: TensorLike | Callable[[], Any],
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name, {"learning_rate": learning_rate, "momentum": momentum})
        self._use_nesterov = use_nesterov

    def _attrs(self) -> dict[str, Any]:
        return {"use_nesterov": self._use_nesterov}


def _check_initial_accumulator(value: float, name: str = "initial_accumulator_value") -> None:
    """Raises ValueError unless the value is positive; zero would lead to a division by zero."""
    if value <= 0.0:
        raise ValueError(f"{name} must be positive: {value}")


@export("tf.train.AdagradOptimizer")
class AdagradOptimizer(FusedUpdates, Optimizer):
    """accumulator += gradient²; var -= learning_rate * gradient / sqrt(accumulator).

    ``tf.train.AdagradOptimizer``. Slot: ``accumulator``.

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      initial_accumulator_value: a positive number.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: when the initial value is not positive.
    """

    _ops = training_ops.adagrad
    _slot_inputs = {"accum": "accumulator"}
    _tensor_inputs = {"lr": "learning_rate"}

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any],
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        _check_initial_accumulator(initial_accumulator_value)
        super().__init__(use_locking, name, {"learning_rate": learning_rate})
        self._initial_accumulator_value = initial_accumulator_value
        self._slot_fills = {"accumulator": initial_accumulator_value}

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in of_fixed_size(var_list):
            dtype = v.dtype.base_dtype
            if v.get_shape().is_fully_defined():
                initializer: Any = constant_initializer(self._initial_accumulator_value, dtype=dtype)
            else:
                initializer = self._filled_like(v, dtype)
            self._get_or_make_slot_with_initializer(v, initializer, v.get_shape(), dtype, "accumulator", self._name)

    def _filled_like(self, var: Variable, dtype: DTypeLike) -> Callable[[], Tensor]:
        def initial_value() -> Tensor:
            filled: Tensor = cast(array_filling.fill(array_shape.shape(var), self._initial_accumulator_value), dtype)
            return filled

        return initial_value


@export("tf.train.AdagradDAOptimizer")
class AdagradDAOptimizer(FusedUpdates, Optimizer):
    """var = -learning_rate * sign(G) * max(\\|G\\| - l1 * T, 0) / (l2 * T * learning_rate + sqrt(GG)).

    G and GG are the sums of the gradients and of their squares, T is ``global_step + 1``. A sparse gradient
    updates only its own rows.
    ``tf.train.AdagradDAOptimizer``. Slots: ``gradient_accumulator``, ``gradient_squared_accumulator``.

    Args:
      learning_rate: a number, a scalar tensor or a function that returns one.
      global_step: an int64 tensor or variable that counts the steps.
      initial_gradient_squared_accumulator_value: a positive number.
      l1_regularization_strength, l2_regularization_strength: numbers.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: when the initial value is not positive.
    """

    _ops = training_ops.adagrad_da
    _slot_inputs = {
        "gradient_accumulator": "gradient_accumulator", "gradient_squared_accumulator": "gradient_squared_accumulator",
    }  # fmt: skip
    _tensor_inputs = {"lr": "learning_rate"}

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any],
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        initial = initial_gradient_squared_accumulator_value
        _check_initial_accumulator(initial, "initial_gradient_squared_accumulator_value")
        super().__init__(use_locking, name, {"learning_rate": learning_rate})
        self._initial = initial
        self._l1, self._l2 = l1_regularization_strength, l2_regularization_strength
        self._global_step = global_step
        self._next_step: Any = None

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in of_fixed_size(var_list):
            zeros, squares = self._filled(v, 0.0), self._filled(v, self._initial)
            self._get_or_make_slot(v, zeros, "gradient_accumulator", self._name)
            self._get_or_make_slot(v, squares, "gradient_squared_accumulator", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        with colocate_with(self._tensors["learning_rate"]):
            step: Any = identity(self._global_step)
            self._next_step = step + 1

    def _operands(self, var: Variable) -> dict[str, Any]:
        dtype = var.dtype.base_dtype
        with device(var.device):
            global_step = identity(self._next_step)
        strengths = {"l1": cast(self._l1, dtype), "l2": cast(self._l2, dtype)}
        return {**super()._operands(var), **strengths, "global_step": global_step}


@export("tf.train.AdadeltaOptimizer")
class AdadeltaOptimizer(FusedUpdates, Optimizer):
    """step = gradient * sqrt(E[step²] + epsilon) / sqrt(E[gradient²] + epsilon); var -= learning_rate * step.

    ``tf.train.AdadeltaOptimizer``. E is a decayed mean. Slots: ``accum``, ``accum_update``.

    Args:
      learning_rate, rho, epsilon: numbers, scalar tensors or functions that return one; rho is the decay of E.
      use_locking, name: as in `Optimizer`.
    """

    _ops = training_ops.adadelta
    _slot_inputs = {"accum": "accum", "accum_update": "accum_update"}
    _tensor_inputs = {"lr": "lr", "rho": "rho", "epsilon": "epsilon"}

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any] = 0.001,
        rho: TensorLike | Callable[[], Any] = 0.95,
        epsilon: TensorLike | Callable[[], Any] = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name, {"lr": learning_rate, "rho": rho, "epsilon": epsilon})


@export("tf.train.RMSPropOptimizer")
class RMSPropOptimizer(FusedUpdates, Optimizer):
    """rms is a decayed mean of gradient²; var -= learning_rate * gradient / sqrt(rms + epsilon), with momentum.

    ``tf.train.RMSPropOptimizer``. Slots: ``rms`` (initially ones), ``momentum``, and ``mg`` if centered.

    Args:
      learning_rate, decay, momentum, epsilon: numbers, scalar tensors or functions that return one.
      use_locking, name: as in `Optimizer`.
      centered: divide by the estimated standard deviation instead, whose square is ``rms`` less ``mg²``; ``mg``
        is a decayed mean of the gradient.
    """

    _slot_inputs = {"ms": "rms", "mom": "momentum"}
    _tensor_inputs = {"lr": "learning_rate", "rho": "decay", "momentum": "momentum", "epsilon": "epsilon"}

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any],
        decay: TensorLike | Callable[[], Any] = 0.9,
        momentum: TensorLike | Callable[[], Any] = 0.0,
        epsilon: TensorLike | Callable[[], Any] = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        hyper = {"learning_rate": learning_rate, "decay": decay, "momentum": momentum, "epsilon": epsilon}
        super().__init__(use_locking, name, hyper)
        self._centered = centered
        self._slot_fills = {"rms": 1.0}
        self._ops = training_ops.centered_rms_prop if centered else training_ops.rms_prop
        if centered:
            self._slot_inputs = {**self._slot_inputs, "mg": "mg"}

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in of_fixed_size(var_list):
            dtype = v.dtype.base_dtype
            if v.get_shape().is_fully_defined():
                ones: Any = ones_initializer(dtype=dtype)
            else:
                ones = array_filling.ones_like(v)
            self._get_or_make_slot_with_initializer(v, ones, v.get_shape(), dtype, "rms", self._name)
            if self._centered:
                self._zeros_slot(v, "mg", self._name)
            self._zeros_slot(v, "momentum", self._name)


def check_ftrl_numbers(learning_rate_power: float, strengths: Mapping[str, float]) -> None:
    """Raises ValueError if a number of an FTRL optimizer has the wrong sign."""
    for what, value in strengths.items():
        if value < 0.0:
            raise ValueError(f"{what} {value:f} needs to be positive or zero")
    if learning_rate_power > 0.0:
        raise ValueError(f"learning_rate_power {learning_rate_power:f} needs to be negative or zero")


@export("tf.train.FtrlOptimizer")
class FtrlOptimizer(FusedUpdates, Optimizer):
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

    _slot_inputs = {"accum": "accum", "linear": "linear"}
    _tensor_inputs = {
        "lr": "learning_rate", "l1": "l1_regularization_strength", "l2": "l2_regularization_strength",
        "lr_power": "learning_rate_power",
    }  # fmt: skip

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any],
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
        check_ftrl_numbers(learning_rate_power, strengths)
        self._initial_accumulator_value = strengths.pop("initial_accumulator_value")
        hyper = {"learning_rate": learning_rate, **strengths, "learning_rate_power": learning_rate_power}
        super().__init__(use_locking, name, hyper)
        shrinks = l2_shrinkage_regularization_strength > 0.0
        self._ops = training_ops.ftrl_v2 if shrinks else training_ops.ftrl
        if shrinks:
            self._tensor_inputs = {**self._tensor_inputs, "l2_shrinkage": "l2_shrinkage_regularization_strength"}
        self._slot_fills = {"accum": initial_accumulator_value}
        self._accum_name = accum_name or name
        self._linear_name = linear_name or name

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in of_fixed_size(var_list):
            initial = self._filled(v, self._initial_accumulator_value)
            self._get_or_make_slot(v, initial, "accum", self._accum_name)
            self._zeros_slot(v, "linear", self._linear_name)


_STRENGTHS = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}


@export("tf.train.ProximalGradientDescentOptimizer")
class ProximalGradientDescentOptimizer(FusedUpdates, Optimizer):
    """step = var - learning_rate * gradient; var = sign(step) * max(\\|step\\| - rate * l1, 0) / (1 + rate * l2).

    ``tf.train.ProximalGradientDescentOptimizer``. No slots.

    Args:
      learning_rate, l1_regularization_strength, l2_regularization_strength: numbers, scalar tensors or
        functions that return one.
      use_locking, name: as in `Optimizer`.
    """

    _ops = training_ops.proximal_gradient_descent
    _tensor_inputs = {"alpha": "learning_rate", **_STRENGTHS}
    _gradient_input = "delta"

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any],
        l1_regularization_strength: TensorLike | Callable[[], Any] = 0.0,
        l2_regularization_strength: TensorLike | Callable[[], Any] = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        hyper = {
            "learning_rate": learning_rate,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
        }
        super().__init__(use_locking, name, hyper)


@export("tf.train.ProximalAdagradOptimizer")
class ProximalAdagradOptimizer(FusedUpdates, Optimizer):
    """`ProximalGradientDescentOptimizer` with Adagrad's rate per element: learning_rate / sqrt(accumulator).

    ``tf.train.ProximalAdagradOptimizer``. Slot: ``accumulator``.

    Args:
      learning_rate, l1_regularization_strength, l2_regularization_strength: numbers, scalar tensors or
        functions that return one.
      initial_accumulator_value: a positive number.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: when the initial value is not positive.
    """

    _ops = training_ops.proximal_adagrad
    _slot_inputs = {"accum": "accumulator"}
    _tensor_inputs = {"lr": "learning_rate", **_STRENGTHS}

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any],
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: TensorLike | Callable[[], Any] = 0.0,
        l2_regularization_strength: TensorLike | Callable[[], Any] = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        _check_initial_accumulator(initial_accumulator_value)
        hyper = {
            "learning_rate": learning_rate,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
        }
        super().__init__(use_locking, name, hyper)
        self._initial_accumulator_value = initial_accumulator_value
        self._slot_fills = {"accumulator": initial_accumulator_value}

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in of_fixed_size(var_list):
            initial = self._filled(v, self._initial_accumulator_value)
            self._get_or_make_slot(v, initial, "accumulator", self._name)


@export("tf.train.AdamOptimizer")
class AdamOptimizer(FusedUpdates, Optimizer):
    """m and v are decayed means of the gradient and its square; var -= rate * m / (sqrt(v) + epsilon).

    ``tf.train.AdamOptimizer``. At step t, ``rate`` is ``learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)``,
    which corrects the bias of the initial zeros in m and v. Slots: ``m``, ``v``. The powers of the betas are
    variables of the optimizer, on the device of the first variable.

    A sparse gradient updates all rows, like a dense one with zeros; so it costs as much as a dense one.

    Args:
      learning_rate, beta1, beta2, epsilon: numbers, scalar tensors or functions that return one.
      use_locking, name: as in `Optimizer`.
    """

    _ops = training_ops.adam
    _slot_inputs = {"m": "m", "v": "v"}
    _tensor_inputs = {"lr": "learning_rate", "beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}
    _powers: Mapping[str, str] = {"beta1_power": "beta1", "beta2_power": "beta2"}  # variable -> what it is a power of

    def __init__(
        self,
        learning_rate: TensorLike | Callable[[], Any] = 0.001,
        beta1: TensorLike | Callable[[], Any] = 0.9,
        beta2: TensorLike | Callable[[], Any] = 0.999,
        epsilon: TensorLike | Callable[[], Any] = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        hyper = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        super().__init__(use_locking, name, hyper)

    def _get_beta_accumulators(self) -> Any:
        return self._power("beta1_power"), self._power("beta2_power")

    def _power(self, name: str) -> Any:
        """The variable of a power of a beta, which is outside of a function that is traced."""
        with init_scope():
            return self._get_non_slot_variable(name, graph=get_default_graph())

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        # The first variable by name is the same on every worker, whatever the order of the gradients.
        first = min(var_list, key=lambda v: v.name)
        for power, beta in self._powers.items():
            self._create_non_slot_variable(self._call_if_callable(self._hyper[beta]), power, first)
        super()._create_slots(var_list)

    def _operands(self, var: Variable) -> dict[str, Any]:
        powers = {name: convert_to_tensor(self._power(name)) for name in self._powers}
        return {**self._slot_inputs, **powers, **super()._operands(var)}

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Operation:
        def scatter_add(slot: Any, indices: Tensor, values: Tensor) -> Any:
            return raw_ops.ScatterAdd(slot._ref(), indices, values, use_locking=self._use_locking)

        return self._apply_sparse_shared(grad.values, var, grad.indices, scatter_add)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Operation:
        return self._apply_sparse_shared(grad, handle, indices, self._resource_scatter_add)

    def _resource_scatter_add(self, x: Any, i: Tensor, v: Tensor) -> Any:
        with control_dependencies([raw_ops.ResourceScatterAdd(x.handle, i, v)]):
            return x.value()

    def _apply_sparse_shared(
        self, grad: Tensor, var: Variable, indices: Tensor, scatter_add: Callable[[Any, Tensor, Tensor], Any]
    ) -> Operation:
        """Decays m and v in all rows, adds the gradient's rows, and updates the whole variable.

        Subclasses of programs override it by this name, which is TensorFlow's.
        """
        dtype = var.dtype.base_dtype
        beta1_power, beta2_power = (cast(convert_to_tensor(p), dtype) for p in self._get_beta_accumulators())
        rate, beta1, beta2, epsilon = (cast(t, dtype) for t in self._tensors.values())
        rate = rate * math_unary.sqrt(1 - beta2_power) / (1 - beta1_power)
        scatter_rows = functools.partial(self._decayed, indices, scatter_add)
        m = scatter_rows(self.get_slot(var, "m"), beta1, grad * (1 - beta1))
        v = scatter_rows(self.get_slot(var, "v"), beta2, (grad * grad) * (1 - beta2))
        root = math_unary.sqrt(v)
        step = rate * m / (root + epsilon)
        moved = var.assign_sub(step, use_locking=self._use_locking, read_value=False)
        return control.group(moved, m, v)

    def _decayed(
        self, indices: Tensor, scatter_add: Callable[[Any, Tensor, Tensor], Any], slot: Any, beta: TensorLike,
        rows: Tensor,
    ) -> Any:  # fmt: skip
        decay = slot.assign(slot * beta, use_locking=self._use_locking, read_value=False)
        with control_dependencies([decay]):
            return scatter_add(slot, indices, rows)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        with control_dependencies(update_ops), colocate_with(self._power("beta1_power")):
            powers = [
                self._power(name).assign(
                    self._power(name) * self._tensors[beta], use_locking=self._use_locking, read_value=False
                )
                for name, beta in self._powers.items()
            ]
        return control.group(*update_ops, *powers, name=name_scope)
