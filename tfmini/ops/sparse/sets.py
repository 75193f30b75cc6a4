"""Sets along the last axis of dense and sparse tensors, and edit distances (``tf.sets``, ``tf.edit_distance``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, op
from tfmini.memory import check_room
from tfmini.numerics.texts import fingerprint64
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.composites import SparseTensor, SparseTensorLike, SparseTensorValue
from tfmini.ops.sparse.layout import as_sparse, check_bounds, check_order, check_parts, distinct, parts
from tfmini.shapes import RawShape

_TYPES = "T: {int8, int16, int32, int64, uint8, uint16, string}"
_RESULT = "result_indices: int64, result_values: T, result_shape: int64"
_OPTIONS = f"set_operation: string; validate_indices: bool = true; {_TYPES}"
_SECOND = "set2_indices: int64, set2_values: T, set2_shape: int64"
dense_dense_op: OpHandle[Any] = op(f"DenseToDenseSetOperation(set1: T, set2: T) -> {_RESULT}; {_OPTIONS}")
dense_dense_op.kernel("CPU")(lambda a, b, *, set_operation: _combined(_members(a), _members(b), set_operation))
dense_sparse_op: OpHandle[Any] = op(f"DenseToSparseSetOperation(set1: T, {_SECOND}) -> {_RESULT}; {_OPTIONS}")
sparse_sparse_op: OpHandle[Any] = op(
    f"SparseToSparseSetOperation(set1_indices: int64, set1_values: T, set1_shape: int64, {_SECOND}) -> {_RESULT};"
    f" {_OPTIONS}"
)
size_op = op(
    "SetSize(set_indices: int64, set_values: T, set_shape: int64) -> size: int32; validate_indices: bool = true;"
    f" {_TYPES}",
    shape=[None],  # as in TensorFlow, also where it could be known
)
_THREE = "{0}_indices: int64, {0}_values: T, {0}_shape: int64"
edit_distance_op = op(
    f"EditDistance({_THREE.format('hypothesis')}, {_THREE.format('truth')}) -> output: float;"
    " normalize: bool = true; T: type"
)
all_of(dense_dense_op, dense_sparse_op, sparse_sparse_op, size_op, edit_distance_op).not_differentiable()


@all_of(dense_dense_op, dense_sparse_op, sparse_sparse_op).shape
def _set_shape(node: Operation) -> list[RawShape]:
    ranks = set()
    for name, tensor in zip((arg.name for arg in node.handle.op_def.inputs), node.inputs):
        if tensor.raw_shape is None:
            continue
        if name in ("set1", "set2"):
            ranks.add(len(tensor.raw_shape))
        elif name.endswith("_shape") and tensor.raw_shape[0] is not None:
            ranks.add(tensor.raw_shape[0])
    if len(ranks) > 1:
        raise ValueError(f"Ranks do not match: {sorted(ranks)}")
    rank = ranks.pop() if ranks else None
    if rank is not None and rank < 2:
        raise ValueError(f"Input ranks must be >= 2, got {rank}")
    return [(None, rank), (None,), (rank,)]


def _members(values: Array) -> tuple[Any, Any, Any]:
    """A dense tensor as (group coordinates of each element, elements, group shape)."""
    groups = values.shape[:-1]
    rows = np.stack(np.unravel_index(np.arange(values.size) // max(values.shape[-1], 1), groups), axis=1) \
        if groups else np.zeros((values.size, 0), np.int64)  # fmt: skip
    return rows, values.ravel(), np.array(groups, np.int64)


def _sparse_members(indices: Array, values: Array, shape: Array, validate: bool) -> tuple[Any, Any, Any]:
    if validate:
        check_bounds(indices, shape)
        check_order(indices)
    return indices[:, :-1], values, np.asarray(shape)[:-1]


def _combined(first: tuple[Any, Any, Any], second: tuple[Any, Any, Any], operation: bytes) -> tuple[Any, Any, Any]:
    if len(first[2]) != len(second[2]) or (first[2] != second[2]).any():
        refuse(f"Mismatched group shapes: {first[2].tolist()} vs. {second[2].tolist()}")
    # A pair (group, element) becomes one number, so that sets of pairs are sets of numbers.
    groups, group_of = distinct(np.concatenate([first[0], second[0]]).astype(np.int64))
    elements, element_of = np.unique(np.concatenate([first[1], second[1]]), return_inverse=True)
    keys = group_of * max(len(elements), 1) + element_of.reshape(-1)
    a, b = keys[: len(first[1])], keys[len(first[1]) :]
    functions = {
        b"a-b": lambda: np.setdiff1d(a, b), b"b-a": lambda: np.setdiff1d(b, a),
        b"intersection": lambda: np.intersect1d(a, b), b"union": lambda: np.union1d(a, b),
    }  # fmt: skip
    if operation.lower() not in functions:
        refuse(f"Invalid set_operation {operation.decode(errors='replace')}.")
    found = functions[operation.lower()]()
    group, element = np.divmod(found, max(len(elements), 1))
    starts = np.searchsorted(group, group, "left")
    position = np.arange(len(found)) - starts
    longest = int(position.max()) + 1 if len(found) else 0
    return (
        np.concatenate([groups[group], position[:, None]], axis=1).astype(np.int64),
        elements[element],
        np.append(first[2], longest).astype(np.int64),
    )


@dense_sparse_op.kernel("CPU")
def _dense_sparse_kernel(
    a: Array, indices: Array, values: Array, shape: Array, *, set_operation: bytes, validate_indices: bool
) -> Any:
    return _combined(_members(a), _sparse_members(indices, values, shape, validate_indices), set_operation)


@sparse_sparse_op.kernel("CPU")
def _sparse_sparse_kernel(
    a: Array, a_values: Array, a_shape: Array, b: Array, b_values: Array, b_shape: Array, *, set_operation: bytes,
    validate_indices: bool,
) -> Any:  # fmt: skip
    first = _sparse_members(a, a_values, a_shape, validate_indices)
    return _combined(first, _sparse_members(b, b_values, b_shape, validate_indices), set_operation)


@size_op.kernel("CPU")
def _size_kernel(indices: Array, values: Array, shape: Array, *, validate_indices: bool) -> Any:
    rows, members, groups = _sparse_members(indices, values, shape, validate_indices)
    _, element = np.unique(members, return_inverse=True)
    pairs, _ = distinct(np.concatenate([rows, element.reshape(-1, 1)], axis=1).astype(np.int64))
    check_room(groups.tolist(), 4)
    out = np.zeros(tuple(groups.tolist()), np.int32)
    np.add.at(out, tuple(pairs[:, :-1].T), 1)
    return out


# ---- edit distance --------------------------------------------------------------------------


@edit_distance_op.shape
def _edit_distance_shape(node: Operation) -> list[RawShape]:
    shapes = [constant_value_as_shape(node.inputs[i]) for i in (2, 5)]
    known = [s for s in shapes if s is not None and None not in s]
    if len(known) < 2:
        return [None]
    return [tuple(max(a, b) for a, b in zip(known[0][:-1], known[1][:-1]))]  # type: ignore[type-var]


def _levenshtein(a: list[Any], b: list[Any]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))
    return row[-1]


def _sequences(indices: Array, values: Array) -> dict[tuple[int, ...], list[Any]]:
    found: dict[tuple[int, ...], list[Any]] = {}
    for row, value in zip(indices[:, :-1].tolist(), values.tolist()):
        found.setdefault(tuple(row), []).append(value)
    return found


@edit_distance_op.kernel("CPU")
def _edit_distance_kernel(
    a: Array, a_values: Array, a_shape: Array, b: Array, b_values: Array, b_shape: Array, *, normalize: bool
) -> Any:
    if len(a_shape) != len(b_shape):
        refuse(f"Expected hypothesis and truth to have the same rank, got {len(a_shape)} and {len(b_shape)}")
    sizes = np.maximum(a_shape, b_shape)[:-1].tolist()
    for what, indices in (("hypothesis", a), ("truth", b)):
        groups = indices[:, :-1]  # as in TensorFlow, sequences may be longer than their shape says
        if groups.size and ((groups < 0) | (groups >= sizes)).any():
            refuse(f"{what} indices are out of bounds of {sizes}")
    check_room(sizes, 4)
    out = np.zeros(sizes, np.float32)
    guesses, truths = _sequences(a, a_values), _sequences(b, b_values)
    for group in guesses.keys() | truths.keys():
        guess, truth = guesses.get(group, []), truths.get(group, [])
        distance = float(_levenshtein(truth, guess))
        if normalize:
            distance = distance / len(truth) if truth else (np.inf if guess else 0.0)
        out[group] = distance
    return out


# ---- public functions -----------------------------------------------------------------------


def _as_set(value: TensorLike | SparseTensorLike) -> Any:
    return as_sparse(value) if isinstance(value, (SparseTensor, SparseTensorValue)) else convert_to_tensor(value)


def _operation(a: Any, b: Any, operation: str, validate_indices: bool) -> SparseTensor:
    a, b = _as_set(a), _as_set(b)
    if b.dtype != a.dtype:
        raise TypeError(f"Types don't match, {a.dtype} vs {b.dtype}.")
    options = {"set_operation": operation, "validate_indices": validate_indices}
    if isinstance(a, SparseTensor):
        if not isinstance(b, SparseTensor):
            # The op takes a dense first operand only.
            turned = {"a-b": "b-a", "b-a": "a-b"}.get(operation, operation)
            return SparseTensor(*dense_sparse_op(b, *parts(a), **{**options, "set_operation": turned}))
        return SparseTensor(*sparse_sparse_op(*parts(a), *parts(b), **options))
    if isinstance(b, SparseTensor):
        return SparseTensor(*dense_sparse_op(a, *parts(b), **options))
    return SparseTensor(*dense_dense_op(a, b, **options))


@export("tf.contrib.metrics.set_size", "tf.sets.set_size", "tf.sets.size")
def set_size(a: TensorLike, validate_indices: bool = True) -> Tensor:
    """The number of distinct elements along the last axis of a sparse tensor (``tf.sets.size``)."""
    sparse = as_sparse(a)
    return size_op(*parts(sparse), validate_indices=validate_indices)


@export("tf.contrib.metrics.set_intersection", "tf.sets.intersection", "tf.sets.set_intersection")
def set_intersection(a: TensorLike, b: TensorLike, validate_indices: bool = True) -> SparseTensor:
    """Elements in both sets along the last axis (``tf.sets.intersection``)."""
    return _operation(a, b, "intersection", validate_indices)


@export("tf.contrib.metrics.set_difference", "tf.sets.difference", "tf.sets.set_difference")
def set_difference(a: TensorLike, b: TensorLike, aminusb: bool = True, validate_indices: bool = True) -> SparseTensor:
    """Elements of ``a`` that are not in ``b``, or of ``b`` that are not in ``a`` (``tf.sets.difference``)."""
    return _operation(a, b, "a-b" if aminusb else "b-a", validate_indices)


@export("tf.contrib.metrics.set_union", "tf.sets.set_union", "tf.sets.union")
def set_union(a: TensorLike, b: TensorLike, validate_indices: bool = True) -> SparseTensor:
    """Elements in either set along the last axis (``tf.sets.union``)."""
    return _operation(a, b, "union", validate_indices)


@export("tf.edit_distance")
def edit_distance(
    hypothesis: SparseTensorLike, truth: SparseTensorLike, normalize: bool = True, name: str = "edit_distance"
) -> Tensor:
    """Levenshtein distances of the sequences along the last axis (``tf.edit_distance``).

    Args:
      hypothesis, truth: sparse tensors of one rank.
      normalize: divide by the length of the truth (an empty one gives infinity).
      name: of the op.

    Raises:
      TypeError: when one is not sparse.
    """
    for label, value in (("Hypothesis", hypothesis), ("Truth", truth)):
        if not isinstance(value, (SparseTensor, SparseTensorValue)):
            raise TypeError(f"{label} must be a SparseTensor.")
    a, b = as_sparse(hypothesis), as_sparse(truth)
    return edit_distance_op(*parts(a), *parts(b), normalize=normalize, name=name)


# ---- Crosses of features: every combination of one value from each column (``tf.sparse.cross``) --------------------

_CROSSED_TYPES = "list({int64, string}) >= 0"
_HASH_KEY = 0xDECAFCAFFE
_MULTIPLIER = np.uint64(0xC6A4A7935BD1E995)
_SHIFT, _GOLDEN = np.uint64(47), np.uint64(0x9E3779B97F4A7800)
_ROW_BYTES = 128  # of what is kept for a row without elements

_CROSSED = """output_indices: int64, output_values: out_type, output_shape: int64
    N: int >= 0
    hashed_output: bool
    num_buckets: int >= 0"""
_CROSSED_AS = f"""
    sparse_types: {_CROSSED_TYPES}
    dense_types: {_CROSSED_TYPES}
    out_type: {{int64, string}}
    internal_type: {{int64, string}}"""
_CROSS_SHAPES = [(None, 2), (None,), (2,)]
cross_op: OpHandle[Any] = op(
    "SparseCross(indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types)"
    f" -> {_CROSSED}; hash_key: int{_CROSSED_AS}",
    shape=_CROSS_SHAPES, differentiable=False,
)  # fmt: skip
# Of tf.contrib.layers: its hash is older than the one with a key.
old_cross_op: OpHandle[Any] = op(
    "SparseFeatureCross(indices: N * int64, values: sparse_types, shapes: N * int64, dense: dense_types)"
    f" -> {_CROSSED}{_CROSSED_AS}",
    shape=_CROSS_SHAPES, differentiable=False,
)  # fmt: skip


@cross_op.kernel("CPU")
def _cross(
    indices: list[Array],
    values: list[Array],
    shapes: list[Array],
    dense: list[Array],
    *,
    hashed_output: bool,
    num_buckets: int,
    hash_key: int | None,
    out_type: dtypes.DType,
    **_: object,
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
    parts = [np.searchsorted(places[:, 0], np.arange(rows + 1)) for places in indices]
    parts += [np.arange(rows + 1) * array.shape[1] for array in dense]
    row, chosen = _combinations(parts, rows)
    columns = [np.asarray(column).reshape(-1) for column in (*values, *dense)]
    found = _hashes(columns, chosen, num_buckets, hash_key) if hashed_output else _texts(columns, chosen)
    counts = np.bincount(row, minlength=rows)
    return np.stack([row, _numbered(counts)], 1), found, np.array([rows, counts.max(initial=0)], np.int64)


@old_cross_op.kernel("CPU")
def _old_cross(
    indices: list[Array],
    values: list[Array],
    shapes: list[Array],
    dense: list[Array],
    *,
    hashed_output: bool,
    num_buckets: int,
    out_type: dtypes.DType,
    **_: object,
) -> Any:
    return _cross(
        indices, values, shapes, dense, hashed_output=hashed_output, num_buckets=num_buckets, hash_key=None,
        out_type=out_type,
    )  # fmt: skip


def _combinations(parts: Sequence[Array], rows: int) -> tuple[Array, list[Array]]:
    """All combinations of one value from each column, row by row; the last column's values change fastest.

    Args:
      parts: per column, where each row's values begin; one more for the end.

    Returns:
      Of each combination its row, and per column the number of its value.
    """
    row, chosen = np.arange(rows), list[Array]()
    for ends in parts:
        counts = np.diff(ends)[row]
        row = np.repeat(row, counts)
        chosen = [np.repeat(numbers, counts) for numbers in chosen] + [ends[row] + _numbered(counts)]
    return row, chosen


def _numbered(counts: Array) -> Any:
    """0, 1, … for each count."""
    ends = counts.cumsum()
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _hashes(columns: Sequence[Array], chosen: Sequence[Array], buckets: int, key: int | None) -> Any:
    """The int64 hash of each combination. Without a key it is the old hash."""
    join = _folded if key is None else _joined
    found = np.array([(_HASH_KEY if key is None else key) & (1 << 64) - 1], np.uint64)
    for column, numbers in zip(columns, chosen):
        found = join(found, _numbers(column)[numbers])
    return (found % np.uint64(buckets or np.iinfo(np.int64).max)).astype(np.int64)


def _numbers(column: Array) -> Any:
    if column.dtype.kind == "i":
        return column.astype(np.int64).view(np.uint64)
    return np.array([fingerprint64(bytes(value)) for value in column], np.uint64)


def _joined(first: Array, second: Array) -> Any:
    """TensorFlow's ``FingerprintCat64`` of numbers."""
    mixed = second * _MULTIPLIER
    found = (first ^ _MULTIPLIER) ^ (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER
    found = found * _MULTIPLIER
    found = (found ^ (found >> _SHIFT)) * _MULTIPLIER
    return found ^ (found >> _SHIFT)


def _folded(first: Array, second: Array) -> Any:
    """TensorFlow's ``HashCombine`` of numbers, in which one shift keeps the sign."""
    high = (first.view(np.int64) >> 4).view(np.uint64)
    return first ^ (second + _GOLDEN + (first << np.uint64(10)) + high)


def _texts(columns: Sequence[Array], chosen: Sequence[Array]) -> Any:
    """The values of each combination, joined by ``_X_``."""
    texts = [[value if isinstance(value, bytes) else str(value).encode() for value in c.tolist()] for c in columns]
    rows = [[text[i] for i in numbers.tolist()] for text, numbers in zip(texts, chosen)]
    return np.array([b"_X_".join(row) for row in zip(*rows)], object)


def _build(inputs: Sequence[Any], hashed: bool, buckets: int, key: int | None, name: str | None) -> SparseTensor:
    if not isinstance(inputs, (list, tuple)):
        raise TypeError("Inputs must be a list")
    given = [value if isinstance(value, SparseTensor) else convert_to_tensor(value) for value in inputs]
    sparse = [value for value in given if isinstance(value, SparseTensor)]
    dense = [_wide(value) for value in given if isinstance(value, Tensor)]
    kind = dtypes.int64 if hashed else dtypes.string
    build, attrs = (old_cross_op, {}) if key is None else (cross_op, {"hash_key": key})
    indices, values, shape = build(
        [value.indices for value in sparse], [_wide(value.values) for value in sparse],
        [value.dense_shape for value in sparse], dense, hashed_output=hashed, num_buckets=buckets, out_type=kind,
        internal_type=kind, name=name, **attrs,
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


def sparse_feature_cross(
    inputs: Sequence[Any],
    hashed_output: bool = False,
    num_buckets: int = 0,
    name: str | None = None,
    hash_key: int | None = None,
) -> SparseTensor:
    """`sparse_cross` or `sparse_cross_hashed`; without a key it has a hash of its own (TensorFlow's function of it)."""
    return _build(inputs, hashed_output, num_buckets, hash_key, name)
