"""Functions that make, convert and rearrange sparse tensors (``tf.sparse``, ``tf.sparse_*``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import AxisLike, DTypeLike, ShapeLike, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import IndexedSlices, Tensor, convert_to_tensor, name_scope
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import gather as array_gather
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.identity import cast, identity, placeholder
from tfmini.ops.array.partition import setdiff1d, where
from tfmini.ops.array.slicing import getitem
from tfmini.ops.checks import assert_equal, assert_less_equal
from tfmini.ops.composites import SparseTensor, SparseTensorLike
from tfmini.ops.control import with_dependencies
from tfmini.ops.math import comparison as math_comparison
from tfmini.ops.math.elementwise import minimum
from tfmini.ops.math.reductions import reduce_max
from tfmini.ops.sparse import layout
from tfmini.ops.sparse.layout import as_sparse, is_sparse, parts
from tfmini.shapes import TensorShape

_INT64 = dtypes.int64


# ---- making and unmaking --------------------------------------------------------------------


@export("tf.sparse_placeholder", "tf.sparse.placeholder")
def sparse_placeholder(dtype: DTypeLike, shape: ShapeLike | TensorLike = None, name: str | None = None) -> SparseTensor:
    """A sparse tensor to be fed (``tf.sparse_placeholder``).

    Args:
      dtype: of the values.
      shape: the dense shape; None: to be fed.
      name: prefix of the three placeholders.
    """

    def label(part: str) -> str | None:
        return None if name is None else f"{name}/{part}"

    rank = None
    if shape is None:
        dense_shape = placeholder(_INT64, shape=[None], name=label("shape"))
    elif isinstance(shape, Tensor):
        rank = None if shape.raw_shape is None else shape.raw_shape[0]
        dense_shape = cast(shape, _INT64)
    else:
        sizes = [-1 if d is None else d for d in TensorShape(shape).as_list()]
        rank = len(sizes)
        dense_shape = constant(sizes, _INT64, shape=[rank], name=label("shape") or "Const")
    values = placeholder(dtype, shape=[None], name=label("values"))
    indices = placeholder(_INT64, shape=[None, rank], name=label("indices"))
    return SparseTensor(values=values, indices=indices, dense_shape=dense_shape)


@export("tf.sparse.from_dense")
def from_dense(tensor: TensorLike, name: str | None = None) -> SparseTensor:
    """The nonzero elements of a dense tensor (``tf.sparse.from_dense``)."""
    with name_scope(name, "dense_to_sparse"):
        tensor = convert_to_tensor(tensor)
        found = where(math_comparison.not_equal(tensor, array_filling.zeros_like(tensor)))
        return SparseTensor(found, array_gather.gather_nd(tensor, found), array_shape.shape(tensor, out_type=_INT64))


@export("tf.sparse.eye")
def sparse_eye(
    num_rows: TensorLike, num_columns: TensorLike | None = None, dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> SparseTensor:  # fmt: skip
    """A sparse identity matrix (``tf.sparse.eye``)."""
    with name_scope(name, "eye", [num_rows, num_columns]):
        rows = cast(num_rows, _INT64)
        columns = rows if num_columns is None else cast(num_columns, _INT64)
        count = minimum(rows, columns)
        diagonal = array_filling.range(count)
        indices = array_joining.stack([diagonal, diagonal], axis=1)
        ones = array_filling.ones(array_joining.stack([count]), dtype)
        return SparseTensor(indices, ones, array_joining.stack([rows, columns]))


@export("tf.sparse_tensor_to_dense", "tf.sparse.to_dense")
def sparse_tensor_to_dense(
    sp_input: SparseTensorLike, default_value: TensorLike | None = None, validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The dense tensor, ``default_value`` (0 or the empty string) elsewhere (``tf.sparse_tensor_to_dense``)."""
    sparse = as_sparse(sp_input)
    if default_value is None:
        default_value = array_filling.zeros([], dtype=sparse.dtype)
    return layout.to_dense_op(
        sparse.indices, sparse.dense_shape, sparse.values, default_value=default_value,
        validate_indices=validate_indices, name=name,
    )  # fmt: skip


@export("tf.sparse_to_dense")
def sparse_to_dense(
    sparse_indices: TensorLike, output_shape: ShapeLike | TensorLike, sparse_values: TensorLike,
    default_value: TensorLike = 0, validate_indices: bool = True, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A dense tensor from indices (rank 0 to 2) and values (``tf.sparse_to_dense``)."""
    return layout.to_dense_op(
        sparse_indices, output_shape, sparse_values, default_value, validate_indices=validate_indices, name=name
    )


@export("tf.sparse_to_indicator", "tf.sparse.to_indicator")
def sparse_to_indicator(sp_input: SparseTensorLike, vocab_size: TensorLike, name: str | None = None) -> Tensor:
    """A bool tensor that marks, along a new last axis, the ids of each row (``tf.sparse_to_indicator``)."""
    sparse = as_sparse(sp_input)
    with name_scope(name, "SparseToIndicator", [sparse.values]) as scope:
        count = array_shape.shape(sparse.values)
        merged = sparse_merge(
            SparseTensor(sparse.indices, sparse.values, sparse.dense_shape),
            SparseTensor(sparse.indices, array_filling.fill(count, True), sparse.dense_shape),
            vocab_size,
        )
        return sparse_tensor_to_dense(merged, default_value=False, validate_indices=False, name=scope)


@export("tf.sparse_merge", "tf.sparse.merge")
def sparse_merge(
    sp_ids: Any, sp_values: SparseTensorLike, vocab_size: Any, name: str | None = None, already_sorted: bool = False
) -> SparseTensor:
    """Values at coordinates whose last parts are ids (``tf.sparse_merge``).

    Args:
      sp_ids: a sparse tensor of ids, or a list of them, one per new axis.
      sp_values: the values at the same indices.
      vocab_size: the size of each new axis.
      name: of the scope.
      already_sorted: keep the order of the elements.

    Raises:
      TypeError, ValueError: for arguments that do not fit together.
    """
    lists = isinstance(vocab_size, (list, tuple)) or isinstance(sp_ids, (list, tuple)) and not is_sparse(sp_ids)
    if not lists:
        sp_ids, vocab_size = [sp_ids], [vocab_size]
    elif not isinstance(sp_ids, (list, tuple)) or is_sparse(sp_ids):
        raise TypeError(f"sp_ids has to be a SparseTensor or list thereof. Found {type(sp_ids)}")
    if not isinstance(vocab_size, (list, tuple)):
        if not isinstance(vocab_size, Tensor):
            raise TypeError(f"vocab_size has to be a list of Tensors or Python ints. Found {type(vocab_size)}")
        raise TypeError("vocab_size has to be a list of Tensors or Python ints.")
    if len(sp_ids) != len(vocab_size):
        raise ValueError("sp_ids and vocab_size have to have equal lengths.")
    with name_scope(name, "SparseMerge", [sp_ids, sp_values]):
        ids = [as_sparse(item) for item in sp_ids]
        values = as_sparse(sp_values)
        sizes = [array_shape.expand_dims(cast(size, _INT64), 0) for size in vocab_size]
        columns = [array_shape.expand_dims(cast(item.values, _INT64), 1) for item in ids]
        kept = getitem(ids[0].indices, (slice(None), slice(None, -1)))
        indices = array_joining.concat([kept, *columns], axis=1)
        shape = array_joining.concat([getitem(ids[0].dense_shape, slice(None, -1)), *sizes], 0)
        merged = SparseTensor(indices, values.values, shape)
        return merged if already_sorted else sparse_reorder(merged)


# ---- layout ---------------------------------------------------------------------------------


@export("tf.sparse_reorder", "tf.sparse.reorder")
def sparse_reorder(sp_input: SparseTensorLike, name: str | None = None) -> SparseTensor:
    """The same elements in row-major order (``tf.sparse_reorder``)."""
    sparse = as_sparse(sp_input)
    indices, values = layout.reorder_op(*parts(sparse), name=name)
    return SparseTensor(indices, values, identity(sparse.dense_shape))


@export("tf.sparse_reshape", "tf.sparse.reshape")
def sparse_reshape(sp_input: SparseTensorLike, shape: ShapeLike | TensorLike, name: str | None = None) -> SparseTensor:
    """The same elements in another dense shape, in which one size may be -1 (``tf.sparse_reshape``)."""
    sparse = as_sparse(sp_input)
    wanted: Tensor = cast(shape, _INT64)  # type: ignore[arg-type]
    with name_scope(name, "SparseReshape", [sparse.values]) as scope:
        indices, sizes = layout.reshape_op(sparse.indices, sparse.dense_shape, wanted, name=scope)
        known = _reshaped(sparse.shape, wanted)
        if known is not None:
            sizes = convert_to_tensor(known, _INT64)
        return SparseTensor(indices, identity(sparse.values), sizes)


def _reshaped(before: TensorShape, shape: Tensor) -> list[int] | None:
    """The new sizes if all of them are known statically, else None.

    Raises:
      ValueError: when the number of elements does not fit.
    """
    constant, wanted = constant_value(shape), constant_value_as_shape(shape)
    if wanted is None or not before.is_fully_defined():
        return None
    if constant is not None and (constant == -1).sum() > 1:
        raise ValueError(f"At most one dimension can be inferred (-1). Found: {constant.tolist()}")
    if wanted.count(None) > 1:
        return None
    count = before.num_elements() or 0
    known = math.prod(size for size in wanted if size is not None)
    if None not in wanted:
        if known != count:
            raise ValueError(f"Cannot reshape a tensor with {count} elements to shape {list(wanted)}")
        return list(wanted)  # type: ignore[arg-type]
    if not known or count % known:
        raise ValueError(f"Cannot reshape a tensor with {count} elements to shape {list(wanted)}")
    return [count // known if size is None else size for size in wanted]


@export("tf.sparse_slice", "tf.sparse.slice")
def sparse_slice(
    sp_input: SparseTensorLike, start: TensorLike, size: TensorLike, name: str | None = None
) -> SparseTensor:
    """The elements of a slice, with coordinates relative to its start (``tf.sparse_slice``)."""
    sparse = as_sparse(sp_input)
    with name_scope(name, "SparseSlice", [sparse.values]) as scope:
        start, size = convert_to_tensor(start, _INT64), convert_to_tensor(size, _INT64)
        return SparseTensor(*layout.slice_op(*parts(sparse), start, size, name=scope))


@export("tf.sparse_split", "tf.sparse.split")
def sparse_split(
    keyword_required: object = None, sp_input: SparseTensorLike | None = None, num_split: int | None = None,
    axis: AxisLike | None = None, name: str | None = None, split_dim: AxisLike | None = None,
) -> list[SparseTensor]:  # fmt: skip
    """``num_split`` slices along an axis; the first ones are larger by one if needed (``tf.sparse_split``).

    Raises:
      ValueError: for positional or missing arguments.
    """
    if keyword_required is not None:
        raise ValueError("Keyword arguments are required for this function.")
    for label, value in (("sp_input", sp_input), ("num_split", num_split)):
        if value is None:
            raise ValueError(f"{label} is required")
    axis = either("axis", axis, "split_dim", split_dim)
    if axis is None:
        raise ValueError("axis is required")
    sparse = as_sparse(sp_input)
    axis = convert_to_tensor(axis, _INT64) if not isinstance(axis, Tensor) else cast(axis, _INT64)
    found = layout.split_op(axis, *parts(sparse), num_split=num_split, name=name)
    return [SparseTensor(*piece) for piece in zip(*found)]


@export("tf.sparse_concat", "tf.sparse.concat")
def sparse_concat(
    axis: Any, sp_inputs: Sequence[SparseTensorLike], name: str | None = None, expand_nonconcat_dim: bool = False,
    concat_dim: AxisLike | None = None, expand_nonconcat_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Joins sparse tensors along an axis (``tf.sparse_concat``).

    Args:
      axis: the axis.
      sp_inputs: sparse tensors of one rank and type.
      name: of the op.
      expand_nonconcat_dim: take the largest size of every other axis; otherwise the sizes must be equal.
      concat_dim: the old name of ``axis``.
      expand_nonconcat_dims: the newer name of ``expand_nonconcat_dim``.
    """
    expand = bool(expand_nonconcat_dims) or expand_nonconcat_dim
    axis = either("axis", axis, "concat_dim", concat_dim)
    inputs = [as_sparse(item) for item in sp_inputs]
    if len(inputs) == 1:
        return inputs[0]
    shapes = [item.dense_shape for item in inputs]
    if expand:
        largest = reduce_max(array_joining.concat([array_shape.reshape(s, [1, -1]) for s in shapes], 0), 0)
        at = axis if axis >= 0 else None
        shapes = [_with_own_size(largest, s, at if at is not None else axis) for s in shapes]
    indices, values, shape = layout.concat_op(
        [item.indices for item in inputs], [item.values for item in inputs], shapes, concat_dim=axis, name=name
    )
    return SparseTensor(indices, values, shape)


def _with_own_size(largest: Tensor, shape: Tensor, axis: int) -> Tensor:
    after = getitem(largest, slice(axis + 1, None)) if axis != -1 else getitem(largest, slice(0, 0))
    pieces = [getitem(largest, slice(None, axis)), array_shape.reshape(getitem(shape, axis), [1]), after]
    return array_joining.concat(pieces, 0)


@export("tf.sparse_transpose", "tf.sparse.transpose")
def sparse_transpose(
    sp_input: SparseTensorLike, perm: TensorLike | None = None, name: str | None = None
) -> SparseTensor:
    """Permuted axes, reversed by default (``tf.sparse_transpose``)."""
    with name_scope(name, "SparseTranspose", [sp_input]):
        sparse = as_sparse(sp_input)
        if perm is None:
            rank = sparse.shape.ndims
            last = (array_shape.size(sparse.dense_shape) if rank is None else rank) - 1
            perm = array_filling.range(last, -1, -1)
        indices = array_gather.gather(sparse.indices, perm, axis=1)
        return sparse_reorder(SparseTensor(indices, sparse.values, array_gather.gather(sparse.dense_shape, perm)))


@export("tf.sparse.expand_dims")
def sparse_expand_dims(sp_input: SparseTensorLike, axis: int | None = None, name: str | None = None) -> SparseTensor:
    """A new axis of size one, last by default (``tf.sparse.expand_dims``)."""
    sparse = as_sparse(sp_input)
    rank = sparse.shape.ndims
    if rank is None:
        rank = sparse.indices.raw_shape[1] if sparse.indices.raw_shape else None
    if rank is None:
        raise ValueError("sparse.expand_dims needs a sparse tensor of known rank.")
    if isinstance(axis, Tensor):
        axis = int(constant_value(axis))
    axis = -1 if axis is None else axis
    with name_scope(name, "expand_dims", [sparse.values]):
        at = axis if axis >= 0 else rank + 1 + axis
        shape = sparse.dense_shape
        one = constant([1], _INT64)
        sizes = array_joining.concat([getitem(shape, slice(None, at)), one, getitem(shape, slice(at, None))], 0)
        column = array_filling.zeros_like(getitem(sparse.indices, (slice(None), slice(0, 1))))
        left = getitem(sparse.indices, (slice(None), slice(None, at)))
        right = getitem(sparse.indices, (slice(None), slice(at, None)))
        return SparseTensor(array_joining.concat([left, column, right], 1), sparse.values, sizes)


@export("tf.sparse_retain", "tf.sparse.retain")
def sparse_retain(sp_input: SparseTensorLike, to_retain: TensorLike) -> SparseTensor:
    """The elements marked by a bool vector (``tf.sparse_retain``)."""
    sparse = as_sparse(sp_input)
    to_retain = convert_to_tensor(to_retain)
    if to_retain.raw_shape is not None:
        to_retain.shape.assert_has_rank(1)
    if sparse.values.shape.ndims is not None and to_retain.shape.ndims is not None:
        sparse.values.shape.merge_with(to_retain.shape)
    kept = array_shape.reshape(where(to_retain), [-1])
    indices, values = array_gather.gather(sparse.indices, kept), array_gather.gather(sparse.values, kept)
    return SparseTensor(indices, values, identity(sparse.dense_shape))


@export("tf.sparse_reset_shape", "tf.sparse.reset_shape")
def sparse_reset_shape(sp_input: SparseTensorLike, new_shape: Any = None) -> SparseTensor:
    """The same elements in another dense shape: the smallest possible or a given one (``tf.sparse_reset_shape``).

    Raises:
      ValueError: when ``new_shape`` is statically too small or of another rank.
    """
    sparse = as_sparse(sp_input)
    indices, values = identity(sparse.indices), identity(sparse.values)
    if new_shape is None:
        tight = reduce_max(indices, axis=0) + 1
        zero = array_filling.zeros_like(sparse.dense_shape)
        return SparseTensor(indices, values, tight * cast(math_comparison.greater_equal(tight, zero), _INT64))
    new_shape = cast(convert_to_tensor(new_shape), _INT64)
    own = sparse.indices.raw_shape
    if own is not None and new_shape.raw_shape is not None:
        new_shape.shape.dims[0].assert_is_compatible_with(own[1])
    if new_shape.raw_shape is None or None in new_shape.raw_shape or own is None or own[1] is None:
        same = assert_equal(array_shape.shape(sparse.dense_shape), array_shape.shape(new_shape))
        new_shape = with_dependencies([same], new_shape)
    known, wanted = sparse.shape, TensorShape.from_raw(constant_value_as_shape(new_shape))
    if known.is_fully_defined() and wanted.is_fully_defined():
        if len(known) != len(wanted):
            raise ValueError(f"Dimensions {len(known)} and {len(wanted)} are not compatible")
        if any((n or 0) < (o or 0) for n, o in zip(wanted.as_list(), known.as_list())):
            raise ValueError(
                f"New shape should have dimension sizes >= sp_input.shape.  {known.as_list()} vs {wanted.as_list()}"
            )
    fits = assert_less_equal(sparse.dense_shape, new_shape)
    return SparseTensor(indices, values, with_dependencies([fits], new_shape))


@export("tf.sparse_fill_empty_rows", "tf.sparse.fill_empty_rows")
def sparse_fill_empty_rows(
    sp_input: SparseTensorLike, default_value: TensorLike, name: str | None = None
) -> tuple[SparseTensor, Tensor]:
    """Puts ``default_value`` into column 0 of each empty row of a matrix; returns (sparse, mask of empty rows)."""
    sparse = as_sparse(sp_input)
    with name_scope(name, "SparseFillEmptyRows", [sparse.values]):
        default = convert_to_tensor(default_value, sparse.dtype)
        indices, values, empty, _ = layout.fill_rows_op(*parts(sparse), default)
        return SparseTensor(indices, values, sparse.dense_shape), empty


@export("tf.sparse_mask", "tf.sparse.mask")
def sparse_mask(a: Any, mask_indices: Any, name: str | None = None) -> Any:
    """The rows of an `IndexedSlices` that are not listed (``tf.sparse_mask``)."""
    with name_scope(name, "sparse_mask", [a.values, a.indices, mask_indices]):
        kept_indices, kept = setdiff1d(a.indices, mask_indices)
        return IndexedSlices(array_gather.gather(a.values, kept), kept_indices, a.dense_shape)
