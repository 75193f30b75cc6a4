"""The first layers of models of ``tf.contrib.layers``' feature columns: inputs of networks, and weighted sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.estimator.column_layers import start_from_checkpoint, table_of
from tfmini.estimator.columns import CategoricalColumn, DenseColumn, Features
from tfmini.estimator.contrib_columns import (
    Collections,
    ContribColumn,
    Lookup,
    _Ids,
    _SparseColumn,
    _WeightedSparseColumn,
    check_checkpoint,
    check_ids,
    inner_flatten,
    real_valued_column,
)
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.layers.contrib.model_variables import model_variable
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.identity import placeholder
from tfmini.ops.array.joining import concat
from tfmini.ops.array.partition import one_hot
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.composites import SparseTensor
from tfmini.ops.io.parsing_functions import FixedLenFeature, VarLenFeature, parse_example
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.sums import add_n
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.nn.embedding import safe_embedding_lookup_sparse
from tfmini.ops.sparse.functions import (
    sparse_concat,
    sparse_merge,
    sparse_placeholder,
    sparse_slice,
    sparse_tensor_to_dense,
)
from tfmini.ops.variables.initializers import TruncatedNormal, Zeros
from tfmini.ops.variables.scope import variable_scope

# ---- categories in networks ----------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class _OfCategories(ContribColumn, DenseColumn):
    """What a network reads of a column of categories."""

    sparse_id_column: Any

    def _check(self) -> None:
        check_ids(self.sparse_id_column)

    def parse_spec(self) -> dict[str, Any]:
        return self.sparse_id_column.config  # type: ignore[no-any-return]

    def _transform(self, tensors: dict[Any, Any]) -> Any:
        return self.sparse_id_column.transformed(tensors)


class _OneHotColumn(_OfCategories):
    def _named(self) -> str:
        return f"{self.sparse_id_column.name}_one_hot"

    def _derive(self) -> None:
        self.width = self.length = self.sparse_id_column.length
        self.shape_of_one = (self.length,)

    def deep(self, found: Any, rank: int, collections: Collections, trainable: bool) -> Tensor:
        ids = inner_flatten(self.sparse_id_column.id_tensor(found), rank)
        weights = self.sparse_id_column.weight_tensor(found)
        if weights is None:
            marks = one_hot(sparse_tensor_to_dense(ids, -1), self.length, 1.0, 0.0)
            return reduce_sum(marks, [rank - 1])
        joined = sparse_merge(ids, weights, self.length)
        joined = sparse_slice(joined, zeros_like(joined.dense_shape), joined.dense_shape)
        dense = sparse_tensor_to_dense(joined)
        return reshape(dense, concat([shape_of(dense)[:-1], [self.length]], 0))

    def dense(self, features: Features) -> Tensor:
        return self.deep(self.transformed(dict(features)), 2, None, True)


@export("tf.contrib.layers.one_hot_column")
def one_hot_column(sparse_id_column: _Ids) -> Any:
    """A number for each category: how often it occurs (``tf.contrib.layers.one_hot_column``)."""
    return _OneHotColumn(sparse_id_column)


@dataclass(eq=False, repr=False)
class _EmbeddingColumn(_OfCategories):
    dimension: int
    combiner: str = "mean"
    initializer: Any = None
    ckpt_to_load_from: str | None = None
    tensor_name_in_ckpt: str | None = None
    shared_embedding_name: str | None = None
    shared_vocab_size: int | None = None
    max_norm: float | None = None
    trainable: bool = True
    _left_out = ("initializer",)

    def _named(self) -> str:
        kind = "embedding" if self.shared_embedding_name is None else "shared_embedding"
        return f"{self.sparse_id_column.name}_{kind}"

    def _check(self) -> None:
        super()._check()
        of = f"Embedding of column_name: {self.sparse_id_column.name}"
        if self.dimension is None or self.dimension < 1:
            raise ValueError(f"Invalid dimension {self.dimension}. {of}")
        if self.initializer is not None and not callable(self.initializer):
            raise ValueError(f"initializer must be callable if specified. {of}")
        check_checkpoint(self.ckpt_to_load_from, self.tensor_name_in_ckpt)

    def _derive(self) -> None:
        self.length = self.shared_vocab_size or self.sparse_id_column.length
        if self.initializer is None:
            self.initializer = TruncatedNormal(0.0, 1 / math.sqrt(self.sparse_id_column.length))
        self.width, self.shape_of_one = self.dimension, (self.dimension,)

    def _table(self, collections: Collections, trainable: bool) -> Any:
        """The variable of the vectors; columns that share it find it in a collection."""
        dims, name = [self.length, self.dimension], self.shared_embedding_name

        def made() -> Any:
            return model_variable(
                name or "weights", dims, dtypes.float32, self.initializer, trainable=trainable and self.trainable,
                collections=collections,
            )  # fmt: skip

        shared = f"SHARED_EMBEDDING_COLLECTION_{name.upper()}" if name else None
        return table_of(self.name, dims, shared, vars(self), made)

    def _joined(self, table: Any, found: Any, rank: int) -> Tensor:
        ids, weights = self.sparse_id_column.id_tensor(found), self.sparse_id_column.weight_tensor(found)
        weights = None if weights is None else inner_flatten(weights, rank)
        return safe_embedding_lookup_sparse(
            table, inner_flatten(ids, rank), weights, combiner=self.combiner, name=f"{self.name}weights",
            max_norm=self.max_norm,
        )  # fmt: skip

    def deep(self, found: Any, rank: int, collections: Collections, trainable: bool) -> Tensor:
        return self._joined(self._table(collections, trainable), found, rank)

    def dense_and_variables(
        self, features: Features, collections: list[str], trainable: bool
    ) -> tuple[Tensor, list[Any]]:
        """What `dense` would give, and the variables for it, which are made in these collections."""
        table = self._table(collections, trainable)
        return self._joined(table, self.transformed(dict(features)), 2), [table]


@export("tf.contrib.layers.embedding_column")
def embedding_column(
    sparse_id_column: _Ids, dimension: int, combiner: str = "mean", initializer: Callable[..., Any] | None = None,
    ckpt_to_load_from: str | None = None, tensor_name_in_ckpt: str | None = None, max_norm: float | None = None,
    trainable: bool = True,
) -> Any:  # fmt: skip
    """A trained vector for each category (``tf.contrib.layers.embedding_column``).

    Args:
      sparse_id_column: the categories.
      dimension: length of the vectors.
      combiner: how an example's vectors are joined: "mean", "sqrtn" or "sum".
      initializer: of the vectors; default: truncated normal, with the deviation 1/sqrt(number of categories).
      ckpt_to_load_from, tensor_name_in_ckpt: a checkpoint and its tensor that the vectors start with; both or none.
      max_norm: longer vectors are shortened to it.
      trainable: whether optimizers change the vectors.

    Raises:
      TypeError: when the column is none of categories.
      ValueError: when a value makes no sense.
    """
    return _EmbeddingColumn(
        sparse_id_column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm=max_norm,
        trainable=trainable,
    )  # fmt: skip


@export("tf.contrib.layers.shared_embedding_columns")
def shared_embedding_columns(
    sparse_id_columns: Sequence[Any], dimension: int, combiner: str = "mean", shared_embedding_name: str | None = None,
    initializer: Callable[..., Any] | None = None, ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None, max_norm: float | None = None, trainable: bool = True,
) -> Any:  # fmt: skip
    """Columns whose categories share their vectors (``tf.contrib.layers.shared_embedding_columns``).

    Args:
      sparse_id_columns: sparse columns, or weighted ones, of the same categories.
      shared_embedding_name: names the variable; default: made from the names of the columns.
      The others are those of `embedding_column`.

    Raises:
      TypeError: when they are no sequence, or one is of another kind.
      ValueError: when there is none, or they do not fit together.
    """
    if not isinstance(sparse_id_columns, Sequence) or isinstance(sparse_id_columns, str):
        raise TypeError(f"sparse_id_columns must be a non-string sequence, not a {type(sparse_id_columns)}.")
    if not sparse_id_columns:
        raise ValueError("The input sparse_id_columns should have at least one element.")
    for column in sparse_id_columns:
        if not isinstance(column, (_SparseColumn, _WeightedSparseColumn)):
            raise TypeError(f"Elements must be _SparseColumn or _WeightedSparseColumn, but {column} is not.")
    first, *others = sparse_id_columns
    if not all(first.is_compatible(column) for column in others):
        raise ValueError("The input sparse id columns are not compatible.")
    if others:
        shared_embedding_name = shared_embedding_name or _shared_name(sparse_id_columns)
    size = first.length if others else None
    return tuple(
        _EmbeddingColumn(column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt,
                         shared_embedding_name, size, max_norm, trainable)
        for column in sparse_id_columns
    )  # fmt: skip


def _shared_name(columns: Sequence[Any]) -> str:
    """The names of at most three columns, those without weights first."""
    names = [c.name for c in sorted(columns, key=lambda c: (isinstance(c, _WeightedSparseColumn), c.name))]
    more = f"_plus_{len(names) - 3}_others" if len(names) > 3 else ""
    return f"{'_'.join(names[:3])}{more}_shared_embedding"


# ---- the layers -----------------------------------------------------------------------------------------------------

_Scope = Any  # a name, a variable scope, or None


@export("tf.contrib.layers.check_feature_columns")
def check_feature_columns(feature_columns: Iterable[Any]) -> None:
    """Checks that no two columns are the same (``tf.contrib.layers.check_feature_columns``).

    Raises:
      ValueError: when they are a dict, or two have the same key.
    """
    if isinstance(feature_columns, dict):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    seen: set[str] = set()
    for column in feature_columns:
        if column.key in seen:
            raise ValueError(f"Duplicate feature column key found for column: {column.name}. Discard one of them.")
        seen.add(column.key)


def _in_order(feature_columns: Iterable[Any]) -> list[Any]:
    given = list(feature_columns)
    if not given:
        raise ValueError("feature_columns is empty: give at least one column.")
    for column in given if not isinstance(feature_columns, dict) else ():
        if not isinstance(column, ContribColumn):
            raise TypeError(
                f"feature_columns must be made by tf.contrib.layers, not {column}. tf.feature_column.input_layer and"
                " linear_model take columns of both kinds."
            )
    check_feature_columns(feature_columns if isinstance(feature_columns, dict) else given)
    return sorted(given, key=lambda column: column.key)


def _listed(variable: Any) -> list[Any]:
    """A variable, or the parts of a partitioned one."""
    return list(variable) if hasattr(variable, "_get_variable_list") else [variable]


@export("tf.contrib.layers.input_from_feature_columns")
def input_from_feature_columns(
    columns_to_tensors: Mapping[Any, Any],
    feature_columns: Iterable[Any],
    weight_collections: Collections = None,
    trainable: bool = True,
    scope: _Scope = None,
    cols_to_outs: dict[Any, Any] | None = None,
) -> Tensor:
    """The columns side by side, [batch, width] (``tf.contrib.layers.input_from_feature_columns``).

    Args:
      columns_to_tensors: name of a feature -> tensor; a column may have its tensor, too.
      feature_columns: columns of numbers, of marks and of vectors.
      weight_collections: collections for the variables.
      trainable: whether optimizers change the variables.
      scope: of the variables; default ``input_from_feature_columns``.
      cols_to_outs: gets the tensor of each column.

    Raises:
      ValueError: when a column has no place in a network, or two are the same.
    """
    return _input(
        columns_to_tensors, feature_columns, weight_collections, trainable, scope, 2, "input_from_feature_columns",
        cols_to_outs,
    )  # fmt: skip


@export("tf.contrib.layers.sequence_input_from_feature_columns")
def sequence_input_from_feature_columns(
    columns_to_tensors: Mapping[Any, Any],
    feature_columns: Iterable[Any],
    weight_collections: Collections = None,
    trainable: bool = True,
    scope: _Scope = None,
) -> Tensor:
    """`input_from_feature_columns` of sequences, [batch, time, width].

    Raises:
      ValueError: for a column that is, or is made of, a bucketized or crossed column, or is sparse.
    """
    columns = _in_order(feature_columns)
    for column in columns:
        for part in (column, getattr(column, "sparse_id_column", column)):
            if not part.has_sequences:
                raise ValueError(f"Column {part.name}, a {type(part).__name__}, is not supported for sequences.")
        if isinstance(column, CategoricalColumn):
            raise ValueError(f"FeatureColumn type {type(column).__name__} is not supported for sequence data.")
    name = "sequence_input_from_feature_columns"
    return _input(columns_to_tensors, columns, weight_collections, trainable, scope, 3, name, None)


def _input(
    features: Mapping[Any, Any], feature_columns: Iterable[Any], collections: Collections, trainable: bool,
    scope: _Scope,
    rank: int, name: str, outputs: dict[Any, Any] | None,
) -> Tensor:  # fmt: skip
    columns, tensors = _in_order(feature_columns), dict(features)
    if outputs is not None and not isinstance(outputs, dict):
        raise ValueError("cols_to_outs must be a dict unless None")
    values, made = list(features.values()), []
    with variable_scope(scope, name, values):
        for column in columns:
            with variable_scope(None, column.name, values):
                found = column.transformed(tensors)
                try:
                    made.append(column.deep(found, rank, collections, trainable))
                except ValueError as error:
                    raise ValueError(f"Error creating input layer for column: {column.name}.\n{error}") from error
            if outputs is not None:
                outputs[column] = made[-1]
        return concat(made, rank - 1)


@export("tf.contrib.layers.weighted_sum_from_feature_columns")
def weighted_sum_from_feature_columns(
    columns_to_tensors: Mapping[Any, Any],
    feature_columns: Iterable[Any],
    num_outputs: int,
    weight_collections: Collections = None,
    trainable: bool = True,
    scope: _Scope = None,
) -> tuple[Tensor, dict[Any, Any], Any]:
    """A linear model of the columns (``tf.contrib.layers.weighted_sum_from_feature_columns``).

    Args:
      num_outputs: number of sums.
      The others are those of `input_from_feature_columns`.

    Returns:
      ([batch, num_outputs], column -> list of its variables, the bias).

    Raises:
      ValueError: when a column has no place in a linear model, or two are the same.
    """
    columns, tensors, sums, variables = _in_order(feature_columns), dict(columns_to_tensors), [], {}
    values = list(columns_to_tensors.values())
    with variable_scope(scope, "weighted_sum_from_feature_columns", values):
        for column in columns:
            inputs = column.wide(column.transformed(tensors))
            with variable_scope(None, column.name, values):
                total, variable = _weighted(column.name, inputs, num_outputs, weight_collections, trainable)
            sums.append(reshape(total, [-1, num_outputs]))
            variables[column] = _listed(variable)
            start_from_checkpoint(vars(column), variable)
        bias = _bias(num_outputs, weight_collections, trainable)
        return bias_add(add_n(sums), bias), variables, bias


def _weighted(
    name: str, inputs: Lookup | Tensor, units: int, collections: Collections, trainable: bool
) -> tuple[Tensor, Any]:
    if isinstance(inputs, Lookup):
        weights = _zeros("weights", [inputs.size, units], collections, trainable)
        total = safe_embedding_lookup_sparse(
            weights, inputs.ids, inputs.weights, inputs.combiner, name=f"{name}_weights"
        )
        return total, weights
    weight = _zeros("weight", [inputs.get_shape().as_list()[1], units], collections, trainable)
    return matmul(inputs, weight, name="matmul"), weight


def _zeros(name: str, shape: list[Any], collections: Collections, trainable: bool) -> Any:
    return model_variable(name, shape, dtypes.float32, Zeros(), trainable=trainable, collections=collections)


def _bias(units: int, collections: Collections, trainable: bool) -> Any:
    return _zeros("bias_weight", [units], collections, trainable)


@export("tf.contrib.layers.joint_weighted_sum_from_feature_columns")
def joint_weighted_sum_from_feature_columns(
    columns_to_tensors: Mapping[Any, Any],
    feature_columns: Iterable[Any],
    num_outputs: int,
    weight_collections: Collections = None,
    trainable: bool = True,
    scope: _Scope = None,
) -> tuple[Tensor, list[Any], Any]:
    """`weighted_sum_from_feature_columns` of sparse columns without weights, with one variable of all weights.

    Returns:
      ([batch, num_outputs], list of the variables, the bias).

    Raises:
      NotImplementedError: for a column of numbers.
      ValueError: a column has weights or another combiner than "sum".
    """
    columns, tensors = _in_order(feature_columns), dict(columns_to_tensors)
    with variable_scope(scope, "joint_weighted_sum_from_feature_columns", list(columns_to_tensors.values())):
        lookups = [column.wide(column.transformed(tensors)) for column in columns]
        if not all(isinstance(lookup, Lookup) for lookup in lookups):
            raise NotImplementedError("Real-valued columns are not supported. Bucketize them.")
        for column, lookup in zip(columns, lookups, strict=True):
            if lookup.weights is not None or lookup.combiner != "sum":
                raise ValueError(f"A joint sum takes no weights and no combiner but sum: {column}")
        with variable_scope(None, "linear_weights"):
            shape = [sum(lookup.size for lookup in lookups), num_outputs]
            weights = _zeros("weights", shape, weight_collections, trainable)
            total = safe_embedding_lookup_sparse(weights, _side_by_side(lookups), None, "sum", name="_weights")
        bias = _bias(num_outputs, weight_collections, trainable)
        return bias_add(total, bias), _listed(weights), bias


def _side_by_side(lookups: list[Lookup]) -> SparseTensor:
    """The ids of all columns, each column's after those of the columns before."""
    before, shifted = 0, []
    for lookup in lookups:
        shifted.append(SparseTensor(lookup.ids.indices, lookup.ids.values + before, lookup.ids.dense_shape))
        before += lookup.size
    return sparse_concat(1, shifted)


@export("tf.contrib.layers.create_feature_spec_for_parsing")
def create_feature_spec_for_parsing(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Name -> how to parse it, of all columns (``tf.contrib.layers.create_feature_spec_for_parsing``).

    Raises:
      TypeError: when something is no column of ``tf.contrib.layers``.
    """
    found: dict[str, Any] = {}
    for column in feature_columns.values() if isinstance(feature_columns, dict) else feature_columns:
        if not isinstance(column, ContribColumn):
            raise TypeError(
                f"feature_columns should only contain instances of _FeatureColumn. Given column is {column}"
            )
        found.update(column.config)
    return found


@export("tf.contrib.layers.parse_feature_columns_from_examples")
def parse_feature_columns_from_examples(
    serialized: TensorLike,
    feature_columns: Iterable[Any],
    name: str | None = None,
    example_names: TensorLike | None = None,
) -> dict[Any, Any]:
    """The features of serialized Examples, by name, and what the columns make of them, by column.

    Args:
      serialized: strings [batch].
      feature_columns: the columns.
      name, example_names: see `tf.parse_example`.
    """
    spec = create_feature_spec_for_parsing(feature_columns)
    tensors: dict[Any, Any] = parse_example(serialized, spec, name, example_names)
    for column in _in_order(feature_columns):
        column.transformed(tensors)
    return tensors


@export("tf.contrib.layers.transform_features")
def transform_features(features: Mapping[Any, Any], feature_columns: Iterable[Any]) -> dict[Any, Any]:
    """Column -> what it makes of the features (``tf.contrib.layers.transform_features``)."""
    tensors, columns = dict(features), _in_order(feature_columns)
    return {column: column.transformed(tensors) for column in columns}


@export("tf.contrib.layers.make_place_holder_tensors_for_base_features")
def make_place_holder_tensors_for_base_features(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Name of a feature -> placeholder of a batch (``tf.contrib.layers``)."""

    def made(key: str, spec: FixedLenFeature | VarLenFeature) -> Any:
        if isinstance(spec, VarLenFeature):
            return sparse_placeholder(spec.dtype, name=f"Placeholder_{key}")
        return placeholder(spec.dtype, [None, spec.shape[0]], f"Placeholder_{key}")

    return {key: made(key, spec) for key, spec in create_feature_spec_for_parsing(feature_columns).items()}


@export("tf.contrib.layers.infer_real_valued_columns")
def infer_real_valued_columns(features: Any) -> list[Any]:
    """A `real_valued_column` for each feature, or for the tensor of all (``tf.contrib.layers``).

    Raises:
      ValueError: when a feature is sparse or no number.
    """
    return [_inferred(*item) for item in (features.items() if isinstance(features, dict) else [("", features)])]


def _inferred(name: str, tensor: Any) -> Any:
    if isinstance(tensor, SparseTensor):
        raise ValueError(f"SparseTensor is not supported for auto detection. Give {name} a column.")
    if not (tensor.dtype.is_integer or tensor.dtype.is_floating):
        raise ValueError(f"Non integer or non floating types are not supported for auto detection: {name}, {tensor}.")
    dims = tensor.get_shape()
    if not dims[1:].is_fully_defined():
        raise ValueError(f"The shape of one example of the feature {name!r} is not known: {dims}. Give it a column.")
    return real_valued_column(name, math.prod(dims.as_list()[1:]), dtype=tensor.dtype)
