"""Serialises a sparse tensor as three serialised tensors, for queues and batches, and deserialises them."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, TensorLike
from tfmini.dtypes import DType
from tfmini.errors import InvalidArgumentError, reading
from tfmini.export import export
from tfmini.graph.attr_values import content_proto, tensor_from_proto
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op, sized
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources
from tfmini.memory import check_room
from tfmini.numerics.images import check_inflated
from tfmini.numerics.update_rules import any_outside
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.composites import SparseTensor, SparseTensorLike
from tfmini.ops.sparse.layout import as_sparse, check_parts, parts
from tfmini.ops.waiting_line import own
from tfmini.shapes import RawShape, at_least_rank, format_raw

_SPARSE = "sparse_indices: int64, sparse_values: T, sparse_shape: int64"
_TYPES = "T: type; out_type: {string, variant} = DT_STRING"
_FOUND = "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64"
serialize_op = op(f"SerializeSparse({_SPARSE}) -> serialized_sparse: out_type; {_TYPES}", differentiable=False)
serialize_op.shape(sized("n rank, n, rank -> 3"))
serialize_many_op = op(f"SerializeManySparse({_SPARSE}) -> serialized_sparse: out_type; {_TYPES}", differentiable=False)
serialize_many_op.shape(sized("n rank, n, rank -> _ 3"))
deserialize_op: OpHandle[Any] = op(
    f"DeserializeSparse(serialized_sparse: Tserialized) -> {_FOUND};"
    " dtype: type; Tserialized: {string, variant} = DT_STRING",
    differentiable=False,
)
deserialize_many_op: OpHandle[Any] = op(
    f"DeserializeManySparse(serialized_sparse: string) -> {_FOUND}; dtype: type", differentiable=False
)


# ---- serialise ------------------------------------------------------------------------------


def _message(array: Array) -> bytes:
    return content_proto(as_ndarray(array)).SerializeToString()  # type: ignore[no-any-return]


def _line(indices: Array, values: Array, shape: Array) -> list[bytes]:
    return [_message(indices), _message(values), _message(shape)]


@serialize_op.kernel("CPU")
def _serialize_kernel(indices: Array, values: Array, shape: Array) -> Any:
    check_parts(indices, values, shape)
    return np.array(_line(indices, values, shape), object)


_ROW_BYTES = 256  # of the three strings of a row without elements


@serialize_many_op.kernel("CPU")
def _serialize_many_kernel(indices: Array, values: Array, shape: Array) -> Any:
    check_parts(indices, values, shape)
    if len(shape) < 2:
        refuse(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    check_room((int(shape[0]),), _ROW_BYTES)
    order = np.argsort(indices[:, 0], kind="stable")
    indices, values = indices[order], values[order]
    ends = np.searchsorted(indices[:, 0], np.arange(shape[0] + 1))
    result = np.empty((int(shape[0]), 3), object)
    for i, (start, end) in enumerate(zip(ends, ends[1:])):
        result[i] = _line(indices[start:end, 1:], values[start:end], shape[1:])
    return result


# ---- deserialise ----------------------------------------------------------------------------


@all_of(deserialize_op, deserialize_many_op).shape
def _deserialize_shape(node: Operation) -> list[RawShape]:
    shape = at_least_rank(node.inputs[0].raw_shape, 1)
    if shape is not None and shape[-1] not in (3, None):
        raise ValueError(f"Dimension must be 3 but is {shape[-1]}")
    return [(None, None), (None,), (None,)]


def _parsed(message: bytes) -> Any:
    from tfmini.protos import TensorProto  # Imported here because few programs need it.

    with reading("Could not parse serialized proto", InvalidArgumentError):
        found = tensor_from_proto(TensorProto.FromString(message))
    check_inflated(found.nbytes, f"A serialized tensor of {len(message)} bytes")
    return found


def _read(row: Array, dtype: DType) -> tuple[Any, Any, Any]:
    indices, values, shape = map(_parsed, row)
    if indices.ndim != 2:
        refuse(f"Expected serialized_sparse[0, 0] to represent an index matrix but received shape "
               f"{format_raw(indices.shape)}")  # fmt: skip
    if values.ndim != 1:
        refuse(f"Expected serialized_sparse[0, 1] to represent a values vector but received shape "
               f"{format_raw(values.shape)}")  # fmt: skip
    if shape.ndim != 1:
        refuse(f"Expected serialized_sparse[0, 2] to represent a shape vector but received shape "
               f"{format_raw(shape.shape)}")  # fmt: skip
    if len(values) != len(indices):
        refuse(f"Expected row counts of SparseTensor.indices and SparseTensor.values to match but they do not:"
               f" {len(indices)} vs. {len(values)}")  # fmt: skip
    if len(shape) != indices.shape[1]:
        refuse(f"Expected column counts of SparseTensor.indices to match size of SparseTensor.shape but they do"
               f" not: {indices.shape[1]} vs. {len(shape)}")  # fmt: skip
    found = dtypes.as_dtype(values.dtype) if values.dtype != object else dtypes.string
    if found != dtype:
        refuse(f"Requested SparseTensor of type {dtype.name} but SparseTensor[0].values.dtype() == {found.name}")
    return indices, values, shape


@all_of(deserialize_op, deserialize_many_op).kernel("CPU")
def _deserialize_kernel(serialized: Array, *, dtype: DType) -> tuple[Any, Any, Any]:
    serialized = as_ndarray(serialized)
    outer = serialized.shape[:-1]
    if not serialized.ndim or serialized.shape[-1] != 3:
        refuse(f"Serialized sparse should have 3 as the last dimension {format_raw(serialized.shape)}")
    rows = [_read(row, dtype) for row in serialized.reshape(-1, 3)]
    if not rows:
        refuse("Must have at least 1 serialized SparseTensor, but input matrix has 0 rows")
    if not outer:
        return rows[0]
    rank = len(rows[0][2])
    for number, (_, _, shape) in enumerate(rows):
        if len(shape) != rank:
            refuse(f"Inconsistent shape across SparseTensors: rank prior to SparseTensor[{number}] was: {rank}"
                   f" but rank of SparseTensor[{number}] is: {len(shape)}")  # fmt: skip
    return _joined(rows, outer)


def _joined(rows: list[tuple[Any, Any, Any]], outer: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Joins the sparse tensors of all rows into one, with the outer axes first."""
    places = np.repeat(np.arange(len(rows)), [len(values) for _, values, _ in rows])
    heads = np.stack(np.unravel_index(places, outer), axis=1).astype(np.int64)
    indices = np.concatenate([heads, np.concatenate([row[0] for row in rows])], axis=1)
    sizes = np.max([row[2] for row in rows], axis=0)
    return indices, np.concatenate([row[1] for row in rows]), np.concatenate([np.array(outer, np.int64), sizes])


# ---- public functions -----------------------------------------------------------------------


@export("tf.serialize_sparse", "tf.io.serialize_sparse")
def serialize_sparse(
    sp_input: SparseTensorLike, name: str | None = None, out_type: DTypeLike = dtypes.string
) -> Tensor:
    """A sparse tensor as three serialised tensors (``tf.serialize_sparse``): a vector ``[3]``."""
    sparse = as_sparse(sp_input)
    return serialize_op(*parts(sparse), out_type=out_type, name=name)


@export("tf.serialize_many_sparse", "tf.io.serialize_many_sparse")
def serialize_many_sparse(
    sp_input: SparseTensorLike, name: str | None = None, out_type: DTypeLike = dtypes.string
) -> Tensor:
    """Each row of a sparse tensor, serialised (``tf.serialize_many_sparse``): a matrix ``[rows, 3]``."""
    sparse = as_sparse(sp_input)
    return serialize_many_op(*parts(sparse), out_type=out_type, name=name)


def _restored(outputs: Any, rank: int | None) -> SparseTensor:
    indices, values, shape = outputs
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)


@export("tf.io.deserialize_sparse")
def deserialize_sparse(
    serialized_sparse: TensorLike, dtype: DTypeLike, rank: int | None = None, name: str | None = None
) -> Any:
    """Sparse tensors of `serialize_sparse`, ``[..., 3]``, joined (``tf.io.deserialize_sparse``).

    Args:
      rank: of the result, if it is known.
    """
    return _restored(deserialize_op(serialized_sparse, dtype=dtype, name=name), rank)


@export("tf.deserialize_many_sparse", "tf.io.deserialize_many_sparse")
def deserialize_many_sparse(
    serialized_sparse: TensorLike, dtype: DTypeLike, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """The rows of `serialize_many_sparse` as one sparse tensor (``tf.deserialize_many_sparse``).

    Args:
      rank: of each of the serialised tensors, if it is known.
    """
    outputs = deserialize_many_op(serialized_sparse, dtype=dtype, name=name)
    return _restored(outputs, None if rank is None else rank + 1)


# ---- Sparse tensors in queues: ``AddSparseToTensorsMap`` and related ops -------------------------------------------
# A queue holds dense components. So the task keeps a sparse tensor in a map, and the queue holds its
# number, an int64 scalar.

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

    def add(self, indices: Array, values: Array, shape: Array) -> int:
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


def _check(indices: Array, values: Array, shape: Array) -> None:
    for value, rank, what in ((indices, 2, "indices"), (values, 1, "values"), (shape, 1, "shape")):
        if np.ndim(value) != rank:
            kind = "matrix" if rank == 2 else "vector"
            refuse(f"Input {what} should be a {kind} but received shape {format_raw(np.shape(value))}")


@add_sparse.kernel("CPU")
def _add(
    indices: Array, values: Array, shape: Array, *, resources: DeviceResources, container: bytes, shared_name: bytes,
    node: Node,
) -> Any:  # fmt: skip
    _check(indices, values, shape)
    return np.int64(_map(resources, container, shared_name, node).add(indices, values, shape))


_KEPT_BYTES = 512  # of a tensor that is kept, without elements


@add_many_sparse.kernel("CPU")
def _add_many(
    indices: Array, values: Array, shape: Array, *, resources: DeviceResources, container: bytes, shared_name: bytes,
    node: Node,
) -> Any:  # fmt: skip
    _check(indices, values, shape)
    if len(shape) < 2:
        refuse(f"Rank of input SparseTensor should be > 1, but saw rank: {len(shape)}")
    kept = _map(resources, container, shared_name, node)
    rows = indices[:, 0]
    if any_outside(rows, shape[0]):
        refuse(f"Received invalid row {rows.max()}, expected < {shape[0]}")
    check_room((int(shape[0]),), _KEPT_BYTES)
    numbers = np.empty(int(shape[0]), np.int64)
    for row in range(len(numbers)):
        chosen = rows == row
        numbers[row] = kept.add(indices[chosen][:, 1:], values[chosen], shape[1:])
    return numbers


@take_many_sparse.kernel("CPU")
def _take_many(
    handles: Array, *, resources: DeviceResources, container: bytes, shared_name: bytes, node: Node, dtype: DType
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
