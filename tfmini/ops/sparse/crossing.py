"""Crosses of features: every combination of one value from each column (``tf.sparse.cross``)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import OpHandle, Tensor, convert_to_tensor, op
from tfmini.machine_memory import check_room
from tfmini.numerics.string_hashes import fingerprint64
from tfmini.ops.array.casting import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.sparse.kernel_values import check_parts
from tfmini.ops.sparse.sparse_tensor import SparseTensor

_TYPES = "list({int64, string}) >= 0"
_HASH_KEY = 0xDECAFCAFFE
_MULTIPLIER = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)
_ROW_BYTES = 128  # of what is kept for a row without elements

cross_op: OpHandle[Any] = op(
    "SparseCross(indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types)"
    f""" -> output_indices: int64, output_values: out_type, output_shape: int64
    N: int >= 0
    hashed_output: bool
    num_buckets: int >= 0
    hash_key: int
    sparse_types: {_TYPES}
    dense_types: {_TYPES}
    out_type: {{int64, string}}
    internal_type: {{int64, string}}""",
    shape=[(None, 2), (None,), (2,)],
    differentiable=False,
)


@cross_op.kernel("CPU")
def _cross(
    indices: Any,
    values: Any,
    shapes: Any,
    dense: Any,
    *,
    hashed_output: bool,
    num_buckets: int,
    hash_key: int,
    out_type: dtypes.DType,
    **_: Any,
) -> Any:
    if hashed_output != (out_type is dtypes.int64):
        refuse(f"out_type cannot be {out_type.name} where hashed_output is {hashed_output}")
    for place, value, shape in zip(indices, values, shapes):
        check_parts(place, value, shape)
        if len(shape) != 2:
            refuse(f"Input shapes should be vectors of length 2, but received shape {list(shape)}")
    for array in dense:
        if np.ndim(array) != 2:
            refuse(f"Dense inputs should be matrices, but received shape {list(np.shape(array))}")
    sizes = {int(shape[0]) for shape in shapes} | {len(array) for array in dense}
    if len(sizes) != 1:
        refuse(f"All columns must have the same batch size. Got {sorted(sizes)}")
    (rows,) = sizes
    check_room((rows,), _ROW_BYTES)
    columns = [_rows(places, found, rows) for places, found in zip(indices, values)] + [list(array) for array in dense]
    join = _hashes if hashed_output else _texts
    crossed = [join([column[row] for column in columns], num_buckets, hash_key) for row in range(rows)]
    counts = [len(row) for row in crossed]
    places = np.array([(row, i) for row, count in enumerate(counts) for i in range(count)], np.int64).reshape(-1, 2)
    flat = np.array(list(itertools.chain.from_iterable(crossed)), np.int64 if hashed_output else object)
    return places, flat, np.array([rows, max(counts, default=0)], np.int64)


def _rows(places: Any, values: Any, rows: int) -> list[Any]:
    """The values of each row of a sparse matrix."""
    ends = np.searchsorted(places[:, 0], np.arange(rows + 1))
    return [values[start:end] for start, end in zip(ends, ends[1:])]


def _hashes(columns: Sequence[Any], buckets: int, key: int) -> Any:
    """The int64 hash of each combination; the last column's values change fastest."""
    found = np.full(1, key & (1 << 64) - 1, np.uint64)
    for column in columns:
        found = _joined(found[:, None], _numbers(column)[None, :]).ravel()
    return (found % np.uint64(buckets or np.iinfo(np.int64).max)).astype(np.int64)


def _numbers(column: Any) -> Any:
    if column.dtype.kind == "i":
        return column.astype(np.int64).view(np.uint64)
    return np.array([fingerprint64(bytes(value)) for value in column], np.uint64)


def _joined(first: Any, second: Any) -> Any:
    """TensorFlow's ``FingerprintCat64`` of numbers."""
    with np.errstate(over="ignore"):
        mixed = second * _MULTIPLIER
        found = (first ^ _MULTIPLIER) ^ (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER
        found = found * _MULTIPLIER
        found = (found ^ (found >> _SHIFT)) * _MULTIPLIER
        return found ^ (found >> _SHIFT)


def _texts(columns: Sequence[Any], buckets: int, key: int) -> list[bytes]:
    """The values of each combination, joined by ``_X_``."""
    texts = [[value if isinstance(value, bytes) else str(value).encode() for value in column] for column in columns]
    return [b"_X_".join(row) for row in itertools.product(*texts)]


def _build(inputs: Sequence[Any], hashed: bool, buckets: int, key: int, name: str | None) -> SparseTensor:
    if not isinstance(inputs, (list, tuple)):
        raise TypeError("Inputs must be a list")
    given = [value if isinstance(value, SparseTensor) else convert_to_tensor(value) for value in inputs]
    sparse = [value for value in given if isinstance(value, SparseTensor)]
    dense = [_wide(value) for value in given if isinstance(value, Tensor)]
    indices, values, shape = cross_op(
        [value.indices for value in sparse], [_wide(value.values) for value in sparse],
        [value.dense_shape for value in sparse], dense, hashed_output=hashed, num_buckets=buckets, hash_key=key,
        out_type=dtypes.int64 if hashed else dtypes.string, internal_type=dtypes.int64 if hashed else dtypes.string,
        name=name,
    )  # fmt: skip
    return SparseTensor(indices, values, shape)


def _wide(value: Tensor) -> Any:
    return value if value.dtype.base_dtype == dtypes.string else cast(value, dtypes.int64)


@export("tf.sparse.cross")
def sparse_cross(inputs: Sequence[Any], name: str | None = None) -> SparseTensor:
    """Each row's combinations of one value from each input, as strings (``tf.sparse.cross``).

    Args:
      inputs: matrices of integers or strings, ``SparseTensor`` or ``Tensor``, of one number of rows. The combinations
        begin with the sparse inputs.
      name: name scope.

    Returns:
      A ``SparseTensor`` [rows, combinations] of strings: the values joined by ``_X_``.
    """
    return _build(inputs, False, 0, _HASH_KEY, name)


@export("tf.sparse.cross_hashed")
def sparse_cross_hashed(
    inputs: Sequence[Any], num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """`sparse_cross` with a hash in place of each string (``tf.sparse.cross_hashed``).

    Args:
      inputs, name: see `sparse_cross`.
      num_buckets: the int64 hashes are below it; 0: any that are not negative.
      hash_key: the hash function's key.
    """
    return _build(inputs, True, num_buckets, _HASH_KEY if hash_key is None else hash_key, name)
