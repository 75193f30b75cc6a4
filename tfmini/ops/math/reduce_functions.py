"""The public reductions: ``tf.reduce_*``, ``tf.argmax``, ``tf.count_nonzero``, ``tf.bincount``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, name_scope, op
from tfmini.machine_memory import check_room
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.math import reductions as math_reductions
from tfmini.ops.math.broadcast import named, sum_op
from tfmini.ops.math.comparison import greater_op, not_equal_op, select_op
from tfmini.ops.math.elementwise import add_op, conjugate, maximum_op, minimum_op, mul_op, sub_op
from tfmini.ops.math.unary import exp_op, is_finite_op, log_op, sqrt_op
from tfmini.shapes import RawShape


def _reduction(handle: OpHandle, function_name: str, text: str) -> Callable[..., Tensor]:
    def function(
        input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
        reduction_indices: Any = None, keep_dims: bool | None = None,
    ) -> Tensor:  # fmt: skip
        axis, keep = _old_names(axis, keepdims, reduction_indices, keep_dims)
        return reduce(handle, input_tensor, axis, keep, name)

    return named(
        function, function_name,
        f"{text} over ``axis`` (one, several, or None for all); ``keepdims`` leaves them as size 1."
        " ``reduction_indices`` and ``keep_dims`` are older names.\n\n"
        "    Raises:\n      ValueError: when an old and a new name are both given.",
    )  # fmt: skip


def reduce(handle: OpHandle, x: Any, axis: Any, keep: bool, name: str | None) -> Tensor:
    """Adds one reduction node over ``axis``; None: all axes."""
    dtype = dtypes.bool if handle in (math_reductions.all_op, math_reductions.any_op) else None
    x = convert_to_tensor(x, dtype=dtype, name="input_tensor")
    axes = _all_axes(x) if axis is None else axis
    result = handle(x, axes, keep_dims=keep, name=name)
    if axis is None and not keep and result.raw_shape is None:
        result.raw_shape = ()
    return result


def _all_axes(x: Tensor) -> Any:
    if x.raw_shape is not None:
        return convert_to_tensor(np.arange(len(x.raw_shape), dtype=np.int32))
    return array_filling.range(0, array_shape.rank(x))


def _old_names(axis: Any, keepdims: Any, reduction_indices: Any, keep_dims: Any) -> tuple[Any, bool]:
    if reduction_indices is not None:
        if axis is not None:
            raise ValueError("Cannot specify both 'axis' and 'reduction_indices'")
        axis = reduction_indices
    if keep_dims is not None:
        if keepdims is not None:
            raise ValueError("Cannot specify both 'keepdims' and 'keep_dims'")
        keepdims = keep_dims
    return axis, bool(keepdims)


reduce_sum = _reduction(sum_op, "reduce_sum", "The sum")
reduce_mean = _reduction(math_reductions.mean_op, "reduce_mean", "The mean")
reduce_prod = _reduction(math_reductions.prod_op, "reduce_prod", "The product")
reduce_max = _reduction(math_reductions.max_op, "reduce_max", "The largest element")
reduce_min = _reduction(math_reductions.min_op, "reduce_min", "The smallest element")
reduce_all = _reduction(math_reductions.all_op, "reduce_all", "Whether all elements are true,")
reduce_any = _reduction(math_reductions.any_op, "reduce_any", "Whether any element is true,")


@export("tf.math.reduce_euclidean_norm")
def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of the sum of squares over ``axis`` (``tf.math.reduce_euclidean_norm``)."""
    return reduce(math_reductions.euclidean_norm_op, input_tensor, axis, bool(keepdims), name)


@export("tf.math.reduce_variance")
def reduce_variance(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The mean squared distance from the mean over ``axis`` (``tf.math.reduce_variance``).

    Raises:
      TypeError: for integers.
    """
    with name_scope(name or "reduce_variance"):
        x = convert_to_tensor(input_tensor)
        if x.dtype.is_integer:
            raise TypeError("Input must be either real or complex")
        distance = sub_op(x, reduce_mean(x, axis=axis, keepdims=True))
        return reduce_mean(mul_op(distance, conjugate(distance)), axis=axis, keepdims=keepdims)


@export("tf.math.reduce_std")
def reduce_std(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The standard deviation over ``axis`` (``tf.math.reduce_std``)."""
    with name_scope(name or "reduce_std"):
        return sqrt_op(reduce_variance(input_tensor, axis=axis, keepdims=keepdims))


@export("tf.reduce_logsumexp", "tf.math.reduce_logsumexp")
def reduce_logsumexp(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """log(sum(exp(x))) over ``axis``, without overflow; arguments like `reduce_sum` (``tf.reduce_logsumexp``)."""
    axis, keep = _old_names(axis, keepdims, reduction_indices, keep_dims)
    with name_scope(name, "ReduceLogSumExp", [input_tensor]) as scope:
        x = convert_to_tensor(input_tensor)
        largest = reduce_max(x, axis=axis, keepdims=True)
        finite = select_op(is_finite_op(largest), largest, array_filling.zeros_like(largest))
        finite = array_identity.stop_gradient(finite)
        result = log_op(reduce_sum(exp_op(sub_op(x, finite)), axis=axis, keepdims=keep))
        if not keep:
            finite = array_shape.reshape(finite, array_shape.shape(result))
        return add_op(result, finite, name=scope)


@export("tf.argmax", "tf.math.argmax")
def argmax(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None, output_type: Any = dtypes.int64,
) -> Tensor:  # fmt: skip
    """The index of the first largest element along ``axis`` (default 0) (``tf.argmax``)."""
    return _arg(math_reductions.arg_max_op, input, axis, dimension, output_type, name)


@export("tf.argmin", "tf.math.argmin")
def argmin(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None, output_type: Any = dtypes.int64,
) -> Tensor:  # fmt: skip
    """The index of the first smallest element along ``axis`` (default 0) (``tf.argmin``)."""
    return _arg(math_reductions.arg_min_op, input, axis, dimension, output_type, name)


def _arg(handle: OpHandle, x: Any, axis: Any, dimension: Any, output_type: Any, name: str | None) -> Tensor:
    if dimension is not None:
        if axis is not None:
            raise ValueError("Cannot specify both 'axis' and 'dimension'")
        axis = dimension
    return handle(x, 0 if axis is None else axis, output_type=output_type, name=name)


@export("tf.arg_max")
def arg_max(input: Any, dimension: Any, output_type: Any = dtypes.int64, name: str | None = None) -> Tensor:
    """`argmax` with the arguments of its op (``tf.arg_max``)."""
    return math_reductions.arg_max_op(input, dimension, output_type=output_type, name=name)


@export("tf.arg_min")
def arg_min(input: Any, dimension: Any, output_type: Any = dtypes.int64, name: str | None = None) -> Tensor:
    """`argmin` with the arguments of its op (``tf.arg_min``)."""
    return math_reductions.arg_min_op(input, dimension, output_type=output_type, name=name)


@export("tf.count_nonzero", "tf.math.count_nonzero")
def count_nonzero(
    input_tensor: Any = None, axis: Any = None, keepdims: bool | None = None, dtype: Any = dtypes.int64,
    name: str | None = None, reduction_indices: Any = None, keep_dims: bool | None = None, input: Any = None,
) -> Tensor:  # fmt: skip
    """The number of elements that are not zero (or not the empty string) over ``axis`` (``tf.count_nonzero``)."""
    if input_tensor is None:
        input_tensor = input
    axis, keep = _old_names(axis, keepdims, reduction_indices, keep_dims)
    with name_scope(name, "count_nonzero", [input_tensor]):
        x = convert_to_tensor(input_tensor, name="input")
        zero = b"" if x.dtype.base_dtype is dtypes.string else np.zeros((), x.dtype.numpy)
        hits = cast(not_equal_op(x, zero), dtypes.int64)
        count: Tensor = cast(reduce_sum(hits, axis=axis, keepdims=keep), dtypes.as_dtype(dtype))
        return count


# ---- bincount -------------------------------------------------------------------------------

bincount_op = op("Bincount(arr: int32, size: int32, weights: T) -> bins: T; T: {int32, int64, float32, float64}")
bincount_op.not_differentiable()


@bincount_op.shape
def _bincount_shape(node: Operation) -> list[RawShape]:
    size = constant_value(node.inputs[1])
    return [(None if size is None else int(size),)]


@bincount_op.kernel("CPU")
def _bincount_kernel(values: Any, size: Any, weights: Any) -> Any:
    if np.ndim(size) == 0 and size < 0:
        refuse(f"size ({size}) must be non-negative")
    values, weights = np.ravel(values), np.ravel(weights)
    if np.ndim(size) or weights.size not in (0, values.size):
        shapes = f"size {list(np.shape(size))}, weights {list(weights.shape)} for {list(values.shape)} values"
        refuse(f"size must be a scalar, and weights one per value or none: {shapes}")
    check_room((int(size),), 8)
    if values.size and values.min() < 0:
        refuse("Input arr must be non-negative!")
    inside = values < size
    counts = np.bincount(values[inside], weights[inside] if weights.size else None, int(size))
    return counts.astype(weights.dtype)


@export("tf.bincount", "tf.math.bincount")
def bincount(
    arr: Any, weights: Any = None, minlength: Any = None, maxlength: Any = None, dtype: Any = dtypes.int32
) -> Tensor:
    """The number of occurrences (or their sum of weights) of each number from 0, in non-negative int32 values."""
    with name_scope("bincount"):
        values = convert_to_tensor(arr, name="arr", dtype=dtypes.int32)
        occupied = cast(greater_op(array_shape.size(values), 0), dtypes.int32)
        size = mul_op(occupied, add_op(reduce_max(values), 1))
        if minlength is not None:
            size = maximum_op(convert_to_tensor(minlength, dtypes.int32, "minlength"), size)
        if maxlength is not None:
            size = minimum_op(convert_to_tensor(maxlength, dtypes.int32, "maxlength"), size)
        if weights is None:
            weights = convert_to_tensor(np.zeros(0, dtypes.as_dtype(dtype).numpy))
        return bincount_op(values, size, weights)


export_names("tf tf.math", "reduce_all reduce_any reduce_max reduce_mean reduce_min reduce_prod reduce_sum")
