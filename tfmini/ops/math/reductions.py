"""Reductions over axes, argmax and argmin, running sums and products. (``Sum`` is in `broadcast`.)"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, same_shape
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.composites import Reducible
from tfmini.ops.math.broadcast import kept, named, normal_axes, reduced_shape, reducer, spread, static_axes, sum_op
from tfmini.ops.math.comparison import equal_op, greater_op, less_op, not_equal_op, select_op, select_v2_op
from tfmini.ops.math.elementwise import add_op, conjugate, maximum_op, minimum_op, mul_op, real_div_op, sub_op
from tfmini.ops.math.unary import exp_op, is_finite_op, log_op, sqrt_op
from tfmini.shapes import RawShape


def _reduction(name: str, types: str = "T: numbertype; ", **options: Any) -> OpHandle:
    """Declares a reduction over axes; ``types`` is empty for one of bools."""
    dtype = "T" if types else "bool"
    return op(
        f"{name}(input: {dtype}, reduction_indices: Tidx) -> output: {dtype}; keep_dims: bool = false; {types}"
        "Tidx: {int32, int64} = DT_INT32", shape=reduced_shape, work="input", raw_names={"reduction_indices": "axis"},
        **options,
    )  # fmt: skip


mean_op = _reduction("Mean", aggregates=True)
mean_op.gradient(lambda node, grad: [real_div_op(spread(node, grad), _elements_per_output(node, grad)), None])
prod_op, max_op, min_op = _reduction("Prod"), _reduction("Max"), _reduction("Min")
max_op.kernel_factory("CPU")(lambda node: _factory(np.maximum, _lowest)(node))
min_op.kernel_factory("CPU")(lambda node: _factory(np.minimum, _highest)(node))
euclidean_norm_op = _reduction("EuclideanNorm")
all_op, any_op = _reduction("All", "", differentiable=False), _reduction("Any", "", differentiable=False)

# ---- kernels --------------------------------------------------------------------------------

Factory = Callable[[Any], Callable[..., Any]]


def _factory(ufunc: np.ufunc, empty: Callable[[dtypes.DType], Any] = lambda dtype: None) -> Factory:
    def factory(node: Node) -> Callable[..., Any]:
        dtype = node.attrs.get("T", dtypes.bool)
        return reducer(ufunc, dtype, node.attrs["keep_dims"], empty(dtype))

    return factory


def _lowest(dtype: dtypes.DType) -> Any:
    return -np.inf if dtype.is_floating else dtype.min


def _highest(dtype: dtypes.DType) -> Any:
    return np.inf if dtype.is_floating else dtype.max


prod_op.kernel_factory("CPU")(_factory(np.multiply))
all_op.kernel_factory("CPU")(_factory(np.logical_and))
any_op.kernel_factory("CPU")(_factory(np.logical_or))


@mean_op.kernel_factory("CPU")
def _mean_factory(node: Node) -> Callable[..., Any]:
    dtype, keep = node.attrs["T"], node.attrs["keep_dims"]
    narrow = dtype in (dtypes.float16, dtypes.bfloat16)
    whole = dtypes.uint64 if dtype.is_unsigned else dtypes.int64
    total = reducer(np.add, dtypes.float32 if narrow else whole if dtype.is_integer else dtype, keep)
    scalar = np.float32 if narrow else dtype.numpy.type

    def kernel(x: Array, axes: Array) -> Any:
        value = total(x, axes)
        if not x.ndim:
            return value
        count = x.size // value.size if value.size else _count(x, axes)
        if dtype.is_integer:
            # Rounded towards zero, as in C.
            mean = np.where(value < 0, -(-value // count), value // count) if count else value
            return mean.astype(dtype.numpy)
        value = value / scalar(count)
        return value.astype(dtype.numpy) if narrow else value

    return kernel


def _count(x: Array, axes: Array) -> int:
    return int(np.prod([x.shape[a] for a in normal_axes(axes, x.ndim)], dtype=np.int64))


@euclidean_norm_op.kernel_factory("CPU")
def _norm_factory(node: Node) -> Callable[..., Any]:
    total = reducer(np.add, node.attrs["T"], node.attrs["keep_dims"])

    def kernel(x: Array, axes: Array) -> Any:
        if not np.size(axes):
            return x
        square = (x * np.conjugate(x)) if x.dtype.kind == "c" else x * x
        return np.sqrt(total(square, axes)).astype(x.dtype)

    return kernel


# ---- gradients ------------------------------------------------------------------------------


def _elements_per_output(node: Operation, grad: Tensor) -> Tensor:
    shape, axes = node.inputs[0].raw_shape, static_axes(node)
    dtype = grad.dtype.base_dtype
    if shape is not None and axes is not None and all(shape[a] is not None for a in axes):
        count = math.prod(shape[a] or 0 for a in axes)
        return convert_to_tensor(np.array(count, dtype.numpy))
    sizes = array_shape.shape(node.inputs[0])
    whole = array_shape.shape(kept(node, node.outputs[0]))
    # The number of input elements per output element; an empty output has no gradient to divide.
    top, bottom = (prod_op(cast(s, dtypes.float32), np.array([0], np.int32)) for s in (sizes, whole))
    one = convert_to_tensor(np.float32(1))
    ratio: Tensor = cast(real_div_op(top, select_op(equal_op(bottom, np.float32(0)), one, bottom)), dtype)
    return ratio


@all_of(max_op, min_op).gradient
def _extreme_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, axes = node.inputs
    hits = cast(equal_op(x, kept(node, node.outputs[0])), grad.dtype.base_dtype)
    # Equal extremes share the gradient.
    share = real_div_op(kept(node, grad), sum_op(hits, axes, keep_dims=True))
    return [mul_op(hits, share), None]


@euclidean_norm_op.gradient
def _norm_gradient(node: Operation, grad: Tensor) -> list[Any]:
    scale = real_div_op(kept(node, grad), kept(node, node.outputs[0]))
    return [mul_op(node.inputs[0], scale), None]


@prod_op.gradient
def _prod_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x = node.inputs[0]
    axes = static_axes(node)
    grad = kept(node, grad)
    if axes is None:
        return [mul_op(grad, _conjugated(_products_of_others(x, node.inputs[1]))), None]
    # The product over one axis after the other: the gradient of an element is the product of the others.
    stages = [x]
    for axis in axes[:-1]:
        stages.append(prod_op(stages[-1], np.array([axis], np.int32), keep_dims=True))
    for stage, axis in zip(reversed(stages), reversed(axes)):
        before = cumprod(stage, axis, exclusive=True)
        after = cumprod(stage, axis, exclusive=True, reverse=True)
        grad = mul_op(grad, _conjugated(mul_op(before, after)))
    return [grad, None]


def _products_of_others(x: Tensor, axes: Tensor) -> Tensor:
    """For each element the product of the others along ``axes``, which the graph does not know."""
    axes, rank = array_shape.reshape(cast(axes, dtypes.int32), [-1]), array_shape.rank(x)
    axes = select_v2_op(less_op(axes, 0), add_op(axes, rank), axes)
    others = raw_ops.ListDiff(array_filling.range(rank), axes)[0]
    order = raw_ops.ConcatV2([axes, others], 0)
    moved = raw_ops.Transpose(x, order)
    rows, columns = (prod_op(raw_ops.GatherV2(array_shape.shape(x), part, 0), [0]) for part in (axes, others))
    table = array_shape.reshape(moved, [rows, columns])
    products = mul_op(cumprod(table, exclusive=True), cumprod(table, exclusive=True, reverse=True))
    back = raw_ops.InvertPermutation(order)
    return raw_ops.Transpose(array_shape.reshape(products, array_shape.shape(moved)), back)


def _conjugated(x: Tensor) -> Tensor:
    """The factor of a complex gradient: the conjugate of ``x``, or ``x`` if it is real."""
    return raw_ops.Conj(x) if x.dtype.is_complex else x


# ---- arg-extremes ---------------------------------------------------------------------------

_ARG = "T: numbertype; Tidx: {int32, int64} = DT_INT32; output_type: {int32, int64} = DT_INT64"
arg_max_op = op(f"ArgMax(input: T, dimension: Tidx) -> output: output_type; {_ARG}")
arg_min_op = op(f"ArgMin(input: T, dimension: Tidx) -> output: output_type; {_ARG}")


def _arg_shape(node: Operation) -> list[Any]:
    shape = node.inputs[0].raw_shape
    axes = static_axes(node)
    if shape is None:
        return [None]
    if axes is None:
        return [(None,) * max(len(shape) - 1, 0)]
    reduced_axis = axes[0] if axes else -1
    return [tuple(d for i, d in enumerate(shape) if i != reduced_axis)]


def _arg_factory(function: Callable[..., Any], least: float) -> Factory:
    def factory(node: Node) -> Callable[..., Any]:
        dtype = node.attrs["output_type"].numpy

        def kernel(x: Array, dimension: Array) -> Any:
            axis = int(dimension)
            if not -x.ndim <= axis < x.ndim:
                refuse(f"Expected dimension in the range [{-x.ndim}, {x.ndim}), but got {axis}")
            if not x.shape[axis]:
                refuse(f"Reduction axis {axis} is empty in shape [{','.join(map(str, x.shape))}]")
            found = function(x, axis)
            if x.dtype.kind in "fV" and np.isnan(np.take_along_axis(x, np.expand_dims(found, axis), axis)).any():
                # numpy returns the first NaN; TensorFlow continues to compare, so a NaN is never returned.
                found = function(np.where(np.isnan(x), least, x), axis)
            return found.astype(dtype)

        return kernel

    return factory


for _handle, _find, _least in ((arg_max_op, np.argmax, -np.inf), (arg_min_op, np.argmin, np.inf)):
    _handle.shape(_arg_shape)
    _handle.kernel_factory("CPU")(_arg_factory(_find, _least))
    _handle.not_differentiable()

# ---- running sums and products --------------------------------------------------------------

_SCAN = "exclusive: bool = false; reverse: bool = false; T: numbertype; Tidx: {int32, int64} = DT_INT32"
cumsum_op = op(f"Cumsum(x: T, axis: Tidx) -> out: T; {_SCAN}")
cumprod_op = op(f"Cumprod(x: T, axis: Tidx) -> out: T; {_SCAN}")


def _scan_factory(ufunc: np.ufunc, start: int) -> Factory:
    def factory(node: Node) -> Callable[..., Any]:
        exclusive, reverse = node.attrs["exclusive"], node.attrs["reverse"]

        def kernel(x: Array, axis_value: Array) -> Any:
            if np.ndim(axis_value):
                refuse(f"ScanOp: axis must be a scalar, not {list(np.shape(axis_value))}")
            axis = int(axis_value)
            if not -x.ndim <= axis < x.ndim:
                refuse(f"ScanOp: Expected scan axis in the range [{-x.ndim}, {x.ndim}), but got {axis}")
            lines = np.moveaxis(x, axis, -1)
            result = np.empty_like(x)
            out = np.moveaxis(result, axis, -1)
            if reverse:
                lines, out = lines[..., ::-1], out[..., ::-1]
            if not exclusive:
                ufunc.accumulate(lines, -1, x.dtype, out)
            elif x.shape[axis]:
                out[..., 0] = start
                ufunc.accumulate(lines[..., :-1], -1, x.dtype, out[..., 1:])
            return result

        return kernel

    return factory


for _handle, _ufunc, _start in ((cumsum_op, np.add, 0), (cumprod_op, np.multiply, 1)):
    _handle.shape(same_shape)
    _handle.kernel_factory("CPU")(_scan_factory(_ufunc, _start))


@cumsum_op.gradient
def _cumsum_gradient(node: Operation, grad: Tensor) -> list[Any]:
    attrs = node.attrs
    return [cumsum_op(grad, node.inputs[1], exclusive=attrs["exclusive"], reverse=not attrs["reverse"]), None]


@cumprod_op.gradient
def _cumprod_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, axis = node.inputs
    attrs = node.attrs
    weighted = mul_op(node.outputs[0], grad)
    total = cumsum_op(weighted, axis, exclusive=attrs["exclusive"], reverse=not attrs["reverse"])
    return [real_div_op(total, x), None]


@export("tf.cumsum", "tf.math.cumsum")
def cumsum(
    x: TensorLike, axis: AxisLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running sums along ``axis``; ``exclusive``: without the element itself; ``reverse``: from the end."""
    with name_scope(name, "Cumsum", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return cumsum_op(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


@export("tf.cumprod", "tf.math.cumprod")
def cumprod(
    x: TensorLike, axis: AxisLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running products along ``axis``, like `cumsum` (``tf.cumprod``)."""
    with name_scope(name, "Cumprod", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return cumprod_op(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


# ---- The public reductions: ``tf.reduce_*``, ``tf.argmax``, ``tf.count_nonzero``, ``tf.bincount`` ------------------


def _reduce_function(handle: OpHandle, function_name: str, text: str) -> Callable[..., Tensor]:
    def function(
        input_tensor: TensorLike, axis: AxisLike | None = None, keepdims: bool | None = None, name: str | None = None,
        reduction_indices: AxisLike | None = None, keep_dims: bool | None = None,
    ) -> Tensor:  # fmt: skip
        axis, keep = _old_names(axis, keepdims, reduction_indices, keep_dims)
        return reduce(handle, input_tensor, axis, keep, name)

    return named(function, function_name, _REDUCTION.format(text=text))


_REDUCTION = """{text} over some axes.

Args:
  input_tensor: a tensor of numbers; of bools for `reduce_all` and `reduce_any`.
  axis: an axis or a list of axes, an int tensor too; negative ones count from the end. None: all axes.
  keepdims: whether these axes stay, with size 1.
  name: of the op.
  reduction_indices, keep_dims: older names of ``axis`` and ``keepdims``.

Returns:
  A tensor of the dtype of ``input_tensor`` without these axes.

Raises:
  ValueError: when an old and a new name are both given.
"""


def reduce(handle: OpHandle, x: TensorLike, axis: AxisLike | None, keep: bool, name: str | None) -> Tensor:
    """Adds one reduction node over ``axis``; None: all axes."""
    if isinstance(x, Reducible):
        return x.reduced(handle, axis, keep, name)
    dtype = dtypes.bool if handle in (all_op, any_op) else None
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


def _old_names(
    axis: AxisLike | None, keepdims: bool | None, reduction_indices: AxisLike | None, keep_dims: bool | None
) -> tuple[Any, bool]:
    if reduction_indices is not None:
        if axis is not None:
            raise ValueError("Cannot specify both 'axis' and 'reduction_indices'")
        axis = reduction_indices
    if keep_dims is not None:
        if keepdims is not None:
            raise ValueError("Cannot specify both 'keepdims' and 'keep_dims'")
        keepdims = keep_dims
    return axis, bool(keepdims)


reduce_sum = _reduce_function(sum_op, "reduce_sum", "The sum")
reduce_mean = _reduce_function(mean_op, "reduce_mean", "The mean")
reduce_prod = _reduce_function(prod_op, "reduce_prod", "The product")
reduce_max = _reduce_function(max_op, "reduce_max", "The largest element")
reduce_min = _reduce_function(min_op, "reduce_min", "The smallest element")
reduce_all = _reduce_function(all_op, "reduce_all", "Whether all elements are true,")
reduce_any = _reduce_function(any_op, "reduce_any", "Whether any element is true,")


@export("tf.math.reduce_euclidean_norm")
def reduce_euclidean_norm(
    input_tensor: TensorLike, axis: AxisLike | None = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of the sum of squares over ``axis`` (``tf.math.reduce_euclidean_norm``)."""
    return reduce(euclidean_norm_op, input_tensor, axis, bool(keepdims), name)


@export("tf.math.reduce_variance")
def reduce_variance(
    input_tensor: TensorLike, axis: AxisLike | None = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
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
def reduce_std(
    input_tensor: TensorLike, axis: AxisLike | None = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The standard deviation over ``axis`` (``tf.math.reduce_std``)."""
    with name_scope(name or "reduce_std"):
        return sqrt_op(reduce_variance(input_tensor, axis=axis, keepdims=keepdims))


@export("tf.reduce_logsumexp", "tf.math.reduce_logsumexp")
def reduce_logsumexp(
    input_tensor: TensorLike, axis: AxisLike | None = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: AxisLike | None = None, keep_dims: bool | None = None,
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
    input: TensorLike, axis: AxisLike | None = None, name: str | None = None, dimension: AxisLike | None = None,
    output_type: DTypeLike = dtypes.int64,
) -> Tensor:  # fmt: skip
    """The index of the first largest element along ``axis`` (default 0) (``tf.argmax``).

    Args:
      input: a tensor of numbers.
      axis: the axis to search; default 0, negative ones count from the end.
      name: of the op.
      dimension: an older name of ``axis``.
      output_type: int32 or int64.

    Returns:
      A tensor of ``output_type`` with the shape of ``input`` without ``axis``.
    """
    return _arg(arg_max_op, input, axis, dimension, output_type, name)


@export("tf.argmin", "tf.math.argmin")
def argmin(
    input: TensorLike, axis: AxisLike | None = None, name: str | None = None, dimension: AxisLike | None = None,
    output_type: DTypeLike = dtypes.int64,
) -> Tensor:  # fmt: skip
    """The index of the first smallest element along ``axis`` (default 0) (``tf.argmin``).

    Args:
      input: a tensor of numbers.
      axis: the axis to search; default 0, negative ones count from the end.
      name: of the op.
      dimension: an older name of ``axis``.
      output_type: int32 or int64.

    Returns:
      A tensor of ``output_type`` with the shape of ``input`` without ``axis``.
    """
    return _arg(arg_min_op, input, axis, dimension, output_type, name)


def _arg(
    handle: OpHandle, x: TensorLike, axis: AxisLike | None, dimension: AxisLike | None, output_type: DTypeLike,
    name: str | None,
) -> Tensor:  # fmt: skip
    if dimension is not None:
        if axis is not None:
            raise ValueError("Cannot specify both 'axis' and 'dimension'")
        axis = dimension
    return handle(x, 0 if axis is None else axis, output_type=output_type, name=name)


@export("tf.arg_max")
def arg_max(
    input: TensorLike, dimension: AxisLike, output_type: DTypeLike = dtypes.int64, name: str | None = None
) -> Tensor:
    """`argmax` with the arguments of its op (``tf.arg_max``)."""
    return arg_max_op(input, dimension, output_type=output_type, name=name)


@export("tf.arg_min")
def arg_min(
    input: TensorLike, dimension: AxisLike, output_type: DTypeLike = dtypes.int64, name: str | None = None
) -> Tensor:
    """`argmin` with the arguments of its op (``tf.arg_min``)."""
    return arg_min_op(input, dimension, output_type=output_type, name=name)


@export("tf.count_nonzero", "tf.math.count_nonzero")
def count_nonzero(
    input_tensor: TensorLike | None = None, axis: AxisLike | None = None, keepdims: bool | None = None,
    dtype: DTypeLike = dtypes.int64, name: str | None = None, reduction_indices: AxisLike | None = None,
    keep_dims: bool | None = None, input: TensorLike | None = None,
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
bincount_op.without_gradient()


@bincount_op.shape
def _bincount_shape(node: Operation) -> list[RawShape]:
    size = constant_value(node.inputs[1])
    return [(None if size is None else int(size),)]


@bincount_op.kernel("CPU")
def _bincount_kernel(values: Array, size: Array, weights: Array) -> Any:
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
    arr: TensorLike, weights: TensorLike | None = None, minlength: TensorLike | None = None,
    maxlength: TensorLike | None = None, dtype: DTypeLike = dtypes.int32,
) -> Tensor:  # fmt: skip
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
