"""`tf.get_embedding_variable`: a table of embeddings that grows with the ids that are looked up."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, control_dependencies, get_default_graph, name_scope
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import colocate_with, init_scope
from tfmini.ops.array.identity import cast
from tfmini.ops.control import group
from tfmini.ops.growing import ops
from tfmini.ops.growing.options import EmbeddingVariableOption, chosen_initializer, default_values
from tfmini.ops.growing.state import Settings
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.scope import first_given, get_variable_scope, planned_partitioner
from tfmini.shapes import TensorShape

_KEY = "growing tables"  # of a graph: name -> (table, what it was made of)
_UNSUPPORTED = ("regularizer", "caching_device", "custom_getter", "constraint", "init_data_source")
_MANY = 1 << 40  # rows that partitioners are told, for the table has no number of its own


class EmbeddingVariable(Variable):
    """A table from int64 ids to vectors, or one part of it; `get_embedding_variable` makes it.

    Look it up with `tf.nn.embedding_lookup`: an unknown id gets a row, unless the options say otherwise. The optimizers
    of ``tf.train`` update the rows that were looked up, and keep their slots beside the rows. It has no value as one
    tensor.

    Attributes:
      part, parts: which ids are its own: those whose remainder by ``parts`` is ``part``.
      whole_name: the name of the whole table.
      settings: see `Settings`.
      unadmitted: the numbers in the row of an id that is not admitted, a scalar.
    """

    _is_resource = True
    _inserts = True

    def __init__(
        self, name: str, dim: int, dtype: dtypes.DType, settings: Settings, defaults: Tensor, unadmitted: float,
        trainable: bool = True, collections: Sequence[str] | None = None, part: int = 0, parts: int = 1,
    ) -> None:  # fmt: skip
        self.part, self.parts, self.settings, self.embedding_dim = part, parts, settings, dim
        self.whole_name = name
        self._trainable, self._initial_value = trainable, defaults
        self.unadmitted = np.asarray(unadmitted, dtype.numpy)
        self._build_handle(name if parts == 1 else f"{name}/part_{part}", dtype)
        found = [GraphKeys.GLOBAL_VARIABLES] if collections is None else list(collections)
        if trainable and GraphKeys.TRAINABLE_VARIABLES not in found:
            found.append(GraphKeys.TRAINABLE_VARIABLES)
        self.graph.add_to_collections(found, self)

    def _build_handle(self, name: str, dtype: dtypes.DType) -> None:
        shape = (self.embedding_dim,)
        with init_scope(), name_scope(name) as scope:
            own = scope[:-1]
            attrs = self.settings._asdict()
            self._handle: Tensor = ops.handle(shared_name=own, dtype=dtype, shape=shape, name=scope, **attrs)
            self._handle.handle_data = (dtype, (None, *shape))
            with colocate_with(self._handle.op):
                self._initializer_op = ops.initialize(
                    self._handle, self._initial_value, self.unadmitted, name="Initialize"
                )
                self._snapshot = ops.is_initialized(self._handle, name="IsInitialized")
        self._value_dtype = dtype

    # ---- as a variable --------------------------------------------------------------------------

    @property
    def _reference(self) -> Tensor:
        return self._handle

    @property
    def handle(self) -> Tensor:
        """The resource handle."""
        return self._handle

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the numbers."""
        return self._value_dtype

    @property
    def shape(self) -> TensorShape:
        """[None, embedding_dim]."""
        return TensorShape([None, self.embedding_dim])

    def is_initialized(self, name: str | None = None) -> Tensor:
        return ops.is_initialized(self._handle, name=name)  # type: ignore[no-any-return]

    def to_proto(self, export_scope: str | None = None) -> None:
        """None: there is no message for a table, so that an imported graph has the ops and not this object."""
        return None

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"The table {self.name!r} grows, so it has no value as one tensor. Look rows up with"
            " tf.nn.embedding_lookup, or take all with its method export()."
        )

    value = read_value = assign = assign_add = assign_sub = scatter_points = initialized_value = _refuse
    _as_graph_element = _refuse

    # ---- as a table -----------------------------------------------------------------------------

    def read_only(self) -> EmbeddingVariable:
        """The same table, whose lookups neither count ids nor make rows, as for an evaluation.

        An id that has no row gives the one that it would get; with a filter, the row of ids that are not admitted.
        """
        found = copy.copy(self)
        found._inserts = False
        return found

    def sparse_read(self, indices: TensorLike, name: str | None = None, insert: bool | None = None) -> Tensor:
        """The rows of ids: shape ``indices.shape + [embedding_dim]``.

        Args:
          indices: int64 or int32, of any shape.
          name: of the op.
          insert: whether unknown ids are counted and get rows; default: unless the table is `read_only`.
        """
        with colocate_with(self._handle.op):
            return ops.gather(
                self._handle,
                cast(indices, dtypes.int64),
                insert=self._inserts if insert is None else insert,
                dtype=self._value_dtype,
                name=name,
            )

    def apply_update(
        self, update: str, slots: dict[str, float], ids: TensorLike, grad: Tensor, hyper: Sequence[Any],
        step: Any = 0, flag: bool = False,
    ) -> Operation:  # fmt: skip
        """Runs an optimizer's update on rows, with the slots beside them; for optimizers."""
        return ops.apply(
            self._handle, grad, cast(ids, dtypes.int64), cast(step, dtypes.int64), list(hyper), update=update,
            flag=flag, slots=[slot.encode() for slot in slots], fills=list(slots.values()), T=self._value_dtype,
        )  # fmt: skip

    def scatter_rows(
        self, operation: str, indices: TensorLike, updates: Any, use_locking: bool, name: str | None
    ) -> Operation:
        if operation not in ("add", "sub"):
            raise NotImplementedError(
                f"Rows of the table {self.name!r} can be added to, but there is no {operation!r}."
            )
        rate = np.asarray(-1 if operation == "add" else 1, self._value_dtype.numpy)
        with colocate_with(self._handle.op):
            return self.apply_update("GradientDescent", {}, indices, updates, [rate])

    def size(self, name: str | None = None) -> Tensor:
        """The number of rows, an int64 scalar."""
        with colocate_with(self._handle.op):
            return ops.size(self._handle, name=name)  # type: ignore[no-any-return]

    total_count = size

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All rows: ids, int64 [n]; rows [n, embedding_dim]; lookups and latest steps, int64 [n], [0] if not kept."""
        with colocate_with(self._handle.op):
            found: Any = ops.export(self._handle, dtype=self._value_dtype, name=name)
        return tuple(found)

    def evict(self, global_step: Any = 0, name: str | None = None) -> Tensor:
        """Removes the rows that are too old or too small, as the options say; the number of those, an int64 scalar.

        Args:
          global_step: the present step; that of the latest update counts if it is later.
          name: of the op.
        """
        with colocate_with(self._handle.op):
            return ops.evict(self._handle, cast(global_step, dtypes.int64), name=name)  # type: ignore[no-any-return]


class EmbeddingParts(tuple[EmbeddingVariable, ...]):
    """A table in parts: id ``i`` is in part ``i % len(parts)``. It is given to `tf.nn.embedding_lookup` as it is.

    Attributes:
      name: of the table.
    """

    name: str

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the numbers."""
        return self[0].dtype

    @property
    def shape(self) -> TensorShape:
        """[None, embedding_dim]."""
        return self[0].shape

    def size(self) -> Tensor:
        """The number of rows of all parts, an int64 scalar."""
        counts = [part.size() for part in self]
        total = counts[0]
        for count in counts[1:]:
            total = total + count
        return total

    total_count = size

    def read_only(self) -> EmbeddingParts:
        """The same parts, each `EmbeddingVariable.read_only`."""
        found = EmbeddingParts(part.read_only() for part in self)
        found.name = self.name
        return found

    @property
    def initializer(self) -> Operation:
        """The op that empties all parts."""
        return group(*(part.initializer for part in self))


@export("tf.get_embedding_variable")
def get_embedding_variable(
    name: str,
    embedding_dim: int,
    key_dtype: DTypeLike = dtypes.int64,
    value_dtype: DTypeLike | None = None,
    initializer: Any = None,
    regularizer: Callable[..., Any] | None = None,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    partitioner: Callable[..., Any] | None = None,
    validate_shape: bool = True,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[..., Any] | None = None,
    init_data_source: Any = None,
    ev_option: EmbeddingVariableOption | None = None,
) -> Any:
    """A table of embeddings that grows with the ids that are looked up (``tf.get_embedding_variable`` of DeepRec).

    It obeys variable scopes, and stands on a parameter server, as a variable does; with a partitioner, its parts do,
    and id ``i`` is in part ``i % parts``.

    Args:
      name: of the table.
      embedding_dim: the numbers in a row.
      key_dtype: int64 or int32, of the ids; the table keeps int64.
      value_dtype: float32 (default) or float64.
      initializer: of new rows; see `InitializerOption`. It may be an array of one or more rows as well.
      trainable: whether optimizers update it by default.
      collections: of the graph.
      partitioner: such as `tf.fixed_size_partitioner`; default: the variable scope's.
      ev_option: see `EmbeddingVariableOption`.
      regularizer, caching_device, custom_getter, constraint, init_data_source: must be None, for a table has no value
        as one tensor.
      validate_shape: accepted and ignored.

    Returns:
      An `EmbeddingVariable`; with several parts, an `EmbeddingParts`, a tuple of those.

    Raises:
      ValueError: the name is taken, or must exist and does not; an argument is not supported.
    """
    unsupported = (regularizer, caching_device, custom_getter, constraint, init_data_source)
    dtype = dtypes.float32 if value_dtype is None else dtypes.as_dtype(value_dtype)
    _check(name, embedding_dim, dtypes.as_dtype(key_dtype), dtype, unsupported)
    option = EmbeddingVariableOption() if ev_option is None else ev_option
    scope = get_variable_scope()
    full_name = f"{scope.name}/{name}" if scope.name else name
    chosen = chosen_initializer(initializer, option.init_option.initializer, scope.initializer)
    tables = get_default_graph().attachments.setdefault(_KEY, {})
    if _exists(full_name, tables, scope.reuse):
        return tables[full_name]
    partition = first_given(partitioner, scope.partitioner, planned_partitioner(full_name))
    parts = 1 if partition is None else partition(shape=TensorShape([_MANY, embedding_dim]), dtype=dtype)[0]
    with control_dependencies(None), name_scope(None):
        made = _make(full_name, int(embedding_dim), dtype, option, chosen, trainable, collections, parts)
    tables[full_name] = made
    return made


def _check(name: str, dim: int, key_dtype: dtypes.DType, dtype: dtypes.DType, unsupported: Sequence[Any]) -> None:
    given = [argument for argument, value in zip(_UNSUPPORTED, unsupported) if value is not None]
    if given:
        raise ValueError(f"get_embedding_variable: {given[0]} is not supported by tables that grow ({name!r}).")
    if key_dtype not in (dtypes.int64, dtypes.int32):
        raise ValueError(f"The ids of table {name!r} must be int64 or int32, not {key_dtype.name}.")
    if dtype not in (dtypes.float32, dtypes.float64) or dim < 1:
        raise ValueError(f"Table {name!r} must have rows of one float32 or float64 at least: {dim} {dtype.name}.")


def _exists(name: str, tables: dict[str, Any], reuse: Any) -> bool:
    """Whether a table is to be reused.

    Raises:
      ValueError: it exists and may not, or does not and must.
    """
    if name in tables and not reuse:
        raise ValueError(f"Table {name} already exists, disallowed. Did you mean to set reuse=True or tf.AUTO_REUSE?")
    if name not in tables and reuse is True:
        raise ValueError(f"Table {name} does not exist, or was not created with tf.get_embedding_variable().")
    return name in tables


def _make(
    name: str, dim: int, dtype: dtypes.DType, option: EmbeddingVariableOption, initializer: Any,
    trainable: bool, collections: Sequence[str] | None, parts: int,
) -> Any:  # fmt: skip
    settings = option.settings(name, dim, initializer)
    with init_scope(), name_scope(f"{name}/Initializer/"):
        defaults = default_values(initializer, option.init_option.default_value_dim, dim, dtype)
    unadmitted = option.init_option.default_value_no_permission
    made = [
        EmbeddingVariable(name, dim, dtype, settings, defaults, unadmitted, trainable, collections, part, parts)
        for part in range(parts)
    ]
    if parts == 1:
        return made[0]
    whole = EmbeddingParts(made)
    whole.name = name
    return whole
