"""Sparse tensors inside kernels: checks with TensorFlow's messages, row-major order, merging of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.sparse.sparse_tensor import SparseTensor, SparseTensorValue
from tfmini.shapes import RawShape, merge_dims, with_rank


def either(new: Any, old: Any, new_name: str, old_name: str) -> Any:
    """The value of an argument that also has a deprecated name; raises ValueError when both are used."""
    if new is not None and old is not None:
        raise ValueError(f"Cannot specify both '{new_name}' and '{old_name}'")
    return old if new is None else new


def is_sparse(value: Any) -> bool:
    """Whether ``value`` is a sparse tensor or the value of one."""
    return isinstance(value, (SparseTensor, SparseTensorValue))


def as_sparse(value: Any) -> SparseTensor:
    """``value`` as a `SparseTensor`.

    Raises:
      TypeError: when it is neither a sparse tensor nor the value of one.
    """
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        raise TypeError("Input must be a SparseTensor.")
    return value


def parts(sparse: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, values and dense shape: the three inputs that most sparse ops take."""
    return sparse.indices, sparse.values, sparse.dense_shape


def merged_shapes(node: Operation, first: int = 0) -> tuple[int | None, int | None]:
    """(number of elements, rank) by the static shapes of the three inputs from ``first`` on."""
    indices = with_rank(node.inputs[first].raw_shape, 2)
    count = merge_dims(indices[0], with_rank(node.inputs[first + 1].raw_shape, 1)[0])
    return count, merge_dims(indices[1], with_rank(node.inputs[first + 2].raw_shape, 1)[0])


def sparse_shape(count: int | None, rank: int | None) -> list[RawShape]:
    """The static shapes of a sparse result."""
    return [(count, rank), (count,), (rank,)]


def check_parts(indices: Any, values: Any, shape: Any) -> None:
    """Refuses parts whose ranks and sizes contradict each other."""
    if np.ndim(indices) != 2:
        refuse(f"Input indices should be a matrix but received shape {list(np.shape(indices))}")
    if np.ndim(values) != 1:
        refuse(f"Input values should be a vector but received shape {list(np.shape(values))}")
    if np.ndim(shape) != 1:
        refuse(f"Input shape should be a vector but received shape {list(np.shape(shape))}")
    if indices.shape[0] != values.shape[0]:
        refuse(f"Expected {indices.shape[0]} non-empty input values, got {values.shape[0]}")
    if indices.shape[1] != shape.shape[0]:
        refuse(f"Expected rank {indices.shape[1]} of the dense shape, got {shape.shape[0]}")


def _text(row: Any) -> str:
    return "[" + ",".join(str(int(i)) for i in row) + "]"


def check_bounds(indices: Any, shape: Any) -> None:
    """Refuses indices outside of the dense shape."""
    bad = np.flatnonzero(((indices < 0) | (indices >= shape)).any(axis=1))
    if bad.size:
        row = int(bad[0])
        refuse(f"indices[{row}] = {_text(indices[row])} is out of bounds: need 0 <= index < {_text(shape)}")


def check_order(indices: Any) -> None:
    """Refuses indices that are not in strict row-major order."""
    if indices.shape[0] < 2:
        return
    before, after = indices[:-1], indices[1:]
    different = before != after
    some = different.any(axis=1)
    first = different.argmax(axis=1)
    position = np.arange(len(first))
    falling = some & (before[position, first] > after[position, first])
    bad = np.flatnonzero(falling | ~some)
    if not bad.size:
        return
    row = int(bad[0]) + 1
    if not some[row - 1]:
        refuse(f"indices[{row}] = {_text(indices[row])} is repeated")
    refuse(
        f"indices[{row}] = {_text(indices[row])} is out of order. Many sparse ops require sorted indices.\n"
        "    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n"
    )


def row_major(indices: Any) -> Any:
    """The permutation that sorts the indices in row-major order; equal indices keep their order."""
    if indices.shape[1] == 0:
        return np.arange(indices.shape[0])
    return np.lexsort(indices.T[::-1])


def distinct(indices: Any) -> tuple[Any, Any]:
    """Distinct indices in row-major order, and the position of each given index among them."""
    order = row_major(indices)
    ordered = indices[order]
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(starts) - 1
    return ordered[starts], numbers


def flat_positions(indices: Any, shape: Any) -> Any:
    """The position of each index in the flattened dense tensor."""
    strides = np.ones(len(shape), np.int64)
    if len(shape) > 1:
        strides[:-1] = np.cumprod(np.asarray(shape, np.int64)[:0:-1])[::-1]
    return indices @ strides
