"""The commonest optimizers' rules by oneDNN: the functions of `update_rules`, which asks here first for large arrays.

Each needs one pass over memory for an array that changes, on all cores, where numpy needs three to five on one core.
The operations and their order are those of `update_rules`, so the results are equal bit by bit. A number that is
subtracted there is added here with the other sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.numerics.onednn_elementwise import run
from tfmini.numerics.windows import scratch

Array = Any


def _space(like: Array) -> Array:
    return scratch("oneDNN updates", like.shape, like.dtype)


def gradient_descent(var: Array, grad: Array, lr: Any) -> None:
    """See `update_rules.gradient_descent`."""
    run(var, grad, "multiply", -lr, "add", var)


def momentum(var: Array, accum: Array, grad: Array, lr: Any, mu: Any, *, use_nesterov: bool) -> None:
    """See `update_rules.momentum`."""
    run(accum, accum, "multiply", mu, "add", grad)
    if use_nesterov:
        run(var, accum, "multiply", mu, "add", grad, "multiply", -lr, "add", var)
    else:
        run(var, accum, "multiply", -lr, "add", var)


def adagrad(var: Array, accum: Array, grad: Array, lr: Any, *, update_slots: bool) -> None:
    """See `update_rules.adagrad`."""
    if update_slots:
        run(accum, grad, "multiply", grad, "add", accum)
    t = _space(var)
    run(t, accum, "multiply", _one(var), "sqrt")
    run(var, grad, "divide", t, "multiply", -lr, "add", var)


def adagrad_v2(var: Array, accum: Array, grad: Array, lr: Any, epsilon: Any, *, update_slots: bool) -> None:
    """See `update_rules.adagrad_v2`."""
    if update_slots:
        run(accum, grad, "multiply", grad, "add", accum)
    t = _space(var)
    run(t, accum, "multiply", _one(var), "sqrt", "add", epsilon)
    run(var, grad, "divide", t, "multiply", -lr, "add", var)


def adam(
    var: Array, m: Array, v: Array, grad: Array,
    beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, *, use_nesterov: bool,
) -> None:  # fmt: skip
    """See `update_rules.adam`."""
    one, t = _one(var), _space(var)
    run(m, grad, "subtract", m, "multiply", one - beta1, "add", m)
    run(v, grad, "multiply", grad, "subtract", v, "multiply", one - beta2, "add", v)
    step = m
    if use_nesterov:
        step = np.empty_like(var)
        run(t, m, "multiply", beta1)
        run(step, grad, "multiply", one - beta1, "add", t)
    run(t, v, "multiply", one, "sqrt", "add", epsilon)
    rate = lr * np.sqrt(one - beta2_power) / (one - beta1_power)
    run(var, step, "divide", t, "multiply", -rate, "add", var)


def rms_prop(var: Array, ms: Array, mom: Array, grad: Array, lr: Any, rho: Any, mu: Any, epsilon: Any) -> None:
    """See `update_rules.rms_prop`."""
    t = _space(var)
    run(ms, grad, "multiply", grad, "subtract", ms, "multiply", _one(var) - rho, "add", ms)
    run(t, ms, "add", epsilon, "sqrt")
    run(t, grad, "divide", t, "multiply", lr)
    run(mom, mom, "multiply", mu, "add", t)
    run(var, var, "subtract", mom)


def _one(array: Array) -> Any:
    return array.dtype.type(1)
