"""The gradient of a sample against a numeric one, in a random direction, in float64 wherever the ops allow it.

With y the row's floating results, weights w and L = sum(Re(conj(w) * y)), TensorFlow's gradient g of L by x is such
that L(x + d) - L(x) is about sum(Re(conj(g) * d)), for complex numbers too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

import tfmini as tf
from tests.ops.samples import notation
from tests.ops.samples.builders import builder
from tests.ops.samples.notation import Row

# In single precision the difference of two sums is rough, and a larger step is wanted.
_STEP = {True: 1e-6, False: 1e-3}
_TOLERANCE = {True: 1e-6, False: 1e-2}
_PRECISE = {True: (tf.float64, tf.complex128), False: (tf.float32, tf.complex64)}


class Slopes(NamedTuple):
    """The change of L along a direction: by the gradient and by central differences, and what they may differ by."""

    analytic: float
    numeric: float
    tolerance: float


def slopes(row: Row, tmp: Any) -> Slopes | None:
    """The two slopes of a row; None for one that no gradient passes through."""
    try:
        found = _slopes(row, tmp, True)
    except (TypeError, ValueError):
        found = None
    return found or _slopes(row, tmp, False)  # an op of the row may have no double precision


def _slopes(row: Row, tmp: Any, wide: bool) -> Slopes | None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        steps, feeds = notation.build(row, tf, partial(builder, wide=wide), tmp, wide)
        ys = [item for item in steps[-1] if isinstance(item, tf.Tensor) and item.dtype in _PRECISE[wide]]
        constants = [op.outputs[0] for op in graph.get_operations() if op.type == "Const"]
        xs = [x for x in constants if x.dtype in _PRECISE[wide] and graph.is_fetchable(x)]
        for fetches in steps[:-1]:
            session.run(fetches, feeds)
        random = np.random.RandomState(7)
        values = session.run([ys, xs], feeds)
        if not all(np.isfinite(value).all() for value in sum(values, [])):
            return None
        weights = [_weights(random, value) for value in values[0]]
        grads = tf.gradients(ys, xs, [tf.constant(w, y.dtype.base_dtype) for w, y in zip(weights, ys)]) if ys else []
        pairs = [(x, grad) for x, grad in zip(xs, grads) if grad is not None]
        if not pairs:
            return None
        starts, found = session.run([[x for x, _ in pairs], [grad for _, grad in pairs]], feeds)
        moves = [_random(random, x.dtype, np.shape(start)) for (x, _), start in zip(pairs, starts)]

        def loss(step: float) -> float:
            moved = {x: (a + step * d).astype(a.dtype) for (x, _), a, d in zip(pairs, starts, moves)}
            return sum(map(_product, weights, session.run(ys, {**feeds, **moved})))

        step = _STEP[wide]
        products = [_product(_dense(g, a), d) for g, a, d in zip(found, starts, moves)]
        scale = max(1.0, *(float(np.abs(_dense(g, a) * d).sum()) for g, a, d in zip(found, starts, moves)))
        return Slopes(sum(products), (loss(step) - loss(-step)) / (2 * step), _TOLERANCE[wide] * scale)


def _weights(random: Any, y: Any) -> Any:
    """None for the smallest and largest numbers, which stand for nothing; real ones where a complex result is real."""
    real = tf.float64 if np.allclose(np.imag(y), 0) else tf.complex128
    return np.where(np.abs(y) < 1e30, _random(random, real, np.shape(y)), 0)


def _random(random: Any, dtype: Any, shape: Any) -> Any:
    parts = random.uniform(0.5, 1.5, (2, *shape)) * random.choice([-1, 1], (2, *shape))
    return parts[0] + 1j * parts[1] if dtype.is_complex else parts[0]


def _product(a: Any, b: Any) -> float:
    return float(np.sum(np.real(np.conj(a) * np.asarray(b))))


def _dense(grad: Any, like: Any) -> Any:
    """The gradient as an array: one of a gather comes as rows and their indices."""
    if not hasattr(grad, "indices"):
        return np.asarray(grad)
    dense = np.zeros(np.shape(like), np.asarray(grad.values).dtype)
    np.add.at(dense, grad.indices, grad.values)
    return dense
