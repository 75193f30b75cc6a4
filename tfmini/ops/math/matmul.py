"""Matrix products: single, batched, "sparse" (dense matrices with many zeros), and the cross product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.graph.node import Node
from tfmini.numerics.convolution import dot, product
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.broadcast import HALVES, sum_op
from tfmini.ops.math.elementwise import conj, conjugate
from tfmini.shapes import RawShape, at_least_rank, broadcast_raw, format_raw, merge_dims, merge_raw, with_rank

_TYPES = "{bfloat16, half, float, double, int32, int64, complex64, complex128}"
mat_mul_op = op(
    f"MatMul(a: T, b: T) -> product: T; transpose_a: bool = false; transpose_b: bool = false; T: {_TYPES}",
    work="matmul", hints=("grad_a", "grad_b"),
)  # fmt: skip
batch_mat_mul_op = op(
    f"BatchMatMul(x: T, y: T) -> output: T; T: {_TYPES}; adj_x: bool = false; adj_y: bool = false",
    work="matmul", hints=("grad_x", "grad_y"),
)  # fmt: skip
batch_mat_mul_v2_op = op(
    f"BatchMatMulV2(x: T, y: T) -> output: T; T: {_TYPES}; adj_x: bool = false; adj_y: bool = false",
    work="matmul", hints=("grad_x", "grad_y"),
)  # fmt: skip
sparse_mat_mul_op = op(
    """SparseMatMul(a: Ta, b: Tb) -> product: float
    transpose_a: bool = false; transpose_b: bool = false; a_is_sparse: bool = false; b_is_sparse: bool = false
    Ta: {float, bfloat16} = DT_FLOAT; Tb: {float, bfloat16} = DT_FLOAT"""
)
cross_op = op("Cross(a: T, b: T) -> product: T; T: realnumbertype")


@all_of(mat_mul_op, sparse_mat_mul_op).shape
def _matmul_shape(node: Operation) -> list[RawShape]:
    a, b = (with_rank(t.raw_shape, 2) for t in node.inputs)
    a = a[::-1] if node.attrs["transpose_a"] else a
    b = b[::-1] if node.attrs["transpose_b"] else b
    merge_dims(a[1], b[0])
    return [(a[0], b[1])]


def _refuse_others(a: Array, b: Array) -> NoReturn:
    """Names the one of two operands that is no matrix. (A call for each product would take longer than the look.)"""
    i, value = next(operand for operand in enumerate((a, b)) if operand[1].ndim != 2)
    refuse(f"In[{i}] is not a matrix. Instead it has shape {format_raw(value.shape)}")


def _product(a: Array, b: Array, new: Callable[..., Any] | None = None) -> Any:
    if a.ndim != 2 or b.ndim != 2:
        _refuse_others(a, b)
    try:
        return dot(a, b, new)
    except ValueError:
        raise _incompatible(a, b) from None


def _incompatible(a: Array, b: Array) -> InvalidArgumentError:
    return InvalidArgumentError.of(
        f"Matrix size-incompatible: In[0]: {format_raw(a.shape)}, In[1]: {format_raw(b.shape)}"
    )


# By (transpose_a, transpose_b). Transposes are views; numpy passes them to BLAS as flags.
_PRODUCTS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): _product,
    (True, False): lambda a, b, new=None: _product(a.T, b, new),
    (False, True): lambda a, b, new=None: _product(a, b.T, new),
    (True, True): lambda a, b, new=None: _product(a.T, b.T, new),
}


def _float32_factory(node: Node) -> Callable[..., Any]:
    transpose_a, transpose_b = node.attrs["transpose_a"], node.attrs["transpose_b"]

    def multiply(a: Array, b: Array, new: Callable[..., Any] | None = None) -> Any:
        if a.ndim != 2 or b.ndim != 2:
            _refuse_others(a, b)
        try:
            return product(a, b, transpose_a, transpose_b, new)
        except ValueError:
            raise _incompatible(a.T if transpose_a else a, b.T if transpose_b else b) from None

    return multiply


@mat_mul_op.kernel_factory("CPU")
def _matmul_factory(node: Node) -> Callable[..., Any]:
    dtype = node.attrs["T"]
    if dtype is dtypes.float32:
        return _float32_factory(node)
    times = _PRODUCTS[node.attrs["transpose_a"], node.attrs["transpose_b"]]
    if dtype not in HALVES:
        return times
    narrow = dtype.numpy
    return lambda a, b: times(a.astype(np.float32), b.astype(np.float32)).astype(narrow)


@mat_mul_op.into
def _matmul_into(node: Node) -> Callable[..., Any] | None:
    if node.attrs["T"] in HALVES:
        return None
    multiply = _matmul_factory(node)
    return lambda new, a, b: multiply(a, b, new)


@sparse_mat_mul_op.kernel_factory("CPU")
def _sparse_matmul_factory(node: Node) -> Callable[..., Any]:
    times = _PRODUCTS[node.attrs["transpose_a"], node.attrs["transpose_b"]]
    return lambda a, b: times(a.astype(np.float32, copy=False), b.astype(np.float32, copy=False))


def _times(a: Tensor, b: Tensor, ta: bool = False, tb: bool = False) -> Tensor:
    return mat_mul_op(a, b, transpose_a=ta, transpose_b=tb)


@mat_mul_op.gradient
def _matmul_gradient(node: Operation, grad: Tensor) -> list[Any]:
    a, b = (conjugate(t) for t in node.inputs)
    return _product_gradients(a, b, grad, node.attrs["transpose_a"], node.attrs["transpose_b"], _times)


def _product_gradients(
    a: Tensor, b: Tensor, grad: Tensor, ta: bool, tb: bool, times: Callable[..., Tensor]
) -> list[Any]:
    """The gradients of both operands, as products that need no transposed copies."""
    if not ta and not tb:
        return [times(grad, b, tb=True), times(a, grad, ta=True)]
    if not ta:
        return [times(grad, b), times(grad, a, ta=True)]
    if not tb:
        return [times(b, grad, tb=True), times(a, grad)]
    return [times(b, grad, ta=True, tb=True), times(grad, a, ta=True, tb=True)]


@sparse_mat_mul_op.gradient
def _sparse_matmul_gradient(node: Operation, grad: Tensor) -> list[Any]:
    a, b = node.inputs

    def times(x: Tensor, y: Tensor, ta: bool = False, tb: bool = False) -> Tensor:
        return sparse_mat_mul_op(x, y, transpose_a=ta, transpose_b=tb)

    found = _product_gradients(a, b, grad, node.attrs["transpose_a"], node.attrs["transpose_b"], times)
    return [g if t.dtype.base_dtype is dtypes.float32 else cast(g, t.dtype) for g, t in zip(found, (a, b))]


# ---- batched --------------------------------------------------------------------------------


def _batch_shape(node: Operation) -> list[RawShape]:
    x, y = (t.raw_shape for t in node.inputs)
    if x is None or y is None:
        return [None]
    for shape in (x, y):
        at_least_rank(shape, 2)
    rows, inner = x[-2:][::-1] if node.attrs["adj_x"] else x[-2:]
    also_inner, columns = y[-2:][::-1] if node.attrs["adj_y"] else y[-2:]
    merge_dims(inner, also_inner)
    combine = merge_raw if node.type == "BatchMatMul" else broadcast_raw
    return [(combine(x[:-2], y[:-2]) or ()) + (rows, columns)]


def adjoint_of(value: Array) -> Any:
    """The conjugate transpose of the last two axes, a view where the type is real."""
    value = value.swapaxes(-1, -2)
    return np.conjugate(value) if value.dtype.kind == "c" else value


def _batch_factory(node: Node) -> Callable[..., Any]:
    adj_x, adj_y, dtype = node.attrs["adj_x"], node.attrs["adj_y"], node.attrs["T"]

    def kernel(x: Array, y: Array) -> Any:
        if dtype in HALVES:
            x, y = x.astype(np.float32), y.astype(np.float32)
        x, y = adjoint_of(x) if adj_x else x, adjoint_of(y) if adj_y else y
        try:
            product = np.matmul(x, y)
        except ValueError:
            raise _incompatible(x, y) from None
        return product.astype(dtype.numpy) if dtype in HALVES else product

    return kernel


for _handle in (batch_mat_mul_op, batch_mat_mul_v2_op):
    _handle.shape(_batch_shape)
    _handle.kernel_factory("CPU")(_batch_factory)


def _batch_gradients(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs

    def times(a: Tensor, b: Tensor, ta: bool = False, tb: bool = False) -> Tensor:
        return raw_ops.named(node.type)(a, b, adj_x=ta, adj_y=tb)

    return _product_gradients(x, y, grad, node.attrs["adj_x"], node.attrs["adj_y"], times)


batch_mat_mul_op.gradient(_batch_gradients)


@batch_mat_mul_v2_op.gradient
def _batch_v2_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs
    gx, gy = _batch_gradients(node, grad)
    a, b = x.raw_shape, y.raw_shape
    if a is not None and b is not None and a[:-2] == b[:-2] and None not in a[:-2]:
        return [gx, gy]
    sx, sy = array_shape.shape(x), array_shape.shape(y)
    rx, ry = array_shape.broadcast_gradient_args(_head(sx), _head(sy))
    return [array_shape.reshape(sum_op(gx, rx), sx), array_shape.reshape(sum_op(gy, ry), sy)]


def _head(sizes: Tensor) -> Tensor:
    """The batch sizes of a shape tensor."""
    return getitem(sizes, slice(None, -2))


# ---- public functions -----------------------------------------------------------------------


@export("tf.matmul", "tf.linalg.matmul")
def matmul(
    a: TensorLike, b: TensorLike, transpose_a: bool = False, transpose_b: bool = False, adjoint_a: bool = False,
    adjoint_b: bool = False, a_is_sparse: bool = False, b_is_sparse: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The matrix product, over the last two axes; leading axes are a batch and broadcast (``tf.matmul``).

    Args:
      a, b: tensors of one numeric dtype with at least two axes: [..., n, k] and [..., k, m].
      transpose_a, transpose_b: whether to transpose that matrix.
      adjoint_a, adjoint_b: whether to take its conjugate transpose.
      a_is_sparse, b_is_sparse: a hint that most elements are zero.
      name: of the op.

    Returns:
      [..., n, m], of that dtype.

    Raises:
      ValueError: when transpose and adjoint are both asked for, or the shapes do not fit.
    """
    with name_scope(name, "MatMul", [a, b]) as scope:
        if transpose_a and adjoint_a:
            raise ValueError("Only one of transpose_a and adjoint_a can be True.")
        if transpose_b and adjoint_b:
            raise ValueError("Only one of transpose_b and adjoint_b can be True.")
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b", dtype=a.dtype.base_dtype if not isinstance(b, Tensor) else None)
        if (
            (a.raw_shape is None or len(a.raw_shape) > 2)
            and (b.raw_shape is None or len(b.raw_shape) >= 2)
            or (b.raw_shape is None or len(b.raw_shape) > 2)
            and a.raw_shape is not None
            and len(a.raw_shape) >= 2
        ):
            return _batch_matmul(a, b, transpose_a, transpose_b, adjoint_a, adjoint_b, scope)
        a, ta = (conj(a), True) if adjoint_a else (a, transpose_a)
        b, tb = (conj(b), True) if adjoint_b else (b, transpose_b)
        sparse_types = (dtypes.float32, dtypes.bfloat16)
        if (a_is_sparse or b_is_sparse) and a.dtype.base_dtype in sparse_types and b.dtype.base_dtype in sparse_types:
            return sparse_matmul(a, b, ta, tb, a_is_sparse, b_is_sparse, scope)
        return mat_mul_op(a, b, transpose_a=ta, transpose_b=tb, name=scope)


def _batch_matmul(a: Tensor, b: Tensor, ta: bool, tb: bool, adj_a: bool, adj_b: bool, scope: str) -> Tensor:
    # The op supports only adjoints; the transpose is the adjoint of the conjugate.
    a = conj(a) if ta else a
    b = conj(b) if tb else b
    return batch_mat_mul_v2_op(a, b, adj_x=ta or adj_a, adj_y=tb or adj_b, name=scope)


@export("tf.sparse_matmul")
def sparse_matmul(
    a: TensorLike, b: TensorLike, transpose_a: bool = False, transpose_b: bool = False, a_is_sparse: bool = False,
    b_is_sparse: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The float32 product of float32 or bfloat16 matrices with a hint of many zeros; computed densely."""
    return sparse_mat_mul_op(
        a, b, transpose_a=transpose_a, transpose_b=transpose_b, a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse,
        name=name,
    )  # fmt: skip


@export("tf.linalg.matvec")
def matvec(
    a: TensorLike, b: TensorLike, transpose_a: bool = False, adjoint_a: bool = False, a_is_sparse: bool = False,
    b_is_sparse: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The product of a matrix and a vector, over the last axes (``tf.linalg.matvec``)."""
    with name_scope(name, "MatVec", [a, b]):
        column = array_shape.expand_dims(convert_to_tensor(b, name="b"), -1)
        product = matmul(
            a, column, transpose_a=transpose_a, adjoint_a=adjoint_a, a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse
        )
        return array_shape.squeeze(product, axis=-1)


# ---- cross product --------------------------------------------------------------------------


@cross_op.shape
def _cross_shape(node: Operation) -> list[RawShape]:
    shape = merge_raw(node.inputs[0].raw_shape, node.inputs[1].raw_shape)
    if shape is not None:
        at_least_rank(shape, 1)
        merge_dims(shape[-1], 3)
    return [shape]


@cross_op.kernel("CPU")
def _cross_kernel(a: Array, b: Array) -> Any:
    if a.shape != b.shape or a.shape[-1] != 3:
        refuse("Cross-products are only defined for 3-element vectors of one shape.")
    return np.cross(a, b)


@cross_op.gradient
def _cross_gradient(node: Operation, grad: Tensor) -> list[Any]:
    a, b = node.inputs
    return [cross_op(b, grad), cross_op(grad, a)]


@export("tf.cross", "tf.linalg.cross")
def cross(a: TensorLike, b: TensorLike, name: str | None = None) -> Tensor:
    """The cross product of 3-vectors along the last axis (``tf.cross``)."""
    return cross_op(a, b, name=name)
