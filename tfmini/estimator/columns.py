"""``tf.feature_column``: how raw features become numbers for a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops, counted_as
from tfmini.ops.array.filling import fill
from tfmini.ops.array.gather import gather_nd
from tfmini.ops.array.identity import cast
from tfmini.ops.array.partition import one_hot, where
from tfmini.ops.array.shape import expand_dims, reshape, shape
from tfmini.ops.checks import assert_greater_equal, assert_less
from tfmini.ops.composites import SparseTensor
from tfmini.ops.control import with_dependencies
from tfmini.ops.io.parsing_functions import FixedLenFeature, VarLenFeature
from tfmini.ops.math.comparison import greater_equal, less, logical_and, not_equal
from tfmini.ops.math.search import bucketize_op
from tfmini.ops.sparse.functions import sparse_reshape
from tfmini.ops.sparse.sets import sparse_cross_hashed
from tfmini.ops.string_ops import as_string
from tfmini.ops.string_pieces import string_to_hash_bucket_fast
from tfmini.ops.vocabulary_tables import index_table_from_file, index_table_from_tensor
from tfmini.shapes import TensorShape

Features = Mapping[str, Any]


class Column:
    """Base class: a named function of the features.

    A *dense* column has the method ``dense`` and the attribute ``width``; a *categorical* one has ``ids`` and
    ``num_buckets``. What a column was made of are its attributes, as in TensorFlow (see `made_of`): equal ones make
    equal columns.

    A library's own column has TensorFlow's methods instead: ``transform_feature``, ``get_dense_tensor`` and
    ``variable_shape``, or the older ones of these names with an underscore. It may be a named tuple, too, and
    is equal as that.

    Attributes:
      name: names the column's variables; columns are used in the order of their names.
    """

    name: str
    _is_v2_column = True

    def __repr__(self) -> str:
        fields = vars(self).get("_fields")
        if fields is None:
            return super().__repr__()
        return f"{type(self).__name__}({', '.join(f'{key}={vars(self)[key]!r}' for key in fields)})"

    def __eq__(self, other: object) -> bool:
        fields = vars(self).get("_fields")
        if fields is None:
            return super().__eq__(other)
        return type(other) is type(self) and all(vars(self)[key] == vars(other)[key] for key in fields)

    def __hash__(self) -> int:
        return hash((type(self), self.name)) if "_fields" in vars(self) else super().__hash__()

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """`parse_spec`, under TensorFlow's name."""
        return self.parse_spec()

    _parse_example_spec = parse_example_spec

    def parse_spec(self) -> dict[str, Any]:
        """Name of a feature -> how to parse it from an Example."""
        for name in ("_parse_example_spec", "parse_example_spec"):
            if getattr(type(self), name) is not getattr(Column, name):
                found: dict[str, Any] = getattr(self, name)
                return found
        raise NotImplementedError

    def made_of_feature(self, features: Features) -> Any:
        """What the column makes of its feature before it is dense, as a library's column asks for it."""
        raise NotImplementedError(f"{type(self).__name__} makes nothing before it is dense.")

    def transform_feature(self, transformation_cache: Any, state_manager: Any) -> Any:
        """`made_of_feature`, of the features of a cache."""
        return self.made_of_feature(transformation_cache.features)

    def _transform_feature(self, inputs: Any) -> Any:
        return self.made_of_feature(inputs.features)


C = TypeVar("C", bound=Column)


def made_of(column: C, **fields: Any) -> C:
    """The column, with the arguments that it was made of as attributes."""
    vars(column).update(fields)
    vars(column)["_fields"] = tuple(fields)
    return column


class _Dense(Column):
    """A column that makes numbers, [batch, width].

    Attributes:
      uncounted_ops: see `scoping.count_ops`; TensorFlow gives what all columns make its batch size once more.
    """

    shape_of_one: tuple[int, ...]
    uncounted_ops = 6

    @cached_property
    def width(self) -> int:
        """How many numbers an example has."""
        is_older = type(self)._variable_shape is not _Dense._variable_shape
        return TensorShape(self._variable_shape if is_older else self.variable_shape).num_elements() or 0

    @property
    def variable_shape(self) -> TensorShape:
        """The shape of one example's numbers."""
        return TensorShape(self.shape_of_one)

    _variable_shape = variable_shape

    def dense(self, features: Features) -> Tensor:
        """The numbers of each example, [batch, width]."""
        raise NotImplementedError

    @property
    def is_of_library(self) -> bool:
        """Whether the column has TensorFlow's methods in place of ours."""
        return hasattr(self, "_get_dense_tensor") or hasattr(self, "get_dense_tensor")


class OldDenseColumn(_Dense):
    """TensorFlow's first base class of dense columns; a library derives from both."""


class DenseColumn(_Dense):
    """The base class of dense columns since 1.13."""


class _Categorical(Column):
    """A column that makes ids below ``num_buckets``."""

    num_buckets: int

    @property
    def _num_buckets(self) -> int:
        return self.num_buckets

    ids: Callable[..., SparseTensor]

    def weights(self, features: Features) -> SparseTensor | None:
        """The weight of each id; None if they count alike."""
        return None

    def made_of_feature(self, features: Features) -> Any:
        """The ids, [batch, number], and their weights if there are some."""
        weights = self.weights(features)
        return self.ids(features) if weights is None else (self.ids(features), weights)


class OldCategoricalColumn(_Categorical):
    """TensorFlow's first base class of categorical columns."""


class CategoricalColumn(_Categorical):
    """The base class of categorical columns since 1.13."""


class MadeOnce(dict[str, Any]):
    """The features of one layer, whose columns share what they make of them, ``made``, as TensorFlow's do."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        super().__init__(features)
        self.made: dict[Any, Any] = features.made if isinstance(features, MadeOnce) else {}


def _once(make: Callable[..., Any]) -> Callable[..., Any]:
    """``make(column, features)``, which is called once for equal columns and the same `MadeOnce`."""

    @wraps(make)
    def made(column: Any, features: Features) -> Any:
        if not isinstance(features, MadeOnce):
            return make(column, features)
        key = make.__name__, type(column), column
        if key not in features.made:
            features.made[key] = make(column, features)
        return features.made[key]

    return made


def feature(features: Features, key: str) -> Any:
    """The feature of a name, which becomes a column if it is a vector."""
    return _feature(key, features)


@_once
def _feature(key: str, features: Features) -> Any:
    if key not in features:
        present = ", ".join(sorted(map(str, features)))
        raise ValueError(f"Feature {key} is not in features dictionary; it has {present}.")
    value = features[key]
    value = value if isinstance(value, SparseTensor) else convert_to_tensor(value)
    rank = value.get_shape().ndims
    if rank == 0:
        raise ValueError(f"Feature (key: {key}) cannot have rank 0, that of one example, may lack .batch(…): {value}")
    if rank != 1:
        return value
    return sparse_reshape(value, [-1, 1]) if isinstance(value, SparseTensor) else expand_dims(value, -1)  # a column


class NumericColumn(DenseColumn, OldDenseColumn):
    """See `numeric_column`."""

    def __init__(
        self, key: str, dims: tuple[int, ...], default: Any, dtype: DTypeLike, normalizer: Callable[..., Any] | None
    ) -> None:
        self.name = self._key = key
        self._dims, self._default, self._dtype, self._normalizer = dims, default, dtype, normalizer
        self.width, self.shape_of_one = math.prod(dims), dims

    def parse_spec(self) -> dict[str, Any]:
        return {self._key: FixedLenFeature(self._dims, self._dtype, self._default)}

    def made_of_feature(self, features: Features) -> Any:
        """`raw`."""
        return self.raw(features)

    @_once
    def raw(self, features: Features) -> Tensor:
        """The floats, in the shape of the feature."""
        value = feature(features, self._key)
        if isinstance(value, SparseTensor):
            raise ValueError(f"The corresponding Tensor of numerical column must be a Tensor. Got {value}.")
        if self._normalizer is not None:
            value = self._normalizer(value)
        floats: Tensor = cast(value, dtypes.float32)
        return floats

    def dense(self, features: Features) -> Tensor:
        """The numbers of each example, [batch, width]; never those of one example as two."""
        value = self.raw(features)
        sizes = value.shape.as_list()[1:] if value.shape.ndims else [None]
        if None in sizes:
            with counted_as(2):  # as many as in the other case: `uncounted_ops` are the rest
                return reshape(value, [shape(value)[0], self.width])
        if math.prod(sizes) != self.width:
            raise ValueError(f"Cannot reshape {value} to [batch, {self.width}], the shape of {self.name}.")
        return reshape(value, [-1, self.width])


@export("tf.feature_column.numeric_column")
def numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: Any = None,
    dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """Numbers as they are (``tf.feature_column.numeric_column``).

    Args:
      key: name of the feature.
      shape: the shape of one example's feature.
      default_value: for Examples that lack it: a number, or one for each place.
      dtype: the feature's type.
      normalizer_fn: a function of the tensor.

    Raises:
      ValueError, TypeError: when a value makes no sense.
    """
    _check_key(key)
    dims = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if any(not isinstance(d, int) or d <= 0 for d in dims):
        raise ValueError(f"shape dimensions must be integers greater than 0. shape: {dims}")
    dtype = dtypes.as_dtype(dtype)
    if not (dtype.is_integer or dtype.is_floating):
        raise ValueError(f"dtype must be convertible to float. dtype: {dtype}, key: {key}")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn must be a callable. Given: {normalizer_fn}")
    default = None if default_value is None else _default_numbers(default_value, dims, dtype, key)
    return made_of(
        NumericColumn(key, dims, default, dtype, normalizer_fn), key=key, shape=dims, default_value=default,
        dtype=dtype, normalizer_fn=normalizer_fn,
    )  # fmt: skip


def _default_numbers(value: Any, dims: tuple[int, ...], dtype: dtypes.DType, key: str) -> Any:
    given = np.asarray(value)
    if given.dtype.kind not in ("biuf" if dtype.is_floating else "biu"):
        raise TypeError(f"default_value must be compatible with dtype. Given: {value}, dtype: {dtype}, key: {key}")
    if given.ndim and given.shape != dims:
        raise ValueError(f"The shape of default_value must be equal to given shape. Given: {value}, shape: {dims}")
    return _nested(np.broadcast_to(given, dims).tolist())


def _nested(value: Any) -> Any:
    """Lists as tuples."""
    return tuple(map(_nested, value)) if isinstance(value, list) else value


class BucketizedColumn(DenseColumn, CategoricalColumn, OldDenseColumn, OldCategoricalColumn):
    """See `bucketized_column`."""

    uncounted_ops = 4

    def __init__(self, source: NumericColumn, boundaries: tuple[float, ...]) -> None:
        self._source, self._boundaries = source, boundaries
        self.name = f"{source.name}_bucketized"
        self._depth = len(boundaries) + 1
        self.width = self.num_buckets = self._depth * source.width
        self.shape_of_one = (*source.shape_of_one, self._depth)

    def parse_spec(self) -> dict[str, Any]:
        return self._source.parse_spec()

    def made_of_feature(self, features: Features) -> Any:
        """The number of each number's bucket."""
        return self._buckets(features)

    def _buckets(self, features: Features) -> Tensor:
        return bucketize_op(self._source.dense(features), boundaries=list(self._boundaries))

    def dense(self, features: Features) -> Tensor:
        """A mark for the bucket of each number, [batch, width]."""
        marks = one_hot(cast(self._buckets(features), dtypes.int64), self._depth, 1.0, 0.0)
        return reshape(marks, [-1, self.width])

    def ids(self, features: Features) -> SparseTensor:
        """The bucket of each number; each place has buckets of its own."""
        buckets = self._buckets(features) + self._depth * np.arange(self._source.width, dtype=np.int32)
        count_ops(22)
        return sparse_of(cast(buckets, dtypes.int64), None)


@export("tf.feature_column.bucketized_column")
def bucketized_column(source_column: NumericColumn, boundaries: Sequence[float]) -> BucketizedColumn:
    """Which interval a number is in (``tf.feature_column.bucketized_column``): below, between, from the last on.

    Raises:
      ValueError: when the source is no numeric column of a vector, or the boundaries are not sorted.
    """
    if not isinstance(source_column, NumericColumn):
        raise ValueError(f"source_column must be a column generated with numeric_column(). Given: {source_column}")
    if len(source_column._dims) > 1:
        raise ValueError(f"source_column must be one-dimensional column. Given: {source_column.name}")
    found = tuple(boundaries or ())
    if not found or any(a >= b for a, b in zip(found, found[1:])):
        raise ValueError(f"boundaries must be a sorted list. Given: {boundaries}")
    return made_of(BucketizedColumn(source_column, found), source_column=source_column, boundaries=found)


def sparse_of(value: Any, ignored: TensorLike | None) -> SparseTensor:
    """A sparse tensor as it is; of a dense one the entries that are not ``ignored``."""
    if isinstance(value, SparseTensor):
        return value
    indices = where(greater_equal(value, value.dtype.min) if ignored is None else not_equal(value, ignored))
    return SparseTensor(indices, gather_nd(value, indices), shape(value, out_type=dtypes.int64))


class NumberedColumn(CategoricalColumn, OldCategoricalColumn):
    """A feature whose values are numbered by a function from its values to ids below ``num_buckets``."""

    def __init__(self, key: str, num_buckets: int, dtype: DTypeLike, numbered: Callable[[Tensor], Tensor]) -> None:
        self.name = self._key = key
        self.num_buckets, self._dtype, self._numbered = num_buckets, dtypes.as_dtype(dtype), numbered

    def parse_spec(self) -> dict[str, Any]:
        return {self._key: VarLenFeature(self._dtype)}

    @_once
    def ids(self, features: Features) -> SparseTensor:
        """The ids of each example. In a dense feature, "" and -1 stand for nothing."""
        value = feature(features, self._key)
        if dtypes.as_dtype(value.dtype).is_integer != self._dtype.is_integer:
            raise ValueError(f"The types of {self.name}, {self._dtype}, and {value} are not compatible.")
        value = sparse_of(value, "" if value.dtype == dtypes.string else -1)
        return SparseTensor(value.indices, self._numbered(value.values), value.dense_shape)


class HashedCategoricalColumn(NumberedColumn):
    """See `categorical_column_with_hash_bucket`."""


class IdentityCategoricalColumn(NumberedColumn):
    """See `categorical_column_with_identity`."""


class VocabularyListCategoricalColumn(NumberedColumn):
    """See `categorical_column_with_vocabulary_list`."""


class VocabularyFileCategoricalColumn(NumberedColumn):
    """See `categorical_column_with_vocabulary_file`."""


@export("tf.feature_column.categorical_column_with_hash_bucket")
def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: DTypeLike = dtypes.string
) -> CategoricalColumn:
    """Values by their hash (``tf.feature_column.categorical_column_with_hash_bucket``).

    Raises:
      ValueError: when the size is less than 1, or the type is neither string nor integer.
    """
    if hash_bucket_size is None or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be at least 1. hash_bucket_size: {hash_bucket_size}, key: {key}")
    _check_categorical(key, dtype)

    def numbered(values: Tensor) -> Tensor:
        texts = values if values.dtype == dtypes.string else as_string(values)
        return string_to_hash_bucket_fast(texts, hash_bucket_size)

    made = HashedCategoricalColumn(key, hash_bucket_size, dtype, numbered)
    return made_of(made, key=key, hash_bucket_size=hash_bucket_size, dtype=dtypes.as_dtype(dtype))


@export("tf.feature_column.categorical_column_with_identity")
def categorical_column_with_identity(key: str, num_buckets: int, default_value: int | None = None) -> CategoricalColumn:
    """Integers as they are (``tf.feature_column.categorical_column_with_identity``).

    Args:
      key: name of the feature.
      num_buckets: the ids are below it.
      default_value: the id of values outside; None: they make the step fail.

    Raises:
      ValueError: when a number makes no sense.
    """
    if num_buckets < 1:
        raise ValueError(f"num_buckets {num_buckets} < 1, column_name {key}")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise ValueError(f"default_value {default_value} not in range [0, {num_buckets}), column_name {key}")
    _check_key(key)

    def numbered(values: Tensor) -> Tensor:
        ids = cast(values, dtypes.int64)
        count_ops(2 if default_value is None else 4)
        if default_value is None:
            too_much = f'Bucket index for categorical column "{key}" exceeds number of buckets'
            too_little = f'Negative bucket index for categorical column "{key}"'
            limit = np.int64(num_buckets)
            checks = [
                assert_less(ids, limit, data=[ids, limit], message=too_much),
                assert_greater_equal(ids, np.int64(0), data=[ids], message=too_little),
            ]
            return with_dependencies(checks, ids)
        inside = logical_and(greater_equal(ids, np.int64(0)), less(ids, np.int64(num_buckets)))
        return where(inside, ids, fill(shape(ids), np.int64(default_value)))

    made = IdentityCategoricalColumn(key, num_buckets, dtypes.int64, numbered)
    return made_of(made, key=key, number_buckets=num_buckets, default_value=default_value)


@export("tf.feature_column.categorical_column_with_vocabulary_list")
def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[Any],
    dtype: DTypeLike | None = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> CategoricalColumn:
    """Values by their place in a list (``tf.feature_column.categorical_column_with_vocabulary_list``).

    Args:
      key: name of the feature.
      vocabulary_list: strings or integers.
      dtype: their type; default: that of the list.
      default_value: the id of other values; -1 leaves them out.
      num_oov_buckets: number of ids for other values, by their hash.

    Raises:
      ValueError, TypeError: the list is empty, no list, or has a value twice; both ways for other values are given.
    """
    if not hasattr(vocabulary_list, "__len__"):  # map() made a list in Python 2
        raise TypeError(f"vocabulary_list of {key} is a {type(vocabulary_list).__name__}: write list(...)")
    words = np.asarray(list(vocabulary_list))
    if not words.size or len(set(words.tolist())) != len(words):
        wrong = ("", " must be non-empty") if not words.size else ("Duplicate keys in ", "")
        raise ValueError(f"{wrong[0]}vocabulary_list {vocabulary_list}{wrong[1]}, column_name: {key}")
    _check_others(default_value, num_oov_buckets, key)
    own = dtypes.string if words.dtype.kind in "SUO" else dtypes.int64
    dtype = dtypes.as_dtype(own if dtype is None else dtype)
    if dtype.is_integer != own.is_integer:
        raise ValueError(f"dtype {dtype} and vocabulary dtype {own} do not match, column_name: {key}")
    _check_categorical(key, dtype)

    def numbered(values: Tensor) -> Tensor:
        wide = dtypes.string if dtype == dtypes.string else dtypes.int64
        mapping = [str(word) if own == dtypes.string and isinstance(word, str) else word for word in words.tolist()]
        table = index_table_from_tensor(mapping, num_oov_buckets, default_value, dtype=wide, name=f"{key}_lookup")
        return table.lookup(values if wide == dtypes.string else cast(values, wide))  # type: ignore[no-any-return]

    return made_of(
        VocabularyListCategoricalColumn(key, len(words) + num_oov_buckets, dtype, numbered), key=key,
        vocabulary_list=tuple(vocabulary_list), dtype=dtype, default_value=default_value,
        num_oov_buckets=num_oov_buckets,
    )  # fmt: skip


@export("tf.feature_column.categorical_column_with_vocabulary_file")
def categorical_column_with_vocabulary_file(
    key: str, vocabulary_file: str, vocabulary_size: int | None = None, num_oov_buckets: int = 0,
    default_value: int | None = None, dtype: DTypeLike = dtypes.string,
) -> CategoricalColumn:  # fmt: skip
    """Values by their line in a file (``tf.feature_column.categorical_column_with_vocabulary_file``).

    Args:
      key: name of the feature.
      vocabulary_file: one value on each line.
      vocabulary_size: number of lines to use; default: all.
      num_oov_buckets, default_value: see `categorical_column_with_vocabulary_list`.
      dtype: the values' type.

    Raises:
      ValueError: when the file is missing or empty, or both ways for other values are given.
    """
    if not vocabulary_file:
        raise ValueError(f"Missing vocabulary_file in {key}.")
    _check_others(-1 if default_value is None else default_value, num_oov_buckets, key)
    _check_categorical(key, dtype)
    if vocabulary_size is None:
        with open(vocabulary_file, "rb") as file:
            vocabulary_size = sum(1 for _ in file)
    if vocabulary_size < 1:
        raise ValueError(f"Invalid vocabulary_size in {key}.")
    other = -1 if default_value is None else default_value

    def numbered(values: Tensor) -> Tensor:
        wide = dtypes.string if dtypes.as_dtype(dtype) == dtypes.string else dtypes.int64
        table = index_table_from_file(
            vocabulary_file, num_oov_buckets, vocabulary_size, other, key_dtype=wide, name=f"{key}_lookup"
        )
        return table.lookup(values if wide == dtypes.string else cast(values, wide))  # type: ignore[no-any-return]

    return made_of(
        VocabularyFileCategoricalColumn(key, vocabulary_size + num_oov_buckets, dtype, numbered), key=key,
        vocabulary_file=vocabulary_file, vocabulary_size=vocabulary_size, num_oov_buckets=num_oov_buckets,
        dtype=dtypes.as_dtype(dtype), default_value=default_value,
    )  # fmt: skip


def _check_key(key: str) -> None:
    if not isinstance(key, str):
        raise ValueError(f"key must be a string. Got: type {type(key)}. Given key: {key}.")


def _check_categorical(key: str, dtype: DTypeLike) -> None:
    _check_key(key)
    dtype = dtypes.as_dtype(dtype)
    if dtype != dtypes.string and not dtype.is_integer:
        raise ValueError(f"dtype must be string or integer. dtype: {dtype}, column_name: {key}")


def _check_others(default_value: int, num_oov_buckets: int, key: str) -> None:
    if num_oov_buckets and default_value != -1:
        raise ValueError(f"Can't specify both num_oov_buckets and default_value in {key}.")
    if num_oov_buckets < 0:
        raise ValueError(f"Invalid num_oov_buckets {num_oov_buckets} in {key}.")


# ---- ``tf.feature_column.crossed_column``: combinations of categories as categories of their own -------------------


class CrossedColumn(CategoricalColumn, OldCategoricalColumn):
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

    @_once
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
        if isinstance(key, HashedCategoricalColumn):
            raise ValueError(
                "categorical_column_with_hash_bucket is not supported for crossing, since hashes of hashes collide more"
                f" often. Use the feature's name as a string instead. Given: {key.name}"
            )
        if not isinstance(key, (str, _Categorical)):
            raise ValueError(f"Unsupported key type. All keys must be strings or categorical columns. Given: {key}")
    made = CrossedColumn(keys, hash_bucket_size, hash_key)
    return made_of(made, keys=tuple(keys), hash_bucket_size=hash_bucket_size, hash_key=hash_key)


# ---- ``tf.feature_column.weighted_categorical_column`` -------------------------------------------------------------


class WeightedCategoricalColumn(CategoricalColumn, OldCategoricalColumn):
    """See `weighted_categorical_column`."""

    def __init__(self, source: CategoricalColumn, key: str, dtype: dtypes.DType) -> None:
        self._source, self._key, self._dtype = source, key, dtype
        self.name, self.num_buckets = f"{source.name}_weighted_by_{key}", source.num_buckets

    def parse_spec(self) -> dict[str, Any]:
        found = self._source.parse_spec()
        if self._key in found:
            raise ValueError(f"Parse config {found[self._key]} already exists for {self._key}.")
        return {**found, self._key: VarLenFeature(self._dtype)}

    def ids(self, features: Features) -> SparseTensor:
        return self._source.ids(features)

    @_once
    def weights(self, features: Features) -> SparseTensor:
        value = feature(features, self._key)
        if self._dtype != value.dtype.base_dtype:
            raise ValueError(f"Bad dtype, expected {self._dtype}, but got {value.dtype}.")
        value = sparse_of(value, None)
        return SparseTensor(value.indices, cast(value.values, dtypes.float32), value.dense_shape)


@export("tf.feature_column.weighted_categorical_column")
def weighted_categorical_column(
    categorical_column: Column, weight_feature_key: str, dtype: DTypeLike = dtypes.float32
) -> WeightedCategoricalColumn:
    """Categories with a weight each (``tf.feature_column.weighted_categorical_column``).

    Args:
      categorical_column: the categories.
      weight_feature_key: the feature with a number for each category of the example.
      dtype: of that feature.

    Raises:
      ValueError: when the column is not categorical or the dtype makes no weight.
    """
    kind = dtypes.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise ValueError(f"dtype {kind} is not convertible to float.")
    made = WeightedCategoricalColumn(categorical(categorical_column), weight_feature_key, kind)
    return made_of(made, categorical_column=categorical_column, weight_feature_key=weight_feature_key, dtype=kind)


def categorical(column: Column) -> Any:
    """The column; ValueError for one of another kind."""
    if not isinstance(column, _Categorical):
        raise ValueError(f"The column must be categorical, such as categorical_column_with_identity's. Given: {column}")
    return column


FeatureColumn = Column
export_names(
    "tensorflow.python.feature_column.feature_column_v2 tensorflow.python.feature_column.feature_column_lib",
    "BucketizedColumn CategoricalColumn CrossedColumn DenseColumn FeatureColumn HashedCategoricalColumn "
    "IdentityCategoricalColumn NumericColumn VocabularyFileCategoricalColumn VocabularyListCategoricalColumn "
    "WeightedCategoricalColumn",
)
export_names(
    "tensorflow.python.feature_column.feature_column",
    "_BucketizedColumn=BucketizedColumn _CategoricalColumn=OldCategoricalColumn _DenseColumn=OldDenseColumn "
    "_FeatureColumn=FeatureColumn _NumericColumn=NumericColumn",
)
