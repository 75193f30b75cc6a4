"""``tf.test.compute_gradient``: compares Jacobians from the graph's gradients with finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import ShapeLike
from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.default_session import get_default_session
from tfmini.graph.operation import Tensor
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import identity
from tfmini.ops.gradients.backprop import gradients

_CHECKED = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
Jacobians = tuple[np.ndarray, np.ndarray]


@export("tf.test.compute_gradient")
def compute_gradient(
    x: Tensor | Sequence[Tensor],
    x_shape: Any,
    y: Tensor,
    y_shape: ShapeLike,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> Jacobians | list[Jacobians]:
    """Computes the Jacobian dy/dx by gradients and by finite differences of ``delta``, in the default session.

    Args:
      x: a tensor or a list of tensors; a complex tensor counts as twice as many reals.
      x_shape: its shape, or a list of shapes.
      y: a tensor.
      y_shape: its shape.
      x_init_value: the point, default random; a list if x is a list.
      init_targets: ops to run first.
      extra_feed_dict: further feeds.

    Returns:
      (theoretical, numeric), each ``[size of x, size of y]``; a list of pairs if x is a list.
    """
    many = isinstance(x, list)
    xs = x if many else [x]
    shapes = x_shape if many else [x_shape]
    starts = (x_init_value if many else [x_init_value]) or [None] * len(xs)
    pairs = [_gradient_node(one, y, y_shape) for one in xs]
    for target in init_targets or ():
        target.run()
    feeds = extra_feed_dict or {}
    found = [
        _jacobians(one, _start(one, shape, start), dx, y, dy, delta, feeds)
        for one, shape, start, (dx, dy) in zip(xs, shapes, starts, pairs)
    ]
    return found if many else found[0]


@export("tf.test.compute_gradient_error")
def compute_gradient_error(
    x: Tensor | Sequence[Tensor],
    x_shape: Any,
    y: Tensor,
    y_shape: ShapeLike,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> float:
    """The largest difference between the two Jacobians of `compute_gradient` (``tf.test.compute_gradient_error``)."""
    found = compute_gradient(x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict)
    differences = [np.abs(a - b) for a, b in (found if isinstance(found, list) else [found])]
    return max((float(d.max()) for d in differences if d.size), default=0.0)


def _gradient_node(x: Any, y: Any, y_shape: ShapeLike) -> tuple[Any, Any]:
    with x.graph.as_default():
        # Fed below. The identity separates it from dx, which is dy itself for an Add.
        dy = constant(1.0, shape=y_shape, dtype=y.dtype)
        return gradients(y, x, identity(dy))[0], dy


def _start(x: Any, shape: Any, value: Any) -> Any:
    dtype = dtypes.as_dtype(x.dtype).base_dtype
    if dtype not in _CHECKED:
        raise TypeError(f"compute_gradient needs a float or complex x, not {dtype.name}")
    if value is None:
        value = np.random.random_sample(tuple(shape))
        if dtype.is_complex:
            value = value + 1j * np.random.random_sample(tuple(shape))
    value = np.asarray(value, dtype.as_numpy_dtype)
    if list(value.shape) != list(shape):
        raise ValueError(f"x_shape = {shape}, init_data shape = {value.shape}")
    return value


def _reals(array: np.ndarray) -> Any:
    """A flat view of the array, with real and imaginary parts as separate elements."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _jacobians(
    x: Tensor, at: np.ndarray, dx: Tensor | IndexedSlices, y: Tensor, dy: Any, delta: float, feeds: dict[Any, Any]
) -> Jacobians:
    theoretical = _by_gradients(x, at, dx, dy, feeds)
    return theoretical, _by_differences(x, at, y, delta, feeds).reshape(theoretical.shape)


def _by_gradients(x: Tensor, at: np.ndarray, dx: Tensor | IndexedSlices, dy: Any, feeds: dict[Any, Any]) -> np.ndarray:
    session = get_default_session()
    weights = np.zeros(dy.shape.as_list(), dtypes.as_dtype(dy.dtype).as_numpy_dtype)
    outputs = _reals(weights).size
    jacobian = np.zeros((_reals(at).size, outputs), _reals(at).dtype)
    for column in range(outputs):
        chosen = np.zeros(outputs, _reals(weights).dtype)
        chosen[column] = 1
        value = session.run(dx, {**feeds, x: at, dy: chosen.view(weights.dtype).reshape(weights.shape)})
        jacobian[:, column] = _reals(_dense(value, at) if isinstance(dx, IndexedSlices) else value)
    if not outputs:
        value = session.run(dx, {**feeds, x: at, dy: weights})
        if value.shape != at.shape or np.any(value):
            raise ValueError(f"Empty tensor with nonzero gradients: {value}")
    return jacobian


def _dense(slices: Any, like: np.ndarray) -> Any:
    whole = np.zeros_like(like)
    np.add.at(whole, slices.indices, slices.values)
    return whole


def _by_differences(x: Tensor, at: np.ndarray, y: Tensor, delta: float, feeds: dict[Any, Any]) -> Any:
    session = get_default_session()
    rows = []
    for row in range(_reals(at).size):
        ends = []
        for step in (delta, -delta):
            moved = _reals(at.copy())
            moved[row] += step
            value = session.run(y, {**feeds, x: moved.view(at.dtype).reshape(at.shape)})
            ends.append(_reals(np.asarray(value)))
        rows.append((ends[0] - ends[1]) / np.asarray(2 * delta, ends[0].dtype))
    return np.array(rows, _reals(at).dtype)
