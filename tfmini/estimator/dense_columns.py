"""Categories as dense columns: marks and embeddings (``tf.feature_column.indicator_column``, ``embedding_column``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfmini.estimator.feature_columns import Column, Features
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.ops.array.index_sets import one_hot
from tfmini.ops.array.shape import reshape
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.sparse.functions import sparse_tensor_to_dense
from tfmini.ops.variables.initializers import TruncatedNormal


class IndicatorColumn(Column):
    """See `indicator_column`."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.name = f"{source.name}_indicator"
        self.width = source.num_buckets

    def parse_spec(self) -> dict[str, Any]:
        return self.source.parse_spec()  # type: ignore[no-any-return]

    def dense(self, features: Features) -> Tensor:
        """How often each example has each id, [batch, num_buckets]."""
        ids = sparse_tensor_to_dense(self.source.ids(features), np.int64(-1))
        counts = reduce_sum(one_hot(ids, self.width, 1.0, 0.0), [-2])
        return reshape(counts, [-1, self.width])


@export("tf.feature_column.indicator_column")
def indicator_column(categorical_column: Any) -> IndicatorColumn:
    """A number for each category: how often it occurs (``tf.feature_column.indicator_column``)."""
    return IndicatorColumn(_categorical(categorical_column))


class EmbeddingColumn(Column):
    """See `embedding_column`."""

    def __init__(self, source: Any, width: int, settings: Mapping[str, Any]) -> None:
        self.source, self.width, self.settings = source, width, settings
        self.name = f"{source.name}_embedding"

    def parse_spec(self) -> dict[str, Any]:
        return self.source.parse_spec()  # type: ignore[no-any-return]


@export("tf.feature_column.embedding_column")
def embedding_column(
    categorical_column: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
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
    if dimension is None or dimension < 1:
        raise ValueError(f"Invalid dimension {dimension}.")
    if (ckpt_to_load_from is None) != (tensor_name_in_ckpt is None):
        raise ValueError("Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them.")
    if initializer is not None and not callable(initializer):
        raise ValueError(f"initializer must be callable if specified. Embedding of column_name: {categorical_column}")
    settings = {
        "combiner": combiner,
        "initializer": initializer or TruncatedNormal(0.0, 1 / math.sqrt(dimension)),
        "checkpoint": ckpt_to_load_from,
        "tensor": tensor_name_in_ckpt,
        "max_norm": max_norm,
        "trainable": trainable,
    }
    return EmbeddingColumn(_categorical(categorical_column), dimension, settings)


def _categorical(column: Any) -> Any:
    if not hasattr(column, "ids"):
        raise ValueError(f"The column must be categorical, such as categorical_column_with_identity's. Given: {column}")
    return column
