"""Update ops of the optimizers for gradients of some rows: ``SparseApplyAdagrad`` and the like.

Only the named rows of the variable and its slots change. A row that is named twice is updated
twice, in order; the optimizers add up duplicates before they get here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.graph.registry import OpHandle
from tfmini.ops import update_rules as rules
from tfmini.ops.training_dense import check_scalars, declare, declare_pair, one_minus
from tfmini.ops.variable_state import VariableState, update_together
from tfmini.shapes import format_raw

_INDICES = "; Tindices: {int32, int64}"


def _declare_pair(signature: str, kernel: Callable[..., Any], options: str = "") -> tuple[OpHandle, OpHandle]:
    return declare_pair(signature, kernel, _INDICES + options)


def apply_sparse(rule: rules.Rule, states: Sequence[VariableState], grad: Any, indices: Any, *hyper: Any) -> Any:
    """Runs ``rule`` on the rows ``indices`` of a variable and its slots, exclusively; returns the variable.

    Raises:
      InvalidArgumentError: when shapes do not fit or an index is out of range; nothing has changed then.
      FailedPreconditionError: when one of the variables was never assigned.
    """

    def run(*arrays: Any) -> None:
        _check(arrays, grad, indices, states)
        for chosen in _without_repeats(indices, arrays[0].shape[0]):
            _update_rows(rule, arrays, grad[chosen], indices[chosen], hyper)

    update_together(states, run)
    return states[0]


def _update_rows(rule: rules.Rule, arrays: Sequence[Any], grad: Any, indices: Any, hyper: Sequence[Any]) -> None:
    rows = [array[indices] for array in arrays]
    rules.run_blockwise(rule, rows, grad, hyper)
    for array, changed in zip(arrays, rows):
        array[indices] = changed


def _without_repeats(indices: Any, rows: int) -> list[Any]:
    """Splits positions into rounds, each of which names a row at most once: round k has the k-th mentions."""
    position = np.arange(indices.size)
    first = np.empty(rows, np.intp)
    rounds: list[Any] = []
    left: Any = position
    while left.size:
        # Stored backwards, so that the first mention is what stays.
        first[indices[left[::-1]]] = left[::-1]
        is_first = first[indices[left]] == left
        if not rounds and is_first.all():
            return [slice(None)]
        rounds.append(left[is_first])
        left = left[~is_first]
    return rounds


def _check(arrays: tuple[Any, ...], grad: Any, indices: Any, states: Sequence[VariableState]) -> None:
    shape = arrays[0].shape
    for array, state in zip(arrays, states):
        if array.shape != shape:
            _refuse(f"var and {state.name} do not have the same shape{format_raw(shape)} {format_raw(array.shape)}")
    if not shape:
        _refuse("var must be at least 1 dimensional")
    if indices.ndim != 1:
        _refuse("indices must be one-dimensional")
    if grad.ndim != len(shape):
        _refuse(f"var and grad must have the same rank: {len(shape)} and {grad.ndim}")
    for axis in range(1, len(shape)):
        if shape[axis] != grad.shape[axis]:
            _refuse(f"var and grad must match in dimension {axis}")
    if grad.shape[0] != indices.size:
        _refuse("grad must be the same size as indices in the first dimension.")
    if indices.size and (indices.min() < 0 or indices.max() >= shape[0]):
        offset = int(np.flatnonzero((indices < 0) | (indices >= shape[0]))[0])
        _refuse(f"Index {indices[offset]} at offset {offset} in indices is out of range")


def _refuse(message: str) -> None:
    raise InvalidArgumentError(None, None, message)


# ---- the ops --------------------------------------------------------------------------------


def _momentum(var: Any, accum: Any, lr: Any, grad: Any, indices: Any, momentum: Any, *, use_nesterov: bool) -> Any:
    check_scalars(lr=lr, momentum=momentum)
    rule = rules.nesterov_momentum if use_nesterov else rules.momentum
    return apply_sparse(rule, (var, accum), grad, indices, lr, momentum)


sparse_apply_momentum, resource_sparse_apply_momentum = _declare_pair(
    "SparseApplyMomentum(var: Ref(T), accum: Ref(T), lr: T, grad: T, indices: Tindices, momentum: T)",
    _momentum,
    "; use_nesterov: bool = false",
)


def _keras_momentum(
    var: Any, accum: Any, lr: Any, grad: Any, indices: Any, momentum: Any, *, use_nesterov: bool
) -> Any:
    check_scalars(lr=lr, momentum=momentum)
    rule = rules.keras_nesterov_momentum if use_nesterov else rules.keras_momentum
    return apply_sparse(rule, (var, accum), grad, indices, lr, momentum)


resource_sparse_apply_keras_momentum = declare(
    "ResourceSparseApplyKerasMomentum(var: resource, accum: resource, lr: T, grad: T, indices: Tindices, momentum: T)"
    "; T: numbertype; Tindices: {int32, int64}; use_locking: bool = false; use_nesterov: bool = false",
    _keras_momentum,
)


def _adagrad(var: Any, accum: Any, lr: Any, grad: Any, indices: Any, *, update_slots: bool) -> Any:
    check_scalars(lr=lr)
    rule = rules.adagrad if update_slots else rules.adagrad_frozen
    return apply_sparse(rule, (var, accum), grad, indices, lr)


sparse_apply_adagrad, resource_sparse_apply_adagrad = _declare_pair(
    "SparseApplyAdagrad(var: Ref(T), accum: Ref(T), lr: T, grad: T, indices: Tindices)",
    _adagrad,
    "; update_slots: bool = true",
)


def _adagrad_v2(var: Any, accum: Any, lr: Any, epsilon: Any, grad: Any, indices: Any, *, update_slots: bool) -> Any:
    check_scalars(lr=lr, epsilon=epsilon)
    rule = rules.adagrad_v2 if update_slots else rules.adagrad_v2_frozen
    return apply_sparse(rule, (var, accum), grad, indices, lr, epsilon)


sparse_apply_adagrad_v2, resource_sparse_apply_adagrad_v2 = _declare_pair(
    "SparseApplyAdagradV2(var: Ref(T), accum: Ref(T), lr: T, epsilon: T, grad: T, indices: Tindices)",
    _adagrad_v2,
    "; update_slots: bool = true",
)


def _adadelta(
    var: Any, accum: Any, accum_update: Any, lr: Any, rho: Any, epsilon: Any, grad: Any, indices: Any
) -> Any:
    check_scalars(lr=lr, rho=rho, epsilon=epsilon)
    return apply_sparse(
        rules.adadelta, (var, accum, accum_update), grad, indices, lr, rho, one_minus(rho), epsilon
    )


sparse_apply_adadelta, resource_sparse_apply_adadelta = _declare_pair(
    "SparseApplyAdadelta(var: Ref(T), accum: Ref(T), accum_update: Ref(T), lr: T, rho: T, epsilon: T, grad: T,"
    " indices: Tindices)",
    _adadelta,
)


def _rms_prop(
    var: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any, indices: Any
) -> Any:
    check_scalars(lr=lr, rho=rho, momentum=momentum, epsilon=epsilon)
    return apply_sparse(rules.rms_prop, (var, ms, mom), grad, indices, lr, one_minus(rho), momentum, epsilon)


sparse_apply_rms_prop, resource_sparse_apply_rms_prop = _declare_pair(
    "SparseApplyRMSProp(var: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, grad: T,"
    " indices: Tindices)",
    _rms_prop,
)


def _centered_rms_prop(
    var: Any, mg: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any, indices: Any
) -> Any:
    check_scalars(lr=lr, rho=rho, momentum=momentum, epsilon=epsilon)
    hyper = (lr, one_minus(rho), momentum, epsilon)
    return apply_sparse(rules.centered_rms_prop, (var, mg, ms, mom), grad, indices, *hyper)


sparse_apply_centered_rms_prop, resource_sparse_apply_centered_rms_prop = _declare_pair(
    "SparseApplyCenteredRMSProp(var: Ref(T), mg: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T,"
    " epsilon: T, grad: T, indices: Tindices)",
    _centered_rms_prop,
)


def _proximal_gradient_descent(var: Any, alpha: Any, l1: Any, l2: Any, grad: Any, indices: Any) -> Any:
    check_scalars(alpha=alpha, l1=l1, l2=l2)
    return apply_sparse(rules.proximal_gradient_descent, (var,), grad, indices, alpha, l1, l2)


sparse_apply_proximal_gradient_descent, resource_sparse_apply_proximal_gradient_descent = _declare_pair(
    "SparseApplyProximalGradientDescent(var: Ref(T), alpha: T, l1: T, l2: T, grad: T, indices: Tindices)",
    _proximal_gradient_descent,
)


def _proximal_adagrad(var: Any, accum: Any, lr: Any, l1: Any, l2: Any, grad: Any, indices: Any) -> Any:
    check_scalars(lr=lr, l1=l1, l2=l2)
    return apply_sparse(rules.proximal_adagrad, (var, accum), grad, indices, lr, l1, l2)


sparse_apply_proximal_adagrad, resource_sparse_apply_proximal_adagrad = _declare_pair(
    "SparseApplyProximalAdagrad(var: Ref(T), accum: Ref(T), lr: T, l1: T, l2: T, grad: T, indices: Tindices)",
    _proximal_adagrad,
)


def _adagrad_da(
    var: Any, gradient_accumulator: Any, gradient_squared_accumulator: Any, grad: Any, indices: Any, lr: Any, l1: Any,
    l2: Any, global_step: Any,
) -> Any:  # fmt: skip
    check_scalars(lr=lr, l1=l1, l2=l2, global_step=global_step)
    states = (var, gradient_accumulator, gradient_squared_accumulator)
    return apply_sparse(rules.adagrad_da, states, grad, indices, lr, l1, l2, lr.dtype.type(global_step))


sparse_apply_adagrad_da, resource_sparse_apply_adagrad_da = _declare_pair(
    "SparseApplyAdagradDA(var: Ref(T), gradient_accumulator: Ref(T), gradient_squared_accumulator: Ref(T), grad: T,"
    " indices: Tindices, lr: T, l1: T, l2: T, global_step: int64)",
    _adagrad_da,
)


def _ftrl(
    var: Any, accum: Any, linear: Any, grad: Any, indices: Any, lr: Any, l1: Any, l2: Any, lr_power: Any
) -> Any:
    check_scalars(lr=lr, l1=l1, l2=l2, lr_power=lr_power)
    return apply_sparse(rules.ftrl, (var, accum, linear), grad, indices, lr, l1, l2, None, lr_power)


sparse_apply_ftrl, resource_sparse_apply_ftrl = _declare_pair(
    "SparseApplyFtrl(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, indices: Tindices, lr: T, l1: T, l2: T,"
    " lr_power: T)",
    _ftrl,
)


def _ftrl_v2(
    var: Any, accum: Any, linear: Any, grad: Any, indices: Any, lr: Any, l1: Any, l2: Any, l2_shrinkage: Any,
    lr_power: Any,
) -> Any:  # fmt: skip
    check_scalars(lr=lr, l1=l1, l2=l2, l2_shrinkage=l2_shrinkage, lr_power=lr_power)
    return apply_sparse(rules.ftrl, (var, accum, linear), grad, indices, lr, l1, l2, l2_shrinkage, lr_power)


sparse_apply_ftrl_v2, resource_sparse_apply_ftrl_v2 = _declare_pair(
    "SparseApplyFtrlV2(var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, indices: Tindices, lr: T, l1: T, l2: T,"
    " l2_shrinkage: T, lr_power: T)",
    _ftrl_v2,
)
