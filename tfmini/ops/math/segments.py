"""Segment reductions: combine the rows of a tensor that have the same segment id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, name_scope, op
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.numerics.update_rules import any_outside, combine_elements, first_positions, is_narrow
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import gather as array_gather
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.broadcast import named
from tfmini.ops.math.comparison import equal_op, greater_equal_op, logical_and_op, select_v2_op
from tfmini.ops.math.elementwise import maximum_op, mul_op, real_div_op, truncated_quotient
from tfmini.ops.math.unary import sqrt_op
from tfmini.shapes import RawShape, at_least_rank, with_rank

_IDS = "Tindices: {int32,int64}"
Gradient = Callable[[Operation, Tensor], list[Any]]


# ---- kernels --------------------------------------------------------------------------------


# Types whose sums are made in float32.
_ROUNDED_ONCE = ("float16", "bfloat16")
# What changes no number that it is combined with. (A sum with 0.0 would make 0.0 of a sole -0.0.)
_NEUTRAL = {np.add: -0.0, np.multiply: 1}


def reduce_runs(ufunc: np.ufunc, rows: Array, ids: Array, out: Array) -> None:
    """Reduces runs of equal ``ids`` in ``rows`` into ``out[id]``; the ids are sorted."""
    if not ids.size:
        return
    if ufunc in _NEUTRAL and is_narrow(out) and not _is_rounded_once(out):
        out[ids] = _NEUTRAL[ufunc]
        combine_elements(ufunc, out, ids, rows)
        return
    starts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1))
    if starts.size == ids.size:
        out[ids] = rows
        return
    if 2 * starts.size > ids.size:  # reduceat takes its time for each run, so it gets only the runs of several rows
        out[ids[starts]] = rows[starts]
        lengths = np.diff(starts, append=ids.size)
        kept = np.repeat(lengths > 1, lengths)
        rows, ids, lengths = rows[kept], ids[kept], lengths[lengths > 1]
        starts = np.cumsum(lengths) - lengths
    rows = rows.astype(np.float32) if _is_rounded_once(rows) else rows
    out[ids[starts]] = ufunc.reduceat(rows, starts, axis=0, dtype=rows.dtype)


def _is_rounded_once(rows: Array) -> bool:
    return rows.dtype.type.__name__ in _ROUNDED_ONCE


def _check_sorted(data: Array, ids: Array) -> int:
    """The number of segments of sorted ids."""
    if ids.ndim != 1:
        refuse("segment_ids should be a vector.")
    if not data.ndim or data.shape[0] != ids.size:
        refuse("segment_ids should be the same size as dimension 0 of input.")
    if not ids.size:
        return 0
    rows = int(ids[-1]) + 1
    if rows <= 0:
        refuse("segment ids must be >= 0")
    check_runs(ids, rows)
    check_room((rows, *data.shape[1:]), data.dtype.itemsize)
    return rows


def check_runs(ids: Array, rows: int) -> None:
    """Refuses ids that are not sorted or not in [0, rows), naming the first one."""
    falls = ids[1:] < ids[:-1]
    if not np.count_nonzero(falls) and not any_outside(ids, rows):
        return
    outside = (ids < 0) | (ids >= rows)
    first_fall = int(falls.argmax()) if falls.any() else ids.size
    first_outside = int(outside.argmax()) if outside.any() else ids.size
    # Each run is compared with its successor first, and then with the size of the output.
    last_of_run = first_outside + int((ids[first_outside:] != ids[first_outside]).argmax()) - 1 \
        if first_outside < ids.size and (ids[first_outside:] != ids[first_outside]).any() else ids.size - 1  # fmt: skip
    if first_fall <= last_of_run:
        refuse("segment ids are not increasing")
    refuse(
        f"Segment id {ids[first_outside]} out of range [0, {rows}), possibly because 'segment_ids' input is not sorted."
    )


def _sorted_kernel(ufunc: np.ufunc, empty: float) -> Callable[..., Any]:
    def kernel(data: Array, ids: Array) -> Any:
        out = np.full((_check_sorted(data, ids), *data.shape[1:]), empty, data.dtype)
        reduce_runs(ufunc, data, ids, out)
        return out

    return kernel


def _segment_mean_kernel(data: Array, ids: Array) -> Any:
    count = _check_sorted(data, ids)
    check_room((count,), 8)  # their counts, also where rows have no elements
    out = np.zeros((count, *data.shape[1:]), data.dtype)
    reduce_runs(np.add, data, ids, out)
    return _divided(out, np.maximum(np.bincount(ids, minlength=count), 1))


def _divided(rows: Array, counts: Array) -> Any:
    divisors = counts.reshape(counts.shape + (1,) * (rows.ndim - 1)).astype(rows.dtype)
    return truncated_quotient(rows, divisors) if rows.dtype.kind in "iu" else rows / divisors


def _unsorted_factory(ufunc: np.ufunc, empty: Callable[[dtypes.DType], Any]) -> Callable[[Any], Callable[..., Any]]:
    def factory(node: Node) -> Callable[..., Any]:
        fill = empty(node.attrs["T"])

        def kernel(data: Array, ids: Array, num_segments: Array) -> Any:
            if np.ndim(num_segments):
                refuse(f"num_segments should be a scalar, not shape {list(np.shape(num_segments))}")
            count, ids_shape = int(num_segments), np.shape(ids)
            if data.shape[: len(ids_shape)] != ids_shape:
                refuse(
                    f"data.shape = [{','.join(map(str, data.shape))}] does not start with segment_ids.shape = "
                    f"[{','.join(map(str, ids_shape))}]"
                )
            if count < 0:
                refuse("Input num_segments == " + str(count) + " must not be negative.")
            tail = data.shape[len(ids_shape) :]
            check_room((count, *tail), data.dtype.itemsize)
            out = np.empty((count, *tail), data.dtype)
            out.fill(fill)
            flat = ids.reshape(-1)
            rows = data.reshape(flat.size, *tail)
            if any_outside(flat, count):
                _check_range(flat, ids_shape, count)
                kept = flat >= 0  # rows of negative ids are dropped
                rows, flat = rows[kept], flat[kept]
            _reduce_unsorted(ufunc, rows, flat, out)
            return out

        return kernel

    return factory


def _check_range(flat: Array, shape: tuple[int, ...], count: int) -> None:
    if flat.max() >= count:
        where = int(np.argmax(flat >= count))
        place = ",".join(str(int(i)) for i in np.unravel_index(where, shape)) if shape else ""
        name = f"segment_ids[{place}]" if shape else "segment_ids"
        refuse(f"{name} = {int(flat[where])} is out of range [0, {count})")


def _reduce_unsorted(ufunc: np.ufunc, rows: Array, ids: Array, out: Array) -> None:
    """Reduces the rows of equal ``ids``, in their order as TensorFlow does; ``out`` has what a segment begins with."""
    if _is_rounded_once(rows):
        order = np.argsort(ids, kind="stable")
        reduce_runs(ufunc, rows[order], ids[order], out)
        return
    if not is_narrow(out) and len(out) // 32 <= ids.size <= 2 * len(out):  # the table takes its time for each segment
        is_first = first_positions(ids, len(out)) == np.arange(ids.size)
        first = ids[is_first]  # most segments have one row, which is combined with what they begin with
        out[first] = ufunc(out[first], rows[is_first])
        rows, ids = rows[~is_first], ids[~is_first]
    combine_elements(ufunc, out, ids, rows)


# ---- shapes ---------------------------------------------------------------------------------


def _sorted_shape(node: Operation) -> list[RawShape]:
    data = node.inputs[0].raw_shape
    with_rank(node.inputs[1].raw_shape, 1)
    return [None if data is None else (None, *data[1:])]


def _unsorted_shape(node: Operation) -> list[RawShape]:
    data, ids = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    if data is None or ids is None:
        return [None]
    count = constant_value(node.inputs[2])
    at_least_rank(data, len(ids))
    return [(None if count is None else int(count), *data[len(ids) :])]


# ---- gradients ------------------------------------------------------------------------------


def _segment_mean_gradient(node: Operation, grad: Tensor) -> list[Any]:
    data, ids = node.inputs
    counts = segment_sum_op(array_filling.ones_like(cast(ids, grad.dtype.base_dtype)), ids)
    scale = _inverse(array_gather.gather(counts, ids))
    return [mul_op(array_gather.gather(grad, ids), _as_columns(scale, ids, data)), None]


def _inverse(x: Tensor) -> Tensor:
    return real_div_op(np.array(1, x.dtype.numpy), x)


def _as_columns(values: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
    """``values``, one for each of the ``ids``, with axes of size 1 behind, so that they broadcast over ``rows``."""
    if ids.raw_shape is None or rows.raw_shape is None:
        more = array_filling.fill([array_shape.rank(rows) - array_shape.rank(ids)], 1)
        return array_shape.reshape(values, array_joining.concat([array_shape.shape(ids), more], 0))
    for _ in rows.raw_shape[len(ids.raw_shape) :]:
        values = array_shape.expand_dims(values, -1)
    return values


def _segment_extreme_gradient(node: Operation, grad: Tensor) -> list[Any]:
    data, ids = node.inputs
    hits = equal_op(array_gather.gather(node.outputs[0], ids), data)
    shared = real_div_op(grad, segment_sum_op(cast(hits, grad.dtype.base_dtype), ids))
    picked = array_gather.gather(shared, ids)
    return [select_v2_op(hits, picked, array_filling.zeros_like(picked)), None]


def _gather_kept(rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """``rows[ids]`` with zeros where an id is negative, and the mask of the non-negative ids."""
    zero = np.array(0, ids.dtype.numpy)
    inside = greater_equal_op(ids, zero)
    picked = array_gather.gather(rows, maximum_op(ids, zero))
    inside = _as_columns(inside, ids, picked)
    return select_v2_op(inside, picked, np.array(0, picked.dtype.numpy)), inside


def _unsorted_extreme_gradient(node: Operation, grad: Tensor) -> list[Any]:
    data, ids, count = node.inputs
    extremes, inside = _gather_kept(node.outputs[0], ids)
    dtype = grad.dtype.base_dtype
    hits = logical_and_op(equal_op(data, extremes), inside)
    shared = real_div_op(grad, unsorted_sum_op(cast(hits, dtype), ids, count))
    # Chosen, not multiplied: a segment without rows shares its gradient among none.
    return [select_v2_op(hits, _gather_kept(shared, ids)[0], np.array(0, data.dtype.numpy)), None, None]


def _unsorted_prod_gradient(node: Operation, grad: Tensor) -> list[Any]:
    # Each element's gradient is the product of the others. That is the quotient, or, where the element is
    # the only zero of its segment, the product of the non-zero elements.
    data, ids, count = node.inputs
    zero, one = np.array(0, data.dtype.numpy), np.array(1, data.dtype.numpy)
    is_zero = equal_op(data, zero)
    zeros = unsorted_sum_op(cast(is_zero, dtypes.int32), ids, count)
    lone = select_v2_op(equal_op(zeros, 1), grad, zero)
    no_zero = select_v2_op(equal_op(zeros, 0), grad, zero)
    nonzero = select_v2_op(is_zero, one, data)
    product = unsorted_prod_op(nonzero, ids, count)
    at_zero = _gather_kept(mul_op(lone, product), ids)[0]
    elsewhere = real_div_op(_gather_kept(mul_op(no_zero, product), ids)[0], nonzero)
    return [select_v2_op(is_zero, at_zero, elsewhere), None, None]


# ---- public functions -----------------------------------------------------------------------


def _sorted(
    kind: str, types: str, kernel: Callable[..., Any], gradient: Gradient | None, text: str
) -> tuple[OpHandle, Callable[..., Tensor]]:
    """Declares ``Segment…``; returns it and its public function."""
    handle = op(
        f"Segment{kind}(data: T, segment_ids: Tindices) -> output: T; T: {types}; {_IDS}", shape=_sorted_shape,
        differentiable=None if gradient is None else True,
    )  # fmt: skip
    handle.kernel("CPU")(kernel)
    if gradient is not None:
        handle.gradient(gradient)

    def function(data: TensorLike, segment_ids: TensorLike, name: str | None = None) -> Tensor:
        return handle(data, segment_ids, name=name)

    text = f"{text} of the rows of each segment; the vector ``segment_ids`` is sorted."
    return handle, named(function, f"segment_{kind.lower()}", text)


def _unsorted(
    kind: str, types: str, factory: Callable[[Any], Callable[..., Any]], gradient: Gradient, text: str
) -> tuple[OpHandle, Callable[..., Tensor]]:
    """Declares ``UnsortedSegment…``; returns it and its public function."""
    handle = op(
        f"UnsortedSegment{kind}(data: T, segment_ids: Tindices, num_segments: Tnumsegments) -> output: T; T: {types};"
        f" {_IDS}; Tnumsegments: {{int32,int64}} = DT_INT32", aggregates=True, distinct=True, shape=_unsorted_shape,
    )  # fmt: skip
    handle.kernel_factory("CPU")(factory)
    handle.gradient(gradient)

    def function(
        data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
    ) -> Tensor:
        return handle(data, segment_ids, num_segments, name=name)

    text = f"{text} of the elements of each segment; negative ids are dropped, order does not matter."
    return handle, named(function, f"unsorted_segment_{kind.lower()}", text)


def _unsorted_sum_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [_gather_kept(grad, node.inputs[1])[0], None, None]


segment_sum_op, segment_sum = _sorted(
    "Sum", "numbertype", _sorted_kernel(np.add, 0),
    lambda node, grad: [array_gather.gather(grad, node.inputs[1]), None], "The sum",
)  # fmt: skip
segment_mean_op, segment_mean = _sorted("Mean", "numbertype", _segment_mean_kernel, _segment_mean_gradient, "The mean")
segment_prod_op, segment_prod = _sorted("Prod", "numbertype", _sorted_kernel(np.multiply, 1), None, "The product")
segment_max_op, segment_max = _sorted(
    "Max", "realnumbertype", _sorted_kernel(np.maximum, 0), _segment_extreme_gradient, "The maximum"
)
segment_min_op, segment_min = _sorted(
    "Min", "realnumbertype", _sorted_kernel(np.minimum, 0), _segment_extreme_gradient, "The minimum"
)
unsorted_sum_op, unsorted_segment_sum = _unsorted(
    "Sum", "numbertype", _unsorted_factory(np.add, lambda dtype: 0), _unsorted_sum_gradient, "The sum"
)
unsorted_prod_op, unsorted_segment_prod = _unsorted(
    "Prod", "numbertype", _unsorted_factory(np.multiply, lambda dtype: 1), _unsorted_prod_gradient, "The product"
)
unsorted_max_op, unsorted_segment_max = _unsorted(
    "Max", "realnumbertype", _unsorted_factory(np.maximum, lambda dtype: dtype.min), _unsorted_extreme_gradient,
    "The maximum",
)  # fmt: skip
unsorted_min_op, unsorted_segment_min = _unsorted(
    "Min", "realnumbertype", _unsorted_factory(np.minimum, lambda dtype: dtype.max), _unsorted_extreme_gradient,
    "The minimum",
)  # fmt: skip


def _segment_sizes(data: Tensor, ids: Tensor, num_segments: TensorLike) -> Tensor:
    """The number of elements of each segment, at least 1, shaped to divide its rows."""
    ones = array_filling.ones_like(cast(ids, data.dtype.base_dtype))
    counts: Tensor = maximum_op(unsorted_sum_op(ones, ids, num_segments), np.array(1, data.dtype.numpy))
    if data.raw_shape is None or ids.raw_shape is None:
        raise ValueError("The ranks of data and segment_ids must be known.")
    for _ in data.raw_shape[len(ids.raw_shape) :]:
        counts = array_shape.expand_dims(counts, -1)
    return counts


@export("tf.unsorted_segment_mean", "tf.math.unsorted_segment_mean")
def unsorted_segment_mean(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The mean of the elements of each segment, 0 for empty ones (``tf.unsorted_segment_mean``)."""
    with name_scope(name, "UnsortedSegmentMean"):
        data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        return real_div_op(unsorted_sum_op(data, ids, num_segments), _segment_sizes(data, ids, num_segments))


@export("tf.unsorted_segment_sqrt_n", "tf.math.unsorted_segment_sqrt_n")
def unsorted_segment_sqrt_n(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The sum of the elements of each segment divided by the square root of their number."""
    with name_scope(name, "UnsortedSegmentSqrtN"):
        data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        return real_div_op(unsorted_sum_op(data, ids, num_segments), sqrt_op(_segment_sizes(data, ids, num_segments)))


export_names(
    "tf tf.math",
    "segment_max segment_mean segment_min segment_prod segment_sum unsorted_segment_max unsorted_segment_min "
    "unsorted_segment_prod unsorted_segment_sum",
)


# ---- sparse segments ----------------------------------------
# Segment reductions of gathered rows: sum, mean and sum / sqrt(n) of ``data[indices]`` by sorted segment ids.

_INDEX = "Tidx: {int32, int64} = DT_INT32"
_COUNT = "Tnumsegments: {int32,int64} = DT_INT32"
_KINDS = {"Sum": "realnumbertype", "Mean": "{float, double}", "SqrtN": "{float, double}"}

plain_ops: dict[str, OpHandle] = {
    kind: op(f"SparseSegment{kind}(data: T, indices: Tidx, segment_ids: int32) -> output: T; T: {types}; {_INDEX}")
    for kind, types in _KINDS.items()
}
counted_ops: dict[str, OpHandle] = {
    kind: op(
        f"SparseSegment{kind}WithNumSegments(data: T, indices: Tidx, segment_ids: int32, num_segments: Tnumsegments)"
        f" -> output: T; T: {types}; {_INDEX}; {_COUNT}"
    )
    for kind, types in _KINDS.items()
}
grad_ops: dict[str, OpHandle] = {
    kind: op(
        f"SparseSegment{kind}Grad(grad: T, indices: Tidx, segment_ids: int32, output_dim0: int32)"
        f" -> output: T; T: {{float, double}}; {_INDEX}"
    )
    for kind in ("Mean", "SqrtN")
}


def _divisors(kind: str, counts: Array) -> Any:
    counts = np.maximum(counts, 1)
    return np.sqrt(counts) if kind == "SqrtN" else counts


def _check(ids: Array, indices: Array, rows: int, count: int | None) -> int:
    """The number of segments of the output."""
    if ids.size != indices.size:
        refuse("segment_ids and indices should have same size.")
    last = int(ids[-1]) + 1 if ids.size else 0
    if ids.size and last <= 0:
        refuse("segment ids must be >= 0")
    if count is not None and last > count:
        refuse("segment ids must be < num_segments")
    if any_outside(indices, rows):
        bad = np.flatnonzero((indices < 0) | (indices >= rows))
        refuse(f"Bad: indices[{bad[0]}] == {int(indices[bad[0]])} out of range [0, {rows})")
    check_runs(ids, last if count is None else count)
    return last if count is None else count


def _check_grad(ids: Array, indices: Array, rows: int, count: int) -> None:
    """Checks the arguments of the gradient ops, whose ids need not be sorted."""
    if ids.size != indices.size:
        refuse("segment_ids and indices should have same size.")
    if ids.size and int(ids[-1]) + 1 > count:
        refuse("Invalid number of segments")
    for what, values, bound in (("Index", indices, rows), ("Segment id", ids, count)):
        if any_outside(values, bound):
            bad = np.flatnonzero((values < 0) | (values >= bound))
            refuse(f"{what} {int(values[bad[0]])} out of range [0, {bound}).")


def _reduce(kind: str, data: Array, indices: Array, ids: Array, count: int | None) -> Any:
    sizes = (_check(ids, indices, data.shape[0], count), *data.shape[1:])
    check_room(sizes, data.dtype.itemsize)
    check_room(sizes[:1], 8)  # their counts, also where rows have no elements
    out = np.zeros(sizes, data.dtype)
    reduce_runs(np.add, data[indices], ids, out)
    if kind == "Sum":
        return out
    divisors = _divisors(kind, np.bincount(ids, minlength=out.shape[0])).astype(data.dtype)
    return out / divisors.reshape(divisors.shape + (1,) * (data.ndim - 1))


def _kernel(kind: str) -> Callable[..., Any]:
    return lambda data, indices, ids: _reduce(kind, data, indices, ids, None)


def _counted_kernel(kind: str) -> Callable[..., Any]:
    return lambda data, indices, ids, count: _reduce(kind, data, indices, ids, int(count))


def _grad_kernel(kind: str) -> Callable[..., Any]:
    def kernel(grad: Array, indices: Array, ids: Array, dim0: Array) -> Any:
        _check_grad(ids, indices, int(dim0), grad.shape[0])
        scale = (1.0 / _divisors(kind, np.bincount(ids, minlength=grad.shape[0]))).astype(grad.dtype)
        rows = (grad * scale.reshape(scale.shape + (1,) * (grad.ndim - 1)))[ids]
        check_room((int(dim0), *grad.shape[1:]), grad.dtype.itemsize)
        out = np.zeros((int(dim0), *grad.shape[1:]), grad.dtype)
        _reduce_unsorted(np.add, rows, indices, out)
        return out

    return kernel


def _plain_shape(node: Operation) -> list[RawShape]:
    data = node.inputs[0].raw_shape
    return [None if data is None else (None, *data[1:])]


def _counted_shape(node: Operation) -> list[RawShape]:
    data, count = node.inputs[0].raw_shape, constant_value(node.inputs[3])
    if count is not None and int(count) < 0:
        raise ValueError("Cannot specify a negative value for num_segments")
    return [None if data is None else (None if count is None else int(count), *data[1:])]


def _gradient(kind: str) -> Callable[..., list[Any]]:
    def gradient(node: Operation, grad: Tensor) -> list[Any]:
        data, indices, ids = node.inputs[:3]
        rows = getitem(array_shape.shape(data), 0)
        if kind == "Sum":
            found = unsorted_sum_op(array_gather.gather(grad, ids), indices, rows)
        else:
            found = grad_ops[kind](grad, indices, ids, rows)
        return [found] + [None] * (len(node.inputs) - 1)

    return gradient


for _kind in _KINDS:
    plain_ops[_kind].shape(_plain_shape)
    plain_ops[_kind].kernel("CPU")(_kernel(_kind))
    plain_ops[_kind].gradient(_gradient(_kind))
    counted_ops[_kind].shape(_counted_shape)
    counted_ops[_kind].kernel("CPU")(_counted_kernel(_kind))
    counted_ops[_kind].gradient(_gradient(_kind))
for _kind, _handle in grad_ops.items():
    _handle.shape(_counted_shape)
    _handle.kernel("CPU")(_grad_kernel(_kind))
    _handle.without_gradient()


def _public(kind: str, function_name: str, text: str) -> Callable[..., Tensor]:
    def function(
        data: TensorLike, indices: TensorLike, segment_ids: TensorLike, name: str | None = None,
        num_segments: TensorLike | None = None,
    ) -> Tensor:  # fmt: skip
        if num_segments is None:
            return plain_ops[kind](data, indices, segment_ids, name=name)
        return counted_ops[kind](data, indices, segment_ids, num_segments, name=name)

    text = f"{text} of the rows ``data[indices]`` of each segment; ``segment_ids`` is sorted."
    return named(function, function_name, text)


sparse_segment_sum = _public("Sum", "sparse_segment_sum", "The sum")
sparse_segment_mean = _public("Mean", "sparse_segment_mean", "The mean")
sparse_segment_sqrt_n = _public("SqrtN", "sparse_segment_sqrt_n", "The sum over the square root of the number")

export_names("tf", "sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum")
export_names(
    "tf.sparse",
    "segment_mean=sparse_segment_mean segment_sqrt_n=sparse_segment_sqrt_n segment_sum=sparse_segment_sum",
)
