"""The largest elements: ``TopKV2``, ``InTopKV2``, ``NthElement``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, name_scope, op, sized
from tfmini.numerics.windows import Array
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as number_range
from tfmini.ops.array.gather import gather
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.scatter import scatter_nd
from tfmini.ops.array.shape import expand_dims, rank, reshape, shape, size
from tfmini.ops.math.broadcast import sum_op
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import add, div, floordiv, multiply, subtract
from tfmini.shapes import RawShape

top_k_op: OpHandle[Any] = op(
    "TopKV2(input: T, k: int32) -> values: T, indices: int32; sorted: bool = true; T: realnumbertype",
    hints=("Tk", "index_type"),  # TensorFlow 2 has indices of other types
)
in_top_k_op = op("InTopKV2(predictions: float, targets: T, k: T) -> precision: bool; T: {int32, int64} = DT_INT32")
in_top_k_op.not_differentiable()
in_top_k_v1_op = op(
    "InTopK(predictions: float, targets: T) -> precision: bool; k: int; T: {int32, int64} = DT_INT32",
    differentiable=False,
)
all_of(in_top_k_op, in_top_k_v1_op).shape(sized("n _, n -> n"))
nth_element_op = op("NthElement(input: T, n: int32) -> values: T; reverse: bool = false; T: realnumbertype")


@top_k_op.shape
def _top_k_shape(node: Operation) -> list[RawShape]:
    static = node.inputs[0].raw_shape
    if static is None:
        return [None, None]
    if not static:
        raise ValueError("input must have rank >= 1 but is rank 0")
    k = constant_value(node.inputs[1])
    if k is not None and int(k) < 0:
        raise ValueError(f"Need k >= 0, got {int(k)}")
    if k is not None and static[-1] is not None and static[-1] < int(k):
        raise ValueError(f"input must have last dimension >= k = {int(k)} but is {static[-1]}")
    result = static[:-1] + (None if k is None else int(k),)
    return [result, result]


@nth_element_op.shape
def _nth_shape(node: Operation) -> list[RawShape]:
    static, place = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    if place:
        raise ValueError(f"Dimension size, given by scalar input 1 must be a scalar but has rank {len(place)}")
    if static is None:
        return [None]
    if not static:
        raise ValueError("Shape must be at least rank 1 but is rank 0")
    n = constant_value(node.inputs[1])
    if n is not None and int(n) < 0:
        raise ValueError(f"Dimension size, given by scalar input 1, must be non-negative but is {int(n)}")
    if n is not None and static[-1] is not None and static[-1] <= int(n):
        raise ValueError(f"Input must have last dimension > n = {int(n)} but is {static[-1]}")
    return [static[:-1]]


@top_k_op.kernel("CPU")
def _top_k(values: Array, k: Any) -> tuple[Array, Array]:
    count = int(k)
    if count < 0:
        refuse(f"Need k >= 0, got {count}")
    if values.ndim < 1:
        refuse("input must be >= 1-D, got shape []")
    if values.shape[-1] < count:
        refuse(f"input must have at least k columns. Had {values.shape[-1]}, needed {count}")
    if count == 1:
        best = values.argmax(axis=-1)[..., None]
    else:
        # A stable sort of the reversed rows, reversed: descending, with the lower index first among equal elements.
        width = values.shape[-1]
        best = width - 1 - np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :count]
    return np.take_along_axis(values, best, axis=-1), best.astype(np.int32)


def _in_top_k(predictions: Array, targets: Array, k: Any) -> Array:
    """Whether fewer than ``k`` classes have higher scores than the target; false where the scores are not finite."""
    if predictions.ndim != 2 or targets.ndim != 1:
        shapes = f"{list(predictions.shape)} and {list(targets.shape)}"
        refuse(f"predictions must be 2-dimensional and targets 1-dimensional, got {shapes}")
    if predictions.shape[0] != targets.shape[0]:
        refuse(f"First dimension of predictions {predictions.shape[0]} must match length of targets {targets.shape[0]}")
    classes = predictions.shape[1]
    valid = (targets >= 0) & (targets < classes)
    score = predictions[np.arange(targets.shape[0]), np.where(valid, targets, 0)][:, None]
    valid &= np.isfinite(score[:, 0])
    better = (predictions > score).sum(axis=1)
    # A score that is not finite makes the row's order undefined.
    valid &= np.isfinite(predictions).all(axis=1)
    hits: Array = valid & (better < k)
    return hits


in_top_k_op.kernel("CPU")(_in_top_k)


@in_top_k_v1_op.kernel_factory("CPU")
def _in_top_k_factory(node: Any) -> Any:
    k = node.attrs["k"]
    return lambda predictions, targets: _in_top_k(predictions, targets, k)


@nth_element_op.kernel_factory("CPU")
def _nth_factory(node: Any) -> Any:
    reverse = node.attrs["reverse"]

    def nth(values: Array, n: Any) -> Array:
        position, width = int(n), values.shape[-1]
        if not 0 <= position < width:
            refuse(f"Input must have at least n+1 columns. Had {width}, needed {position + 1}")
        if reverse:
            position = width - 1 - position
        return np.partition(values, position, axis=-1)[..., position]

    return nth


@top_k_op.gradient
def _top_k_gradient(node: Operation, grad: Tensor, _: Tensor | None) -> list[Any]:
    """Scatters the gradient to the positions of the values, on flattened rows."""
    values, indices = node.inputs[0], node.outputs[1]
    sizes, count = shape(values), size(values)
    width = gather(sizes, subtract(rank(values), 1))
    lines = reshape(indices, [-1, gather(shape(indices), subtract(rank(indices), 1))])
    starts = multiply(number_range(floordiv(count, width)), width)
    places = reshape(add(lines, expand_dims(starts, -1)), [-1])
    flat = scatter_nd(expand_dims(places, -1), reshape(grad, [-1]), reshape(count, [1]))
    return [reshape(flat, sizes), None]


@nth_element_op.gradient
def _nth_gradient(node: Operation, grad: Tensor) -> list[Any]:
    """The gradient is shared by all elements that equal the selected one."""
    values = node.inputs[0]
    chosen = cast(equal(expand_dims(node.outputs[0], -1), values), grad.dtype.base_dtype)
    shares = div(expand_dims(grad, -1), sum_op(chosen, [-1], keep_dims=True))
    return [multiply(shares, chosen), None]


@export("tf.math.top_k", "tf.nn.top_k")
def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> Any:
    """Values and int32 indices of the ``k`` largest elements of each row (``tf.nn.top_k``, ``tf.math.top_k``)."""
    return top_k_op(input, k, sorted=sorted, name=name)


@export("tf.math.in_top_k", "tf.nn.in_top_k")
def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """Whether the target is among the ``k`` best predictions of each row (``tf.nn.in_top_k``)."""
    with name_scope(name, "in_top_k") as scope:
        return in_top_k_op(predictions, targets, k, name=scope)


@export("tf.contrib.nn.nth_element")
def nth_element(input: Any, n: Any, reverse: bool = False, name: str | None = None) -> Tensor:
    """The ``n``-th smallest (or largest) element of each row."""
    return nth_element_op(input, n, reverse=reverse, name=name)
