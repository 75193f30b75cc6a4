"""``tf.feature_column.input_layer`` and ``linear_model``: the first layer of a model, made of feature columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfmini.estimator.columns import BucketizedColumn, Column, DenseColumn, Features, refuse_sequences
from tfmini.estimator.embedding_columns import EmbeddingColumn, SharedEmbeddingColumn
from tfmini.export import export
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, count_ops, get_collection, name_scope
from tfmini.ops.array.joining import concat
from tfmini.ops.math.elementwise import add
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.sums import add_n
from tfmini.ops.nn.embedding import safe_embedding_lookup_sparse
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.train.checkpointing.assign import init_from_checkpoint


def sorted_columns(feature_columns: Iterable[Column]) -> list[Column]:
    """The columns in the order of their names.

    Raises:
      ValueError: when there is none, one is no column, or two have the same name.
    """
    given = [feature_columns] if isinstance(feature_columns, Column) else list(feature_columns or ())
    if not given:
        raise ValueError("feature_columns must not be empty.")
    found = sorted((checked_column(column) for column in given), key=lambda column: column.name)
    for one, other in zip(found, found[1:]):
        if one.name == other.name:
            raise ValueError(f"Duplicate feature column name found for columns: {one.name}.")
    return found


def collections_of(weight_collections: Iterable[str] | None) -> list[str]:
    listed = list(weight_collections or ())
    return listed if GraphKeys.GLOBAL_VARIABLES in listed else [*listed, GraphKeys.GLOBAL_VARIABLES]


@export("tf.feature_column.input_layer")
def input_layer(
    features: Features,
    feature_columns: Iterable[Column],
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
    cols_to_output_tensors: dict[Any, Any] | None = None,
) -> Tensor:
    """The dense columns side by side, [batch, width] (``tf.feature_column.input_layer``).

    Args:
      features: name -> tensor.
      feature_columns: dense columns.
      weight_collections: collections for the variables.
      trainable: whether optimizers change the variables.
      cols_to_vars: gets the variables of each column.
      cols_to_output_tensors: gets the tensor of each column.

    Raises:
      ValueError: when a column is not dense, or two have the same name.
    """
    columns = _dense_columns(feature_columns)
    with variable_scope(None, "input_layer", list(features.values())):
        tensor, tensors, variables = side_by_side(features, columns, weight_collections, trainable)
    for target, found in ((cols_to_vars, variables), (cols_to_output_tensors, tensors)):
        if target is not None:
            target.update(found)
    return tensor


def side_by_side(
    features: Features, feature_columns: Iterable[Column], weight_collections: Iterable[str] | None, trainable: bool
) -> tuple[Tensor, dict[Any, Tensor], dict[Any, list[Any]]]:
    """`input_layer` in the scope that is open: (the whole tensor, that of each column, the variables of each)."""
    outputs, made = {}, {}
    for column in _dense_columns(feature_columns):
        with column_scope(column):
            outputs[column], variables = dense_of(column, features, collections_of(weight_collections), trainable)
            count_ops(column.uncounted_ops)
        made[column] = _parts(variables)
    return concat(list(outputs.values()), 1), outputs, made


def network_input(features: Features, feature_columns: Iterable[Column]) -> Tensor:
    """`input_layer`, for premade networks: with the variables of all columns before their ops, as in TensorFlow."""
    columns, collections = _dense_columns(feature_columns), collections_of(None)
    outputs, tables, scopes = [], [], []
    with variable_scope(None, "input_layer", list(features.values())):
        for column in columns:
            with column_scope(column) as scope:
                tables.append(_table(column, collections, True) if isinstance(column, EmbeddingColumn) else None)
                scopes.append(scope)
        for column, table, scope in zip(columns, tables, scopes):
            with variable_scope(scope, auxiliary_name_scope=False), name_scope(scope.original_name_scope):
                outputs.append(dense_of(column, features, collections, True, table)[0])
                count_ops(column.uncounted_ops + (0 if table is None else 2))  # TensorFlow's variables are resources
        return concat(outputs, 1)


def _dense_columns(feature_columns: Iterable[Column]) -> list[Any]:
    columns = sorted_columns(feature_columns)
    for column in columns:
        if not isinstance(column, DenseColumn):
            raise ValueError(
                f"Items of feature_columns must be dense. You can wrap a categorical column with an embedding_column or"
                f" indicator_column. Given: {column.name}"
            )
        refuse_sequences(column)
    return columns


def dense_of(
    column: Any, features: Features, collections: list[str], trainable: bool, table: Any = None
) -> tuple[Tensor, list[Any]]:
    """(the column's tensor, its variables)."""
    if not isinstance(column, EmbeddingColumn):
        make = getattr(column, "dense_and_variables", None)  # a column of contrib that has variables of its own
        return (column.dense(features), []) if make is None else make(features, collections, trainable)
    ids, weights = column.source.ids(features), column.source.weights(features)
    if table is None:
        table = _table(column, collections, trainable)
    settings = column.settings
    found = safe_embedding_lookup_sparse(
        table, ids, weights, combiner=settings["combiner"], max_norm=settings["max_norm"]
    )
    return found, [table]


def _parts(variables: list[Any]) -> list[Any]:
    """The variables, with the parts of one that is partitioned in its place."""
    return [part for each in variables for part in (each if isinstance(each, PartitionedVariable) else [each])]


def column_scope(column: Column) -> Any:
    """The scope of a column's ops and variables; shared vectors are not in that of one of their columns."""
    name = str(column.settings[_SHARED]) if isinstance(column, SharedEmbeddingColumn) else column.name
    return variable_scope(None, name)


_SHARED = "shared_embedding_collection_name"


def _table(column: EmbeddingColumn, collections: list[str], trainable: bool) -> Any:
    settings, dims = column.settings, [column.source.num_buckets, column.width]

    def made() -> Any:
        return get_variable(
            "embedding_weights", dims, initializer=settings["initializer"],
            trainable=trainable and settings["trainable"], collections=collections,
        )  # fmt: skip

    return table_of(column.name, dims, settings.get(_SHARED), settings, made)


def table_of(
    name: str, dims: list[int], shared: str | None, settings: Mapping[str, Any], make: Callable[[], Any]
) -> Any:
    """The variable of a column's vectors; columns that share it find it in the collection ``shared``."""
    known = get_collection(shared) if shared else []
    if known:
        if known[0].get_shape().as_list() != dims:
            raise ValueError(f"The collection {shared!r} has {known[0]}, but {name} needs the shape {dims}.")
        return known[0]
    table = make()
    if shared:
        add_to_collection(shared, table)
    start_from_checkpoint(settings, table)
    return table


def start_from_checkpoint(settings: Mapping[str, Any], variable: object) -> None:
    """Makes a variable start with the tensor of a checkpoint, if the settings, or fields, of its column name one."""
    if settings.get("ckpt_to_load_from") is not None:
        init_from_checkpoint(settings["ckpt_to_load_from"], {settings["tensor_name_in_ckpt"]: variable})


@export("tf.feature_column.linear_model")
def linear_model(
    features: Features,
    feature_columns: Iterable[Column],
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> Tensor:
    """A weighted sum of all columns, and a bias, [batch, units] (``tf.feature_column.linear_model``).

    Args:
      features: name -> tensor.
      feature_columns: dense and categorical columns; a categorical one has a weight for each category.
      units: number of sums.
      sparse_combiner: how the weights of several categories of one example are joined: "mean", "sqrtn" or "sum".
      weight_collections, trainable, cols_to_vars: see `input_layer`; the bias has the key "bias".
    """
    collections = collections_of(weight_collections)
    columns = sorted_columns(feature_columns)
    sums = []
    with variable_scope(None, "linear_model", list(features.values())):
        for column in columns:
            with column_scope(column):
                total, variables = _weighted(column, features, units, sparse_combiner, collections, trainable)
            sums.append(total)
            if cols_to_vars is not None:
                cols_to_vars[column] = _parts(variables)
        bias = get_variable("bias_weights", [units], initializer=Zeros(), trainable=trainable, collections=collections)
        count_ops(2)
        if cols_to_vars is not None:
            cols_to_vars["bias"] = [bias]
        return add(add_n(sums, name="weighted_sum_no_bias"), bias, name="weighted_sum")


def _weighted(
    column: Any, features: Features, units: int, combiner: str, collections: list[str], trainable: bool
) -> tuple[Tensor, list[Any]]:
    sparse = isinstance(column, BucketizedColumn) or not isinstance(column, DenseColumn)
    rows = column.num_buckets if sparse else column.width
    weights = get_variable("weights", [rows, units], initializer=Zeros(), trainable=trainable, collections=collections)
    count_ops(1)  # TensorFlow's variables are resources
    if sparse:
        ids, own = column.ids(features), column.weights(features)
        count_ops(9 if isinstance(column, BucketizedColumn) else 7)
        return safe_embedding_lookup_sparse(weights, ids, own, combiner=combiner), [weights]
    refuse_sequences(column)
    inputs, variables = dense_of(column, features, collections, trainable)
    count_ops(column.uncounted_ops + 1)
    return matmul(inputs, weights), [*variables, weights]


@export("tf.feature_column.make_parse_example_spec")
def make_parse_example_spec(feature_columns: Iterable[Column]) -> dict[str, Any]:
    """Name -> how to parse it, of all columns (``tf.feature_column.make_parse_example_spec``).

    Raises:
      ValueError: when two columns parse a feature differently.
    """
    found: dict[str, Any] = {}
    for column in feature_columns:
        for name, spec in checked_column(column).parse_spec().items():
            if found.setdefault(name, spec) != spec:
                raise ValueError(f"feature_columns contain different parse_spec for key {name}. Given {spec}.")
    return found


def checked_column(column: Column) -> Column:
    """The column; ValueError for what is none."""
    if not isinstance(column, Column):
        raise ValueError(f"All feature_columns must be made by tf.feature_column. Given: {column}")
    return column
