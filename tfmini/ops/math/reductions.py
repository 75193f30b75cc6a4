"""Reductions over axes, argmax and argmin, running sums and products. (``Sum`` is in `broadcast`.)"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, all_of, convert_to_tensor, name_scope, op, same_shape
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.math.broadcast import (
    kept,
    normal_axes,
    reduced_shape,
    reducer,
    spread,
    static_axes,
    sum_op,
)
from tfmini.ops.math.comparison import equal_op, select_op
from tfmini.ops.math.elementwise import mul_op, real_div_op

_ATTRS = "keep_dims: bool = false; T: numbertype; Tidx: {int32, int64} = DT_INT32"
_BOOLS = "keep_dims: bool = false; Tidx: {int32, int64} = DT_INT32"
_AXIS = {"reduction_indices": "axis"}
mean_op = op(
    f"Mean(input: T, reduction_indices: Tidx) -> output: T; {_ATTRS}", aggregates=True, work="input", raw_names=_AXIS
)
mean_op.gradient(lambda node, grad: [real_div_op(spread(node, grad), _elements_per_output(node, grad)), None])
prod_op = op(f"Prod(input: T, reduction_indices: Tidx) -> output: T; {_ATTRS}", work="input", raw_names=_AXIS)
max_op = op(f"Max(input: T, reduction_indices: Tidx) -> output: T; {_ATTRS}", work="input", raw_names=_AXIS)
max_op.kernel_factory("CPU")(lambda node: _factory(np.maximum, _lowest)(node))
min_op = op(f"Min(input: T, reduction_indices: Tidx) -> output: T; {_ATTRS}", work="input", raw_names=_AXIS)
min_op.kernel_factory("CPU")(lambda node: _factory(np.minimum, _highest)(node))
euclidean_norm_op = op(
    f"EuclideanNorm(input: T, reduction_indices: Tidx) -> output: T; {_ATTRS}", work="input", raw_names=_AXIS
)
all_op = op(f"All(input: bool, reduction_indices: Tidx) -> output: bool; {_BOOLS}", work="input", raw_names=_AXIS)
all_op.not_differentiable()
any_op = op(f"Any(input: bool, reduction_indices: Tidx) -> output: bool; {_BOOLS}", work="input", raw_names=_AXIS)
all_of(mean_op, prod_op, max_op, min_op, euclidean_norm_op, all_op, any_op).shape(reduced_shape)
any_op.not_differentiable()

# ---- kernels --------------------------------------------------------------------------------

Factory = Callable[[Any], Callable[..., Any]]


def _factory(ufunc: np.ufunc, empty: Callable[[dtypes.DType], Any] = lambda dtype: None) -> Factory:
    def factory(node: Any) -> Callable[..., Any]:
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
def _mean_factory(node: Any) -> Callable[..., Any]:
    dtype, keep = node.attrs["T"], node.attrs["keep_dims"]
    narrow = dtype in (dtypes.float16, dtypes.bfloat16)
    whole = dtypes.uint64 if dtype.is_unsigned else dtypes.int64
    total = reducer(np.add, dtypes.float32 if narrow else whole if dtype.is_integer else dtype, keep)
    scalar = np.float32 if narrow else dtype.numpy.type

    def kernel(x: Any, axes: Any) -> Any:
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


def _count(x: Any, axes: Any) -> int:
    return int(np.prod([x.shape[a] for a in normal_axes(axes, x.ndim)], dtype=np.int64))


@euclidean_norm_op.kernel_factory("CPU")
def _norm_factory(node: Any) -> Callable[..., Any]:
    total = reducer(np.add, node.attrs["T"], node.attrs["keep_dims"])

    def kernel(x: Any, axes: Any) -> Any:
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
        # For unknown axes the gradient is the quotient, which is undefined at zeros.
        return [mul_op(_conjugated(real_div_op(kept(node, node.outputs[0]), x)), grad), None]
    # The product over one axis after the other: the gradient of an element is the product of the others.
    stages = [x]
    for axis in axes[:-1]:
        stages.append(prod_op(stages[-1], np.array([axis], np.int32), keep_dims=True))
    for stage, axis in zip(reversed(stages), reversed(axes)):
        before = cumprod(stage, axis, exclusive=True)
        after = cumprod(stage, axis, exclusive=True, reverse=True)
        grad = mul_op(grad, _conjugated(mul_op(before, after)))
    return [grad, None]


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
    def factory(node: Any) -> Callable[..., Any]:
        dtype = node.attrs["output_type"].numpy

        def kernel(x: Any, dimension: Any) -> Any:
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
    def factory(node: Any) -> Callable[..., Any]:
        exclusive, reverse = node.attrs["exclusive"], node.attrs["reverse"]

        def kernel(x: Any, axis_value: Any) -> Any:
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
def cumsum(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """Running sums along ``axis``; ``exclusive``: without the element itself; ``reverse``: from the end."""
    with name_scope(name, "Cumsum", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return cumsum_op(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


@export("tf.cumprod", "tf.math.cumprod")
def cumprod(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> Tensor:
    """Running products along ``axis``, like `cumsum` (``tf.cumprod``)."""
    with name_scope(name, "Cumprod", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return cumprod_op(x, axis, exclusive=exclusive, reverse=reverse, name=scope)
