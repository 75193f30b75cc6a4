"""Feature columns of sequences, and the input of a recurrent network that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike
from tfmini.estimator.column_layers import collections_of, column_scope, dense_of, sorted_columns
from tfmini.estimator.columns import (
    CategoricalColumn,
    Column,
    Features,
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
    feature,
    made_of,
    numeric_column,
)
from tfmini.estimator.embedding_columns import EmbeddingColumn, IndicatorColumn, SequenceCategoricalColumn
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.filling import ones_like, zeros
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import reshape, shape
from tfmini.ops.checks import assert_equal
from tfmini.ops.composites import SparseTensor
from tfmini.ops.io.parsing_functions import VarLenFeature
from tfmini.ops.math.elementwise import truediv
from tfmini.ops.math.segments import segment_max
from tfmini.ops.math.unary import ceil
from tfmini.ops.sparse.functions import sparse_tensor_to_dense
from tfmini.ops.variables.scope import variable_scope


class SequenceNumericColumn(Column):
    """See `sequence_numeric_column`."""

    def __init__(
        self,
        key: str,
        dims: tuple[int, ...],
        default: float,
        dtype: dtypes.DType,
        normalizer: Callable[..., Any] | None,
    ) -> None:
        self.name, self.width = key, math.prod(dims)
        self._dims, self._default, self._dtype, self._normalizer = dims, default, dtype, normalizer

    def parse_spec(self) -> dict[str, Any]:
        return {self.name: VarLenFeature(self._dtype)}

    def sequences(self, features: Features) -> tuple[Tensor, Tensor]:
        """The numbers, [batch, time, *shape], and the length of each sequence."""
        value = feature(features, self.name)
        value = value if self._normalizer is None else self._normalizer(value)
        if not isinstance(value, SparseTensor):
            raise TypeError(f"The feature {self.name} of a column of sequences must be a SparseTensor, not {value}.")
        dense = sparse_tensor_to_dense(value, self._default)
        dense = reshape(dense, concat([shape(dense)[:1], [-1], list(self._dims)], 0))
        return dense, _lengths(value, self.width if value.get_shape().ndims == 2 else 1)


def _lengths(value: SparseTensor, group: int = 1) -> Tensor:
    """The length of each sequence, [batch]: its last place, of groups of values."""
    with name_scope(None, "sequence_length") as scope:
        rows, places = value.indices[:, 0], value.indices[:, 1]
        found = segment_max(places + ones_like(places), rows)
        found = cast(ceil(truediv(found, group)), dtypes.int64)
        rest = zeros(shape(value)[:1] - shape(found)[:1], found.dtype)  # of empty sequences at the end
        return concat([found, rest], 0, name=scope)


def _sequences_of(
    column: Any, features: Features, collections: list[str], trainable: bool
) -> tuple[Tensor, Tensor, list[Any]]:
    """A column's numbers, [batch, time, …], the length of each sequence, and the column's variables.

    Raises:
      ValueError: the column is of a categorical one that is not of sequences.
    """
    if isinstance(column, SequenceNumericColumn):
        return *column.sequences(features), []
    if not isinstance(column.source, SequenceCategoricalColumn):
        raise ValueError(
            f"In {column.name}: the categorical_column must be of sequences. Suggested fix: use one of"
            f" sequence_categorical_column_with_*. Given: {column.source}"
        )
    made: list[Any] = []
    if isinstance(column, EmbeddingColumn):
        dense, made = dense_of(column, features, collections, trainable)
    else:
        dense = column.counts(features)
    return dense, _lengths(column.source.ids(features)), made


def _dense_sequences(feature_columns: Iterable[Column]) -> list[Any]:
    columns = sorted_columns(feature_columns)
    for column in columns:
        if not isinstance(column, (SequenceNumericColumn, EmbeddingColumn, IndicatorColumn)):
            raise ValueError(
                "All feature_columns must be of sequences. You can wrap a sequence_categorical_column with an"
                f" embedding_column or indicator_column. Given (type {type(column).__name__}): {column}"
            )
    return columns


def joined_sequences(
    features: Features, feature_columns: Iterable[Column], weight_collections: Iterable[str] | None, trainable: bool
) -> tuple[Tensor, Tensor, list[Any]]:
    """`sequence_input_layer` in the scope that is open, and the variables of the columns."""
    parts, lengths, variables = [], [], []
    for column in _dense_sequences(feature_columns):
        with column_scope(column):
            found = _sequences_of(column, features, collections_of(weight_collections), trainable)
            sizes = shape(found[0])
            parts.append(reshape(found[0], [sizes[0], sizes[1], column.width]))
            lengths.append(found[1])
            variables += found[2]
    return concat(parts, -1), _equal(lengths), variables


def _equal(lengths: Sequence[Tensor]) -> Tensor:
    with name_scope(None, "assert_all_equal", list(lengths)):
        if len(lengths) == 1:
            return lengths[0]
        with control_dependencies([assert_equal(lengths[0], other) for other in lengths[1:]]):
            return identity(lengths[0])


@export("tf.contrib.feature_column.sequence_input_layer")
def sequence_input_layer(
    features: Features, feature_columns: Iterable[Column], weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The input of a recurrent network (``tf.contrib.feature_column.sequence_input_layer``).

    Args:
      features: name -> tensor.
      feature_columns: columns of `sequence_numeric_column`, and embedding or indicator columns of the others.
      weight_collections, trainable: as in `tf.feature_column.input_layer`.

    Returns:
      The columns side by side, [batch, time, width], and the length of each sequence, int64 [batch]. A step fails in
      which columns have sequences of other lengths.

    Raises:
      ValueError: when a column is not of sequences, or two have the same name.
    """
    columns = _dense_sequences(feature_columns)
    with variable_scope(None, "sequence_input_layer", list(features.values())):
        return joined_sequences(features, columns, weight_collections, trainable)[:2]


@export("tf.contrib.feature_column.sequence_numeric_column", "tf.feature_column.sequence_numeric_column")
def sequence_numeric_column(
    key: str, shape: Any = (1,), default_value: float = 0.0, dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> SequenceNumericColumn:  # fmt: skip
    """Sequences of numbers (``tf.feature_column.sequence_numeric_column``).

    Args:
      key: name of the feature, a `SparseTensor`.
      shape: of what each step has.
      default_value: stands behind shorter sequences.
      dtype: the feature's type.
      normalizer_fn: a function of the sparse tensor.

    Raises:
      ValueError, TypeError: when a value makes no sense.
    """
    checked = numeric_column(key, shape, dtype=dtype, normalizer_fn=normalizer_fn)
    fields: dict[str, Any] = {
        "key": key, "shape": checked.shape_of_one, "default_value": default_value, "dtype": dtypes.as_dtype(dtype),
        "normalizer_fn": normalizer_fn,
    }  # fmt: skip
    return made_of(SequenceNumericColumn(*fields.values()), **fields)


def _of_sequences(column: CategoricalColumn) -> SequenceCategoricalColumn:
    return made_of(SequenceCategoricalColumn(column), categorical_column=column)


@export(
    "tf.contrib.feature_column.sequence_categorical_column_with_identity",
    "tf.feature_column.sequence_categorical_column_with_identity",
)
def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """Sequences of `categorical_column_with_identity`, for an embedding or indicator column."""
    return _of_sequences(categorical_column_with_identity(key, num_buckets, default_value))


@export(
    "tf.contrib.feature_column.sequence_categorical_column_with_hash_bucket",
    "tf.feature_column.sequence_categorical_column_with_hash_bucket",
)
def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: DTypeLike = dtypes.string
) -> SequenceCategoricalColumn:
    """Sequences of `categorical_column_with_hash_bucket`, for an embedding or indicator column."""
    return _of_sequences(categorical_column_with_hash_bucket(key, hash_bucket_size, dtype))


@export(
    "tf.contrib.feature_column.sequence_categorical_column_with_vocabulary_file",
    "tf.feature_column.sequence_categorical_column_with_vocabulary_file",
)
def sequence_categorical_column_with_vocabulary_file(
    key: str, vocabulary_file: str, vocabulary_size: int | None = None, num_oov_buckets: int = 0,
    default_value: int | None = None, dtype: DTypeLike = dtypes.string,
) -> SequenceCategoricalColumn:  # fmt: skip
    """Sequences of `categorical_column_with_vocabulary_file`, for an embedding or indicator column."""
    return _of_sequences(
        categorical_column_with_vocabulary_file(
            key, vocabulary_file, vocabulary_size, num_oov_buckets, default_value, dtype
        )
    )


@export(
    "tf.contrib.feature_column.sequence_categorical_column_with_vocabulary_list",
    "tf.feature_column.sequence_categorical_column_with_vocabulary_list",
)
def sequence_categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Sequence[Any], dtype: DTypeLike | None = None, default_value: int = -1,
    num_oov_buckets: int = 0,
) -> SequenceCategoricalColumn:  # fmt: skip
    """Sequences of `categorical_column_with_vocabulary_list`, for an embedding or indicator column."""
    return _of_sequences(
        categorical_column_with_vocabulary_list(key, vocabulary_list, dtype, default_value, num_oov_buckets)
    )
