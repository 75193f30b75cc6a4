"""``tf.feature_column.input_layer`` and ``linear_model``: the first layer of a model, made of feature columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfmini.estimator.columns import (
    BucketizedColumn,
    Column,
    DenseColumn,
    Features,
    MadeOnce,
    OldDenseColumn,
    feature,
)
from tfmini.estimator.embedding_columns import EmbeddingColumn, SharedEmbeddingColumn, refuse_sequences
from tfmini.export import export, export_names
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, count_ops, get_collection, name_scope
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import reshape, shape
from tfmini.ops.math.elementwise import add
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.sums import add_n
from tfmini.ops.nn.embedding import safe_embedding_lookup_sparse
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.scope import get_variable, get_variable_scope, opened_once, variable_scope
from tfmini.train.checkpointing.assign import init_from_checkpoint


class FeatureTransformationCache:
    """What columns make of the features, each once.

    Attributes:
      features: name -> tensor.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self._made: dict[Any, Any] = {}

    def get(self, key: Any, state_manager: Any = None) -> Any:
        """The feature of a name, with a last dimension, or what a column makes of its feature.

        Args:
          key: a name or a column.
          state_manager: for a column with the methods of version 2.

        Raises:
          ValueError: when there is no such feature, or it is a scalar.
          TypeError: for another key.
        """
        if key not in self._made:
            self._made[key] = self._get(key, state_manager)
        return self._made[key]

    def _get(self, key: Any, state_manager: Any) -> Any:
        if isinstance(key, str):
            value = feature(self.features, key)
            if value.get_shape().ndims == 0:
                raise ValueError(f"Feature (key: {key}) cannot have rank 0. Given: {value}")
            return value
        if not isinstance(key, Column):
            raise TypeError(f'"key" must be either a "str" or "FeatureColumn". Provided: {key}')
        value = key._transform_feature(self) if state_manager is None else key.transform_feature(self, state_manager)
        if value is None:
            raise ValueError(f"Column {key.name} is not supported.")
        return value


class StateManager:
    """What keeps the variables and other things of columns: the methods' names, which all fail here."""

    def create_variable(self, feature_column: Any, name: str, shape: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes a variable of a column."""
        raise NotImplementedError("StateManager.create_variable")

    def add_variable(self, feature_column: Any, var: Any) -> Any:
        """Keeps a variable of a column."""
        raise NotImplementedError("StateManager.add_variable")

    def get_variable(self, feature_column: Any, name: str) -> Any:
        """The variable of a column."""
        raise NotImplementedError("StateManager.get_var")

    def add_resource(self, feature_column: Any, name: str, resource: Any) -> Any:
        """Keeps a thing of a column."""
        raise NotImplementedError("StateManager.add_resource")

    def get_resource(self, feature_column: Any, name: str) -> Any:
        """The thing of a column."""
        raise NotImplementedError("StateManager.get_resource")


class StateManagerOfLayer(StateManager):
    """The variables and other things that a library's columns make for one layer."""

    def __init__(self, layer: Any, trainable: bool) -> None:
        self._layer, self._trainable = layer, trainable
        self._variables: dict[Any, dict[str, Any]] = {}
        self._resources: dict[Any, dict[str, Any]] = {}
        self._prepared: list[Any] = []

    def create_variable(
        self, feature_column: Any, name: str, shape: Any, dtype: Any = None, trainable: bool = True,
        use_resource: bool = True, initializer: Any = None,
    ) -> Any:  # fmt: skip
        """Makes a variable in the present scope and gives it to the layer.

        Raises:
          ValueError: when the column has one of that name.
        """
        own = self._variables.setdefault(feature_column, {})
        if name in own:
            raise ValueError("Variable already exists.")
        is_trained = self._trainable and trainable
        made = get_variable(name, shape, dtype, initializer, trainable=is_trained, use_resource=use_resource)
        if self._layer is not None:
            (self._layer._trainable_weights if is_trained else self._layer._non_trainable_weights).append(made)
        own[name] = made
        return made

    def get_variable(self, feature_column: Any, name: str) -> Any:
        """The variable; ValueError when there is none."""
        return _known(self._variables, feature_column, name, "Variable")

    def add_resource(self, feature_column: Any, name: str, resource: Any) -> None:
        """Keeps a table, a module or another thing for the column."""
        self._resources.setdefault(feature_column, {})[name] = resource

    def get_resource(self, feature_column: Any, name: str) -> Any:
        """The thing; ValueError when there is none."""
        return _known(self._resources, feature_column, name, "Resource")

    def dense(self, column: Any, features: Features) -> Any:
        """What a column with the methods of version 2 makes of the features; its state is made once."""
        if column not in self._prepared:
            self._prepared.append(column)
            column.create_state(self)
        return column.get_dense_tensor(FeatureTransformationCache(features), self)


def _known(things: dict[Any, dict[str, Any]], column: Any, name: str, kind: str) -> Any:
    if name not in things.get(column, {}):
        raise ValueError(f"{kind} does not exist.")
    return things[column][name]


def is_feature_column_v2(feature_columns: Iterable[Any]) -> bool:
    """Whether all are columns with the methods of version 2."""
    return all(isinstance(column, Column) and column._is_v2_column for column in feature_columns)


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
    """The collections of a layer's variables: the given ones, all variables and those of models."""
    listed = list(weight_collections or ())
    usual = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES)
    return [*listed, *(name for name in usual if name not in listed)]


# Those of the variables of an estimator or a Keras layer, which TensorFlow makes by version 2 of the columns.
_OF_VERSION_2 = [GraphKeys.GLOBAL_VARIABLES]


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
        tensor, tensors, variables = side_by_side(features, columns, collections_of(weight_collections), trainable)
    for target, found in ((cols_to_vars, variables), (cols_to_output_tensors, tensors)):
        if target is not None:
            target.update(found)
    return tensor


def side_by_side(
    features: Features, feature_columns: Iterable[Column], collections: list[str], trainable: bool,
    manager: StateManagerOfLayer | None = None,
) -> tuple[Tensor, dict[Any, Tensor], dict[Any, list[Any]]]:  # fmt: skip
    """`input_layer` in the scope that is open: (the whole tensor, that of each column, the variables of each).

    With a state manager, a library's columns have the state that they made for it at the first call.
    """
    outputs, made, features = {}, {}, MadeOnce(features)
    for column in _dense_columns(feature_columns):
        variables: list[Any] = []
        with column_scope(column):
            if manager is not None and hasattr(column, "get_dense_tensor"):
                outputs[column] = _rows(column, manager.dense(column, features))
            else:
                outputs[column], variables = dense_of(column, features, collections, trainable)
            count_ops(column.uncounted_ops)
        made[column] = _parts(variables)
    return concat(list(outputs.values()), 1), outputs, made


def network_input(features: Features, feature_columns: Iterable[Column]) -> Tensor:
    """`input_layer`, for premade networks: with the variables of all columns before their ops, as in TensorFlow."""
    columns, collections = _dense_columns(feature_columns), _OF_VERSION_2
    outputs, tables, scopes, features = [], [], [], MadeOnce(features)
    with variable_scope(None, "input_layer", list(features.values())):
        for column in columns:
            with column_scope(column) as scope:
                tables.append(_table(column, collections, True) if isinstance(column, EmbeddingColumn) else None)
                scopes.append(scope)
        for column, table, scope in zip(columns, tables, scopes):
            with variable_scope(scope, auxiliary_name_scope=False), name_scope(scope.original_name_scope):
                outputs.append(dense_of(column, features, collections, True, table)[0])
                count_ops(column.uncounted_ops + (0 if table is None else 1))  # TensorFlow's variables are resources
        return concat(outputs, 1)


def _dense_columns(feature_columns: Iterable[Column]) -> list[Any]:
    columns = sorted_columns(feature_columns)
    for column in columns:
        if not isinstance(column, (DenseColumn, OldDenseColumn)):
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
        if column.is_of_library:
            return _dense_of_library(column, features, collections, trainable)
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


def _dense_of_library(
    column: Any, features: Features, collections: list[str], trainable: bool
) -> tuple[Any, list[Any]]:
    """`dense_of`, of a column that a library has made with TensorFlow's methods."""
    inputs = FeatureTransformationCache(features)
    if hasattr(column, "_get_dense_tensor"):
        numbers = column._get_dense_tensor(inputs, weight_collections=collections, trainable=trainable)
    else:
        numbers = StateManagerOfLayer(None, trainable).dense(column, features)
    return _rows(column, numbers), get_collection(GraphKeys.GLOBAL_VARIABLES, scope=get_variable_scope().name)


def _rows(column: Any, numbers: Tensor) -> Tensor:
    return reshape(numbers, [shape(numbers)[0], column.width])


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
    return weighted_sum(features, feature_columns, units, sparse_combiner, collections, trainable, cols_to_vars)


def weighted_sum(
    features: Features, feature_columns: Iterable[Column], units: int, sparse_combiner: str,
    collections: list[str] = _OF_VERSION_2, trainable: bool = True, cols_to_vars: dict[Any, Any] | None = None,
) -> Tensor:  # fmt: skip
    """`linear_model` with exactly these collections for its variables; as they are, those of an estimator."""
    columns = sorted_columns(feature_columns)
    sums = []
    scopes, features = [_scope_in_linear_model(column) for column in columns], MadeOnce(features)
    with variable_scope(None, "linear_model", list(features.values())):
        for column, scope in zip(columns, scopes):
            with column_scope(column) if scope is None else variable_scope(scope):
                total, variables = _weighted(column, features, units, sparse_combiner, collections, trainable)
            sums.append(total)
            if cols_to_vars is not None:
                cols_to_vars[column] = _parts(variables)
        bias = get_variable("bias_weights", [units], initializer=Zeros(), trainable=trainable, collections=collections)
        count_ops(2)
        if cols_to_vars is not None:
            cols_to_vars["bias"] = [bias]
        return add(add_n(sums, name="weighted_sum_no_bias"), bias, name="weighted_sum")


def _scope_in_linear_model(column: Column) -> str | None:
    """The scope of a column's weights: TensorFlow numbers it in the scope around the model. None: it shares vectors."""
    return None if isinstance(column, SharedEmbeddingColumn) else opened_once(column.name)


def _weighted(
    column: Any, features: Features, units: int, combiner: str, collections: list[str], trainable: bool
) -> tuple[Tensor, list[Any]]:
    sparse = isinstance(column, BucketizedColumn) or not isinstance(column, (DenseColumn, OldDenseColumn))
    rows = column.num_buckets if sparse else column.width
    weights = get_variable("weights", [rows, units], initializer=Zeros(), trainable=trainable, collections=collections)
    count_ops(1)  # TensorFlow's variables are resources
    if sparse:
        ids, own = column.ids(features), column.weights(features)
        count_ops(10 if own is None else 20)
        return safe_embedding_lookup_sparse(weights, ids, own, combiner=combiner), [weights]
    refuse_sequences(column)
    inputs, variables = dense_of(column, features, collections, trainable)
    count_ops(column.uncounted_ops + 1)
    return matmul(inputs, weights), [weights, *(one for one in variables if one is not weights)]


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


export_names(
    "tensorflow.python.feature_column.feature_column_v2 tensorflow.python.feature_column.feature_column_lib",
    "FeatureTransformationCache StateManager is_feature_column_v2",
)
export_names("tensorflow.python.feature_column.feature_column_v2", "_StateManagerImpl=StateManagerOfLayer")
export_names("tensorflow.python.feature_column.feature_column", "_LazyBuilder=FeatureTransformationCache")
