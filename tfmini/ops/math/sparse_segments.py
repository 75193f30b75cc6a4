"""Segment reductions of gathered rows: sum, mean and sum / sqrt(n) of ``data[indices]`` by sorted segment ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.export import export_names
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.machine_memory import check_room
from tfmini.ops.array import gather as array_gather
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.broadcast import named
from tfmini.ops.math.segments import check_runs, reduce_runs, unsorted_sum_op
from tfmini.shapes import RawShape

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


def _divisors(kind: str, counts: Any) -> Any:
    counts = np.maximum(counts, 1)
    return np.sqrt(counts) if kind == "SqrtN" else counts


def _check(ids: Any, indices: Any, rows: int, count: int | None) -> int:
    """The number of segments of the output."""
    if ids.size != indices.size:
        refuse("segment_ids and indices should have same size.")
    last = int(ids[-1]) + 1 if ids.size else 0
    if ids.size and last <= 0:
        refuse("segment ids must be >= 0")
    if count is not None and last > count:
        refuse("segment ids must be < num_segments")
    bad = np.flatnonzero((indices < 0) | (indices >= rows))
    if bad.size:
        refuse(f"Bad: indices[{bad[0]}] == {int(indices[bad[0]])} out of range [0, {rows})")
    check_runs(ids, last if count is None else count)
    return last if count is None else count


def _check_grad(ids: Any, indices: Any, rows: int, count: int) -> None:
    """Checks the arguments of the gradient ops, whose ids need not be sorted."""
    if ids.size != indices.size:
        refuse("segment_ids and indices should have same size.")
    if ids.size and int(ids[-1]) + 1 > count:
        refuse("Invalid number of segments")
    for what, values, bound in (("Index", indices, rows), ("Segment id", ids, count)):
        bad = np.flatnonzero((values < 0) | (values >= bound))
        if bad.size:
            refuse(f"{what} {int(values[bad[0]])} out of range [0, {bound}).")


def _reduce(kind: str, data: Any, indices: Any, ids: Any, count: int | None) -> Any:
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
    def kernel(grad: Any, indices: Any, ids: Any, dim0: Any) -> Any:
        _check_grad(ids, indices, int(dim0), grad.shape[0])
        scale = (1.0 / _divisors(kind, np.bincount(ids, minlength=grad.shape[0]))).astype(grad.dtype)
        rows = (grad * scale.reshape(scale.shape + (1,) * (grad.ndim - 1)))[ids]
        order = np.argsort(indices, kind="stable")
        check_room((int(dim0), *grad.shape[1:]), grad.dtype.itemsize)
        out = np.zeros((int(dim0), *grad.shape[1:]), grad.dtype)
        reduce_runs(np.add, rows[order], indices[order], out)
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
    _handle.not_differentiable()


def _public(kind: str, function_name: str, text: str) -> Callable[..., Tensor]:
    def function(
        data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
    ) -> Tensor:
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
