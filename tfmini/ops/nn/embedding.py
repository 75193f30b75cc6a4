"""Embedding lookups over one or several (partitioned) tables."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Tensor, colocate_with, convert_to_tensor, name_scope
from tfmini.graph.scoping import counted_as
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.filling import range as number_range
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import tile
from tfmini.ops.array.partition import dynamic_partition, parallel_dynamic_stitch, unique
from tfmini.ops.array.shape import expand_dims, rank, reshape, size
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.slicing import slice_
from tfmini.ops.composites import SparseTensor
from tfmini.ops.math.comparison import greater, greater_equal, less, logical_and, where
from tfmini.ops.math.elementwise import div_no_nan, maximum
from tfmini.ops.math.reductions import reduce_prod, reduce_sum
from tfmini.ops.math.segments import segment_sum_op, sparse_segment_mean, sparse_segment_sqrt_n, sparse_segment_sum
from tfmini.ops.math.sums import clip_by_norm
from tfmini.ops.math.unary import pow as power
from tfmini.ops.math.unary import sqrt
from tfmini.ops.sparse.functions import sparse_fill_empty_rows, sparse_reshape, sparse_retain
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.shapes import merge_raw


@export("tf.nn.embedding_lookup")
def embedding_lookup(
    params: TensorLike,
    ids: TensorLike,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Tensor:
    """Rows of an embedding table by number (``tf.nn.embedding_lookup``).

    Args:
      params: a table, or a list or PartitionedVariable of the parts of one along axis 0.
      ids: int32 or int64; the result has shape ``shape(ids) + shape(params)[1:]``.
      partition_strategy: "mod" (id % parts) or "div" (contiguous ranges). A table that a placement plan has cut is
        looked up by "div".
      max_norm: rows of a larger L2 norm are scaled down to it.

    Raises:
      ValueError: without a table, or for an unknown strategy.
    """
    tables = _tables(params)
    partition_strategy = _strategy(params, partition_strategy)
    with name_scope(name, "embedding_lookup", [*tables, ids]) as scope:
        ids = convert_to_tensor(ids, name="ids")
        if len(tables) == 1:
            with colocate_with(_anchor(tables[0])):
                rows = _clipped(gather(tables[0], ids, name=scope), ids, max_norm)
            return identity(rows)  # beside the model: what uses the rows is not drawn to the table
        return _clipped(_from_parts(tables, ids, partition_strategy, scope), ids, max_norm)


def _strategy(params: Any, asked: str) -> str:
    """The strategy by which a table was cut, if it is not the one asked for.

    The model took a table that a plan has cut for a whole one, whose row i belongs to id i. Tables that grow know ids
    and not row numbers; each part has the ids of one remainder.
    """
    if _grows(params):
        return "ids"
    return "div" if isinstance(params, PartitionedVariable) and params._by_plan else asked


def _grows(params: Any) -> bool:
    """Whether it is a table of `tf.get_embedding_variable`, or its parts."""
    first = params[0] if isinstance(params, (list, tuple)) and params else params
    return isinstance(first, Variable) and first.op.type == "KvVarHandleOp"


def _tables(params: TensorLike) -> list[Any]:
    if params is None:
        raise ValueError("params must be specified")
    if isinstance(params, (list, tuple)) and not params:
        raise ValueError("Need at least one param")
    if isinstance(params, (PartitionedVariable, list, tuple)):
        params = list(params)
    else:
        params = [params]
    return [p if hasattr(p, "_as_graph_element") else convert_to_tensor(p, name="params") for p in params]


def _anchor(table: Any) -> Any:
    return table.op


def _from_parts(tables: list[Any], ids: Tensor, strategy: str, name: str) -> Tensor:
    """Gathers each id on the device of its part, and restores the order of the rows."""
    count = len(tables)
    flat = reshape(ids, [-1])
    positions = number_range(size(flat))
    if strategy == "ids":
        assigned, local = flat % count, flat
    elif strategy == "mod":
        assigned, local = flat % count, flat // count
    elif strategy == "div":
        assigned, local = _contiguous(tables, flat)
    else:
        raise ValueError("Unrecognized partition strategy: " + strategy)
    assigned = cast(assigned, dtypes.int32)
    local_ids = dynamic_partition(local, assigned, count)
    places = dynamic_partition(positions, assigned, count)
    rows = []
    for table, wanted in zip(tables, local_ids):
        with colocate_with(_anchor(table)):
            rows.append(gather(table, wanted))
    found = parallel_dynamic_stitch(places, rows, name=name)
    return _reshaped(found, tables, ids)


def _contiguous(tables: list[Any], flat: Tensor) -> tuple[Tensor, Tensor]:
    """The part of each id, for parts of equal size of which the first ``total % parts`` have one row more."""
    total = _total_rows(tables, flat.dtype)
    per_part, extras = total // len(tables), total % len(tables)
    assigned = maximum(flat // (per_part + 1), (flat - extras) // per_part)
    local = where(less(assigned, extras), flat % (per_part + 1), (flat - extras) % per_part)
    return assigned, local


def _total_rows(tables: list[Any], dtype: dtypes.DType) -> Tensor:
    static = [table.get_shape().raw for table in tables]
    rows = [None if not s else s[0] for s in static]
    if None not in rows:
        return constant(sum(r for r in rows if r is not None), dtype)
    sizes = []
    for table, known in zip(tables, rows):
        with colocate_with(_anchor(table)):
            sizes.append(constant(known) if known is not None else reshape(slice_(shape_of(table), [0], [1]), []))
    return reduce_sum(cast(stack(sizes), dtype))


def _reshaped(found: Tensor, tables: list[Any], ids: Tensor) -> Tensor:
    element = tables[0].get_shape().raw
    element = None if element is None else element[1:]
    for table in tables[1:]:
        other = table.get_shape().raw
        element = merge_raw(element, None if other is None else other[1:])
    if element is not None and None not in element:
        tail: Any = constant(list(element), dtypes.int32)
    else:
        with colocate_with(_anchor(tables[0])):
            tail = slice_(shape_of(tables[0]), [1], [-1])
    result = reshape(found, concat([shape_of(ids), tail], 0))
    if ids.raw_shape is not None and element is not None:
        result.set_shape(ids.raw_shape + element)
    return result


def _clipped(rows: Tensor, ids: Tensor, max_norm: float | None) -> Tensor:
    if max_norm is None:
        return rows
    if ids.raw_shape is not None and rows.raw_shape is not None:
        return clip_by_norm(rows, max_norm, axes=[*range(len(ids.raw_shape), len(rows.raw_shape))])  # type: ignore[no-any-return]
    return clip_by_norm(rows, max_norm, axes=number_range(rank(ids), rank(rows)))  # type: ignore[no-any-return]


@export("tf.nn.embedding_lookup_sparse")
def embedding_lookup_sparse(
    params: TensorLike, sp_ids: SparseTensor, sp_weights: SparseTensor | None, partition_strategy: str = "mod",
    name: str | None = None, combiner: str | None = None, max_norm: float | None = None,
) -> Tensor:  # fmt: skip
    """Combines the embeddings of each row of sparse ids (``tf.nn.embedding_lookup_sparse``).

    Args:
      sp_ids: [N, M] ids; no row may be empty at the end (earlier empty rows give zeros).
      sp_weights: weights of the same indices, or None for 1.
      combiner: "mean" (default), "sqrtn" or "sum".

    Raises:
      TypeError: when ids or weights are not sparse.
      ValueError: for another combiner.
    """
    combiner = "mean" if combiner is None else combiner
    if combiner not in ("mean", "sqrtn", "sum"):
        raise ValueError("combiner must be one of 'mean', 'sqrtn' or 'sum'")
    if not isinstance(sp_ids, SparseTensor):
        raise TypeError("sp_ids must be SparseTensor")
    if sp_weights is not None and not isinstance(sp_weights, SparseTensor):
        raise TypeError("sp_weights must be either None or SparseTensor")
    with name_scope(name, "embedding_lookup_sparse", [sp_ids.values]) as scope:
        lines = sp_ids.indices[:, 0]
        if lines.dtype is not dtypes.int32:
            lines = cast(lines, dtypes.int32)
        # Each id crosses the wire once, and its gradient too, however often it occurs; a table that grows counts that.
        ids = sp_ids.values
        ids, places = (ids, number_range(size(ids))) if _grows(params) else unique(ids)
        rows = embedding_lookup(params, ids, partition_strategy, max_norm=max_norm)
        if rows.dtype.base_dtype in (dtypes.float16, dtypes.bfloat16):
            rows = cast(rows, dtypes.float32)  # sums of halves lose too much: 1.15 returns float32
        if sp_weights is None:
            return _COMBINERS[combiner](rows, places, lines, name=scope)
        weights = sp_weights.values
        weights = weights if weights.dtype is rows.dtype else cast(weights, rows.dtype)
        return _combined(gather(rows, places), weights, lines, combiner, scope)


_COMBINERS = {"mean": sparse_segment_mean, "sqrtn": sparse_segment_sqrt_n, "sum": sparse_segment_sum}


def _combined(rows: Tensor, weights: Tensor, lines: Tensor, combiner: str, name: str) -> Tensor:
    # One weight per row, broadcast over the embedding axes. Where the weights of a row sum to 0 it is 0, as in later
    # TensorFlow; NaN in 1.15.
    ones = raw_ops.Fill(expand_dims(rank(rows) - 1, 0), 1)
    column = reshape(weights, concat([shape_of(weights), ones], 0))
    if weights.raw_shape is not None and rows.raw_shape is not None:
        column.set_shape(weights.raw_shape + (1,) * (len(rows.raw_shape) - 1))
    rows = rows * column
    if combiner == "sum":
        return segment_sum_op(rows, lines, name=name)
    total = segment_sum_op(rows, lines)
    if combiner == "mean":
        return div_no_nan(total, segment_sum_op(column, lines), name=name)
    return div_no_nan(total, sqrt(segment_sum_op(power(column, 2), lines)), name=name)


@export("tf.nn.safe_embedding_lookup_sparse", "tf.contrib.layers.safe_embedding_lookup_sparse")
def safe_embedding_lookup_sparse(
    embedding_weights: TensorLike, sparse_ids: SparseTensor, sparse_weights: SparseTensor | None = None,
    combiner: str = "mean", default_id: int | None = None, name: str | None = None, partition_strategy: str = "div",
    max_norm: float | None = None,
) -> Tensor:  # fmt: skip
    """`embedding_lookup_sparse` that accepts rows without ids (``tf.nn.safe_embedding_lookup_sparse``).

    It ignores negative ids and, unless the combiner is "sum", ids with weights that are not positive.

    Args:
      sparse_ids: ``[d0, …, dn]``; the result has shape ``[d0, …, dn-1, embedding]``.
      default_id: the id of an empty row; None gives zeros.

    Raises:
      ValueError: without a table.
    """
    if embedding_weights is None or (isinstance(embedding_weights, (list, tuple)) and not embedding_weights):
        raise ValueError(f"Missing embedding_weights {embedding_weights}.")
    partition_strategy = _strategy(embedding_weights, partition_strategy)
    with name_scope(name, "embedding_lookup", [sparse_ids.values]) as scope:
        tables = _tables(embedding_weights)
        if sparse_weights is not None:
            wanted = sparse_weights.dtype
            tables = [t if t.dtype.base_dtype == wanted else convert_to_tensor(t, wanted) for t in tables]
        ids, weights = _matrices(sparse_ids, sparse_weights, combiner)
        ids, empty = sparse_fill_empty_rows(ids, default_id or 0)
        if weights is not None:
            weights, _ = sparse_fill_empty_rows(weights, 1.0)
        rows = embedding_lookup_sparse(tables, ids, weights, partition_strategy, None, combiner, max_norm)
        if default_id is None:
            wide = tile(reshape(empty, [-1, 1]), stack([1, shape_of(rows)[1]]))
            rows = where(wide, zeros_like(rows), rows, name=scope)
        outer = slice_(cast(sparse_ids.dense_shape, dtypes.int32), [0], [_last_axis(sparse_ids)])
        result = reshape(rows, concat([outer, slice_(shape_of(rows), [1], [-1])], 0))
        axes = sparse_ids.get_shape().ndims
        if axes is not None and rows.raw_shape is not None:
            result.set_shape((None,) * (axes - 1) + rows.raw_shape[1:])
        return result


def _last_axis(ids: SparseTensor) -> Any:
    """The number of the last axis: an int if it is known."""
    axes = ids.get_shape().ndims
    return rank(ids) - 1 if axes is None else axes - 1


def _matrices(
    ids: SparseTensor, weights: SparseTensor | None, combiner: str
) -> tuple[SparseTensor, SparseTensor | None]:
    """Ids and weights as matrices of the valid entries."""
    last = _last_axis(ids)
    outer = reduce_prod(slice_(ids.dense_shape, [0], [last]))
    sizes = [outer, gather(ids.dense_shape, last)]
    with counted_as(3):  # a constant of sizes that are known is ours
        ids = sparse_reshape(ids, sizes)
    valid = greater_equal(ids.values, 0)
    if weights is None:
        return sparse_retain(ids, valid), None
    weights = SparseTensor(ids.indices, weights.values, ids.dense_shape)
    valid = logical_and(valid, ones_like(weights.values, dtype=dtypes.bool))
    ids, weights = sparse_retain(ids, valid), sparse_retain(weights, valid)
    if combiner == "sum":
        return ids, weights
    valid = greater(weights.values, 0)
    return sparse_retain(ids, valid), sparse_retain(weights, valid)


@export("tf.compat.v2.nn.safe_embedding_lookup_sparse")
def safe_embedding_lookup_sparse_v2(
    embedding_weights: TensorLike, sparse_ids: SparseTensor, sparse_weights: SparseTensor | None = None,
    combiner: str = "mean", default_id: int | None = None, max_norm: float | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """`safe_embedding_lookup_sparse` with "div" partitions (``tf.compat.v2.nn.safe_embedding_lookup_sparse``)."""
    return safe_embedding_lookup_sparse(
        embedding_weights, sparse_ids, sparse_weights, combiner, default_id, name, "div", max_norm
    )
