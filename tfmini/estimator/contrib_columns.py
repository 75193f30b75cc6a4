"""The feature columns of ``tf.contrib.layers``, which are older than those of ``tf.feature_column``.

Their classes and fields have TensorFlow's names, since columns are used in the order of their texts. They work in
``tf.feature_column.input_layer`` and ``linear_model``, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes
from tfmini.estimator.columns import CategoricalColumn, Column, DenseColumn, Features, sparse_of
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import one_hot
from tfmini.ops.array.shape import expand_dims, reshape, shape
from tfmini.ops.composites import SparseTensor
from tfmini.ops.io.parsing_functions import FixedLenFeature, VarLenFeature
from tfmini.ops.math.elementwise import floormod
from tfmini.ops.math.reductions import reduce_prod
from tfmini.ops.math.search import bucketize_op
from tfmini.ops.sparse.functions import (
    sparse_concat,
    sparse_reshape,
)
from tfmini.ops.sparse.sets import sparse_feature_cross
from tfmini.ops.string_ops import as_string
from tfmini.ops.string_pieces import string_to_hash_bucket_fast, string_to_hash_bucket_strong
from tfmini.ops.vocabulary_tables import index_table_from_file, index_table_from_tensor

SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY = 956888297470
export_names("tf.contrib.layers", "SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY")


Collections = Iterable[str] | None


class Lookup(NamedTuple):
    """Ids whose vectors are looked up in a table of ``size`` rows, and how those of an example are joined."""

    ids: SparseTensor
    weights: SparseTensor | None
    size: int
    combiner: str


class ContribColumn(Column):
    """Base class; subclasses are dataclasses, whose fields are those of TensorFlow's named tuples.

    A subclass refuses fields that make no sense (`_check`), keeps what follows from them (`_derive`), and makes of the
    features what models begin with (`_transform`): numbers [batch, …], a sparse tensor of ids [batch, …], or a pair of
    ids and their weights. As ``found`` this comes to `wide`, for linear models, and `deep`, for networks.

    ``tensors`` are the features by name; they get what a column has made of them under the column, once.
    """

    has_sequences = True  # whether it can be a part of the input of a recurrent network
    _left_out: tuple[str, ...] = ()  # of the key

    def __post_init__(self) -> None:
        self._fields = tuple(field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
        self._check()
        self.name = self._named()
        self._derive()

    def _named(self) -> str:
        return str(vars(self)["column_name"])

    def _check(self) -> None:
        """Raises an error for fields that make no sense."""

    def _derive(self) -> None:
        """Sets the attributes that follow from the fields."""

    @property
    def key(self) -> str:
        """Columns are used in the order of this text."""
        if not self._left_out:
            return repr(self)
        shown = (f"{key}={vars(self)[key]}" for key in self._fields if key not in self._left_out)
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def config(self) -> dict[str, Any]:
        """Name of a feature -> how to parse it from an Example."""
        return self.parse_spec()

    def insert_transformed_feature(self, columns_to_tensors: dict[Any, Any]) -> None:
        """Adds what the column makes of the features."""
        columns_to_tensors[self] = self._transform(columns_to_tensors)

    def transformed(self, tensors: dict[Any, Any]) -> Any:
        """What the column makes of the features; of the same features it is made once."""
        if self not in tensors:
            self.insert_transformed_feature(tensors)
        return tensors[self]

    def _transform(self, tensors: dict[Any, Any]) -> Any:
        raise NotImplementedError(f"Transform is not implemented for {self}.")

    def wide(self, found: Any) -> Lookup | Tensor:
        """What a linear model looks up, or the numbers that it multiplies, [batch, width]."""
        raise NotImplementedError(f"No dense tensor representation for column {self}.")

    def deep(self, found: Any, rank: int, collections: Collections, trainable: bool) -> Tensor:
        """The input of a network: [batch, width] for rank 2, for 3 [batch, time, width]."""
        raise ValueError(f"{type(self).__name__[1:]} is not supported in DNN. Please use embedding_column. {self}")


def _given(tensors: dict[Any, Any], key: str) -> Any:
    if key not in tensors:
        raise KeyError(f"{key}: the features are {', '.join(sorted(k for k in tensors if isinstance(k, str)))}")
    value = tensors[key]
    return value if isinstance(value, SparseTensor) else convert_to_tensor(value)


def inner_flatten(value: Any, rank: int) -> Any:
    """A tensor or sparse tensor whose axes from ``rank - 1`` on are one."""
    if isinstance(value, SparseTensor):
        outer, inner = value.dense_shape[: rank - 1], value.dense_shape[rank - 1 :]
        return sparse_reshape(value, concat([outer, [reduce_prod(inner)]], 0))
    flat = reshape(value, concat([shape(value)[: rank - 1], [-1]], 0))
    static = value.get_shape()
    if static.ndims is not None:
        dims = static.as_list()
        inner = dims[rank - 1 :]
        flat.set_shape([*dims[: rank - 1], None if None in inner else math.prod(inner)])
    return flat


def with_rank(value: Any, rank: int, name: str) -> Any:
    """Numbers with one axis more, or with the last axes as one, so that they have the rank.

    Raises:
      ValueError: when more than one axis is missing.
    """
    own = value.get_shape().ndims
    if own is not None and rank > own + 1:
        raise ValueError(
            f"Error while processing column {name}. Rank of input Tensor ({own}) should be the same as output_rank"
            f" ({rank}): 3 for sequences, 2 for others."
        )
    if own is not None and rank == own + 1:
        return expand_dims(value, -1)
    return value if own == rank else inner_flatten(value, rank)


# ---- numbers -------------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class _RealValuedColumn(ContribColumn, DenseColumn):
    column_name: str
    dimension: int
    default_value: Any
    dtype: dtypes.DType
    normalizer: Callable[..., Any] | None
    _left_out = ("normalizer",)

    def _derive(self) -> None:
        self.width, self.shape_of_one = self.dimension, (self.dimension,)

    def parse_spec(self) -> dict[str, Any]:
        default = None if self.default_value is None else list(self.default_value)
        return {self.column_name: FixedLenFeature([self.dimension], self.dtype, default)}

    @property
    def normalizer_fn(self) -> Callable[..., Any] | None:
        """The function that the feature is given to."""
        return self.normalizer

    def _transform(self, tensors: dict[Any, Any]) -> Any:
        value = _given(tensors, self.column_name)
        return cast(value if self.normalizer is None else self.normalizer(value), dtypes.float32)

    def wide(self, found: Any) -> Tensor:
        return with_rank(found, 2, self.name)  # type: ignore[no-any-return]

    def deep(self, found: Any, rank: int, collections: Collections, trainable: bool) -> Tensor:
        return with_rank(found, rank, self.name)  # type: ignore[no-any-return]

    def dense(self, features: Features) -> Tensor:
        return reshape(self.transformed(dict(features)), [-1, self.dimension])


@export("tf.contrib.layers.real_valued_column")
def real_valued_column(
    column_name: str,
    dimension: int = 1,
    default_value: Any = None,
    dtype: dtypes.DType = dtypes.float32,
    normalizer: Callable[[Any], Any] | None = None,
) -> Any:
    """Numbers as they are (``tf.contrib.layers.real_valued_column``).

    Args:
      column_name: name of the feature.
      dimension: how many numbers an example has.
      default_value: for Examples that lack it: a number, or a list of one for each place.
      dtype: the feature's type.
      normalizer: a function of the tensor.

    Raises:
      TypeError, ValueError: when a value makes no sense.
    """
    of = f"column_name: {column_name}"
    if not isinstance(dimension, int):
        raise TypeError(f"dimension must be an integer. dimension: {dimension}, {of}")
    if dimension < 1:
        raise ValueError(f"dimension must be greater than 0. dimension: {dimension}, {of}")
    if not (dtype.is_integer or dtype.is_floating):
        raise ValueError(f"dtype must be convertible to float. dtype: {dtype}, {of}")
    if isinstance(default_value, list) and len(default_value) != dimension:
        raise ValueError(f"The length of default_value must be equal to dimension. It is {default_value}, {of}")
    if default_value is not None:
        default_value = _defaults(default_value, dimension, dtype, of)
    return _RealValuedColumn(column_name, dimension, default_value, dtype, normalizer)


def _defaults(value: Any, dimension: int, dtype: dtypes.DType, of: str) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value] * dimension
    kinds = int if dtype.is_integer else (int, float)
    if not all(isinstance(one, kinds) for one in values):
        raise TypeError(f"default_value must be compatible with dtype. default_value: {value}, dtype: {dtype}, {of}")
    return tuple(values if dtype.is_integer else map(float, values))


@dataclass(eq=False, repr=False)
class _BucketizedColumn(ContribColumn, CategoricalColumn, DenseColumn):
    source_column: Any
    boundaries: tuple[float, ...]
    has_sequences = False

    def _named(self) -> str:
        return f"{self.source_column.name}_bucketized"

    def _derive(self) -> None:
        self.length = len(self.boundaries) + 1
        self.width = self.num_buckets = self.length * self.source_column.dimension
        self.shape_of_one = (self.source_column.dimension, self.length)

    def parse_spec(self) -> dict[str, Any]:
        return self.source_column.config  # type: ignore[no-any-return]

    def _transform(self, tensors: dict[Any, Any]) -> Any:
        return bucketize_op(self.source_column.transformed(tensors), boundaries=list(map(float, self.boundaries)))

    def to_sparse_tensor(self, input_tensor: Tensor) -> SparseTensor:
        """The number of each bucket; each place has buckets of its own."""
        places = self.source_column.dimension
        numbers = reshape(input_tensor, [-1, places]) + self.length * np.arange(places, dtype=np.int32)
        return sparse_of(cast(numbers, dtypes.int64), None)

    def crossed_inputs(self, tensors: dict[Any, Any]) -> list[Any]:
        """What a crossed column combines."""
        return [self.to_sparse_tensor(self.transformed(tensors))]

    def wide(self, found: Any) -> Lookup:
        return Lookup(self.to_sparse_tensor(found), None, self.width, "sum")

    def deep(self, found: Any, rank: int, collections: Collections, trainable: bool) -> Tensor:
        if rank != 2:
            raise ValueError("BucketizedColumn currently only supports output_rank=2")
        return reshape(one_hot(cast(found, dtypes.int64), self.length, 1.0, 0.0), [-1, self.width])

    def dense(self, features: Features) -> Tensor:
        return self.deep(self.transformed(dict(features)), 2, None, True)

    def ids(self, features: Features) -> SparseTensor:
        return self.to_sparse_tensor(self.transformed(dict(features)))


@export("tf.contrib.layers.bucketized_column")
def bucketized_column(source_column: object, boundaries: Sequence[float]) -> Any:
    """Which interval a number is in (``tf.contrib.layers.bucketized_column``): below, between, from the last on.

    Raises:
      TypeError: when the source is no `real_valued_column`.
      ValueError: when the boundaries are no list or tuple, none, or not sorted; equal ones count once.
    """
    if not isinstance(source_column, _RealValuedColumn):
        raise TypeError(f"source_column must be an instance of _RealValuedColumn. source_column: {source_column}")
    if not isinstance(boundaries, (list, tuple)) or not boundaries:
        raise ValueError(f"boundaries must be a non-empty list or tuple. boundaries: {boundaries}")
    if list(boundaries) != sorted(boundaries):
        raise ValueError(f"boundaries must be a sorted list. boundaries: {boundaries}")
    return _BucketizedColumn(source_column, tuple(dict.fromkeys(boundaries)))


# ---- categories ----------------------------------------------------------------------------------------------------


class _SparseIdLookupConfig(NamedTuple):
    vocabulary_file: str | None = None
    keys: tuple[Any, ...] | None = None
    num_oov_buckets: int = 0
    vocab_size: int | None = None
    default_value: int = -1


class _Ids(ContribColumn, CategoricalColumn):
    """A column that makes ids, and perhaps weights."""

    length: int

    def id_tensor(self, input_tensor: Any) -> SparseTensor:
        """The ids, of what the column made."""
        return input_tensor  # type: ignore[no-any-return]

    def weight_tensor(self, input_tensor: Any) -> SparseTensor | None:
        """Their weights, of what the column made; None: they count alike."""
        return None

    def wide(self, found: Any) -> Lookup:
        return Lookup(self.id_tensor(found), self.weight_tensor(found), self.length, self._joined())

    def _joined(self) -> str:
        return str(vars(self)["combiner"])

    def ids(self, features: Features) -> SparseTensor:
        return self.id_tensor(self.transformed(dict(features)))

    def weights(self, features: Features) -> SparseTensor | None:
        return self.weight_tensor(self.transformed(dict(features)))


def check_ids(column: object) -> None:
    if not isinstance(column, _Ids):
        raise TypeError(
            "sparse_id_column must be a column of categories of tf.contrib.layers, such as that of"
            f" sparse_column_with_hash_bucket, not {column}"
        )


@dataclass(eq=False, repr=False)
class _SparseColumn(_Ids):
    column_name: str
    is_integerized: bool = False
    bucket_size: int | None = None
    lookup_config: _SparseIdLookupConfig | None = None
    combiner: str = "sum"
    dtype: dtypes.DType = dtypes.string

    def _check(self) -> None:
        of = f"column_name: {self.column_name}"
        if self.is_integerized and self.bucket_size is None:
            raise ValueError(f"bucket_size must be set if is_integerized is True. {of}")
        if self.is_integerized and not self.dtype.is_integer:
            raise ValueError(f"dtype must be an integer if is_integerized is True. dtype: {self.dtype}, {of}")
        if self.dtype != dtypes.string and not self.dtype.is_integer:
            raise ValueError(f"dtype must be string or integer. dtype: {self.dtype}, {of}")
        if self.bucket_size is None and self.lookup_config is None:
            raise ValueError(f"one of bucket_size or lookup_config must be set. {of}")
        if self.bucket_size is not None and self.bucket_size < 1:
            raise ValueError(f"bucket_size must be at least 1. bucket_size: {self.bucket_size}, {of}")

    def _derive(self) -> None:
        config = self.lookup_config or _SparseIdLookupConfig()
        self.num_buckets = self.length = self.bucket_size or (config.vocab_size or 0) + config.num_oov_buckets

    def parse_spec(self) -> dict[str, Any]:
        return {self.column_name: VarLenFeature(self.dtype)}

    def _transform(self, tensors: dict[Any, Any]) -> SparseTensor:
        value = _given(tensors, self.column_name)
        if not isinstance(value, SparseTensor):
            value = with_rank(value, 2, self.name)
        return self._numbered(sparse_of(value, "" if value.dtype == dtypes.string else -1))

    def crossed_inputs(self, tensors: dict[Any, Any]) -> list[Any]:
        """What a crossed column combines: the values themselves, not their ids."""
        return [_given(tensors, self.column_name)]

    def _numbered(self, value: SparseTensor) -> SparseTensor:
        raise NotImplementedError(f"{type(self).__name__} numbers no values.")

    def is_compatible(self, other_column: Any) -> bool:
        """Whether two columns may share their vectors."""
        if self.lookup_config and other_column.lookup_config:
            return bool(self.lookup_config == other_column.lookup_config)
        both = self.dtype.is_integer and other_column.dtype.is_integer
        return bool(self.length == other_column.length and (both or self.dtype == other_column.dtype))


def _with_values(value: SparseTensor, values: Tensor) -> SparseTensor:
    return SparseTensor(value.indices, values, value.dense_shape)


class _SparseColumnIntegerized(_SparseColumn):
    def _numbered(self, value: SparseTensor) -> SparseTensor:
        return _with_values(value, floormod(value.values, self.length))


class _SparseColumnHashed(_SparseColumn):
    hash_keys: Sequence[Sequence[int]] | None = None  # no field: as in TensorFlow, columns with other keys are equal

    def _numbered(self, value: SparseTensor) -> SparseTensor:
        texts = value.values if self.dtype == dtypes.string else as_string(value.values)
        if not self.hash_keys:
            return _with_values(value, string_to_hash_bucket_fast(texts, self.length))
        made = [string_to_hash_bucket_strong(texts, self.length, key) for key in self.hash_keys]
        return sparse_concat(1, [_with_values(value, numbers) for numbers in made])


class _SparseColumnKeys(_SparseColumn):
    def _numbered(self, value: SparseTensor) -> SparseTensor:
        config = self.lookup_config
        assert config is not None
        table = index_table_from_tensor(
            list(config.keys or ()), default_value=config.default_value, dtype=self.dtype, name="lookup"
        )
        return table.lookup(value)  # type: ignore[no-any-return]


class _SparseColumnVocabulary(_SparseColumn):
    def _numbered(self, value: SparseTensor) -> SparseTensor:
        config = self.lookup_config
        assert config is not None
        if self.dtype.is_integer:
            value = _with_values(value, as_string(value.values))
        table = index_table_from_file(
            config.vocabulary_file, config.num_oov_buckets, config.vocab_size, config.default_value,
            name=f"{self.name}_lookup",
        )  # fmt: skip
        return table.lookup(value)  # type: ignore[no-any-return]


@export("tf.contrib.layers.sparse_column_with_integerized_feature")
def sparse_column_with_integerized_feature(
    column_name: str, bucket_size: int, combiner: str = "sum", dtype: dtypes.DType = dtypes.int64
) -> Any:
    """Integers by their rest modulo ``bucket_size`` (``tf.contrib.layers.sparse_column_with_integerized_feature``).

    Args:
      column_name: name of the feature.
      bucket_size: number of categories.
      combiner: how a linear model joins the weights of an example's categories: "mean", "sqrtn" or "sum".
      dtype: the feature's type.

    Raises:
      ValueError: when the size is below 1, or the type no integer.
    """
    return _SparseColumnIntegerized(column_name, True, bucket_size, None, combiner, dtype)


@export("tf.contrib.layers.sparse_column_with_hash_bucket")
def sparse_column_with_hash_bucket(
    column_name: str,
    hash_bucket_size: int,
    combiner: str = "sum",
    dtype: dtypes.DType = dtypes.string,
    hash_keys: Sequence[Sequence[int]] | None = None,
) -> Any:
    """Values by their hash (``tf.contrib.layers.sparse_column_with_hash_bucket``).

    Args:
      hash_bucket_size: number of hashes.
      hash_keys: pairs of integers; each makes an id of every value, by a strong hash.
      The others are those of `sparse_column_with_integerized_feature`.

    Raises:
      ValueError: when the size is below 1, or the type neither string nor integer.
    """
    made = _SparseColumnHashed(column_name, False, hash_bucket_size, None, combiner, dtype)
    made.hash_keys = hash_keys
    return made


@export("tf.contrib.layers.sparse_column_with_keys")
def sparse_column_with_keys(
    column_name: str,
    keys: Iterable[Any],
    default_value: int = -1,
    combiner: str = "sum",
    dtype: dtypes.DType = dtypes.string,
) -> Any:
    """Values by their place in a list (``tf.contrib.layers.sparse_column_with_keys``).

    Args:
      keys: the values.
      default_value: the id of other values; -1 leaves them out.
      The others are those of `sparse_column_with_integerized_feature`.
    """
    words = tuple(keys)
    config = _SparseIdLookupConfig(keys=words, vocab_size=len(words), default_value=default_value)
    return _SparseColumnKeys(column_name, False, None, config, combiner, dtype)


@export("tf.contrib.layers.sparse_column_with_vocabulary_file")
def sparse_column_with_vocabulary_file(
    column_name: str, vocabulary_file: str, num_oov_buckets: int = 0, vocab_size: int | None = None,
    default_value: int = -1, combiner: str = "sum", dtype: dtypes.DType = dtypes.string,
) -> Any:  # fmt: skip
    """Values by their line in a file (``tf.contrib.layers.sparse_column_with_vocabulary_file``).

    Args:
      vocabulary_file: one value on each line.
      num_oov_buckets: number of ids for other values, by their hash; 0: they have the ``default_value``.
      vocab_size: number of lines to use; it must be given.
      The others are those of `sparse_column_with_keys`.

    Raises:
      ValueError: without ``vocab_size``.
    """
    if vocab_size is None:
        raise ValueError(f"vocab_size should be defined. column_name: {column_name}")
    config = _SparseIdLookupConfig(vocabulary_file, None, num_oov_buckets, vocab_size, default_value)
    return _SparseColumnVocabulary(column_name, False, None, config, combiner, dtype)


@dataclass(eq=False, repr=False)
class _WeightedSparseColumn(_Ids):
    sparse_id_column: Any
    weight_column_name: str
    dtype: dtypes.DType

    def _named(self) -> str:
        return f"{self.sparse_id_column.name}_weighted_by_{self.weight_column_name}"

    def _check(self) -> None:
        check_ids(self.sparse_id_column)

    def _derive(self) -> None:
        self.num_buckets = self.length = self.sparse_id_column.length
        self.lookup_config = self.sparse_id_column.lookup_config

    def parse_spec(self) -> dict[str, Any]:
        return {**self.sparse_id_column.config, self.weight_column_name: VarLenFeature(self.dtype)}

    def id_tensor(self, input_tensor: Any) -> SparseTensor:
        return input_tensor[0]  # type: ignore[no-any-return]

    def weight_tensor(self, input_tensor: Any) -> SparseTensor:
        return input_tensor[1]  # type: ignore[no-any-return]

    def _joined(self) -> str:
        return str(self.sparse_id_column.combiner)

    def _transform(self, tensors: dict[Any, Any]) -> tuple[SparseTensor, SparseTensor]:
        ids = self.sparse_id_column.transformed(tensors)
        weights = sparse_of(_given(tensors, self.weight_column_name), 0)
        return ids, _with_values(weights, cast(weights.values, dtypes.float32))

    def is_compatible(self, other_column: Any) -> bool:
        """Whether two columns may share their vectors."""
        weighted = isinstance(other_column, _WeightedSparseColumn)
        other = other_column.sparse_id_column if weighted else other_column
        return bool(self.sparse_id_column.is_compatible(other))


@export("tf.contrib.layers.weighted_sparse_column")
def weighted_sparse_column(
    sparse_id_column: _SparseColumn, weight_column_name: str, dtype: dtypes.DType = dtypes.float32
) -> Any:
    """Categories with a weight each, from another feature (``tf.contrib.layers.weighted_sparse_column``).

    Raises:
      TypeError: when the column is none of categories.
      ValueError: when the weights' dtype is no number.
    """
    if not (dtype.is_integer or dtype.is_floating):
        raise ValueError(f"dtype is not convertible to float. Given {dtype}")
    return _WeightedSparseColumn(sparse_id_column, weight_column_name, dtype)


@dataclass(eq=False, repr=False)
class _CrossedColumn(_Ids):
    columns: tuple[Any, ...]
    hash_bucket_size: int
    hash_key: int | None
    combiner: str
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    has_sequences = False

    def _named(self) -> str:
        return "_X_".join(sorted(column.name for column in self.columns))

    def _derive(self) -> None:
        self.num_buckets = self.length = self.hash_bucket_size

    def parse_spec(self) -> dict[str, Any]:
        return {name: spec for column in self.columns for name, spec in column.config.items()}

    def crossed_inputs(self, tensors: dict[Any, Any]) -> list[Any]:
        """What its columns give: a crossed column in another is not a hash of hashes."""
        return [each for column in self.columns for each in column.crossed_inputs(tensors)]

    def _transform(self, tensors: dict[Any, Any]) -> SparseTensor:
        return sparse_feature_cross(self.crossed_inputs(tensors), True, self.hash_bucket_size, "cross", self.hash_key)


@export("tf.contrib.layers.crossed_column")
def crossed_column(
    columns: Iterable[Any],
    hash_bucket_size: int,
    combiner: str = "sum",
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    hash_key: int | None = None,
) -> Any:
    """Combinations of categories by their hash (``tf.contrib.layers.crossed_column``).

    Args:
      columns: at least two: sparse, crossed or bucketized columns.
      hash_bucket_size: number of hashes, at least 2.
      combiner: how a linear model joins the weights of an example's combinations.
      ckpt_to_load_from, tensor_name_in_ckpt: a checkpoint and its tensor that the weights start with; both or none.
      hash_key: the key of a better hash, such as SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY.

    Raises:
      TypeError: when a column is of another kind.
      ValueError: when a number makes no sense.
    """
    given = list(columns)
    for column in given:
        if not isinstance(column, (_SparseColumn, _CrossedColumn, _BucketizedColumn)):
            raise TypeError(f"columns must be a set of _SparseColumn, _CrossedColumn, or _BucketizedColumn: {column}")
    if len(given) < 2:
        raise ValueError(f"columns must contain at least 2 elements. columns: {given}")
    if hash_bucket_size < 2:
        raise ValueError(f"hash_bucket_size must be at least 2. hash_bucket_size: {hash_bucket_size}")
    check_checkpoint(ckpt_to_load_from, tensor_name_in_ckpt)
    parts = tuple(sorted(given, key=lambda column: column.name))
    return _CrossedColumn(parts, hash_bucket_size, hash_key, combiner, ckpt_to_load_from, tensor_name_in_ckpt)


def check_checkpoint(path: str | None, tensor: str | None) -> None:
    if (path is None) != (tensor is None):
        raise ValueError("Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them.")
