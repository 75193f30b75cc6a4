"""The arithmetic of the optimizers' update ops: each rule changes arrays in place, element by element.

A rule is called ``rule(var, *slots, grad, t, *hyper)``: all arrays have one shape, ``t`` is scratch
space of that shape, and the hyper-parameters are scalars of the arrays' own type. Because a rule
is element-wise, the dense ops run it on blocks that stay in the processor's cache, and the sparse
ops run it on gathered rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any
Rule = Callable[..., None]

# Measured with Adagrad and Adam on float32: a variable, its slots, a gradient and scratch of this many
# elements stay in a cache of 1-2 MiB; smaller blocks pay more for the calls than they gain.
BLOCK_ELEMENTS = 32 * 1024
# Up to here one pass per operation over the whole array is quicker than cutting it up.
WHOLE_ELEMENTS = 4 * BLOCK_ELEMENTS


def run_blockwise(rule: Rule, arrays: Sequence[Array], grad: Array, hyper: Sequence[Any]) -> None:
    """Applies a rule to C-contiguous arrays of one shape, block by block when they are large.

    Several passes over a block that is in cache cost about as much as one pass over memory; on
    whole large arrays every pass, and every temporary, would travel through memory.
    """
    var = arrays[0]
    size = var.size
    if size <= WHOLE_ELEMENTS:
        rule(*arrays, grad, np.empty_like(var), *hyper)
        return
    flat = [a.reshape(-1) for a in arrays]
    flat.append(grad.reshape(-1))
    scratch = np.empty(BLOCK_ELEMENTS, var.dtype)
    for start in range(0, size, BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        parts = [a[block] for a in flat]
        rule(*parts, scratch[: parts[0].size], *hyper)


def gradient_descent(var: Array, grad: Array, t: Array, lr: Any) -> None:
    """var -= lr * grad"""
    np.multiply(grad, lr, out=t)
    np.subtract(var, t, out=var)


def _descend(var: Array, t: Array, rate: Any) -> None:
    """var -= rate * t; overwrites t."""
    np.multiply(t, rate, out=t)
    np.subtract(var, t, out=var)


def _descend_by_quotient(var: Array, step: Array, t: Array, rate: Any) -> None:
    """var -= rate * step / t; overwrites t."""
    np.divide(step, t, out=t)
    _descend(var, t, rate)


def _add_square(accum: Array, grad: Array, t: Array) -> None:
    """accum += grad²; overwrites t."""
    np.multiply(grad, grad, out=t)
    np.add(accum, t, out=accum)


def _approach(mean: Array, value: Array, t: Array, rest: Any) -> None:
    """mean += (value - mean) * rest; overwrites t, which may be ``value``."""
    np.subtract(value, mean, out=t)
    np.multiply(t, rest, out=t)
    np.add(mean, t, out=mean)


def _approach_square(mean: Array, grad: Array, t: Array, rest: Any) -> None:
    """mean += (grad² - mean) * rest; overwrites t."""
    np.multiply(grad, grad, out=t)
    _approach(mean, t, t, rest)


def momentum(var: Array, accum: Array, grad: Array, t: Array, lr: Any, mu: Any) -> None:
    """accum = mu * accum + grad; var -= lr * accum"""
    np.multiply(accum, mu, out=accum)
    np.add(accum, grad, out=accum)
    np.multiply(accum, lr, out=t)
    np.subtract(var, t, out=var)


def nesterov_momentum(var: Array, accum: Array, grad: Array, t: Array, lr: Any, mu: Any) -> None:
    """accum = mu * accum + grad; var -= lr * (grad + mu * accum)"""
    np.multiply(accum, mu, out=accum)
    np.add(accum, grad, out=accum)
    np.multiply(accum, mu, out=t)
    np.add(t, grad, out=t)
    _descend(var, t, lr)


def keras_momentum(var: Array, accum: Array, grad: Array, t: Array, lr: Any, mu: Any) -> None:
    """accum = mu * accum - lr * grad; var += accum"""
    np.multiply(grad, lr, out=t)
    np.multiply(accum, mu, out=accum)
    np.subtract(accum, t, out=accum)
    np.add(var, accum, out=var)


def keras_nesterov_momentum(var: Array, accum: Array, grad: Array, t: Array, lr: Any, mu: Any) -> None:
    """accum = mu * accum - lr * grad; var += mu * accum - lr * grad"""
    np.multiply(grad, lr, out=t)
    np.multiply(accum, mu, out=accum)
    np.subtract(accum, t, out=accum)
    np.subtract(var, t, out=var)
    np.multiply(accum, mu, out=t)
    np.add(var, t, out=var)


def adagrad(var: Array, accum: Array, grad: Array, t: Array, lr: Any) -> None:
    """accum += grad²; var -= lr * grad / sqrt(accum)"""
    _add_square(accum, grad, t)
    adagrad_frozen(var, accum, grad, t, lr)


def adagrad_frozen(var: Array, accum: Array, grad: Array, t: Array, lr: Any) -> None:
    """`adagrad` that leaves the accumulator alone (``update_slots=False``)."""
    np.sqrt(accum, out=t)
    _descend_by_quotient(var, grad, t, lr)


def adagrad_v2(var: Array, accum: Array, grad: Array, t: Array, lr: Any, epsilon: Any) -> None:
    """accum += grad²; var -= lr * grad / (sqrt(accum) + epsilon)"""
    _add_square(accum, grad, t)
    adagrad_v2_frozen(var, accum, grad, t, lr, epsilon)


def adagrad_v2_frozen(var: Array, accum: Array, grad: Array, t: Array, lr: Any, epsilon: Any) -> None:
    """`adagrad_v2` that leaves the accumulator alone."""
    np.sqrt(accum, out=t)
    np.add(t, epsilon, out=t)
    _descend_by_quotient(var, grad, t, lr)


def adadelta(
    var: Array, accum: Array, accum_update: Array, grad: Array, t: Array, lr: Any, rho: Any, rest: Any, epsilon: Any
) -> None:
    """accum and accum_update are decayed means of grad² and of the squared steps; ``rest`` is 1 - rho."""
    np.multiply(grad, grad, out=t)
    _decay(accum, t, rho, rest)
    step = np.add(accum_update, epsilon, out=np.empty_like(t))
    np.add(accum, epsilon, out=t)
    np.divide(step, t, out=step)
    np.sqrt(step, out=step)
    np.multiply(step, grad, out=step)
    np.multiply(step, lr, out=t)
    np.subtract(var, t, out=var)
    np.multiply(step, step, out=step)
    _decay(accum_update, step, rho, rest)


def _decay(mean: Array, value: Array, rho: Any, rest: Any) -> None:
    """mean = rho * mean + rest * value; overwrites value."""
    np.multiply(mean, rho, out=mean)
    np.multiply(value, rest, out=value)
    np.add(mean, value, out=mean)


def adam(
    var: Array, m: Array, v: Array, grad: Array, t: Array, alpha: Any, rest1: Any, rest2: Any, epsilon: Any
) -> None:
    """m += (grad - m) * (1 - beta1); v += (grad² - v) * (1 - beta2); var -= alpha * m / (sqrt(v) + epsilon)"""
    _adam_moments(m, v, grad, t, rest1, rest2)
    np.sqrt(v, out=t)
    np.add(t, epsilon, out=t)
    _descend_by_quotient(var, m, t, alpha)


def amsgrad(
    var: Array, m: Array, v: Array, vhat: Array, grad: Array, t: Array, alpha: Any, rest1: Any, rest2: Any, epsilon: Any
) -> None:
    """Like `adam`, with vhat = max(vhat, v) in place of v: the rate of an element never grows."""
    _adam_moments(m, v, grad, t, rest1, rest2)
    np.maximum(vhat, v, out=vhat)
    np.sqrt(vhat, out=t)
    np.add(t, epsilon, out=t)
    _descend_by_quotient(var, m, t, alpha)


def nesterov_adam(
    var: Array, m: Array, v: Array, grad: Array, t: Array, alpha: Any, rest1: Any, rest2: Any, epsilon: Any, beta1: Any
) -> None:
    """Like `adam`, with beta1 * m + (1 - beta1) * grad in place of m."""
    _adam_moments(m, v, grad, t, rest1, rest2)
    ahead = np.multiply(grad, rest1, out=np.empty_like(t))
    np.multiply(m, beta1, out=t)
    np.add(ahead, t, out=ahead)
    np.multiply(ahead, alpha, out=ahead)
    np.sqrt(v, out=t)
    np.add(t, epsilon, out=t)
    np.divide(ahead, t, out=t)
    np.subtract(var, t, out=var)


def _adam_moments(m: Array, v: Array, grad: Array, t: Array, rest1: Any, rest2: Any) -> None:
    _approach(m, grad, t, rest1)
    _approach_square(v, grad, t, rest2)


def ada_max(
    var: Array, m: Array, v: Array, grad: Array, t: Array, alpha: Any, rest1: Any, beta2: Any, epsilon: Any
) -> None:
    """m += (grad - m) * (1 - beta1); v = max(beta2 * v, |grad|); var -= alpha * m / (v + epsilon)"""
    _approach(m, grad, t, rest1)
    np.multiply(v, beta2, out=v)
    np.abs(grad, out=t)
    np.maximum(v, t, out=v)
    np.add(v, epsilon, out=t)
    _descend_by_quotient(var, m, t, alpha)


def rms_prop(
    var: Array, ms: Array, mom: Array, grad: Array, t: Array, lr: Any, rest: Any, mu: Any, epsilon: Any
) -> None:
    """ms += (grad² - ms) * (1 - rho); mom = mu * mom + lr * grad / sqrt(ms + epsilon); var -= mom"""
    _approach_square(ms, grad, t, rest)
    np.add(ms, epsilon, out=t)
    _rms_step(var, mom, grad, t, lr, mu)


def centered_rms_prop(
    var: Array, mg: Array, ms: Array, mom: Array, grad: Array, t: Array, lr: Any, rest: Any, mu: Any, epsilon: Any
) -> None:
    """`rms_prop` by the variance: ms - mg² in place of ms, where mg is the decayed mean of grad."""
    _approach_square(ms, grad, t, rest)
    _approach(mg, grad, t, rest)
    np.multiply(mg, mg, out=t)
    np.subtract(ms, t, out=t)
    np.add(t, epsilon, out=t)
    _rms_step(var, mom, grad, t, lr, mu)


def _rms_step(var: Array, mom: Array, grad: Array, t: Array, lr: Any, mu: Any) -> None:
    np.sqrt(t, out=t)
    np.divide(grad, t, out=t)
    np.multiply(t, lr, out=t)
    np.multiply(mom, mu, out=mom)
    np.add(mom, t, out=mom)
    np.subtract(var, mom, out=var)


def proximal_gradient_descent(var: Array, grad: Array, t: Array, lr: Any, l1: Any, l2: Any) -> None:
    """p = var - lr * grad; var = sign(p) * max(|p| - lr * l1, 0) / (1 + lr * l2)"""
    np.multiply(grad, lr, out=t)
    np.subtract(var, t, out=var)
    if l1 > 0:
        _shrink(var, lr * l1, t)
    np.divide(var, _one(var) + lr * l2, out=var)


def proximal_adagrad(var: Array, accum: Array, grad: Array, t: Array, lr: Any, l1: Any, l2: Any) -> None:
    """accum += grad²; then `proximal_gradient_descent` with the rate lr / sqrt(accum) of each element."""
    _add_square(accum, grad, t)
    rate = np.sqrt(accum, out=np.empty_like(t))
    np.divide(lr, rate, out=rate)
    np.multiply(grad, rate, out=t)
    np.subtract(var, t, out=var)
    if l1 > 0:
        _shrink(var, np.multiply(rate, l1), t)
    np.multiply(rate, l2, out=rate)
    np.add(rate, _one(var), out=rate)
    np.divide(var, rate, out=var)


def _shrink(array: Array, amount: Any, t: Array) -> None:
    """Moves every element towards zero by ``amount``, at most to zero."""
    np.abs(array, out=t)
    np.subtract(t, amount, out=t)
    np.maximum(t, 0, out=t)
    np.sign(array, out=array)
    np.multiply(array, t, out=array)


def _one(array: Array) -> Any:
    return array.dtype.type(1)


def adagrad_da(
    var: Array, total: Array, squared: Array, grad: Array, t: Array, lr: Any, l1: Any, l2: Any, steps: Any
) -> None:
    """total += grad; squared += grad²; var follows from the two sums and the number of steps."""
    np.add(total, grad, out=total)
    _add_square(squared, grad, t)
    np.copyto(var, total)
    if l1 > 0:
        _shrink(var, l1 * steps, t)
    np.multiply(var, -lr, out=var)
    np.sqrt(squared, out=t)
    np.add(t, l2 * steps * lr, out=t)
    np.divide(var, t, out=var)


def ftrl(
    var: Array, accum: Array, linear: Array, grad: Array, t: Array,
    lr: Any, l1: Any, l2: Any, shrinkage: Any, power: Any,
) -> None:  # fmt: skip
    """FTRL-proximal; ``shrinkage`` is None for the first version of the op."""
    old = _negative_power(accum, power)
    if shrinkage is None:
        step = grad
    else:
        step = np.multiply(var, 2 * _one(var) * shrinkage)
        step = np.add(step, grad)
    _add_square(accum, grad, t)
    new = _negative_power(accum, power)
    np.subtract(new, old, out=t)
    np.divide(t, lr, out=t)
    np.multiply(t, var, out=t)
    np.add(linear, step, out=linear)
    np.subtract(linear, t, out=linear)
    np.divide(new, lr, out=new)
    np.add(new, 2 * _one(var) * l2, out=new)
    np.sign(linear, out=var)
    np.multiply(var, l1, out=var)
    np.subtract(var, linear, out=var)
    np.divide(var, new, out=var)
    np.abs(linear, out=t)
    np.copyto(var, 0, where=t <= l1)


def _negative_power(accum: Array, power: Any) -> Array:
    out = np.empty_like(accum)  # an array also at rank 0, where numpy would give a scalar
    return np.sqrt(accum, out=out) if power == -0.5 else np.power(accum, -power, out=out)


def _sign_factor(m: Array, grad: Array, t: Array, beta: Any, rest: Any, decay: Any) -> None:
    """m = beta * m + (1 - beta) * grad; t = decay * sign(grad) * sign(m)"""
    np.multiply(m, beta, out=m)
    np.multiply(grad, rest, out=t)
    np.add(m, t, out=m)
    np.sign(grad, out=t)
    np.multiply(t, np.sign(m), out=t)
    np.multiply(t, decay, out=t)


def add_sign(
    var: Array, m: Array, grad: Array, t: Array, lr: Any, alpha: Any, decay: Any, beta: Any, rest: Any
) -> None:
    """var -= lr * (alpha + decay * sign(grad) * sign(m)) * grad"""
    _sign_factor(m, grad, t, beta, rest, decay)
    np.add(t, alpha, out=t)
    np.multiply(t, grad, out=t)
    _descend(var, t, lr)


def power_sign(
    var: Array, m: Array, grad: Array, t: Array, lr: Any, logbase: Any, decay: Any, beta: Any, rest: Any
) -> None:
    """var -= lr * exp(logbase * decay * sign(grad) * sign(m)) * grad"""
    _sign_factor(m, grad, t, beta, rest, decay)
    np.multiply(t, logbase, out=t)
    np.exp(t, out=t)
    np.multiply(t, grad, out=t)
    _descend(var, t, lr)
