"""``tf.feature_column.crossed_column``: combinations of categories as categories of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.estimator.feature_columns import (
    BucketizedColumn,
    CategoricalColumn,
    Column,
    Features,
    HashedColumn,
    feature,
)
from tfmini.export import export
from tfmini.ops.io.parsing_functions import VarLenFeature
from tfmini.ops.sparse.crossing import sparse_cross_hashed
from tfmini.ops.sparse.sparse_tensor import SparseTensor


class CrossedColumn(Column):
    """See `crossed_column`."""

    def __init__(self, keys: Sequence[Any], size: int, hash_key: int | None) -> None:
        self._keys, self.num_buckets, self._hash_key = tuple(keys), size, hash_key
        self.name = "_X_".join(sorted(key if isinstance(key, str) else key.name for key in self.leaves()))

    def leaves(self) -> Iterator[Any]:
        """The keys, with those of a crossed column in its place."""
        for key in self._keys:
            if isinstance(key, CrossedColumn):
                yield from key.leaves()
            else:
                yield key

    def parse_spec(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in self._keys:
            found.update({key: VarLenFeature(dtypes.string)} if isinstance(key, str) else key.parse_spec())
        return found

    def ids(self, features: Features) -> SparseTensor:
        """The hashes of each example's combinations."""
        inputs = [feature(features, key) if isinstance(key, str) else key.ids(features) for key in self.leaves()]
        return sparse_cross_hashed(inputs, self.num_buckets, self._hash_key)


@export("tf.feature_column.crossed_column")
def crossed_column(keys: Sequence[Any], hash_bucket_size: int, hash_key: int | None = None) -> CrossedColumn:
    """Combinations of categories by their hash (``tf.feature_column.crossed_column``).

    Args:
      keys: at least two, each the name of a feature of strings or integers, or a categorical column.
      hash_bucket_size: number of hashes.
      hash_key: the hash function's key.

    Raises:
      ValueError: when there are fewer keys, one makes no sense, or the size is less than 1.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if not keys or isinstance(keys, str) or len(keys) < 2:
        raise ValueError(f"keys must be a list with length > 1. Given: {keys}")
    for key in keys:
        if isinstance(key, HashedColumn):
            raise ValueError(
                "categorical_column_with_hash_bucket is not supported for crossing, since hashes of hashes collide more"
                f" often. Use the feature's name as a string instead. Given: {key.name}"
            )
        if not isinstance(key, (str, CategoricalColumn, BucketizedColumn, CrossedColumn)):
            raise ValueError(f"Unsupported key type. All keys must be strings or categorical columns. Given: {key}")
    return CrossedColumn(keys, hash_bucket_size, hash_key)
