"""Broadcasting: the shapes of element-wise ops, and gradients summed back to the shape of an operand.

The ``Sum`` op is here because every gradient of a broadcasting op needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, Scalar, TensorLike
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, op
from tfmini.graph.node import Node
from tfmini.graph.op_types import INTO_FROM
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.gradients import is_wanted
from tfmini.shapes import RawShape, at_most_rank, broadcast_raw

sum_op = op(
    """Sum(input: T, reduction_indices: Tidx) -> output: T
    keep_dims: bool = false
    T: numbertype
    Tidx: {int32, int64} = DT_INT32""",
    aggregates=True,
    work="input",
    raw_names={"reduction_indices": "axis"},
)
sum_op.kernel_factory("CPU")(lambda node: reducer(np.add, node.attrs["T"], node.attrs["keep_dims"]))
sum_op.gradient(lambda node, grad: [spread(node, grad), None])

T = TypeVar("T")
HALVES = (dtypes.float16, dtypes.bfloat16)


def widened(function: Callable[..., Any], attr: str = "T") -> Callable[[Any], Callable[..., Any]]:
    """A kernel factory: ``function``, computed in float32 where the element type is a 16-bit float."""

    def factory(node: Node) -> Callable[..., Any]:
        dtype = node.attrs[attr]
        if dtype not in HALVES:
            return function
        narrow = dtype.numpy

        def in_float32(*values: Array) -> Any:
            return function(*[v.astype(np.float32) for v in values]).astype(narrow)

        return in_float32

    return factory


class OfX(Protocol):
    """A public function of one tensor, made with its op by one row of a table."""

    def __call__(self, x: TensorLike, name: str | None = None) -> Tensor: ...


class OfXAndY(Protocol):
    """A public function of two tensors, made with its op by one row of a table."""

    def __call__(self, x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor: ...


def named(function: Callable[..., T], name: str, text: str) -> Callable[..., T]:
    """Gives the function of a row its public name and docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


_NUMPYS_NAMES = {"half": "float16", "float": "float32", "double": "float64", "realnumbertype": "real numbers",
                 "numbertype": "numbers", "type": "any"}  # fmt: skip


def told(summary: str, operands: str, types: str, result: str) -> str:
    """The docstring of an element-wise function.

    Args:
      operands: the names of its arguments, such as ``x, y``.
      types: the dtypes that a declaration allows, such as ``{half, float}``.
      result: what it returns.
    """
    names = ", ".join(_NUMPYS_NAMES.get(name, name) for name in types.strip("{}").split(", "))
    tensors = "tensors of one dtype, whose shapes broadcast" if "," in operands else "a tensor"
    return f"{summary}\n\nArgs:\n  {operands}: {tensors}: {names}.\n  name: of the op.\n\nReturns:\n  {result}\n"


# ---- axes of reductions ---------------------------------------------------------------------


def normal_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """The axes of a reduction as distinct non-negative numbers; one named twice counts once, as in 1.15.

    Raises:
      InvalidArgumentError: for an axis out of range.
    """
    found = axes.tolist()
    found = found if isinstance(found, list) else [found]
    for i, axis in enumerate(found):
        if not -rank <= axis < rank:
            refuse(f"Invalid reduction dimension ({axis} for input with {rank} dimension(s)")
        found[i] = axis + rank if axis < 0 else axis
    return tuple(dict.fromkeys(found))


def static_axes(node: Operation) -> tuple[int, ...] | None:
    """The axes of a reduction node as non-negative numbers; None when they or the rank are unknown."""
    shape = node.inputs[0].raw_shape
    if shape is None:
        return None
    axes = constant_value(node.inputs[1])
    return None if axes is None else tuple({int(a) % len(shape): None for a in axes.ravel()}) if shape else ()


def reduced_shape(node: Operation) -> list[RawShape]:
    """Shape function of reductions.

    Raises:
      ValueError: for an axis out of range or axes of more than one dimension.
    """
    shape, keep = node.inputs[0].raw_shape, node.attrs["keep_dims"]
    at_most_rank(node.inputs[1].raw_shape, 1)
    axes = constant_value(node.inputs[1])
    if shape is None or axes is None:
        return [(None,) * len(shape) if keep and shape is not None else None]
    rank = len(shape)
    for axis in axes.ravel().tolist():
        if not -rank <= axis < rank:
            raise ValueError(f"Invalid reduction dimension {axis} for input with {rank} dimensions.")
    gone = {int(a) % rank for a in axes.ravel()} if rank else set()
    return [tuple(1 if i in gone else d for i, d in enumerate(shape) if keep or i not in gone)]


# ---- Sum ------------------------------------------------------------------------------------

sum_op.shape(reduced_shape)


def reducer(ufunc: np.ufunc, dtype: dtypes.DType, keep: bool, empty: Scalar | None = None) -> Callable[..., Any]:
    """The kernel of a reduction by ``ufunc`` that keeps the element type.

    Args:
      empty: the result over no elements, where ``ufunc`` has no identity of its own.
    """
    numpy_dtype = dtype.numpy
    compute = np.dtype(np.float32) if dtype in HALVES else numpy_dtype
    reduce: Any = ufunc.reduce
    narrow = compute is not numpy_dtype

    def kernel(x: Array, axes: AxisLike) -> Any:
        if not x.ndim:
            normal_axes(axes, 1)
            return x
        chosen: Any = normal_axes(axes, x.ndim)
        if not chosen:  # as a gradient of operands that do not broadcast
            return x
        if len(chosen) == x.ndim:
            chosen = None
        if empty is not None and not x.size:
            result = reduce(x, chosen, compute, None, keep, empty)
        else:
            result = reduce(x, chosen, compute, None, keep)
        return result.astype(numpy_dtype) if narrow else result

    return kernel


def kept(node: Operation, value: Tensor) -> Tensor:
    """A result or gradient of a reduction, with the reduced axes as axes of size 1."""
    shape = node.inputs[0].raw_shape
    if node.attrs["keep_dims"]:
        return value
    axes = static_axes(node)
    if axes is None or shape is None:
        whole = raw_ops.named(node.type)(node.inputs[0], node.inputs[1], **{**node.attrs, "keep_dims": True})
        return array_shape.reshape(value, array_shape.shape(whole))
    sizes = [1 if i in axes else -1 if d is None else d for i, d in enumerate(shape)]
    if sizes.count(-1) <= 1 and 0 not in sizes:
        return array_shape.reshape(value, sizes)
    for axis in sorted(set(axes)):
        value = array_shape.expand_dims(value, axis)
    return value


def spread(node: Operation, grad: Tensor) -> Tensor:
    """The gradient of a sum: every element of the input gets the gradient of its sum."""
    x = node.inputs[0]
    if x.raw_shape == ():
        return grad
    return array_shape.broadcast_to(kept(node, grad), array_shape.shape(x))


# ---- gradients of broadcasting ops ----------------------------------------------------------


def sum_to_operands(node: Operation, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Sums the gradients of a binary op over the axes along which its operands were broadcast.

    It adds no ops where the static shapes show that there is nothing to sum.
    """
    x, y = node.inputs[0], node.inputs[1]
    a, b = x.raw_shape, y.raw_shape
    gx, gy = grads
    gx = gx if is_wanted(node, 0) else None
    gy = gy if is_wanted(node, 1) else None
    if a is not None and b is not None and None not in a and None not in b:
        return [_sum_to_static(gx, a, b), _sum_to_static(gy, b, a)]
    sx, sy = array_shape.shape(x), array_shape.shape(y)
    rx, ry = array_shape.broadcast_gradient_args(sx, sy)
    return [
        None if gx is None else array_shape.reshape(sum_op(gx, rx), sx),
        None if gy is None else array_shape.reshape(sum_op(gy, ry), sy),
    ]


def _sum_to_static(grad: Tensor | None, own: tuple[Any, ...], other: tuple[Any, ...]) -> Tensor | None:
    if grad is None or own == other:
        return grad
    full = broadcast_raw(own, other)
    assert full is not None
    head = len(full) - len(own)
    axes = [i for i, d in enumerate(full) if i < head or own[i - head] == 1 and d != 1]
    if not axes:
        return grad
    # The Reshape may be needless. TensorFlow has it all the same, and K-FAC finds the biases of a network by it.
    return array_shape.reshape(sum_op(grad, np.array(axes, np.int32)), list(own))


def computed_into(ufunc: np.ufunc) -> Callable[[Any], Callable[..., Any] | None]:
    """The rule `OpHandle.into` of an op whose inputs and output have the type ``T`` and whose kernel is the ufunc."""

    def rule(node: Node) -> Callable[..., Any] | None:
        dtype = node.attrs["T"]
        is_real = dtype.is_floating or ufunc is not np.divide
        if dtype.numpy.hasobject or not is_real:  # these kernels are not the ufunc
            return None
        return partial(_into, ufunc, dtype.numpy)

    return rule


def _into(ufunc: np.ufunc, dtype: np.dtype[Any], new: Callable[..., Any], *values: Array) -> Any:
    shape = values[0].shape
    if values[-1].shape != shape:
        try:
            shape = np.broadcast(*values).shape
        except ValueError:
            shape = ()  # the ufunc has its own words for it
    if not shape or math.prod(shape) * dtype.itemsize < INTO_FROM:
        return ufunc(*values)
    return ufunc(*values, out=new(shape, dtype))
