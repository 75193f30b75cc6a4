"""The arithmetic of the optimizers' update ops: each rule changes arrays in place, element by element.

A rule is called ``rule(var, *slots, grad, t, *hyper)``. All arrays have one shape, and ``t`` is scratch
memory of that shape. The hyper-parameters are the scalar inputs of the update op in the op's order, of the
arrays' own type; a keyword-only argument is the op's attr of that name. Because a rule is element-wise, the
dense ops run it on blocks that stay in the processor's cache, and the sparse ops run it on gathered rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.errors import InvalidArgumentError
from tfmini.numerics import onednn_kernels
from tfmini.numerics.onednn_kernels import accepts, several_threads
from tfmini.shapes import format_raw

Rule = Callable[..., None]

# A variable, its slots, a gradient and scratch memory of this many float32 elements stay in a cache of 1-2 MiB.
# Smaller blocks cost more in calls than they gain (measured with Adagrad and Adam).
BLOCK_ELEMENTS = 32 * 1024
# Up to this size, whole arrays are faster than blocks.
WHOLE_ELEMENTS = 4 * BLOCK_ELEMENTS
# From this size on, the rules that oneDNN has are faster there with several threads; with one they are not.
ONEDNN_ELEMENTS = 1 << 19
# It gets at most this many at once, so that the scratch memory, which a thread keeps, has 4 MB and not the size of the
# largest variable.
ONEDNN_BLOCK = 1 << 20


def run_blockwise(rule: Rule, arrays: Sequence[Array], grad: Array, hyper: Sequence[Any]) -> None:
    """Applies a rule to C-contiguous arrays of one shape, block by block when they are large.

    Several passes over a block in cache cost about as much as one pass over memory. On a whole
    large array, every pass and every temporary would go through memory.
    """
    var = arrays[0]
    size = var.size
    if size >= ONEDNN_ELEMENTS and _run_by_onednn(rule, arrays, grad, hyper):
        return
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


def _run_by_onednn(rule: Rule, arrays: Sequence[Array], grad: Array, hyper: Sequence[Any]) -> bool:
    """Applies a rule by oneDNN; returns False, having done nothing, where that isn't possible."""
    plain, attrs = (rule.func, rule.keywords) if isinstance(rule, functools.partial) else (rule, {})
    found = _ONEDNN_RULES.get(plain)
    if found is None or not accepts(*arrays, grad) or not several_threads():
        return False
    flat = [a.reshape(-1) for a in (*arrays, grad)]
    for start in range(0, grad.size, ONEDNN_BLOCK):
        found(*[a[start : start + ONEDNN_BLOCK] for a in flat], *hyper, **attrs)
    return True


def gradient_descent(var: Array, grad: Array, t: Array, lr: Array) -> None:
    """var -= lr * grad"""
    np.multiply(grad, lr, out=t)
    np.subtract(var, t, out=var)


def _descend(var: Array, t: Array, rate: Array) -> None:
    """var -= rate * t; overwrites t."""
    np.multiply(t, rate, out=t)
    np.subtract(var, t, out=var)


def _descend_by_quotient(var: Array, step: Array, t: Array, rate: Array) -> None:
    """var -= rate * step / t; overwrites t."""
    np.divide(step, t, out=t)
    _descend(var, t, rate)


def _add_square(accum: Array, grad: Array, t: Array) -> None:
    """accum += grad²; overwrites t."""
    np.multiply(grad, grad, out=t)
    np.add(accum, t, out=accum)


def _approach(mean: Array, value: Array, t: Array, rest: Array) -> None:
    """mean += (value - mean) * rest; overwrites t, which may be ``value``."""
    np.subtract(value, mean, out=t)
    np.multiply(t, rest, out=t)
    np.add(mean, t, out=mean)


def _approach_square(mean: Array, grad: Array, t: Array, rest: Array) -> None:
    """mean += (grad² - mean) * rest; overwrites t."""
    np.multiply(grad, grad, out=t)
    _approach(mean, t, t, rest)


def momentum(var: Array, accum: Array, grad: Array, t: Array, lr: Array, mu: Array, *, use_nesterov: bool) -> None:
    """accum = mu * accum + grad; var -= lr * accum, or with ``use_nesterov`` lr * (grad + mu * accum)"""
    np.multiply(accum, mu, out=accum)
    np.add(accum, grad, out=accum)
    if use_nesterov:
        np.multiply(accum, mu, out=t)
        np.add(t, grad, out=t)
        _descend(var, t, lr)
    else:
        np.multiply(accum, lr, out=t)
        np.subtract(var, t, out=var)


def keras_momentum(
    var: Array, accum: Array, grad: Array, t: Array, lr: Array, mu: Array, *, use_nesterov: bool
) -> None:
    """accum = mu * accum - lr * grad; var += accum, or with ``use_nesterov`` mu * accum - lr * grad"""
    np.multiply(grad, lr, out=t)
    np.multiply(accum, mu, out=accum)
    np.subtract(accum, t, out=accum)
    if use_nesterov:
        np.subtract(var, t, out=var)
        np.multiply(accum, mu, out=t)
        np.add(var, t, out=var)
    else:
        np.add(var, accum, out=var)


def adagrad(var: Array, accum: Array, grad: Array, t: Array, lr: Array, *, update_slots: bool) -> None:
    """accum += grad², unless ``update_slots`` is False; var -= lr * grad / sqrt(accum)"""
    if update_slots:
        _add_square(accum, grad, t)
    np.sqrt(accum, out=t)
    _descend_by_quotient(var, grad, t, lr)


def adagrad_v2(
    var: Array, accum: Array, grad: Array, t: Array, lr: Array, epsilon: Array, *, update_slots: bool
) -> None:
    """`adagrad` with sqrt(accum) + epsilon in place of sqrt(accum)."""
    if update_slots:
        _add_square(accum, grad, t)
    np.sqrt(accum, out=t)
    np.add(t, epsilon, out=t)
    _descend_by_quotient(var, grad, t, lr)


def adadelta(
    var: Array, accum: Array, accum_update: Array, grad: Array, t: Array, lr: Array, rho: Array, epsilon: Array
) -> None:
    """accum and accum_update are decayed means of grad² and of the squared steps."""
    rest = _one_minus(rho)
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


def _decay(mean: Array, value: Array, rho: Array, rest: Array) -> None:
    """mean = rho * mean + rest * value; overwrites value."""
    np.multiply(mean, rho, out=mean)
    np.multiply(value, rest, out=value)
    np.add(mean, value, out=mean)


def adam(
    var: Array, m: Array, v: Array, grad: Array, t: Array, beta1_power: Array, beta2_power: Array, lr: Array,
    beta1: Array, beta2: Array, epsilon: Array, *, use_nesterov: bool,
) -> None:  # fmt: skip
    """m += (grad - m) * (1 - beta1); v += (grad² - v) * (1 - beta2); var -= alpha * m / (sqrt(v) + epsilon)

    alpha is `_adam_rate`. With ``use_nesterov``, the last step takes beta1 * m + (1 - beta1) * grad in place of m.
    """
    _adam_moments(m, v, grad, t, beta1, beta2)
    step = m
    if use_nesterov:
        step = np.multiply(grad, _one_minus(beta1), out=np.empty_like(t))
        np.multiply(m, beta1, out=t)
        np.add(step, t, out=step)
    np.sqrt(v, out=t)
    np.add(t, epsilon, out=t)
    _descend_by_quotient(var, step, t, _adam_rate(lr, beta1_power, beta2_power))


def amsgrad(
    var: Array, m: Array, v: Array, vhat: Array, grad: Array, t: Array, beta1_power: Array, beta2_power: Array,
    lr: Array, beta1: Array, beta2: Array, epsilon: Array,
) -> None:  # fmt: skip
    """Like `adam`, with vhat = max(vhat, v) in place of v: the rate of an element never grows."""
    _adam_moments(m, v, grad, t, beta1, beta2)
    np.maximum(vhat, v, out=vhat)
    np.sqrt(vhat, out=t)
    np.add(t, epsilon, out=t)
    _descend_by_quotient(var, m, t, _adam_rate(lr, beta1_power, beta2_power))


def _adam_rate(lr: Array, beta1_power: Array, beta2_power: Array) -> Any:
    """The learning rate, corrected for moments that started at zero."""
    return lr * np.sqrt(_one_minus(beta2_power)) / _one_minus(beta1_power)


def _adam_moments(m: Array, v: Array, grad: Array, t: Array, beta1: Array, beta2: Array) -> None:
    _approach(m, grad, t, _one_minus(beta1))
    _approach_square(v, grad, t, _one_minus(beta2))


def ada_max(
    var: Array, m: Array, v: Array, grad: Array, t: Array, beta1_power: Array, lr: Array, beta1: Array, beta2: Array,
    epsilon: Array,
) -> None:  # fmt: skip
    """m += (grad - m) * (1 - beta1); v = max(beta2 * v, |grad|); var -= alpha * m / (v + epsilon)

    alpha is lr / (1 - beta1_power).
    """
    _approach(m, grad, t, _one_minus(beta1))
    np.multiply(v, beta2, out=v)
    np.abs(grad, out=t)
    np.maximum(v, t, out=v)
    np.add(v, epsilon, out=t)
    _descend_by_quotient(var, m, t, lr / _one_minus(beta1_power))


def rms_prop(
    var: Array, ms: Array, mom: Array, grad: Array, t: Array, lr: Array, rho: Array, mu: Array, epsilon: Array
) -> None:
    """ms += (grad² - ms) * (1 - rho); mom = mu * mom + lr * grad / sqrt(ms + epsilon); var -= mom"""
    _approach_square(ms, grad, t, _one_minus(rho))
    np.add(ms, epsilon, out=t)
    _rms_step(var, mom, grad, t, lr, mu)


def centered_rms_prop(
    var: Array, mg: Array, ms: Array, mom: Array, grad: Array, t: Array, lr: Array, rho: Array, mu: Array,
    epsilon: Array,
) -> None:  # fmt: skip
    """`rms_prop` by the variance: ms - mg² in place of ms, where mg is the decayed mean of grad."""
    rest = _one_minus(rho)
    _approach_square(ms, grad, t, rest)
    _approach(mg, grad, t, rest)
    np.multiply(mg, mg, out=t)
    np.subtract(ms, t, out=t)
    np.add(t, epsilon, out=t)
    _rms_step(var, mom, grad, t, lr, mu)


def _rms_step(var: Array, mom: Array, grad: Array, t: Array, lr: Array, mu: Array) -> None:
    np.sqrt(t, out=t)
    np.divide(grad, t, out=t)
    np.multiply(t, lr, out=t)
    np.multiply(mom, mu, out=mom)
    np.add(mom, t, out=mom)
    np.subtract(var, mom, out=var)


def proximal_gradient_descent(var: Array, grad: Array, t: Array, lr: Array, l1: Array, l2: Array) -> None:
    """p = var - lr * grad; var = sign(p) * max(|p| - lr * l1, 0) / (1 + lr * l2)"""
    np.multiply(grad, lr, out=t)
    np.subtract(var, t, out=var)
    if l1 > 0:
        _shrink(var, lr * l1, t)
    np.divide(var, _one(var) + lr * l2, out=var)


def proximal_adagrad(var: Array, accum: Array, grad: Array, t: Array, lr: Array, l1: Array, l2: Array) -> None:
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


def _shrink(array: Array, amount: Array, t: Array) -> None:
    """Moves every element towards zero by ``amount``, at most to zero."""
    np.abs(array, out=t)
    np.subtract(t, amount, out=t)
    np.maximum(t, 0, out=t)
    np.sign(array, out=array)
    np.multiply(array, t, out=array)


def _one(array: Array) -> Any:
    return array.dtype.type(1)


def _one_minus(value: Array) -> Any:
    """1 - value, in value's own type."""
    return _one(value) - value


def adagrad_da(
    var: Array, total: Array, squared: Array, grad: Array, t: Array, lr: Array, l1: Array, l2: Array, global_step: Array
) -> None:
    """total += grad; squared += grad²; var follows from the two sums and the number of steps."""
    steps = global_step.astype(lr.dtype)
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
    var: Array, accum: Array, linear: Array, grad: Array, t: Array, lr: Array, l1: Array, l2: Array, lr_power: Array
) -> None:
    """FTRL-proximal."""
    _ftrl_step(var, accum, linear, grad, grad, t, lr, l1, l2, lr_power)


def ftrl_v2(
    var: Array, accum: Array, linear: Array, grad: Array, t: Array, lr: Array, l1: Array, l2: Array,
    l2_shrinkage: Array, lr_power: Array,
) -> None:  # fmt: skip
    """`ftrl` with grad + 2 * l2_shrinkage * var in place of grad, but for ``accum``."""
    step = np.multiply(var, 2 * _one(var) * l2_shrinkage)
    step = np.add(step, grad)
    _ftrl_step(var, accum, linear, grad, step, t, lr, l1, l2, lr_power)


def _ftrl_step(
    var: Array, accum: Array, linear: Array, grad: Array, step: Array, t: Array, lr: Array, l1: Array, l2: Array,
    power: Array,
) -> None:  # fmt: skip
    old = _negative_power(accum, power)
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


def _negative_power(accum: Array, power: Array) -> Array:
    out = np.empty_like(accum)  # An array also at rank 0, where numpy would return a scalar.
    return np.sqrt(accum, out=out) if power == -0.5 else np.power(accum, -power, out=out)


def _sign_factor(m: Array, grad: Array, t: Array, beta: Array, decay: Array) -> None:
    """m = beta * m + (1 - beta) * grad; t = decay * sign(grad) * sign(m)"""
    np.multiply(m, beta, out=m)
    np.multiply(grad, _one_minus(beta), out=t)
    np.add(m, t, out=m)
    np.sign(grad, out=t)
    np.multiply(t, np.sign(m), out=t)
    np.multiply(t, decay, out=t)


def add_sign(var: Array, m: Array, grad: Array, t: Array, lr: Array, alpha: Array, decay: Array, beta: Array) -> None:
    """var -= lr * (alpha + decay * sign(grad) * sign(m)) * grad"""
    _sign_factor(m, grad, t, beta, decay)
    np.add(t, alpha, out=t)
    np.multiply(t, grad, out=t)
    _descend(var, t, lr)


def power_sign(
    var: Array, m: Array, grad: Array, t: Array, lr: Array, logbase: Array, decay: Array, beta: Array
) -> None:
    """var -= lr * exp(logbase * decay * sign(grad) * sign(m)) * grad"""
    _sign_factor(m, grad, t, beta, decay)
    np.multiply(t, logbase, out=t)
    np.exp(t, out=t)
    np.multiply(t, grad, out=t)
    _descend(var, t, lr)


_ONEDNN_RULES: dict[Rule, Rule] = {
    gradient_descent: onednn_kernels.gradient_descent,
    momentum: onednn_kernels.momentum,
    adagrad: onednn_kernels.adagrad,
    adagrad_v2: onednn_kernels.adagrad_v2,
    adam: onednn_kernels.adam,
    rms_prop: onednn_kernels.rms_prop,
}


# ---- scatter rows ----------------------------------------
# Applying updates to some rows of an array in place, repeated rows included, without a Python loop per row.
# Plain fancy indexing keeps only one of the updates of a repeated row. `ufunc.at` takes them all, in some 2 ns an
# element, but only where it has numbers and one vector of positions: with rows it is up to fifty times slower. So
# narrow rows, and few, are taken apart into their elements. Updates of many wide rows are applied in rounds: the k-th
# round has the k-th update of every row, and each element gets its updates in order. When only a few very frequent rows
# have updates left, those are summed per row.

_MAX_ROUNDS = 16
_NARROW = 16  # elements of a row
_FEW = 1 << 15  # elements of all rows
_PIECE = 1 << 14  # elements whose positions are made at a time, so that these stay in the cache


# signed type -> the one without a sign, and the smallest number that is negative with a sign
_UNSIGNED = {np.dtype(f"int{bits}"): (np.dtype(f"uint{bits}"), 1 << bits - 1) for bits in (8, 16, 32, 64)}


def any_outside(indices: Array, size: int) -> bool:
    """Whether one of some integers is not in ``[0, size)``, in one pass: without a sign, a negative one is large."""
    if not indices.size:
        return False
    if indices.dtype not in _UNSIGNED:
        return bool(indices.max() >= size)
    unsigned, negative = _UNSIGNED[indices.dtype]
    return bool(indices.view(unsigned).max() >= min(size, negative))


def check_row_indices(indices: Array, size: int) -> None:
    """Refuses row numbers outside ``[0, size)``.

    Raises:
      InvalidArgumentError: naming the first.
    """
    if any_outside(indices, size):
        wrong = (indices < 0) | (indices >= size)
        at = np.argwhere(wrong)[0]
        place = f"indices[{','.join(map(str, at))}]" if at.size else "indices"
        raise InvalidArgumentError.of(f"{place} = {indices[tuple(at)]} is not in [0, {size})")


def check_nd_indices(indices: Array, shape: tuple[int, ...]) -> None:
    """Refuses index vectors (the last axis of ``indices``) that point outside ``shape``.

    Raises:
      InvalidArgumentError: naming the first, or the depth when it exceeds the rank.
    """
    depth = indices.shape[-1]
    if depth > len(shape):
        text = f"Index innermost dimension length must be <= params rank; saw: {depth} vs. {len(shape)}"
        raise InvalidArgumentError.of(text)
    if not indices.size:
        return
    wrong = ((indices < 0) | (indices >= np.array(shape[:depth]))).any(axis=-1)
    if wrong.any():
        at = np.argwhere(wrong)[0]
        place = f"indices[{','.join(map(str, at))}]" if at.size else "indices"
        row = ", ".join(map(str, indices[tuple(at)].tolist()))
        raise InvalidArgumentError.of(f"{place} = [{row}] does not index into shape {format_raw(shape)}")


def first_positions(numbers: Array, size: int) -> Any:
    """For each element of a vector of integers in ``[0, size)``, the position of the first element equal to it."""
    first = np.empty(size, np.intp)
    # Stored backwards, so that the first of several positions is stored last.
    first[numbers[::-1]] = np.arange(numbers.size - 1, -1, -1)
    return first[numbers]


def rounds_without_repeats(indices: Array, rows: int) -> list[Any]:
    """Splits positions into rounds that name each row at most once: round k has the k-th mention of each row."""
    if _all_different(indices, rows):
        return [slice(None)]
    rounds: list[Any] = []
    left: Any = np.arange(indices.size)
    while left.size:
        is_first = first_positions(indices[left], rows) == np.arange(left.size)
        rounds.append(left[is_first])
        left = left[~is_first]
    return rounds


def _has_elements(rows: Array) -> bool:
    """Whether the rows lie one behind the other, and are of a type that numpy itself has."""
    return rows.flags.c_contiguous and rows.dtype.isbuiltin == 1


def is_narrow(rows: Array) -> bool:
    """Whether `combine_elements` is the quickest way to combine rows with others, however many these are."""
    return math.prod(rows.shape[1:]) <= _NARROW and _has_elements(rows)


def combine_elements(ufunc: np.ufunc, rows: Array, indices: Array, updates: Array) -> None:
    """``rows[i] = ufunc(rows[i], update)`` for each pair of ``indices`` and ``updates``, in order, element by element.

    Args:
      rows: a writable array of shape [n, ...] in one piece.
      indices: valid row numbers, 1-D.
      updates: one per index.
    """
    elements, width, indices = rows.reshape(-1), math.prod(rows.shape[1:]), indices.astype(np.intp, copy=False)
    if width == 1:
        ufunc.at(elements, indices, updates.reshape(-1))
        return
    columns, step = np.arange(width), max(1, _PIECE // max(width, 1))
    for begin in range(0, len(indices), step):
        places = indices[begin : begin + step, None] * width + columns
        ufunc.at(elements, places.reshape(-1), updates[begin : begin + step].reshape(-1))


def as_rows(array: Array, indices: Array) -> tuple[Array, Array]:
    """The array, in one piece, as rows that index vectors (the last axis of ``indices``) name; the numbers of those."""
    depth = indices.shape[-1]
    strides = np.array([math.prod(array.shape[axis + 1 : depth]) for axis in range(depth)], np.int64)
    rows = array.reshape(math.prod(array.shape[:depth]), *array.shape[depth:])
    return rows, (indices.astype(np.int64) @ strides).reshape(-1)


def scatter_rows(operation: str, rows: Array, indices: Array, updates: Array) -> None:
    """``rows[i] = operation(rows[i], update)`` for each pair of ``indices`` and ``updates``, in order.

    Args:
      operation: add, sub, mul, div, min, max or update.
      rows: a writable array of shape [n, ...].
      indices: valid row numbers, 1-D.
      updates: one per index, or a scalar for all.
    """
    if operation == "update":
        rows[indices] = updates
        return
    if updates.ndim == 0:
        updates = np.broadcast_to(updates, indices.shape + rows.shape[1:])
    function = _FUNCTIONS[operation]
    if isinstance(function, np.ufunc) and is_narrow(rows):
        combine_elements(function, rows, indices, updates)
    elif _all_different(indices, len(rows)):
        rows[indices] = function(rows[indices], updates)
    elif isinstance(function, np.ufunc) and updates.size <= _FEW and _has_elements(rows):
        combine_elements(function, rows, indices, updates)
    else:
        _in_rounds(operation, function, rows, indices, updates)


def _all_different(indices: Array, size: int) -> bool:
    if indices.size > size:
        return False
    if size > 64 * indices.size:
        ordered = np.sort(indices)
        return not bool((ordered[1:] == ordered[:-1]).any())
    seen = np.zeros(size, np.bool_)
    seen[indices] = True
    return int(np.count_nonzero(seen)) == int(indices.size)


def _in_rounds(operation: str, function: Callable[..., Any], rows: Array, indices: Array, updates: Array) -> None:
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    is_start = np.empty(len(ordered), np.bool_)
    is_start[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_start[1:])
    starts = np.flatnonzero(is_start)
    counts = np.diff(starts, append=len(ordered))
    targets = ordered[starts]
    reduce = _REDUCERS.get(operation)
    for done in range(int(counts.max())):
        if done == _MAX_ROUNDS and reduce is not None:
            for row, start, count in zip(targets.tolist(), starts.tolist(), counts.tolist()):
                rest = reduce(updates[order[start + done : start + count]], axis=0)
                rows[row] = function(rows[row], rest)
            return
        rows[targets] = function(rows[targets], updates[order[starts + done]])
        more = counts > done + 1
        targets, starts, counts = targets[more], starts[more], counts[more]


def divide(a: Array, b: Array) -> Any:
    """Division as in C++: of integers, towards zero."""
    if a.dtype.kind not in "iu":
        return a / b
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": divide,
    "min": np.minimum,
    "max": np.maximum,
}
# A row's updates may be combined first only where their order does not matter.
_REDUCERS: dict[str, Callable[..., Any]] = {
    "add": np.add.reduce,
    "sub": np.add.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
}
