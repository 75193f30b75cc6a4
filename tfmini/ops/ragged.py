"""Ragged tensors: rows of different lengths as one flat tensor with row splits (``tf.RaggedTensor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import AxisLike, DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import OpHandle, Tensor, control_dependencies, convert_to_tensor, name_scope
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.gather import tensor_scatter_update
from tfmini.ops.array.identity import cast, identity, placeholder
from tfmini.ops.array.partition import boolean_mask, sequence_mask
from tfmini.ops.array.slicing import getitem
from tfmini.ops.checks import assert_equal, assert_less, assert_less_equal
from tfmini.ops.composites import (
    RaggedTensorValue,
    Reducible,
    SparseTensor,
    TensorSpec,
    TypeSpec,
    register_type_spec_from_value_converter,
)
from tfmini.ops.math.comparison import equal, not_equal
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.reductions import cumsum, reduce_any, reduce_max, reduce_sum
from tfmini.ops.math.segments import unsorted_segment_sum
from tfmini.ops.ragged_reductions import bounding_shape, columns_of, longest_row, reduce_ragged, rows_of
from tfmini.shapes import TensorShape

_INVALID = "Arguments to {} do not form a valid RaggedTensor"


@export("tf.RaggedTensor")
class RaggedTensor(Reducible):
    """A tensor whose rows may differ in length (``tf.RaggedTensor``); made by the ``from_…`` methods.

    Row ``i`` holds ``values[row_splits[i]:row_splits[i + 1]]``; ``values`` may be ragged, too. With ``validate``, a
    ``from_…`` method raises InvalidArgumentError for arguments that do not divide the values into rows: at once where
    they are static, else in the step.
    """

    def __init__(self, values: Any, row_splits: Tensor, internal: bool = False) -> None:
        if not internal:
            raise ValueError("RaggedTensor constructor is private; please use one of the factory methods instead.")
        self._values = values
        self._row_splits = row_splits

    # ---- making ----

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows from the position at which each begins and the last one ends."""
        if isinstance(row_splits, (list, tuple)) and not row_splits:
            raise ValueError("row_splits tensor may not be empty.")
        with name_scope(name, "RaggedFromRowSplits", [values, row_splits]):
            return _cut(as_ragged(values), _index_vector(row_splits), validate, "from_row_splits")

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows from their lengths."""
        with name_scope(name, "RaggedFromRowLengths", [values, row_lengths]):
            lengths = _index_vector(row_lengths)
            zero = constant([0], lengths.dtype.base_dtype)
            splits = array_joining.concat([zero, cumsum(lengths)], 0)
            return _cut(as_ragged(values), splits, validate, "from_row_lengths")

    @classmethod
    def from_value_rowids(
        cls, values: Any, value_rowids: TensorLike, nrows: TensorLike | None = None, name: str | None = None,
        validate: bool = True,
    ) -> RaggedTensor:  # fmt: skip
        """Rows from the row number of each value, in order."""
        with name_scope(name, "RaggedFromValueRowIds", [values, value_rowids, nrows]):
            rowids = _index_vector(value_rowids)
            dtype = rowids.dtype.base_dtype
            values = as_ragged(values)
            rowids.shape.assert_is_compatible_with(values.shape[:1])
            if validate:
                rowids = _rising(rowids, nrows, "from_value_rowids")
            if nrows is None:
                padded = array_joining.concat([constant([-1], dtype), rowids], 0)
                nrows = reduce_max(padded) + 1
            lengths = unsorted_segment_sum(array_filling.ones_like(rowids), rowids, cast(nrows, dtype))
            splits = array_joining.concat([constant([0], dtype), cumsum(lengths)], 0)
            return _cut(values, splits, validate, "from_value_rowids")

    @classmethod
    def from_row_starts(
        cls, values: Any, row_starts: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows from the position at which each begins."""
        with name_scope(name, "RaggedFromRowStarts", [values, row_starts]):
            values, starts = as_ragged(values), _index_vector(row_starts)
            end = array_shape.reshape(cast(_row_count(values), starts.dtype.base_dtype), [1])
            return _cut(values, array_joining.concat([starts, end], 0), validate, "from_row_starts")

    @classmethod
    def from_row_limits(
        cls, values: Any, row_limits: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows from the position at which each ends."""
        with name_scope(name, "RaggedFromRowLimits", [values, row_limits]):
            limits = _index_vector(row_limits)
            zero = constant([0], limits.dtype.base_dtype)
            return _cut(as_ragged(values), array_joining.concat([zero, limits], 0), validate, "from_row_limits")

    @classmethod
    def from_nested_row_splits(
        cls, flat_values: Any, nested_row_splits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Several ragged levels, outermost first."""
        with name_scope(name, "RaggedFromNestedRowSplits", [flat_values]):
            return _in_levels(cls.from_row_splits, flat_values, nested_row_splits, "nested_row_splits", validate)

    @classmethod
    def from_nested_row_lengths(
        cls, flat_values: Any, nested_row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Several ragged levels by the lengths of their rows, outermost first."""
        with name_scope(name, "RaggedFromNestedRowLengths", [flat_values]):
            return _in_levels(cls.from_row_lengths, flat_values, nested_row_lengths, "nested_row_lengths", validate)

    @classmethod
    def from_nested_value_rowids(
        cls, flat_values: Any, nested_value_rowids: Any, nested_nrows: Any = None, name: str | None = None,
        validate: bool = True,
    ) -> RaggedTensor:  # fmt: skip
        """Several ragged levels by the row of each value, outermost first; ``nested_nrows``: their numbers of rows."""
        if isinstance(nested_value_rowids, Tensor):
            raise TypeError("nested_value_rowids must be a list of Tensors")
        if isinstance(nested_nrows, Tensor):
            raise TypeError("nested_nrows must be a list of Tensors")
        counts = [None] * len(nested_value_rowids) if nested_nrows is None else nested_nrows
        if len(counts) != len(nested_value_rowids):
            raise ValueError("nested_nrows must have the same length as nested_value_rowids")
        with name_scope(name, "RaggedFromNestedValueRowIds", [flat_values]):
            for rowids, nrows in reversed([*zip(nested_value_rowids, counts)]):
                flat_values = cls.from_value_rowids(flat_values, rowids, nrows, validate=validate)
            return flat_values  # type: ignore[no-any-return]

    @classmethod
    def from_sparse(
        cls, st_input: SparseTensor, name: str | None = None, row_splits_dtype: DTypeLike = dtypes.int64
    ) -> RaggedTensor:
        """The values of a sparse matrix, each row of which has values from its first column on, without holes.

        Raises:
          TypeError: ``st_input`` is no `SparseTensor`.
          ValueError: its rank is not known to be 2.
          InvalidArgumentError: in the step, for a row with holes.
        """
        if not isinstance(st_input, SparseTensor):
            raise TypeError(f"Expected SparseTensor, got {type(st_input).__name__}")
        if st_input.dense_shape.shape.as_list() != [2] and st_input.indices.shape.as_list()[1:] != [2]:
            raise ValueError("rank(st_input) must be 2")
        with name_scope(name, "RaggedFromSparse", [st_input.indices]), control_dependencies([_no_holes(st_input)]):
            rowids = cast(getitem(st_input.indices, (slice(None), 0)), row_splits_dtype)
            nrows = cast(getitem(st_input.dense_shape, 0), row_splits_dtype)
            return cls.from_value_rowids(identity(st_input.values), rowids, nrows, validate=False)

    @classmethod
    def from_tensor(
        cls, tensor: TensorLike, lengths: TensorLike | None = None, padding: TensorLike | None = None,
        ragged_rank: int = 1, name: str | None = None, row_splits_dtype: DTypeLike = dtypes.int64,
    ) -> RaggedTensor:  # fmt: skip
        """A dense tensor with ``ragged_rank`` axes after the first as ragged axes.

        Args:
          tensor: of a rank greater than ``ragged_rank``.
          lengths: how much of each row stays, an int vector; negative ones count as 0. A list of vectors: the lengths
            of the rows of each ragged axis, outermost first, in place of ``ragged_rank``.
          padding: a value, of the tensor's inner shape; it goes where it stands at the end of a row.
          ragged_rank: the number of ragged axes.
          name: of the scope.
          row_splits_dtype: int32 or int64.

        Raises:
          ValueError: when ``lengths`` and ``padding`` are both given, or there is no axis for ``ragged_rank``.
        """
        if lengths is not None and padding is not None:
            raise ValueError("Specify lengths or padding, but not both")
        if ragged_rank <= 0:
            raise ValueError(f"ragged_rank must be greater than 0; got {ragged_rank}")
        splits_type = dtypes.as_dtype(row_splits_dtype)
        with name_scope(name, "RaggedFromTensor", [tensor]):
            tensor = convert_to_tensor(tensor, name="tensor")
            tensor.shape.with_rank_at_least(ragged_rank + 1)
            sizes = array_shape.shape(tensor, out_type=splits_type)
            if _nested(lengths):
                return _masked(tensor, lengths)
            if ragged_rank > 1 or (lengths is None and padding is None):
                merged = array_joining.concat([constant([-1], splits_type), getitem(sizes, slice(2, None))], 0)
                inner: Any = array_shape.reshape(tensor, merged)
                if ragged_rank > 1:
                    inner = cls.from_tensor(inner, lengths, padding, ragged_rank - 1, row_splits_dtype=splits_type)
                rows, length = getitem(sizes, 0), getitem(sizes, 1)
                return cls(inner, array_filling.range(rows + 1) * length, internal=True)
            return _shortened(tensor, lengths, padding, splits_type)

    # ---- reading ----

    @property
    def values(self) -> Any:
        return self._values

    @property
    def row_splits(self) -> Tensor:
        return self._row_splits

    @property
    def dtype(self) -> dtypes.DType:
        return self._values.dtype  # type: ignore[no-any-return]

    @property
    def ragged_rank(self) -> int:
        """The number of ragged levels."""
        return self._values.ragged_rank + 1 if isinstance(self._values, RaggedTensor) else 1

    @property
    def flat_values(self) -> Tensor:
        """The innermost, dense values."""
        return self._values.flat_values if isinstance(self._values, RaggedTensor) else self._values

    @property
    def nested_row_splits(self) -> tuple[Tensor, ...]:
        inner = self._values.nested_row_splits if isinstance(self._values, RaggedTensor) else ()
        return (self._row_splits, *inner)

    @property
    def shape(self) -> TensorShape:
        """The static shape; ragged axes are unknown."""
        splits = self._row_splits.raw_shape
        rows = None if splits is None or splits[0] is None else splits[0] - 1
        inner = self._values.shape
        if inner.ndims is None:
            return TensorShape(None)
        return TensorShape([rows, None, *inner.as_list()[1:]])

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self.shape

    @property
    def graph(self) -> Any:
        return self._row_splits.graph

    def nrows(self, out_type: DTypeLike | None = None, name: str | None = None) -> Tensor:
        """The number of rows."""
        with name_scope(name, "RaggedNRows", [self._row_splits]):
            count = array_shape.size(self._row_splits, out_type=self._row_splits.dtype.base_dtype) - 1
            return count if out_type is None else cast(count, out_type)

    def row_starts(self, name: str | None = None) -> Tensor:
        return getitem(self._row_splits, slice(None, -1))

    def row_limits(self, name: str | None = None) -> Tensor:
        return getitem(self._row_splits, slice(1, None))

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """The length of each row along a ragged axis."""
        if axis > 1:
            return self.with_values(self._values.row_lengths(axis - 1))
        return self.row_limits() - self.row_starts()

    def value_rowids(self, name: str | None = None) -> Tensor:
        """The row of each value."""
        return rows_of(self._row_splits)

    def nested_value_rowids(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The row of each value at each ragged level, outermost first."""
        with name_scope(name, "RaggedNestedValueRowIds", [self._row_splits]):
            inner = self._values.nested_value_rowids() if isinstance(self._values, RaggedTensor) else ()
            return (self.value_rowids(), *inner)

    def bounding_shape(
        self, axis: TensorLike | None = None, name: str | None = None, out_type: DTypeLike | None = None
    ) -> Tensor:
        """The smallest dense shape that holds this tensor, or its sizes at ``axis``; by default of the splits' type."""
        return bounding_shape(self, axis, name, out_type)

    def consumers(self) -> list[Any]:
        """The ops that take a tensor of this one."""
        return [*dict.fromkeys(op for part in self._fetch_parts()[0] for op in part.consumers())]

    def nested_row_lengths(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The lengths of the rows of each ragged axis, outermost first."""
        inner = self._values.nested_row_lengths() if isinstance(self._values, RaggedTensor) else ()
        return (self.row_lengths(), *inner)

    def reduced(self, handle: OpHandle, axis: AxisLike | None, keep: bool, name: str | None) -> Any:
        """Reduces this tensor by the op of a reduction; see `reduce_ragged`."""
        return reduce_ragged(self, handle, axis, keep, name)

    def with_values(self, new_values: Any) -> RaggedTensor:
        """A tensor with the same rows and other values."""
        return RaggedTensor(as_ragged(new_values), self._row_splits, internal=True)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """A tensor with the same nested rows and other flat values."""
        if isinstance(self._values, RaggedTensor):
            return self.with_values(self._values.with_flat_values(new_values))
        return self.with_values(new_values)

    def with_row_splits_dtype(self, dtype: DTypeLike) -> RaggedTensor:
        """A tensor with the same rows, whose splits are all int32 or all int64."""
        if (kind := dtypes.as_dtype(dtype)) not in (dtypes.int32, dtypes.int64):
            raise ValueError("dtype must be int32 or int64")
        if self._row_splits.dtype.base_dtype == kind:
            return self
        values = self._values
        values = values.with_row_splits_dtype(kind) if isinstance(values, RaggedTensor) else values
        return RaggedTensor(values, cast(self._row_splits, kind), internal=True)

    # ---- converting ----

    def to_list(self) -> list[Any]:
        """Refused: only `RaggedTensorValue`, which a run gives, has a list."""
        raise ValueError(
            "RaggedTensor.to_list() is only supported in eager mode; in graph mode, evaluate the RaggedTensor first"
            " and then use RaggedTensorValue.to_list()."
        )

    def to_tensor(self, default_value: TensorLike | None = None, name: str | None = None) -> Tensor:
        """A dense tensor; short rows are padded with ``default_value`` (0 or the empty string)."""
        with name_scope(name, "RaggedToTensor", [self._row_splits]):
            if default_value is None:
                default_value = array_filling.zeros([], self.dtype)
            default = convert_to_tensor(default_value, self.dtype)
            values = self._values.to_tensor(default) if isinstance(self._values, RaggedTensor) else self._values
            rows = self.nrows()
            longest = longest_row(self)
            rowids = self.value_rowids()
            offsets = columns_of(self)
            inner = getitem(array_shape.shape(values, out_type=rows.dtype.base_dtype), slice(1, None))
            sizes = array_joining.concat([array_joining.stack([rows, longest]), inner], 0)
            blank = array_filling.fill(sizes, default)
            return tensor_scatter_update(blank, array_joining.stack([rowids, offsets], axis=1), values)

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """The values with their coordinates."""
        with name_scope(name, "RaggedToSparse", [self._row_splits]):
            rowids = self.value_rowids()
            columns = columns_of(self)
            if isinstance(self._values, RaggedTensor):
                raise NotImplementedError("RaggedTensor.to_sparse takes one ragged level: use to_tensor.")
            longest = longest_row(self)
            sizes = cast(array_joining.stack([self.nrows(), longest]), dtypes.int64)
            indices = cast(array_joining.stack([rowids, columns], axis=1), dtypes.int64)
            return SparseTensor(indices, self._values, sizes)

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: object = None) -> RaggedTensorValue:
        """The value in ``session`` or the default session."""
        tensors, build = self._fetch_parts()
        return build(self.graph._session_hook("eval", tensors, feed_dict, session))  # type: ignore[no-any-return]

    def _fetch_parts(self) -> tuple[list[Tensor], Any]:
        """The tensors that `Session.run` fetches for this object, and the function that makes its value of them."""

        def build(values: list[Any]) -> RaggedTensorValue:
            found: Any = values[-1]
            for splits in reversed(values[:-1]):
                found = RaggedTensorValue(found, splits)
            return found  # type: ignore[no-any-return]

        return [*self.nested_row_splits, self.flat_values], build

    def __repr__(self) -> str:
        return f"tf.RaggedTensor(values={self._values}, row_splits={self._row_splits})"


@export("tf.RaggedTensorSpec")
class RaggedTensorSpec(TypeSpec):
    """Shape and types of a `RaggedTensor` (``tf.RaggedTensorSpec``).

    Args:
      shape: with None for the ragged dimensions.
      dtype: of the values.
      ragged_rank: the number of ragged dimensions, by default all but one; with 0 a tensor is meant.
      row_splits_dtype: int32 or int64.

    Raises:
      ValueError: neither a rank nor the ragged rank is known, or that is not below the rank.
      TypeError: the ragged rank is no integer.
    """

    def __init__(
        self, shape: ShapeLike = None, dtype: DTypeLike = dtypes.float32, ragged_rank: int | None = None,
        row_splits_dtype: DTypeLike = dtypes.int64,
    ) -> None:  # fmt: skip
        self._shape, self._dtype = TensorShape(shape), dtypes.as_dtype(dtype)
        self._row_splits_dtype = dtypes.as_dtype(row_splits_dtype)
        rank = self._shape.ndims
        if ragged_rank is None:
            if rank is None:
                raise ValueError("Must specify ragged_rank or a shape with a known rank.")
            ragged_rank = rank - 1
        if not isinstance(ragged_rank, int):
            raise TypeError("ragged_rank must be an int")
        if rank is not None and ragged_rank >= rank:
            raise ValueError("ragged_rank must be less than rank.")
        self._ragged_rank = ragged_rank
        self.value_type = RaggedTensor if ragged_rank > 0 else Tensor

    @classmethod
    def from_value(cls, value: RaggedTensor) -> RaggedTensorSpec:
        """The spec of a ragged tensor."""
        return cls(value.shape, value.dtype, value.ragged_rank, value.row_splits.dtype)

    @property
    def _component_specs(self) -> list[TensorSpec]:
        if not self._ragged_rank:
            return [TensorSpec(self._shape, self._dtype)]
        known = self._shape.ndims is not None
        rows = self._shape.raw[0] if self._shape.raw else None
        flat = TensorShape([None]).concatenate(self._shape[self._ragged_rank + 1 :] if known else None)
        inner = [TensorSpec([None], self._row_splits_dtype)] * (self._ragged_rank - 1)
        splits = TensorSpec([None if rows is None else rows + 1], self._row_splits_dtype)
        return [TensorSpec(flat, self._dtype), splits, *inner]

    def _from_components(self, components: Any) -> Any:
        flat, *splits = components
        if all(isinstance(part, np.ndarray) for part in components):
            for level in reversed(splits):
                flat = RaggedTensorValue(flat, level)
            return flat
        return RaggedTensor.from_nested_row_splits(flat, splits, validate=False) if splits else flat

    def _batch(self, batch_size: int | None) -> RaggedTensorSpec:
        shape = TensorShape([batch_size]).concatenate(self._shape)
        return RaggedTensorSpec(shape, self._dtype, self._ragged_rank + 1, self._row_splits_dtype)

    def _unbatch(self) -> RaggedTensorSpec:
        """A spec of the rows. Its ragged rank may be below 0, since the rows may be put into batches again."""
        return RaggedTensorSpec(self._shape[1:], self._dtype, self._ragged_rank - 1, self._row_splits_dtype)

    def _serialize(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._ragged_rank, self._row_splits_dtype


register_type_spec_from_value_converter(RaggedTensor, RaggedTensorSpec.from_value)


@export("tf.data.experimental.RaggedTensorStructure")
def ragged_tensor_structure(dtype: DTypeLike, shape: ShapeLike, ragged_rank: int) -> RaggedTensorSpec:
    """`RaggedTensorSpec` with other names of arguments (``tf.data.experimental.RaggedTensorStructure``)."""
    return RaggedTensorSpec(shape, dtype, ragged_rank)


def _in_levels(
    cut: Callable[..., RaggedTensor], values: Any, levels: Any, argument: str, validate: bool
) -> RaggedTensor:
    """The values in several ragged levels, which ``cut`` makes of the elements of ``levels``, outermost first."""
    if isinstance(levels, Tensor):
        raise TypeError(f"{argument} must be a list of Tensors")
    for level in reversed(levels):
        values = cut(values, level, validate=validate)
    return values  # type: ignore[no-any-return]


def _no_holes(sparse: SparseTensor) -> Any:
    """A check that the values of each row of a sparse matrix stand in its first columns, in order."""
    rows, columns = (getitem(sparse.indices, (slice(None), axis)) for axis in (0, 1))
    continues = equal(getitem(rows, slice(1, None)), getitem(rows, slice(None, -1)))
    expected = cast(continues, dtypes.int64) * (getitem(columns, slice(None, -1)) + 1)
    expected = array_joining.concat([array_filling.zeros_like(getitem(columns, slice(None, 1))), expected], 0)
    return assert_equal(columns, expected, message="SparseTensor is not right-ragged")


def _nested(lengths: object) -> bool:
    """Whether these are the lengths of several ragged axes."""
    return isinstance(lengths, (list, tuple)) and bool(lengths) and not isinstance(lengths[0], (int, float))


def _masked(tensor: Tensor, nested_lengths: Any) -> RaggedTensor:
    """The values of a dense tensor that rows of these lengths hold."""
    ones = array_filling.ones([reduce_sum(nested_lengths[-1])], dtypes.bool)
    kept = RaggedTensor.from_nested_row_lengths(ones, nested_lengths, validate=False).to_tensor(False)
    values = boolean_mask(tensor, kept)
    return RaggedTensor.from_nested_row_lengths(values, nested_lengths, validate=False)


def _shortened(
    tensor: Tensor, lengths: TensorLike | None, padding: TensorLike | None, dtype: dtypes.DType
) -> RaggedTensor:
    """The rows of a dense tensor without what is behind their lengths, or without their padding."""
    width = getitem(array_shape.shape(tensor, out_type=dtype), 1)
    if lengths is None:
        lengths = _lengths_without(convert_to_tensor(padding, tensor.dtype.base_dtype), tensor, width)
    lengths = cast(convert_to_tensor(lengths, name="lengths"), dtype)
    lengths.set_shape([None])
    lengths = maximum(minimum(lengths, width), constant(0, dtype))
    values = boolean_mask(tensor, sequence_mask(lengths, maxlen=width))
    return RaggedTensor.from_row_lengths(values, lengths, validate=False)


def _lengths_without(padding: Tensor, tensor: Tensor, width: Tensor) -> Tensor:
    """The length of each row up to its last element that is not ``padding``."""
    padding.shape.assert_is_compatible_with(tensor.shape[2:])
    differs = not_equal(tensor, padding)
    if tensor.raw_shape is None:
        sizes = getitem(array_shape.shape(tensor), slice(None, 2))
        differs = array_shape.reshape(differs, array_joining.concat([sizes, [-1]], 0))
        differs = reduce_any(differs, 2)
    elif len(tensor.raw_shape) > 2:
        differs = reduce_any(differs, list(range(2, len(tensor.raw_shape))))
    places = array_filling.range(constant(1, width.dtype), width + 1)
    return reduce_max(cast(differs, width.dtype) * places, 1)


def _cut(values: Tensor, splits: Tensor, validate: bool, method: str) -> RaggedTensor:
    """Divides the values into rows; with ``validate``, checks the splits first."""
    if not isinstance(validate, bool):
        raise TypeError("validate must have type bool")
    if validate:
        text = _INVALID.format(method)
        zero = constant(0, splits.dtype.base_dtype)
        last = cast(_row_count(values), splits.dtype.base_dtype)
        checks = [
            assert_equal(getitem(splits, 0), zero, message=text),
            assert_less_equal(getitem(splits, slice(None, -1)), getitem(splits, slice(1, None)), message=text),
            assert_equal(getitem(splits, -1), last, message=text),
        ]
        with control_dependencies(checks):
            splits = identity(splits)
    return RaggedTensor(values, splits, internal=True)


def _rising(rowids: Tensor, nrows: TensorLike | None, method: str) -> Tensor:
    """The row numbers, with a check that they are sorted and in range."""
    text = _INVALID.format(method)
    dtype = rowids.dtype.base_dtype
    checks = [
        assert_less_equal(constant(0, dtype), getitem(rowids, slice(None, 1)), message=text),
        assert_less_equal(getitem(rowids, slice(None, -1)), getitem(rowids, slice(1, None)), message=text),
    ]
    if nrows is not None:
        checks.append(assert_less(getitem(rowids, slice(-1, None)), cast(nrows, dtype), message=text))
    with control_dependencies(checks):
        return identity(rowids)


def _row_count(values: Tensor) -> Tensor:
    if isinstance(values, RaggedTensor):
        return values.nrows()
    return getitem(array_shape.shape(values, out_type=dtypes.int64), 0)


def _index_vector(values: object) -> Tensor:
    """Row indices as an int32 or int64 vector; Python values become int64."""
    if isinstance(values, Tensor):
        return values if values.dtype.base_dtype in (dtypes.int32, dtypes.int64) else cast(values, dtypes.int64)
    dtype = dtypes.int32 if getattr(values, "dtype", None) == np.int32 else dtypes.int64
    if isinstance(values, (list, tuple)) and any(isinstance(value, Tensor) for value in values):
        return cast(array_joining.stack(values), dtype)
    return convert_to_tensor(np.asarray(values, dtype.numpy), dtype, name="row_splits")


def as_ragged(values: object) -> Any:
    """A `RaggedTensor` unchanged, its value as constants, any other value as a tensor."""
    if isinstance(values, RaggedTensor):
        return values
    if isinstance(values, RaggedTensorValue):
        return RaggedTensor.from_row_splits(values.values, values.row_splits, validate=False)
    return convert_to_tensor(values, name="values")


@export("tf.ragged.placeholder")
def ragged_placeholder(
    dtype: DTypeLike, ragged_rank: int, value_shape: ShapeLike = None, name: str | None = None
) -> RaggedTensor:
    """A ragged tensor made of placeholders (``tf.ragged.placeholder``)."""
    with name_scope(name, "RaggedPlaceholder", []):
        shape = TensorShape([None]).concatenate(TensorShape(value_shape if value_shape is not None else None))
        found: Any = placeholder(dtype, shape, "flat_values")
        for level in reversed(range(ragged_rank)):
            splits = placeholder(dtypes.int64, [None], f"row_splits_{level}")
            found = RaggedTensor(found, splits, internal=True)
        return found  # type: ignore[no-any-return]


# ---- Ragged tensors from nested Python lists (``tf.ragged.constant``) ----------------------------------------------


@export("tf.ragged.constant")
def ragged_constant(
    pylist: TensorLike, dtype: DTypeLike | None = None, ragged_rank: int | None = None, inner_shape: ShapeLike = None,
    name: str | None = None, row_splits_dtype: DTypeLike = dtypes.int64,
) -> Any:  # fmt: skip
    """A constant ragged tensor from nested lists (``tf.ragged.constant``).

    Args:
      pylist: nested lists, tuples or arrays.
      dtype: of the values, inferred by default.
      ragged_rank: the number of ragged levels; default: all axes but the innermost.
      inner_shape: the shape of each flat value.
      name: of the scope.
      row_splits_dtype: int32 or int64.

    Returns:
      A `RaggedTensor`, or a plain tensor if no level is ragged.

    Raises:
      ValueError: when scalars are nested at different depths.
    """
    with name_scope(name, "RaggedConstant", []):
        splits, flat = _parse(pylist, ragged_rank, inner_shape)
        value_type = None if dtype is None else dtypes.as_dtype(dtype)
        flat_tensor = constant(flat, value_type, shape=_flat_shape(flat, inner_shape))
        if not splits:
            return flat_tensor
        levels = [constant(s, dtypes.as_dtype(row_splits_dtype)) for s in splits]
        return RaggedTensor.from_nested_row_splits(flat_tensor, levels, validate=False)


@export("tf.ragged.constant_value")
def ragged_constant_value(
    pylist: TensorLike, dtype: DTypeLike | None = None, ragged_rank: int | None = None, inner_shape: ShapeLike = None,
    row_splits_dtype: DTypeLike = "int64",
) -> Any:  # fmt: skip
    """`ragged_constant` as a numpy value (``tf.ragged.constant_value``)."""
    splits, flat = _parse(pylist, ragged_rank, inner_shape)
    found: Any = np.array(flat, dtype=dtype.numpy if isinstance(dtype, dtypes.DType) else dtype)  # type: ignore[arg-type]
    shape = _flat_shape(flat, inner_shape)
    found = found if shape is None else found.reshape(shape)
    splits_type = dtypes.as_dtype(row_splits_dtype).numpy
    for level in reversed(splits):
        found = RaggedTensorValue(found, np.array(level, splits_type))
    return found


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple)) or isinstance(value, np.ndarray) and value.ndim > 0


def _depth(value: Any) -> int | None:
    """The nesting depth of scalars; None if there is no scalar."""
    if not _is_list(value):
        return 0
    depths = {_depth(item) for item in value} - {None}
    if len(depths) > 1:
        raise ValueError("all scalar values must have the same nesting depth")
    return None if not depths else depths.pop() + 1  # type: ignore[operator]


def _list_depth(value: Any) -> int:
    """The deepest nesting of lists, empty ones included."""
    return 1 + max((_list_depth(item) for item in value), default=0) if _is_list(value) else 0


def _flat_shape(flat: list[Any], inner_shape: Any) -> Any:
    return None if inner_shape is None else (-1 if len(flat) else 0, *inner_shape)


def _parse(pylist: Any, ragged_rank: int | None, inner_shape: Any) -> tuple[list[list[int]], Any]:
    """The row splits of each ragged level, outermost first, and the flat values."""
    if not _is_list(pylist):
        return [], pylist
    depth, deepest = _depth(pylist), _list_depth(pylist)
    if depth is not None and deepest > depth:
        raise ValueError(f"Invalid pylist={pylist}: empty list nesting is greater than scalar value nesting")
    depth = depth or deepest
    inner = () if inner_shape is None else tuple(inner_shape)
    if ragged_rank is None:
        ragged_rank = max(depth - 1 - len(inner), 0)
    if ragged_rank and ragged_rank >= depth and inner_shape is None:
        raise ValueError(f"Invalid pylist={pylist}: ragged_rank must be less than {depth}")
    splits: list[list[int]] = []
    values: Any = pylist
    for _ in range(ragged_rank):
        bounds = [0]
        for row in values:
            bounds.append(bounds[-1] + len(row))
        splits.append(bounds)
        values = [item for row in values for item in row]
    return splits, values
