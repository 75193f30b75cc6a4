"""Columns that make numbers of categories: `indicator_column`, `embedding_column` and `shared_embedding_columns`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini.estimator.columns import (
    CategoricalColumn,
    Column,
    DenseColumn,
    Features,
    OldCategoricalColumn,
    OldDenseColumn,
    categorical,
    made_of,
)
from tfmini.export import export, export_names
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.partition import one_hot
from tfmini.ops.array.shape import expand_dims, reshape, shape
from tfmini.ops.composites import SparseTensor
from tfmini.ops.math.reductions import reduce_prod, reduce_sum
from tfmini.ops.sparse.functions import sparse_reshape, sparse_tensor_to_dense
from tfmini.ops.variables.initializers import TruncatedNormal


class SequenceCategoricalColumn(CategoricalColumn, OldCategoricalColumn):
    """Categories of sequences, each step with its own; see `tfmini.estimator.sequence_columns`."""

    def __init__(self, source: CategoricalColumn) -> None:
        self._source, self.name, self.num_buckets = source, source.name, source.num_buckets

    def parse_spec(self) -> dict[str, Any]:
        return self._source.parse_spec()

    def ids(self, features: Features) -> SparseTensor:
        """The ids, [batch, time, ids of a step]."""
        return _by_step(self._source.ids(features))

    def weights(self, features: Features) -> SparseTensor | None:
        found = self._source.weights(features)
        return None if found is None else _by_step(found)


def _by_step(values: SparseTensor) -> SparseTensor:
    sizes = shape(values)
    return sparse_reshape(values, [sizes[0], sizes[1], reduce_prod(sizes[2:])])


def refuse_sequences(column: Any) -> None:
    """Raises ValueError for a column of sequences where each example has numbers."""
    if isinstance(getattr(column, "source", None), SequenceCategoricalColumn):
        raise ValueError(
            f"In {column.name}: categorical_column must not be of sequences. Suggested fix A: use sequence_input_layer"
            " or SequenceFeatures. Suggested fix B: use categorical_column_with_* in place of"
            f" sequence_categorical_column_with_*. Given: {column.source}"
        )


class IndicatorColumn(DenseColumn, OldDenseColumn):
    """See `indicator_column`."""

    def __init__(self, source: CategoricalColumn) -> None:
        self.source = source
        self.name = f"{source.name}_indicator"
        self.width, self.shape_of_one = source.num_buckets, (1, source.num_buckets)

    def parse_spec(self) -> dict[str, Any]:
        return self.source.parse_spec()

    def dense(self, features: Features) -> Tensor:
        """How often each example has each id, [batch, num_buckets]."""
        refuse_sequences(self)
        return reshape(self.counts(features), [-1, self.width])

    def made_of_feature(self, features: Features) -> Any:
        """`counts`."""
        return self.counts(features)

    def counts(self, features: Features) -> Tensor:
        """How often each id is in a row of ids, [batch, …, num_buckets]."""
        ids = sparse_tensor_to_dense(self.source.ids(features), np.int64(-1))
        marks, weights = one_hot(ids, self.width, 1.0, 0.0), self.source.weights(features)
        if weights is not None:
            marks = marks * expand_dims(sparse_tensor_to_dense(weights), -1)
            count_ops(7)
        return reduce_sum(marks, [-2])


@export("tf.feature_column.indicator_column")
def indicator_column(categorical_column: Column) -> IndicatorColumn:
    """A number for each category: how often it occurs (``tf.feature_column.indicator_column``)."""
    return made_of(IndicatorColumn(categorical(categorical_column)), categorical_column=categorical_column)


class EmbeddingColumn(DenseColumn, OldDenseColumn):
    """See `embedding_column`."""

    uncounted_ops = 8

    def __init__(self, source: CategoricalColumn, width: int, settings: Mapping[str, Any]) -> None:
        self.source, self.width, self.settings = source, width, settings
        self.name, self.shape_of_one = f"{source.name}_embedding", (width,)

    def parse_spec(self) -> dict[str, Any]:
        return self.source.parse_spec()

    def made_of_feature(self, features: Features) -> Any:
        """What the categories are made of: their ids, and weights if there are some."""
        return self.source.made_of_feature(features)


@export("tf.feature_column.embedding_column")
def embedding_column(
    categorical_column: Column,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> EmbeddingColumn:
    """A trained vector for each category (``tf.feature_column.embedding_column``).

    Args:
      categorical_column: the categories.
      dimension: length of the vectors.
      combiner: how an example's vectors are joined: "mean", "sqrtn" or "sum".
      initializer: of the vectors; default: truncated normal, with the deviation 1/sqrt(dimension).
      ckpt_to_load_from, tensor_name_in_ckpt: a checkpoint and its tensor that the vectors start with; both or none.
      max_norm: longer vectors are shortened to it.
      trainable: whether optimizers change the vectors.

    Raises:
      ValueError: when a value makes no sense.
    """
    _check_embedding(categorical_column, dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    fields = {
        "combiner": combiner,
        "initializer": initializer or TruncatedNormal(0.0, 1 / math.sqrt(dimension)),
        "ckpt_to_load_from": ckpt_to_load_from,
        "tensor_name_in_ckpt": tensor_name_in_ckpt,
        "max_norm": max_norm,
        "trainable": trainable,
    }
    made = EmbeddingColumn(categorical(categorical_column), dimension, fields)
    return made_of(made, categorical_column=categorical_column, dimension=dimension, **fields)


def _check_embedding(column: object, dimension: int | None, initializer: Any, path: Any, tensor: Any) -> None:
    if dimension is None or dimension < 1:
        raise ValueError(f"Invalid dimension {dimension}.")
    if (path is None) != (tensor is None):
        raise ValueError("Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them.")
    if initializer is not None and not callable(initializer):
        raise ValueError(f"initializer must be callable if specified. Embedding of column_name: {column}")


class SharedEmbeddingColumn(EmbeddingColumn):
    """See `shared_embedding_columns`."""

    def __init__(self, source: CategoricalColumn, width: int, settings: Mapping[str, Any]) -> None:
        super().__init__(source, width, settings)
        self.name = f"{source.name}_shared_embedding"


@export("tf.feature_column.shared_embedding_columns")
def shared_embedding_columns(
    categorical_columns: Sequence[Column],
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> list[SharedEmbeddingColumn]:
    """Columns whose categories share their vectors (``tf.feature_column.shared_embedding_columns``).

    Args:
      categorical_columns: columns of one kind, with the same number of categories.
      shared_embedding_collection_name: names the variable, and the collection in which the columns find it; default:
        made from the names of the columns.
      The others are those of `embedding_column`.

    Raises:
      ValueError: when the columns do not fit together, or a value makes no sense.
    """
    sources = sorted((categorical(column) for column in categorical_columns), key=lambda column: column.name)
    _check_embedding(sources, dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    for other in sources[1:]:
        if type(other) is not type(sources[0]) or other.num_buckets != sources[0].num_buckets:
            raise ValueError(f"All categorical_columns must have the same type and num_buckets. Given: {sources}")
    fields = {
        "combiner": combiner,
        "initializer": initializer or TruncatedNormal(0.0, 1 / math.sqrt(dimension)),
        "shared_embedding_collection_name": shared_embedding_collection_name
        or "_".join([*(column.name for column in sources), "shared_embedding"]),
        "ckpt_to_load_from": ckpt_to_load_from,
        "tensor_name_in_ckpt": tensor_name_in_ckpt,
        "max_norm": max_norm,
        "trainable": trainable,
    }
    made = [(column, SharedEmbeddingColumn(categorical(column), dimension, fields)) for column in categorical_columns]
    return [made_of(one, categorical_column=column, dimension=dimension, **fields) for column, one in made]


export_names(
    "tensorflow.python.feature_column.feature_column_v2 tensorflow.python.feature_column.feature_column_lib",
    "EmbeddingColumn IndicatorColumn SharedEmbeddingColumn",
)
export_names(
    "tensorflow.python.feature_column.feature_column",
    "_EmbeddingColumn=EmbeddingColumn _IndicatorColumn=IndicatorColumn _SharedEmbeddingColumn=SharedEmbeddingColumn",
)
