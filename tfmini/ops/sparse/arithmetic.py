"""Sums, products and reductions of sparse tensors (``tf.sparse``, ``tf.sparse_*``)."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.sparse import math as arithmetic
from tfmini.ops.sparse.kernel_values import as_sparse, either, is_sparse, parts
from tfmini.ops.sparse.sparse_tensor import SparseTensor


@export("tf.sparse_add", "tf.sparse.add")
def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """The sum of two tensors, of which at least one is sparse (``tf.sparse_add``).

    The sum of two sparse tensors is sparse, without elements smaller than ``threshold``; other sums are dense.

    Raises:
      TypeError: when neither is sparse.
    """
    threshold = either(threshold, thresh, "threshold", "thresh")
    threshold = 0 if threshold is None else threshold
    if not is_sparse(a) and not is_sparse(b):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if is_sparse(a) and is_sparse(b):
        a, b = as_sparse(a), as_sparse(b)
        limit = convert_to_tensor(threshold, a.dtype.real_dtype.base_dtype, name="thresh")
        found = arithmetic.add_op(*parts(a), *parts(b), limit)
        a.shape.assert_is_compatible_with(b.shape)
        return SparseTensor(*found)
    if is_sparse(b):
        a, b = b, a
    return arithmetic.dense_add_op(*parts(as_sparse(a)), b)


@export("tf.sparse_tensor_dense_matmul", "tf.sparse.matmul", "tf.sparse.sparse_dense_matmul")
def sparse_tensor_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """A sparse times a dense matrix (``tf.sparse_tensor_dense_matmul``)."""
    sparse = as_sparse(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [sparse.values, b]) as scope:
        b = convert_to_tensor(b, name="b")
        return arithmetic.matmul_op(*parts(sparse), b, adjoint_a=adjoint_a, adjoint_b=adjoint_b, name=scope)


@export("tf.sparse_softmax", "tf.sparse.softmax")
def sparse_softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Softmax over the stored elements of each innermost row (``tf.sparse_softmax``)."""
    with name_scope(name, "SparseSoftmax", [sp_input.indices, sp_input.values]):
        found = arithmetic.softmax_op(*parts(as_sparse(sp_input)))
        return SparseTensor(sp_input.indices, found, sp_input.dense_shape)


@export("tf.sparse_maximum", "tf.sparse.maximum")
def sparse_maximum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The larger of each pair of elements, where absent elements count as 0 (``tf.sparse_maximum``)."""
    return _extremum(arithmetic.maximum_op, "SparseSparseMaximum", sp_a, sp_b, name)


@export("tf.sparse_minimum", "tf.sparse.minimum")
def sparse_minimum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The smaller of each pair of elements, where absent elements count as 0 (``tf.sparse_minimum``)."""
    return _extremum(arithmetic.minimum_op, "SparseSparseMinimum", sp_a, sp_b, name)


def _extremum(handle: Any, default_name: str, a: Any, b: Any, name: str | None) -> SparseTensor:
    a, b = as_sparse(a), as_sparse(b)
    with name_scope(name, default_name, [a.indices, a.values, b.indices, b.values]) as scope:
        indices, values = handle(*parts(a), *parts(b), name=scope)
        return SparseTensor(indices, values, a.dense_shape)


def _reduce(handle: Any, sp_input: Any, axis: Any, keepdims: Any, reduction_axes: Any, keep_dims: Any) -> Any:
    keep = bool(either(keepdims, keep_dims, "keepdims", "keep_dims"))
    axis = either(axis, reduction_axes, "axis", "reduction_axes")
    sparse = as_sparse(sp_input)
    if axis is None:
        axis = array_filling.range(array_shape.size(sparse.dense_shape))
    return handle(*parts(sparse), convert_to_tensor(axis, dtypes.int32), keep_dims=keep)


@export("tf.sparse_reduce_sum", "tf.sparse.reduce_sum")
def sparse_reduce_sum(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> Tensor:
    """The dense sum over axes, all by default (``tf.sparse_reduce_sum``)."""
    return _reduce(arithmetic.reduce_ops["Sum"], sp_input, axis, keepdims, reduction_axes, keep_dims)  # type: ignore[no-any-return]


@export("tf.sparse_reduce_sum_sparse", "tf.sparse.reduce_sum_sparse")
def sparse_reduce_sum_sparse(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> SparseTensor:
    """`sparse_reduce_sum` as a sparse tensor (``tf.sparse_reduce_sum_sparse``)."""
    handle = arithmetic.reduce_sparse_ops["Sum"]
    return SparseTensor(*_reduce(handle, sp_input, axis, keepdims, reduction_axes, keep_dims))


@export("tf.sparse_reduce_max", "tf.sparse.reduce_max")
def sparse_reduce_max(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> Tensor:
    """The dense maximum of the stored elements over axes, 0 without elements (``tf.sparse_reduce_max``)."""
    return _reduce(arithmetic.reduce_ops["Max"], sp_input, axis, keepdims, reduction_axes, keep_dims)  # type: ignore[no-any-return]


@export("tf.sparse_reduce_max_sparse", "tf.sparse.reduce_max_sparse")
def sparse_reduce_max_sparse(
    sp_input: Any, axis: Any = None, keepdims: Any = None, reduction_axes: Any = None, keep_dims: Any = None
) -> SparseTensor:
    """`sparse_reduce_max` as a sparse tensor (``tf.sparse_reduce_max_sparse``)."""
    handle = arithmetic.reduce_sparse_ops["Max"]
    return SparseTensor(*_reduce(handle, sp_input, axis, keepdims, reduction_axes, keep_dims))


def _with_dense(kind: str, default_name: str) -> Any:
    """``sparse * dense`` or ``sparse / dense``, with the dense operand broadcast to the sparse one."""

    def operate(sparse: SparseTensor, dense: Any) -> SparseTensor:
        with name_scope(None, default_name, [sparse.indices, sparse.values, sparse.dense_shape, dense]) as scope:
            dense = convert_to_tensor(dense, sparse.dtype.base_dtype, name="y")
            found = arithmetic.cwise_ops[kind](*parts(sparse), dense, name=scope)
            return SparseTensor(sparse.indices, found, sparse.dense_shape)

    return operate


def _divided(sparse: SparseTensor, dense: Any) -> SparseTensor:
    """True division: integers become float64 first."""
    if sparse.dtype.is_integer:
        sparse = SparseTensor(sparse.indices, cast(sparse.values, dtypes.float64), sparse.dense_shape)
        dense = cast(dense, dtypes.float64)
    return _with_dense("Div", "truediv")(sparse, dense)  # type: ignore[no-any-return]


def _reflected_times(sparse: SparseTensor, dense: Any) -> Any:
    """``dense * sparse``; TensorFlow has it for tensors alone."""
    return _with_dense("Mul", "mul")(sparse, dense) if isinstance(dense, Tensor) else NotImplemented


SparseTensor.__rmul__ = _reflected_times  # type: ignore[attr-defined]
for _method, _operate in (("__mul__", _with_dense("Mul", "mul")), ("__div__", _with_dense("Div", "div"))):
    setattr(SparseTensor, _method, _operate)
SparseTensor.__truediv__ = _divided  # type: ignore[method-assign]
