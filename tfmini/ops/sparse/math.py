"""Arithmetic on sparse tensors: sums, products, maxima, softmax, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, sized
from tfmini.memory import check_room
from tfmini.numerics.update_rules import any_outside, as_rows, scatter_rows
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import gather as array_gather
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.gather import scatter_nd, tensor_scatter_update
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.slicing import getitem
from tfmini.ops.composites import SparseTensor, SparseTensorLike
from tfmini.ops.math.broadcast import sum_op
from tfmini.ops.math.comparison import greater_equal_op, less_equal_op
from tfmini.ops.math.elementwise import conjugate, divide, floordiv
from tfmini.ops.math.segments import reduce_runs
from tfmini.ops.sparse.layout import (
    as_sparse,
    check_bounds,
    check_parts,
    distinct,
    flat_positions,
    is_sparse,
    merged_shapes,
    parts,
    row_major,
)
from tfmini.shapes import RawShape, with_rank

_PAIR = "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64"
_ONE = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32"
add_op: OpHandle[Any] = op(
    f"SparseAdd({_PAIR}, thresh: Treal) -> sum_indices: int64, sum_values: T, sum_shape: int64;"
    " T: numbertype; Treal: realnumbertype",
    shape=sized("n a, n, a, m rank, m, rank -> _ rank, _, rank"),
)
add_grad_op: OpHandle[Any] = op(
    "SparseAddGrad(backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64)"
    " -> a_val_grad: T, b_val_grad: T; T: numbertype"
)
add_grad_op.shape(lambda node: [(with_rank(t.raw_shape, 2)[0],) for t in node.inputs[1:3]])
dense_add_op = op(
    "SparseTensorDenseAdd(a_indices: Tindices, a_values: T, a_shape: Tindices, b: T) -> output: T;"
    " T: numbertype; Tindices: {int32, int64}",
    shape=lambda node: [node.inputs[3].raw_shape],
)
dense_add_op.gradient(lambda node, grad: [None, array_gather.gather_nd(grad, node.inputs[0]), None, grad])
matmul_op = op(
    "SparseTensorDenseMatMul(a_indices: Tindices, a_values: T, a_shape: int64, b: T) -> product: T; T: type;"
    " Tindices: {int32, int64} = DT_INT64; adjoint_a: bool = false; adjoint_b: bool = false"
)
softmax_op = op(
    "SparseSoftmax(sp_indices: int64, sp_values: T, sp_shape: int64) -> output: T; T: {half, float, double}"
)
softmax_op.shape(lambda node: [(merged_shapes(node)[0],)])
maximum_op: OpHandle[Any] = op(
    f"SparseSparseMaximum({_PAIR}) -> output_indices: int64, output_values: T; T: realnumbertype"
)
minimum_op: OpHandle[Any] = op(
    f"SparseSparseMinimum({_PAIR}) -> output_indices: int64, output_values: T; T: numbertype"
)
all_of(maximum_op, minimum_op).shape(sized("n rank, n, rank -> _ rank, _"))
cwise_ops: dict[str, OpHandle] = {
    kind: op(
        f"SparseDenseCwise{kind}(sp_indices: int64, sp_values: T, sp_shape: int64, dense: T) -> output: T;"
        " T: numbertype"
    )
    for kind in ("Add", "Mul", "Div")
}
_KINDS = {"Sum": "numbertype", "Max": "realnumbertype"}
reduce_ops: dict[str, OpHandle] = {
    kind: op(f"SparseReduce{kind}({_ONE}) -> output: T; keep_dims: bool = false; T: {types}")
    for kind, types in _KINDS.items()
}
reduce_sparse_ops: dict[str, OpHandle] = {
    kind: op(
        f"SparseReduce{kind}Sparse({_ONE}) -> output_indices: int64, output_values: T, output_shape: int64;"
        f" keep_dims: bool = false; T: {types}"
    )
    for kind, types in _KINDS.items()
}
add_grad_op.not_differentiable()
all_of(reduce_ops["Max"], *reduce_sparse_ops.values()).without_gradient()


# ---- sums -----------------------------------------------------------------------------------


def _check_pair(a_shape: Array, b_shape: Array) -> None:
    if len(a_shape) != len(b_shape):
        refuse(f"Ranks of input tensors must match, but saw ranks: {len(a_shape)} and {len(b_shape)}")
    bad = np.flatnonzero(a_shape != b_shape)
    if bad.size:
        d = int(bad[0])
        refuse(f"Operands' shapes do not match: got {a_shape[d]} and {b_shape[d]} for dimension {d}")


def _union(a: Array, a_values: Array, b: Array, b_values: Array) -> tuple[Any, Any, Any, Any]:
    """The distinct indices of both tensors, the values of each there (0 if absent), and a mask of common indices.

    As in TensorFlow, equal indices of both are not sorted.
    """
    if np.array_equal(a, b):
        return a, a_values, b_values, np.ones(len(a), np.bool_)
    indices, numbers = distinct(np.concatenate([a, b]))
    left, right = (np.zeros(len(indices), a_values.dtype) for _ in range(2))
    left[numbers[: len(a)]] = a_values
    right[numbers[len(a) :]] = b_values
    return indices, left, right, np.bincount(numbers, minlength=len(indices)) > 1


@add_op.kernel("CPU")
def _add_kernel(
    a: Array, a_values: Array, a_shape: Array, b: Array, b_values: Array, b_shape: Array, thresh: Array
) -> tuple[Any, ...]:
    check_parts(a, a_values, a_shape)
    check_parts(b, b_values, b_shape)
    _check_pair(a_shape, b_shape)
    indices, left, right, both = _union(a, a_values, b, b_values)
    total = left + right
    kept = ~both | (np.abs(total) >= thresh)  # The threshold applies only to sums.
    return indices[kept], total[kept], np.array(a_shape)


@add_op.gradient
def _add_gradient(node: Operation, _: object, grad: Tensor, __: object) -> list[Any]:
    a, b = node.inputs[0], node.inputs[3]
    a_grad, b_grad = add_grad_op(grad, a, b, node.outputs[0])
    return [None, a_grad, None, None, b_grad, None, None]


@add_grad_op.kernel("CPU")
def _add_grad_kernel(grad: Array, a: Array, b: Array, total: Array) -> tuple[Any, Any]:
    if np.array_equal(a, b) and np.array_equal(a, total):
        return grad, grad
    indices, numbers = distinct(np.concatenate([a, b, total]))
    table = np.zeros(len(indices), grad.dtype)
    table[numbers[len(a) + len(b) :]] = grad
    return table[numbers[: len(a)]], table[numbers[len(a) : len(a) + len(b)]]


@dense_add_op.kernel("CPU")
def _dense_add_kernel(indices: Array, values: Array, shape: Array, dense: Array) -> Any:
    check_parts(indices, values, shape)
    check_bounds(indices, shape)
    if tuple(shape.tolist()) != dense.shape:
        refuse(f"Dimensions of the sparse and the dense operand do not match: {shape.tolist()} and {list(dense.shape)}")
    out = dense.copy()
    elements, numbers = as_rows(out, indices)
    scatter_rows("add", elements, numbers, values)
    return out


# ---- products -------------------------------------------------------------------------------


@matmul_op.shape
def _matmul_shape(node: Operation) -> list[RawShape]:
    from_b = with_rank(node.inputs[3].raw_shape, 2)
    from_b = from_b[::-1] if node.attrs["adjoint_b"] else from_b
    a = _static_sizes(node.inputs[2])
    a = a[::-1] if node.attrs["adjoint_a"] else a
    inner = {a[1], from_b[0]} - {None}
    if len(inner) > 1:
        raise ValueError(f"Dimensions must be equal, but are {a[1]} and {from_b[0]}")
    return [(a[0], from_b[1])]


def _static_sizes(shape: Tensor) -> tuple[int | None, ...]:
    return with_rank(constant_value_as_shape(shape), 2)


_OF_SCIPY = "fdFDilq"  # types of numpy's names that its sparse products take; not float16 and bfloat16


@matmul_op.kernel("CPU")
def _matmul_kernel(indices: Array, values: Array, shape: Array, b: Array, *, adjoint_a: bool, adjoint_b: bool) -> Any:
    check_parts(indices, values, shape)
    if np.ndim(b) != 2 or len(shape) != 2:
        refuse(f"Tensors 'a_shape' and 'b' must be of matrices, but got {shape.tolist()} and {list(np.shape(b))}")
    if adjoint_b:
        b = np.conjugate(b.T) if b.dtype.kind == "c" else b.T
    rows, columns = (indices[:, 1], indices[:, 0]) if adjoint_a else (indices[:, 0], indices[:, 1])
    height, width = (int(shape[1]), int(shape[0])) if adjoint_a else (int(shape[0]), int(shape[1]))
    values = np.conjugate(values) if adjoint_a and values.dtype.kind == "c" else values
    if width != b.shape[0]:
        refuse(
            f"Cannot multiply A and B because inner dimension does not match: {width} vs. {b.shape[0]}."
            "  Did you forget a transpose?  Dimensions of A: "
            f"[{shape[0]}, {shape[1]}).  Dimensions of B: {list(b.shape)}"
        )
    for what, found, bound in (("k", columns, width), ("m", rows, height)):
        if any_outside(found, bound):
            bad = np.flatnonzero((found < 0) | (found >= bound))
            refuse(f"{what} ({found[bad[0]]}) from index[{bad[0]},{int(what == 'k')}] out of bounds (>={bound})")
    check_room((height, b.shape[1]), b.dtype.itemsize)
    # scipy leaves zeros out, also where they should make NaN of infinity.
    if b.dtype.char in _OF_SCIPY and (values.all() or np.isfinite(b).all()):
        from scipy.sparse import coo_array  # late, since few programs need it

        # It adds the products in the order of the elements, as TensorFlow does, and sorts nothing.
        return coo_array((values, (rows, columns)), (height, width)) @ b
    out = np.zeros((height, b.shape[1]), b.dtype)
    order = np.argsort(rows, kind="stable")
    reduce_runs(np.add, b[columns[order]] * values[order, None], rows[order], out)
    return out


@matmul_op.gradient
def _matmul_gradient(node: Operation, grad: Tensor) -> list[Any]:
    indices, values, shape, b = node.inputs
    adjoint_a, adjoint_b = node.attrs["adjoint_a"], node.attrs["adjoint_b"]
    b_grad = matmul_op(indices, values, shape, grad, adjoint_a=not adjoint_a)
    if adjoint_b:
        b_grad = conjugate(transpose(b_grad))
    rows, columns = getitem(indices, (slice(None), 0)), getitem(indices, (slice(None), 1))
    if adjoint_a:
        rows, columns = columns, rows
    b_rows = array_gather.gather(transpose(b) if adjoint_b else conjugate(b), columns)
    grad_rows = array_gather.gather(grad, rows)
    values_grad = sum_op(grad_rows * b_rows, 1)
    return [None, conjugate(values_grad) if adjoint_a else values_grad, None, b_grad]


def _cwise_shape(node: Operation) -> list[RawShape]:
    return [(merged_shapes(node)[0],)]


def _cwise_kernel(kind: str) -> Callable[..., Any]:
    compute: np.ufunc = {"Add": np.add, "Mul": np.multiply, "Div": np.true_divide}[kind]

    def kernel(indices: Array, values: Array, shape: Array, dense: Array) -> Any:
        dense = as_ndarray(dense)
        check_parts(indices, values, shape)
        check_bounds(indices, shape)
        if dense.ndim > len(shape):
            refuse(
                f"SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes:"
                f" [{','.join(map(str, shape))}] vs. [{','.join(map(str, dense.shape))}]"
            )
        try:
            spread = np.broadcast_to(dense, tuple(shape.tolist()))
        except ValueError:
            refuse(
                f"SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes:"
                f" [{','.join(map(str, shape))}] vs. [{','.join(map(str, dense.shape))}]"
            )
        other = spread[tuple(indices.T)]
        if kind == "Div" and values.dtype.kind in "iu":
            if (other == 0).any():
                refuse("Integer division by zero")
            return (values / other).astype(values.dtype)
        return compute(values, other)

    return kernel


def _cwise_gradient(kind: str) -> Callable[..., list[Any]]:
    def gradient(node: Operation, grad: Tensor) -> list[Any]:
        if kind == "Add":
            raise NotImplementedError(
                "Gradient for SparseDenseCwiseAdd is not implemented: add by tf.sparse.add, which has one."
            )
        indices, values, shape, dense = node.inputs
        places = _dense_places(indices, shape, dense)
        there = array_gather.gather_nd(dense, places)
        sizes = cast(array_shape.shape(dense), dtypes.int64)
        if kind == "Mul":
            return [None, grad * there, None, scatter_nd(places, grad * values, sizes)]
        by_dense = grad * (-values / (there * there))
        return [None, divide(grad, there), None, scatter_nd(places, by_dense, sizes)]

    return gradient


def _dense_places(indices: Tensor, shape: Tensor, dense: Tensor) -> Tensor:
    """The index, in a dense operand that is broadcast from the right, for each sparse element."""
    sizes = cast(array_shape.shape(dense), dtypes.int64)
    missing = array_shape.size(shape) - array_shape.size(sizes)
    own = getitem(shape, slice(missing, None))
    return floordiv(getitem(indices, (slice(None), slice(missing, None))), floordiv(own, sizes))


for _kind, _handle in cwise_ops.items():
    _handle.shape(_cwise_shape)
    _handle.kernel("CPU")(_cwise_kernel(_kind))
    _handle.gradient(_cwise_gradient(_kind))


# ---- maxima and softmax ---------------------------------------------------------------------


def _extremum_kernel(choose: np.ufunc) -> Callable[..., Any]:
    def kernel(a: Array, a_values: Array, a_shape: Array, b: Array, b_values: Array, b_shape: Array) -> tuple[Any, Any]:
        check_parts(a, a_values, a_shape)
        check_parts(b, b_values, b_shape)
        _check_pair(a_shape, b_shape)
        indices, left, right, _ = _union(a, a_values, b, b_values)
        return indices, choose(left, right)

    return kernel


def _extremum_gradient(compare: OpHandle) -> Callable[..., list[Any]]:
    """The larger (smaller) of two common elements gets the gradient; an element without partner gets its own."""

    def gradient(node: Operation, _: object, grad: Tensor) -> list[Any]:
        a, a_values, a_shape, b, b_values, b_shape = node.inputs
        zero = array_filling.zeros([], dtypes.int32)
        own_a = [a, array_filling.zeros_like(a_values), a_shape]
        own_b = [b, array_filling.zeros_like(b_values), b_shape]
        in_a = add_op(*own_b, a, a_values, a_shape, cast(zero, a_values.dtype)).sum_values
        in_b = add_op(*own_a, b, b_values, b_shape, cast(zero, b_values.dtype)).sum_values
        wins = cast(compare(in_a, in_b), grad.dtype)
        all_indices = node.outputs[0]
        a_grad, _ = add_grad_op(grad * wins, a, a, all_indices)
        b_grad, _ = add_grad_op(grad * (1 - wins), b, b, all_indices)
        return [None, a_grad, None, None, b_grad, None]

    return gradient


maximum_op.kernel("CPU")(_extremum_kernel(np.maximum))
minimum_op.kernel("CPU")(_extremum_kernel(np.minimum))
maximum_op.gradient(_extremum_gradient(greater_equal_op))
minimum_op.gradient(_extremum_gradient(less_equal_op))


def _row_starts(rows: Array) -> Any:
    """A mask of the elements that begin a new row, in row-major order."""
    if not len(rows):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)]))


@softmax_op.kernel("CPU")
def _softmax_kernel(indices: Array, values: Array, shape: Array) -> Any:
    check_parts(indices, values, shape)
    if len(shape) < 2:
        refuse("Input should have rank >= 2")
    starts = _row_starts(indices[:, :-1])
    if not starts.size:
        return values.copy()
    lengths = np.diff(np.append(starts, len(values)))
    powers = np.exp(values - np.repeat(np.maximum.reduceat(values, starts), lengths))
    return powers / np.repeat(np.add.reduceat(powers, starts), lengths)


@softmax_op.gradient
def _softmax_gradient(node: Operation, grad: Tensor) -> list[Any]:
    indices, shape = node.inputs[0], node.inputs[2]
    found = node.outputs[0]
    weighted = found * grad
    sums = reduce_ops["Sum"](indices, weighted, shape, [-1], keep_dims=True)
    row = getitem(indices, (slice(None), slice(None, -1)))
    first = array_filling.zeros_like(getitem(indices, (slice(None), slice(-1, None))))
    return [None, (grad - array_gather.gather_nd(sums, concat([row, first], 1))) * found, None]


# ---- reductions -----------------------------------------------------------------------------


def _kept_axes(rank: int, axes: Array) -> tuple[list[int], list[int]]:
    """The axes that are kept and those that are reduced."""
    axes = np.ravel(axes)
    for axis in axes:
        if not -rank <= axis < rank:
            refuse(f"Invalid reduction dimension {axis}, for input with {rank} dimensions.")
    gone = sorted({int(a) % rank for a in axes}) if axes.size else []
    return [a for a in range(rank) if a not in gone], gone


def _reduced(kind: str, indices: Array, values: Array, shape: Array, axes: Array) -> tuple[Any, Any, list[int]]:
    """The indices of the result in row-major order, their reduced values, and the kept axes."""
    check_parts(indices, values, shape)
    check_bounds(indices, shape)
    kept, _ = _kept_axes(len(shape), axes)
    rows = indices[:, kept]
    order = row_major(rows)
    rows, values = rows[order], values[order]
    if not kept:
        starts = np.zeros(min(len(values), 1), np.int64)
    else:
        starts = _row_starts(rows)
    if not starts.size:
        return rows[:0], values[:0], kept
    combine: np.ufunc = np.add if kind == "Sum" else np.maximum
    return rows[starts], combine.reduceat(values, starts).astype(values.dtype, copy=False), kept


def _reduce_kernel(kind: str) -> Callable[..., Any]:
    def kernel(indices: Array, values: Array, shape: Array, axes: Array, *, keep_dims: bool) -> Any:
        rows, found, kept = _reduced(kind, indices, values, shape, axes)
        sizes = [int(shape[a]) for a in kept]
        check_room(sizes, values.dtype.itemsize)
        out = np.zeros(math.prod(sizes), values.dtype)
        out[flat_positions(rows, sizes) if kept else np.zeros(len(rows), np.int64)] = found
        if keep_dims:
            sizes = [int(s) if a in kept else 1 for a, s in enumerate(shape)]
        return out.reshape(sizes) if sizes else out[0]

    return kernel


def _reduce_sparse_kernel(kind: str) -> Callable[..., Any]:
    def kernel(indices: Array, values: Array, shape: Array, axes: Array, *, keep_dims: bool) -> tuple[Any, Any, Any]:
        rows, found, kept = _reduced(kind, indices, values, shape, axes)
        if not keep_dims:
            return rows, found, np.asarray(shape)[kept]
        whole = np.zeros((len(rows), len(shape)), np.int64)
        whole[:, kept] = rows
        sizes = np.ones(len(shape), np.int64)
        sizes[kept] = np.asarray(shape)[kept]
        return whole, found, sizes

    return kernel


def _reduce_shape(node: Operation) -> list[RawShape]:
    merged_shapes(node)
    shape, axes = constant_value_as_shape(node.inputs[2]), constant_value(node.inputs[3])
    if shape is None or axes is None:
        return [None]
    gone = {int(a) % len(shape) for a in np.ravel(axes)} if shape else set()
    if node.attrs["keep_dims"]:
        return [tuple(1 if a in gone else s for a, s in enumerate(shape))]
    return [tuple(s for a, s in enumerate(shape) if a not in gone)]


for _kind in _KINDS:
    reduce_ops[_kind].shape(_reduce_shape)
    reduce_ops[_kind].kernel("CPU")(_reduce_kernel(_kind))
    reduce_sparse_ops[_kind].shape([(None, None), (None,), (None,)])
    reduce_sparse_ops[_kind].kernel("CPU")(_reduce_sparse_kernel(_kind))


@reduce_ops["Sum"].gradient
def _reduce_sum_gradient(node: Operation, grad: Tensor) -> list[Any]:
    indices, _, shape, axes = node.inputs
    gone = array_shape.reshape(cast(axes, dtypes.int64), [-1, 1]) % cast(array_shape.size(shape), dtypes.int64)
    ones = array_filling.ones(getitem(array_shape.shape(gone), slice(0, 1)), dtypes.int64)
    kept = tensor_scatter_update(shape, gone, ones)
    spread = array_shape.reshape(grad, kept)
    return [None, array_gather.gather_nd(spread, floordiv(indices, floordiv(shape, kept))), None, None]


# ---- Sums, products and reductions of sparse tensors (``tf.sparse``, ``tf.sparse_*``) ------------------------------


@export("tf.sparse_add", "tf.sparse.add")
def sparse_add(
    a: TensorLike, b: TensorLike, threshold: TensorLike | None = None, thresh: TensorLike | None = None
) -> Any:
    """The sum of two tensors, of which at least one is sparse (``tf.sparse_add``).

    The sum of two sparse tensors is sparse, without elements smaller than ``threshold``; other sums are dense.

    Raises:
      TypeError: when neither is sparse.
    """
    threshold = either("threshold", threshold, "thresh", thresh)
    threshold = 0 if threshold is None else threshold
    if not is_sparse(a) and not is_sparse(b):
        raise TypeError("At least one input should be SparseTensor; do you mean to use tf.add()?")
    if is_sparse(a) and is_sparse(b):
        a, b = as_sparse(a), as_sparse(b)
        limit = convert_to_tensor(threshold, a.dtype.real_dtype.base_dtype, name="thresh")
        found = add_op(*parts(a), *parts(b), limit)
        a.shape.assert_is_compatible_with(b.shape)
        return SparseTensor(*found)
    if is_sparse(b):
        a, b = b, a
    return dense_add_op(*parts(as_sparse(a)), b)


@export("tf.sparse_tensor_dense_matmul", "tf.sparse.matmul", "tf.sparse.sparse_dense_matmul")
def sparse_tensor_dense_matmul(
    sp_a: SparseTensorLike, b: TensorLike, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """A sparse times a dense matrix (``tf.sparse_tensor_dense_matmul``)."""
    sparse = as_sparse(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [sparse.values, b]) as scope:
        b = convert_to_tensor(b, name="b")
        return matmul_op(*parts(sparse), b, adjoint_a=adjoint_a, adjoint_b=adjoint_b, name=scope)


@export("tf.sparse_softmax", "tf.sparse.softmax")
def sparse_softmax(sp_input: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """Softmax over the stored elements of each innermost row (``tf.sparse_softmax``)."""
    with name_scope(name, "SparseSoftmax", [sp_input.indices, sp_input.values]):
        found = softmax_op(*parts(as_sparse(sp_input)))
        return SparseTensor(sp_input.indices, found, sp_input.dense_shape)


@export("tf.sparse_maximum", "tf.sparse.maximum")
def sparse_maximum(sp_a: SparseTensorLike, sp_b: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """The larger of each pair of elements, where absent elements count as 0 (``tf.sparse_maximum``)."""
    return _extremum(maximum_op, "SparseSparseMaximum", sp_a, sp_b, name)


@export("tf.sparse_minimum", "tf.sparse.minimum")
def sparse_minimum(sp_a: SparseTensorLike, sp_b: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """The smaller of each pair of elements, where absent elements count as 0 (``tf.sparse_minimum``)."""
    return _extremum(minimum_op, "SparseSparseMinimum", sp_a, sp_b, name)


def _extremum(
    handle: OpHandle, default_name: str, a: SparseTensorLike, b: SparseTensorLike, name: str | None
) -> SparseTensor:
    a, b = as_sparse(a), as_sparse(b)
    with name_scope(name, default_name, [a.indices, a.values, b.indices, b.values]) as scope:
        indices, values = handle(*parts(a), *parts(b), name=scope)
        return SparseTensor(indices, values, a.dense_shape)


def _reduce(
    handle: OpHandle, sp_input: SparseTensorLike, axis: object, keepdims: bool | None, reduction_axes: object,
    keep_dims: object,
) -> Any:  # fmt: skip
    keep = bool(either("keepdims", keepdims, "keep_dims", keep_dims))
    axis = either("axis", axis, "reduction_axes", reduction_axes)
    sparse = as_sparse(sp_input)
    if axis is None:
        axis = array_filling.range(array_shape.size(sparse.dense_shape))
    return handle(*parts(sparse), convert_to_tensor(axis, dtypes.int32), keep_dims=keep)


@export("tf.sparse_reduce_sum", "tf.sparse.reduce_sum")
def sparse_reduce_sum(
    sp_input: SparseTensorLike, axis: AxisLike | None = None, keepdims: bool | None = None,
    reduction_axes: AxisLike | None = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The dense sum over axes, all by default (``tf.sparse_reduce_sum``)."""
    return _reduce(reduce_ops["Sum"], sp_input, axis, keepdims, reduction_axes, keep_dims)  # type: ignore[no-any-return]


@export("tf.sparse_reduce_sum_sparse", "tf.sparse.reduce_sum_sparse")
def sparse_reduce_sum_sparse(
    sp_input: SparseTensorLike, axis: AxisLike | None = None, keepdims: bool | None = None,
    reduction_axes: AxisLike | None = None, keep_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """`sparse_reduce_sum` as a sparse tensor (``tf.sparse_reduce_sum_sparse``)."""
    handle = reduce_sparse_ops["Sum"]
    return SparseTensor(*_reduce(handle, sp_input, axis, keepdims, reduction_axes, keep_dims))


@export("tf.sparse_reduce_max", "tf.sparse.reduce_max")
def sparse_reduce_max(
    sp_input: SparseTensorLike, axis: AxisLike | None = None, keepdims: bool | None = None,
    reduction_axes: AxisLike | None = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The dense maximum of the stored elements over axes, 0 without elements (``tf.sparse_reduce_max``)."""
    return _reduce(reduce_ops["Max"], sp_input, axis, keepdims, reduction_axes, keep_dims)  # type: ignore[no-any-return]


@export("tf.sparse_reduce_max_sparse", "tf.sparse.reduce_max_sparse")
def sparse_reduce_max_sparse(
    sp_input: SparseTensorLike, axis: AxisLike | None = None, keepdims: bool | None = None,
    reduction_axes: AxisLike | None = None, keep_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """`sparse_reduce_max` as a sparse tensor (``tf.sparse_reduce_max_sparse``)."""
    handle = reduce_sparse_ops["Max"]
    return SparseTensor(*_reduce(handle, sp_input, axis, keepdims, reduction_axes, keep_dims))


def _with_dense(kind: str, default_name: str) -> Any:
    """``sparse * dense`` or ``sparse / dense``, with the dense operand broadcast to the sparse one."""

    def operate(sparse: SparseTensor, dense: TensorLike) -> SparseTensor:
        with name_scope(None, default_name, [sparse.indices, sparse.values, sparse.dense_shape, dense]) as scope:
            dense = convert_to_tensor(dense, sparse.dtype.base_dtype, name="y")
            found = cwise_ops[kind](*parts(sparse), dense, name=scope)
            return SparseTensor(sparse.indices, found, sparse.dense_shape)

    return operate


def _divided(sparse: SparseTensor, dense: TensorLike) -> SparseTensor:
    """True division: integers become float64 first."""
    if sparse.dtype.is_integer:
        sparse = SparseTensor(sparse.indices, cast(sparse.values, dtypes.float64), sparse.dense_shape)
        dense = cast(dense, dtypes.float64)
    return _with_dense("Div", "truediv")(sparse, dense)  # type: ignore[no-any-return]


def _reflected_times(sparse: SparseTensor, dense: TensorLike) -> Any:
    """``dense * sparse``; TensorFlow has it for tensors alone."""
    return _with_dense("Mul", "mul")(sparse, dense) if isinstance(dense, Tensor) else NotImplemented


SparseTensor.__rmul__ = _reflected_times  # type: ignore[attr-defined]
for _method, _operate in (("__mul__", _with_dense("Mul", "mul")), ("__div__", _with_dense("Div", "div"))):
    setattr(SparseTensor, _method, _operate)
SparseTensor.__truediv__ = _divided  # type: ignore[method-assign]
