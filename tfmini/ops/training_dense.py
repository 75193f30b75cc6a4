"""Update ops of the optimizers for dense gradients: ``ApplyAdam`` and the like, on references and on handles.

Each op changes a variable and its slots as one exclusive update (`update_together`). An op on a
reference returns that reference; its ``Resource…`` twin takes handles and has no output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle, op
from tfmini.ops import update_rules as rules
from tfmini.ops.variable_state import VariableState, update_together
from tfmini.shapes import RawShape, format_raw, merge_raw, with_rank

_REF_OUTPUT = " -> out: Ref(T)"
_OPTIONS = "; T: numbertype; use_locking: bool = false"


def declare_pair(signature: str, kernel: Callable[..., Any], options: str = "") -> tuple[OpHandle, OpHandle]:
    """Declares an update op from its signature on references, and its ``Resource`` twin."""
    return (
        declare(signature + _REF_OUTPUT + _OPTIONS + options, kernel),
        declare("Resource" + signature.replace("Ref(T)", "resource") + _OPTIONS + options, kernel),
    )


def declare(text: str, kernel: Callable[..., Any]) -> OpHandle:
    """Declares one update op and attaches its rules. Update ops have no gradient."""
    by_handle = ": resource" in text
    handle = op(text, stateful=by_handle)
    handle.shape(update_shape)
    if by_handle:
        handle.kernel_factory("CPU")(_without_output(kernel))
    else:
        handle.kernel("CPU")(kernel)
    handle.not_differentiable()
    return handle


def _without_output(kernel: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    code = kernel.__code__
    attrs = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]

    def factory(node: Any) -> Callable[..., Any]:
        bound = {name: node.attrs[name] for name in attrs}

        def run(*values: Any) -> tuple[()]:
            kernel(*values, **bound)
            return ()

        return run

    return factory


# Inputs that are neither state nor scalars.
_GRADIENT_NAMES = ("grad", "delta")


def update_shape(node: Operation) -> list[RawShape]:
    """Merges the shapes of the variable, its slots and the gradient; everything else is a scalar."""
    arguments = node.handle.op_def.inputs
    tensors = node._inputs
    shape: RawShape = None
    for arg, tensor in zip(arguments, tensors):
        if arg.is_ref or arg.dtype is not None and arg.dtype.name == "resource":
            shape = merge_state_shape(shape, _state_shape(tensor))
        elif arg.name not in _GRADIENT_NAMES and arg.name != "indices":
            with_rank(tensor._shape, 0)
    by_name = {arg.name: tensor._shape for arg, tensor in zip(arguments, tensors)}
    grad = by_name["grad"] if "grad" in by_name else by_name["delta"]
    shape = _merge_rows(shape, grad, by_name["indices"]) if "indices" in by_name else merge_state_shape(shape, grad)
    return [shape] if node.handle.op_def.outputs else []


def merge_state_shape(a: RawShape, b: RawShape) -> RawShape:
    """`merge_raw`, naming the dimension and both shapes when a size differs.

    Raises:
      ValueError: when the shapes contradict each other.
    """
    if a is not None and b is not None and len(a) == len(b):
        for axis, (size, other) in enumerate(zip(a, b)):
            if size is not None and other is not None and size != other:
                raise ValueError(
                    f"Dimension {axis} in both shapes must be equal, but are {size} and {other}."
                    f" Shapes are {format_raw(a)} and {format_raw(b)}."
                )
    return merge_raw(a, b)


def _state_shape(tensor: Tensor) -> RawShape:
    if tensor._dtype.name != "resource":
        return tensor._shape
    return tensor._handle_data[1] if tensor._handle_data else None


def _merge_rows(shape: RawShape, grad: RawShape, indices: RawShape) -> RawShape:
    """Checks a gradient of some rows, and the numbers of those rows, against the whole."""
    count = with_rank(indices, 1)[0]
    if grad is None:
        return shape
    if grad and grad[0] is not None and count is not None and grad[0] != count:
        raise ValueError(f"Dimensions must be equal, but are {count} and {grad[0]}")
    rows = merge_state_shape(shape, (None, *grad[1:]))
    return rows if shape is None else shape


def apply_dense(
    rule: rules.Rule, states: Sequence[VariableState], grad: Any, *hyper: Any, grad_name: str = "grad"
) -> Any:
    """Runs ``rule`` on a variable and its slots, exclusively; returns the variable.

    Raises:
      InvalidArgumentError: when the shapes differ.
      FailedPreconditionError: when one of them was never assigned.
    """

    def run(*arrays: Any) -> None:
        _check_shapes(arrays, grad, states, grad_name)
        rules.run_blockwise(rule, arrays, grad, hyper)

    update_together(states, run)
    return states[0]


def _check_shapes(arrays: tuple[Any, ...], grad: Any, states: Sequence[VariableState], grad_name: str) -> None:
    shape = arrays[0].shape
    if grad.shape != shape:
        raise _differ(grad_name, shape, grad.shape)
    for array, state in zip(arrays, states):
        if array.shape != shape:
            raise _differ(state.name, shape, array.shape)


def _differ(what: str, shape: tuple[int, ...], other: tuple[int, ...]) -> InvalidArgumentError:
    return InvalidArgumentError(
        None, None, f"var and {what} do not have the same shape{format_raw(shape)} {format_raw(other)}"
    )


def check_scalars(**values: Any) -> None:
    """Refuses hyper-parameters that are not scalars.

    Raises:
      InvalidArgumentError: naming the first that is not.
    """
    for name, value in values.items():
        if value.shape:
            raise InvalidArgumentError(None, None, f"{name} is not a scalar: {format_raw(value.shape)}")


def one_minus(value: Any) -> Any:
    """1 - value, in value's own type."""
    return value.dtype.type(1) - value


def adam_rate(lr: Any, beta1_power: Any, beta2_power: Any) -> Any:
    """Adam's learning rate, corrected for moments that started at zero."""
    return lr * np.sqrt(one_minus(beta2_power)) / one_minus(beta1_power)


# ---- the ops --------------------------------------------------------------------------------


def _gradient_descent(var: Any, alpha: Any, delta: Any) -> Any:
    check_scalars(alpha=alpha)
    return apply_dense(rules.gradient_descent, (var,), delta, alpha, grad_name="delta")


apply_gradient_descent, resource_apply_gradient_descent = declare_pair(
    "ApplyGradientDescent(var: Ref(T), alpha: T, delta: T)", _gradient_descent
)


def _momentum(var: Any, accum: Any, lr: Any, grad: Any, momentum: Any, *, use_nesterov: bool) -> Any:
    check_scalars(lr=lr, momentum=momentum)
    rule = rules.nesterov_momentum if use_nesterov else rules.momentum
    return apply_dense(rule, (var, accum), grad, lr, momentum)


apply_momentum, resource_apply_momentum = declare_pair(
    "ApplyMomentum(var: Ref(T), accum: Ref(T), lr: T, grad: T, momentum: T)", _momentum, "; use_nesterov: bool = false"
)


def _keras_momentum(var: Any, accum: Any, lr: Any, grad: Any, momentum: Any, *, use_nesterov: bool) -> Any:
    check_scalars(lr=lr, momentum=momentum)
    rule = rules.keras_nesterov_momentum if use_nesterov else rules.keras_momentum
    return apply_dense(rule, (var, accum), grad, lr, momentum)


resource_apply_keras_momentum = declare(
    "ResourceApplyKerasMomentum(var: resource, accum: resource, lr: T, grad: T, momentum: T)"
    "; T: numbertype; use_locking: bool = false; use_nesterov: bool = false",
    _keras_momentum,
)


def _adagrad(var: Any, accum: Any, lr: Any, grad: Any, *, update_slots: bool) -> Any:
    check_scalars(lr=lr)
    return apply_dense(rules.adagrad if update_slots else rules.adagrad_frozen, (var, accum), grad, lr)


apply_adagrad, resource_apply_adagrad = declare_pair(
    "ApplyAdagrad(var: Ref(T), accum: Ref(T), lr: T, grad: T)", _adagrad, "; update_slots: bool = true"
)


def _adagrad_v2(var: Any, accum: Any, lr: Any, epsilon: Any, grad: Any, *, update_slots: bool) -> Any:
    check_scalars(lr=lr, epsilon=epsilon)
    rule = rules.adagrad_v2 if update_slots else rules.adagrad_v2_frozen
    return apply_dense(rule, (var, accum), grad, lr, epsilon)


apply_adagrad_v2, resource_apply_adagrad_v2 = declare_pair(
    "ApplyAdagradV2(var: Ref(T), accum: Ref(T), lr: T, epsilon: T, grad: T)", _adagrad_v2, "; update_slots: bool = true"
)


def _adadelta(var: Any, accum: Any, accum_update: Any, lr: Any, rho: Any, epsilon: Any, grad: Any) -> Any:
    check_scalars(lr=lr, rho=rho, epsilon=epsilon)
    return apply_dense(rules.adadelta, (var, accum, accum_update), grad, lr, rho, one_minus(rho), epsilon)


apply_adadelta, resource_apply_adadelta = declare_pair(
    "ApplyAdadelta(var: Ref(T), accum: Ref(T), accum_update: Ref(T), lr: T, rho: T, epsilon: T, grad: T)", _adadelta
)


def _adam(
    var: Any, m: Any, v: Any, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any,
    grad: Any, *, use_nesterov: bool,
) -> Any:  # fmt: skip
    check_scalars(
        beta1_power=beta1_power, beta2_power=beta2_power, lr=lr, beta1=beta1, beta2=beta2, epsilon=epsilon
    )
    alpha = adam_rate(lr, beta1_power, beta2_power)
    rest1, rest2 = one_minus(beta1), one_minus(beta2)
    if use_nesterov:
        return apply_dense(rules.nesterov_adam, (var, m, v), grad, alpha, rest1, rest2, epsilon, beta1)
    return apply_dense(rules.adam, (var, m, v), grad, alpha, rest1, rest2, epsilon)


apply_adam, resource_apply_adam = declare_pair(
    "ApplyAdam(var: Ref(T), m: Ref(T), v: Ref(T), beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: T,"
    " epsilon: T, grad: T)",
    _adam,
    "; use_nesterov: bool = false",
)


def _amsgrad(
    var: Any, m: Any, v: Any, vhat: Any, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any,
    epsilon: Any, grad: Any,
) -> Any:  # fmt: skip
    check_scalars(
        beta1_power=beta1_power, beta2_power=beta2_power, lr=lr, beta1=beta1, beta2=beta2, epsilon=epsilon
    )
    alpha = adam_rate(lr, beta1_power, beta2_power)
    return apply_dense(rules.amsgrad, (var, m, v, vhat), grad, alpha, one_minus(beta1), one_minus(beta2), epsilon)


resource_apply_adam_with_amsgrad = declare(
    "ResourceApplyAdamWithAmsgrad(var: resource, m: resource, v: resource, vhat: resource, beta1_power: T,"
    " beta2_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T); T: numbertype; use_locking: bool = false",
    _amsgrad,
)


def _ada_max(
    var: Any, m: Any, v: Any, beta1_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any
) -> Any:
    check_scalars(beta1_power=beta1_power, lr=lr, beta1=beta1, beta2=beta2, epsilon=epsilon)
    alpha = lr / one_minus(beta1_power)
    return apply_dense(rules.ada_max, (var, m, v), grad, alpha, one_minus(beta1), beta2, epsilon)


apply_ada_max, resource_apply_ada_max = declare_pair(
    "ApplyAdaMax(var: Ref(T), m: Ref(T), v: Ref(T), beta1_power: T, lr: T, beta1: T, beta2: T, epsilon: T, grad: T)",
    _ada_max,
)


def _rms_prop(var: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any) -> Any:
    check_scalars(lr=lr, rho=rho, momentum=momentum, epsilon=epsilon)
    return apply_dense(rules.rms_prop, (var, ms, mom), grad, lr, one_minus(rho), momentum, epsilon)


apply_rms_prop, resource_apply_rms_prop = declare_pair(
    "ApplyRMSProp(var: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, grad: T)", _rms_prop
)


def _centered_rms_prop(
    var: Any, mg: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> Any:
    check_scalars(lr=lr, rho=rho, momentum=momentum, epsilon=epsilon)
    hyper = (lr, one_minus(rho), momentum, epsilon)
    return apply_dense(rules.centered_rms_prop, (var, mg, ms, mom), grad, *hyper)


apply_centered_rms_prop, resource_apply_centered_rms_prop = declare_pair(
    "ApplyCenteredRMSProp(var: Ref(T), mg: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T,"
    " grad: T)",
    _centered_rms_prop,
)


def _proximal_gradient_descent(var: Any, alpha: Any, l1: Any, l2: Any, delta: Any) -> Any:
    check_scalars(alpha=alpha, l1=l1, l2=l2)
    return apply_dense(rules.proximal_gradient_descent, (var,), delta, alpha, l1, l2, grad_name="delta")


apply_proximal_gradient_descent, resource_apply_proximal_gradient_descent = declare_pair(
    "ApplyProximalGradientDescent(var: Ref(T), alpha: T, l1: T, l2: T, delta: T)", _proximal_gradient_descent
)


def _proximal_adagrad(var: Any, accum: Any, lr: Any, l1: Any, l2: Any, grad: Any) -> Any:
    check_scalars(lr=lr, l1=l1, l2=l2)
    return apply_dense(rules.proximal_adagrad, (var, accum), grad, lr, l1, l2)


apply_proximal_adagrad, resource_apply_proximal_adagrad = declare_pair(
    "ApplyProximalAdagrad(var: Ref(T), accum: Ref(T), lr: T, l1: T, l2: T, grad: T)", _proximal_adagrad
)


def _adagrad_da(
    var: Any, gradient_accumulator: Any, gradient_squared_accumulator: Any, grad: Any, lr: Any, l1: Any, l2: Any,
    global_step: Any,
) -> Any:  # fmt: skip
    check_scalars(lr=lr, l1=l1, l2=l2, global_step=global_step)
    states = (var, gradient_accumulator, gradient_squared_accumulator)
    return apply_dense(rules.adagrad_da, states, grad, lr, l1, l2, lr.dtype.type(global_step))


apply_adagrad_da, resource_apply_adagrad_da = declare_pair(
    "ApplyAdagradDA(var: Ref(T), gradient_accumulator: Ref(T), gradient_squared_accumulator: Ref(T), grad: T, lr: T,"
    " l1: T, l2: T, global_step: int64)",
    _adagrad_da,
)


def _ftrl(var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any) -> Any:
    check_scalars(lr=lr, l1=l1, l2=l2, lr_power=lr_power)
    return apply_dense(rules.ftrl, (var, accum, linear), grad, lr, l1, l2, None, lr_power)


apply_ftrl, resource_apply_ftrl = declare_pair(
    "ApplyFtrl(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, lr: T, l1: T, l2: T, lr_power: T)", _ftrl
)


def _ftrl_v2(
    var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, l2_shrinkage: Any, lr_power: Any
) -> Any:
    check_scalars(lr=lr, l1=l1, l2=l2, l2_shrinkage=l2_shrinkage, lr_power=lr_power)
    return apply_dense(rules.ftrl, (var, accum, linear), grad, lr, l1, l2, l2_shrinkage, lr_power)


apply_ftrl_v2, resource_apply_ftrl_v2 = declare_pair(
    "ApplyFtrlV2(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, lr: T, l1: T, l2: T, l2_shrinkage: T,"
    " lr_power: T)",
    _ftrl_v2,
)


def _add_sign(var: Any, m: Any, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Any) -> Any:
    check_scalars(lr=lr, alpha=alpha, sign_decay=sign_decay, beta=beta)
    return apply_dense(rules.add_sign, (var, m), grad, lr, alpha, sign_decay, beta, one_minus(beta))


apply_add_sign, resource_apply_add_sign = declare_pair(
    "ApplyAddSign(var: Ref(T), m: Ref(T), lr: T, alpha: T, sign_decay: T, beta: T, grad: T)", _add_sign
)


def _power_sign(var: Any, m: Any, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Any) -> Any:
    check_scalars(lr=lr, logbase=logbase, sign_decay=sign_decay, beta=beta)
    return apply_dense(rules.power_sign, (var, m), grad, lr, logbase, sign_decay, beta, one_minus(beta))


apply_power_sign, resource_apply_power_sign = declare_pair(
    "ApplyPowerSign(var: Ref(T), m: Ref(T), lr: T, logbase: T, sign_decay: T, beta: T, grad: T)", _power_sign
)
