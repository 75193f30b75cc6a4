"""Sparse tensors in queues: ``AddSparseToTensorsMap`` and related ops.

A queue holds dense components. So the task keeps a sparse tensor in a map, and the queue holds its
number, an int64 scalar.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np

from tfmini.dtypes import DType
from tfmini.graph.registry import OpHandle, op
from tfmini.machine_memory import check_room
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.kept_values import own
from tfmini.shapes import format_raw

_SHARED = "T: type; container: string = ''; shared_name: string = ''"
add_sparse = op(
    "AddSparseToTensorsMap(sparse_indices: int64, sparse_values: T, sparse_shape: int64) -> sparse_handle: int64\n"
    + _SHARED,
    stateful=True,
    keeps=True,
    shape=[()],
    differentiable=False,
)
add_many_sparse = op(
    "AddManySparseToTensorsMap(sparse_indices: int64, sparse_values: T, sparse_shape: int64)"
    " -> sparse_handles: int64\n" + _SHARED,
    stateful=True,
    keeps=True,
    shape=[(None,)],
    differentiable=False,
)
take_many_sparse: OpHandle[Any] = op(
    """TakeManySparseFromTensorsMap(sparse_handles: int64) -> sparse_indices: int64, sparse_values: dtype, sparse_shape: int64
        dtype: type
        container: string = ''
        shared_name: string = ''""",  # noqa: E501 - a declaration is one line
    stateful=True,
    shape=[(None, None), (None,), (None,)],
    differentiable=False,
)


class SparseMap:
    """Sparse tensors by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._tensors: dict[int, tuple[Any, Any, Any]] = {}

    def add(self, indices: Any, values: Any, shape: Any) -> int:
        """Keeps a sparse tensor; returns its number."""
        with self._lock:
            number = next(self._numbers)
            self._tensors[number] = (own(indices), own(values), own(shape))
        return number

    def take(self, number: int) -> tuple[Any, Any, Any]:
        """Removes a sparse tensor and returns it.

        Raises:
          InvalidArgumentError: for an unknown number.
        """
        with self._lock:
            found = self._tensors.pop(number, None)
        if found is None:
            refuse(f"Unable to find SparseTensor: {number} in map")
        return found

    def clear(self) -> None:
        """Removes all."""
        with self._lock:
            self._tensors.clear()


def _map(resources: Any, container: bytes, shared_name: bytes, node: Any) -> SparseMap:
    return resources.lookup_or_create(container, "sparse map", shared_name.decode() or node.name, SparseMap)  # type: ignore[no-any-return]


def _check(indices: Any, values: Any, shape: Any) -> None:
    for value, rank, what in ((indices, 2, "indices"), (values, 1, "values"), (shape, 1, "shape")):
        if np.ndim(value) != rank:
            kind = "matrix" if rank == 2 else "vector"
            refuse(f"Input {what} should be a {kind} but received shape {format_raw(np.shape(value))}")


@add_sparse.kernel("CPU")
def _add(
    indices: Any, values: Any, shape: Any, *, resources: Any, container: bytes, shared_name: bytes, node: Any
) -> Any:
    _check(indices, values, shape)
    return np.int64(_map(resources, container, shared_name, node).add(indices, values, shape))


_ROW_BYTES = 512  # of a tensor that is kept, without elements


@add_many_sparse.kernel("CPU")
def _add_many(
    indices: Any, values: Any, shape: Any, *, resources: Any, container: bytes, shared_name: bytes, node: Any
) -> Any:
    _check(indices, values, shape)
    if len(shape) < 2:
        refuse(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    kept = _map(resources, container, shared_name, node)
    rows = indices[:, 0]
    if rows.size and (rows.min() < 0 or rows.max() >= shape[0]):
        refuse(f"Received invalid row {rows.max()}, expected < {shape[0]}")
    check_room((int(shape[0]),), _ROW_BYTES)
    numbers = np.empty(int(shape[0]), np.int64)
    for row in range(len(numbers)):
        chosen = rows == row
        numbers[row] = kept.add(indices[chosen][:, 1:], values[chosen], shape[1:])
    return numbers


@take_many_sparse.kernel("CPU")
def _take_many(
    handles: Any, *, resources: Any, container: bytes, shared_name: bytes, node: Any, dtype: DType
) -> tuple[Any, Any, Any]:
    kept = _map(resources, container, shared_name, node)
    parts = [kept.take(int(number)) for number in np.ravel(handles)]
    if not parts:
        refuse("Must have at least 1 serialized SparseTensor, but input matrix has 0 rows")
    rank = len(parts[0][2])
    for _, _, shape in parts:
        if len(shape) != rank:
            text = f"Inconsistent rank across SparseTensors: rank prior to SparseTensor[1] was: {rank}"
            refuse(f"{text} but is {len(shape)}")
    indices = [np.insert(part, 0, row, axis=1) for row, (part, _, _) in enumerate(parts)]
    largest = np.max([shape for _, _, shape in parts], axis=0) if rank else np.empty(0, np.int64)
    values = np.concatenate([values for _, values, _ in parts]).astype(dtype.numpy, copy=False)
    return np.concatenate(indices), values, np.concatenate([[len(parts)], largest]).astype(np.int64)
