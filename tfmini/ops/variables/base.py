"""`Variable`: the base of reference and resource variables (``tf.Variable``)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfmini import protos
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices, register_tensor_conversion_function
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys, prepend_name_scope, strip_name_scope
from tfmini.graph.operation import ObjectReference, Operation, Symbol, Tensor
from tfmini.shapes import TensorShape

# ---- The choice between reference and resource variables, and ``tf.variable_creator_scope`` ------------------------

# The key of a graph's variable scopes (`variable_scope`); ``.current_scope`` is the current one.
SCOPES_KEY = "variable_scopes"
_default = [False]


@export("tf.VariableSynchronization")
class VariableSynchronization(enum.Enum):
    """When replicas of a variable are combined (``tf.VariableSynchronization``)."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


@export("tf.VariableAggregation")
class VariableAggregation(enum.Enum):
    """How replicas of a variable are combined (``tf.VariableAggregation``)."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = 3  # its earlier name


@export("tf.enable_resource_variables")
def enable_resource_variables() -> None:
    """Makes resource variables the default (``tf.enable_resource_variables``)."""
    _default[0] = True


@export("tf.disable_resource_variables")
def disable_resource_variables() -> None:
    """Makes reference variables the default again (``tf.disable_resource_variables``)."""
    _default[0] = False


@export("tf.resource_variables_enabled")
def resource_variables_enabled() -> bool:
    """Whether resource variables are the default (``tf.resource_variables_enabled``)."""
    return get_default_graph().prefers_resources or _default[0]


def chosen_kind(use_resource: bool | None) -> bool:
    """Whether to make a resource variable: the given value, else that of the variable scope, else the default."""
    if use_resource is None:
        scopes = get_default_graph().attachments.get(SCOPES_KEY)
        use_resource = None if scopes is None else scopes.current_scope.use_resource
    return resource_variables_enabled() if use_resource is None else bool(use_resource)


@export("tf.variable_creator_scope")
@contextmanager
def variable_creator_scope(variable_creator: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, ``variable_creator(next_creator, **kwargs)`` makes variables (``tf.variable_creator_scope``).

    Raises:
      RuntimeError: on leaving, when a scope that was opened inside is still open.
    """
    graph = get_default_graph()
    outer = graph._variable_creator_stack
    graph._variable_creator_stack = inner = [*outer, variable_creator]
    try:
        yield
    finally:
        if graph._variable_creator_stack is not inner:
            raise RuntimeError("Exiting variable_creator_scope without proper nesting.")
        graph._variable_creator_stack = outer


def create_through_scopes(create: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Calls the active creators, innermost first, and ``create`` last."""
    for creator in get_default_graph()._variable_creator_stack:
        create = _chained(creator, create)
    return create(**kwargs)


def _chained(creator: Callable[..., Any], following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


def checked_kind(
    synchronization: Any, aggregation: Any, trainable: bool | None, name: str | None
) -> tuple[VariableSynchronization, VariableAggregation, bool]:
    """The three settings with their defaults filled in.

    Raises:
      ValueError: for a value that is not of its enum.
    """
    synchronization = VariableSynchronization.AUTO if synchronization is None else synchronization
    aggregation = VariableAggregation.NONE if aggregation is None else aggregation
    for what, value, kind in (
        ("synchronization", synchronization, VariableSynchronization),
        ("aggregation", aggregation, VariableAggregation),
    ):
        if not isinstance(value, kind):
            raise ValueError(f"Invalid variable {what} mode: {value} for variable: {name}")
    on_read = synchronization is VariableSynchronization.ON_READ
    return synchronization, aggregation, not on_read if trainable is None else bool(trainable)


# ---- `SaveSliceInfo`: the place of a part in a partitioned variable ------------------------------------------------


class SaveSliceInfo:
    """The place of a part in its whole variable (``tf.Variable.SaveSliceInfo``).

    Args:
      full_name: the name of the whole variable.
      full_shape: its shape.
      var_offset: the start of the part, per axis.
      var_shape: the shape of the part.
      save_slice_info_def: a proto, instead of all other arguments.
      import_scope: the name scope that is put before the proto's name.
    """

    def __init__(
        self,
        full_name: str | None = None,
        full_shape: Sequence[int] | None = None,
        var_offset: Sequence[int] | None = None,
        var_shape: Sequence[int] | None = None,
        save_slice_info_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        source = save_slice_info_def
        if source is not None:
            full_name = prepend_name_scope(source.full_name, import_scope)
            full_shape, var_offset, var_shape = source.full_shape, source.var_offset, source.var_shape
        self.full_name = full_name or ""
        self.full_shape = list(full_shape or ())
        self.var_offset = list(var_offset or ())
        self.var_shape = list(var_shape or ())

    @property
    def spec(self) -> str:
        """The slice in the format of checkpoints: full shape, then ``offset,length`` per axis."""
        extents = ":".join(f"{offset},{size}" for offset, size in zip(self.var_offset, self.var_shape))
        return f"{' '.join(map(str, self.full_shape))} {extents}"

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The slice as a SaveSliceInfoDef; None when it is outside of ``export_scope``."""
        if export_scope is not None and not self.full_name.startswith(export_scope):
            return None
        return protos.SaveSliceInfoDef(
            full_name=strip_name_scope(self.full_name, export_scope),
            full_shape=self.full_shape,
            var_offset=self.var_offset,
            var_shape=self.var_shape,
        )


# ---- `Variable`, and how the call of it finds the class to make ----------------------------------------------------

# The class for ``use_resource`` False and True; `ref_variable` and `resource_variable` register theirs.
KINDS: dict[bool, type[Variable]] = {}


class VariableMetaclass(type):
    """Makes ``tf.Variable(…)`` return a variable of the chosen kind."""

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        if cls is not Variable:
            return super().__call__(*args, **kwargs)
        return create_through_scopes(_create, _named(args, kwargs))


_ARGUMENTS = (
    "initial_value", "trainable", "collections", "validate_shape", "caching_device", "name", "variable_def", "dtype",
    "expected_shape", "import_scope", "constraint", "use_resource", "synchronization", "aggregation", "shape",
)  # fmt: skip


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if len(args) > len(_ARGUMENTS):
        raise TypeError(f"Variable takes at most {len(_ARGUMENTS)} arguments but {len(args)} were given.")
    named = dict(zip(_ARGUMENTS, args))
    for key, value in kwargs.items():
        if key not in _ARGUMENTS:
            raise TypeError(f"Variable got an unexpected keyword argument '{key}'")
        if key in named:
            raise TypeError(f"Variable got multiple values for argument '{key}'")
        named[key] = value
    return named


def _create(use_resource: bool | None = None, variable_def: Any = None, **kwargs: Any) -> Variable:
    is_resource = variable_def.is_resource if variable_def is not None else chosen_kind(use_resource)
    return KINDS[is_resource](variable_def=variable_def, **kwargs)


_SliceInfo = SaveSliceInfo  # its name inside of `Variable`, which has an attribute of that name


@export("tf.Variable")
class Variable(Symbol, metaclass=VariableMetaclass):
    """A value that a task keeps between steps (``tf.Variable``).

    Args:
      initial_value: a tensor, a value that converts to one, or a function without arguments that makes
        it (needed inside conds and loops).
      trainable: add to TRAINABLE_VARIABLES; None: yes, unless synchronised on read.
      collections: graph collections to add to; default GLOBAL_VARIABLES.
      validate_shape: require a fully known shape, which then cannot change.
      caching_device: a device that keeps a copy for readers.
      name: default ``Variable``.
      variable_def: a VariableDef of existing nodes, instead of all other arguments.
      dtype: type to convert the initial value to.
      expected_shape: ignored, as in TensorFlow.
      import_scope: name scope of the nodes in ``variable_def``.
      constraint: function of the value, applied by optimizers after an update.
      use_resource: make a resource variable; None: as set by the variable scope or the default.
      synchronization, aggregation: stored for distribution strategies.
      shape: static shape, if it is not the initial value's.

    Raises:
      ValueError: when the initial value is missing, has an unknown shape or comes from inside control flow.
    """

    SaveSliceInfo = SaveSliceInfo
    # numpy leaves operators between an array and a variable to the variable.
    __array_priority__ = 100

    _trainable: bool
    _constraint: Callable[..., Any] | None
    _initializer_op: Operation
    _initial_value: Tensor | None
    _snapshot: Tensor
    _caching_device: Any = None
    _save_slice_info: _SliceInfo | None = None
    _synchronization = VariableSynchronization.AUTO
    _aggregation = VariableAggregation.NONE
    _is_resource = False

    def __init__(
        self,
        initial_value: TensorLike | Callable[..., Any] | None = None,
        trainable: bool | None = None,
        collections: str | Sequence[str] | None = None,
        validate_shape: bool = True,
        caching_device: str | Callable[..., Any] | None = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: DTypeLike | None = None,
        expected_shape: ShapeLike = None,
        import_scope: str | None = None,
        constraint: Callable[..., Any] | None = None,
        synchronization: VariableSynchronization | int | None = None,
        aggregation: VariableAggregation | int | None = None,
        shape: ShapeLike = None,
    ) -> None:
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            self._init_from_proto(variable_def, import_scope)
            return
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        collections = [GraphKeys.GLOBAL_VARIABLES] if collections is None else collections
        if not isinstance(collections, (list, tuple, set)):
            raise ValueError(
                "collections argument to Variable constructor must be a list, tuple, or set. Got"
                f" {collections} of type {type(collections)}"
            )
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        self._synchronization, self._aggregation, self._trainable = checked_kind(
            synchronization, aggregation, trainable, name
        )
        if self._trainable and GraphKeys.TRAINABLE_VARIABLES not in collections:
            collections = [*collections, GraphKeys.TRAINABLE_VARIABLES]
        self._constraint = constraint
        self._caching_device = caching_device
        self._build(initial_value, validate_shape, caching_device, name, dtype, shape)
        self.graph.add_to_collections(collections, self)

    # ---- what the two kinds do differently ----------------------------------------------------

    def experimental_ref(self) -> ObjectReference:
        """A hashable reference to this very variable."""
        return ObjectReference(self)

    @property
    def _reference(self) -> Tensor:
        """The ref or the handle."""
        raise NotImplementedError

    def _build(
        self, initial_value: TensorLike | Callable[..., Any], validate_shape: bool,
        caching_device: str | Callable[..., Any] | None, name: str | None, dtype: DTypeLike | None, shape: ShapeLike,
    ) -> None:  # fmt: skip
        """Adds the variable's nodes."""
        raise NotImplementedError

    def value(self) -> Tensor:
        """The tensor used where the variable is used as a tensor."""
        raise NotImplementedError

    def read_value(self) -> Tensor:
        """A new read, which runs after the current control dependencies."""
        raise NotImplementedError

    def is_initialized(self, name: str | None = None) -> Tensor:
        """Whether the variable has a value, a bool scalar."""
        raise NotImplementedError

    def assign(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Assigns ``value``; returns the new value, or only the op if ``read_value`` is False."""
        raise NotImplementedError

    def assign_add(
        self, delta: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds ``delta``; returns like `assign`."""
        raise NotImplementedError

    def assign_sub(
        self, delta: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts ``delta``; returns like `assign`."""
        raise NotImplementedError

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and returns the value before; OutOfRangeError if that is ``limit`` or more."""
        raise NotImplementedError

    def scatter_rows(
        self, operation: str, indices: TensorLike, updates: TensorLike, use_locking: bool, name: str | None
    ) -> Any:
        """Applies an operation (``add``, ``update``…) to some rows."""
        raise NotImplementedError

    def scatter_points(
        self, operation: str, indices: TensorLike, updates: TensorLike, use_locking: bool, name: str | None
    ) -> Any:
        """Applies an operation (``add``, ``sub``, ``update``) at index vectors."""
        raise NotImplementedError

    def _as_graph_element(self) -> Tensor:
        raise NotImplementedError

    # ---- scatter updates ----------------------------------------------------------------------

    def _scatter(self, operation: str, sparse_delta: IndexedSlices, use_locking: bool, name: str | None) -> Any:
        if not isinstance(sparse_delta, IndexedSlices):
            raise TypeError(f"sparse_delta is not IndexedSlices: {sparse_delta}")
        return self.scatter_rows(operation, sparse_delta.indices, sparse_delta.values, use_locking, name)

    def scatter_add(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Adds `IndexedSlices`."""
        return self._scatter("add", sparse_delta, use_locking, name)

    def scatter_sub(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Subtracts `IndexedSlices`."""
        return self._scatter("sub", sparse_delta, use_locking, name)

    def scatter_mul(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Multiplies by `IndexedSlices`."""
        return self._scatter("mul", sparse_delta, use_locking, name)

    def scatter_div(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Divides by `IndexedSlices`."""
        return self._scatter("div", sparse_delta, use_locking, name)

    def scatter_min(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Takes the minimum with `IndexedSlices`."""
        return self._scatter("min", sparse_delta, use_locking, name)

    def scatter_max(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Takes the maximum with `IndexedSlices`."""
        return self._scatter("max", sparse_delta, use_locking, name)

    def scatter_update(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Assigns `IndexedSlices`."""
        return self._scatter("update", sparse_delta, use_locking, name)

    def scatter_nd_add(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Any:
        """Adds slices at index vectors."""
        return self.scatter_points("add", indices, updates, True, name)

    def scatter_nd_sub(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Any:
        """Subtracts slices at index vectors."""
        return self.scatter_points("sub", indices, updates, True, name)

    def scatter_nd_update(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Any:
        """Assigns slices at index vectors."""
        return self.scatter_points("update", indices, updates, True, name)

    batch_scatter_update: Callable[..., Any]  # the module `assignment` defines it

    # ---- facts --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``"op_name:0"``."""
        return self._reference.name

    @property
    def op(self) -> Operation:
        """The op that makes the variable."""
        return self._reference.op

    @property
    def graph(self) -> Any:
        return self._reference.graph

    @property
    def device(self) -> str:
        """The requested device."""
        return self._reference.device

    @property
    def dtype(self) -> DType:
        """The element type; a ``_ref`` type for a reference variable."""
        return self._reference.dtype

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return self._reference.shape

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self.shape

    @property
    def initializer(self) -> Operation:
        """The op that assigns the initial value."""
        return self._initializer_op

    @property
    def initial_value(self) -> Tensor | None:
        """The tensor of the initial value."""
        return self._initial_value

    @property
    def trainable(self) -> bool:
        return self._trainable

    @property
    def constraint(self) -> Callable[..., Any] | None:
        return self._constraint

    @property
    def synchronization(self) -> VariableSynchronization:
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        return self._aggregation

    @property
    def _shared_name(self) -> str:
        return self.name.partition(":")[0]

    def _get_save_slice_info(self) -> _SliceInfo | None:
        return self._save_slice_info

    def _set_save_slice_info(self, save_slice_info: _SliceInfo | None) -> None:
        self._save_slice_info = save_slice_info

    def eval(self, session: object = None) -> Any:
        """The value in ``session`` or the default session."""
        return self._as_graph_element().eval(session=session)

    def load(self, value: TensorLike, session: object = None) -> None:
        """Assigns ``value`` in ``session`` or the default session, through the initializer."""
        self.initializer.run({self.initializer.inputs[1]: value}, session)

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.get_shape()} dtype={self.dtype.name}>"

    def __iter__(self) -> Any:
        raise TypeError("'Variable' object is not iterable.")

    # ---- protos -------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The variable as a VariableDef; None when it is outside of ``export_scope``."""
        if export_scope is not None and not self._reference.name.startswith(export_scope):
            return None
        synchronization: Any = self._synchronization.value  # unlike the type stubs, protos accept numbers
        aggregation: Any = self._aggregation.value
        definition = protos.VariableDef(
            variable_name=strip_name_scope(self._reference.name, export_scope),
            initializer_name=strip_name_scope(self.initializer.name, export_scope),
            snapshot_name=strip_name_scope(self._snapshot.name, export_scope),
            is_resource=self._is_resource,
            trainable=self.trainable,
            synchronization=synchronization,
            aggregation=aggregation,
        )
        if self._initial_value is not None:
            definition.initial_value_name = strip_name_scope(self._initial_value.name, export_scope)
        if self._save_slice_info is not None:
            definition.save_slice_info_def.MergeFrom(self._save_slice_info.to_proto(export_scope))
        return definition

    @staticmethod
    def from_proto(variable_def: Any, import_scope: str | None = None) -> Variable:
        """The variable that a VariableDef describes; its nodes must be in the default graph."""
        return _create(variable_def=variable_def, import_scope=import_scope)

    def _init_from_proto(self, definition: Any, import_scope: str | None) -> None:
        raise NotImplementedError

    def _settings_from_proto(self, definition: Any, find: Callable[[str], Any], import_scope: str | None) -> None:
        self._initializer_op = find(definition.initializer_name)
        self._initial_value = find(definition.initial_value_name) if definition.initial_value_name else None
        self._synchronization, self._aggregation, self._trainable = checked_kind(
            VariableSynchronization(definition.synchronization),
            VariableAggregation(definition.aggregation),
            definition.trainable,
            definition.variable_name,
        )
        self._constraint = None
        if definition.HasField("save_slice_info_def"):
            self._save_slice_info = _SliceInfo(
                save_slice_info_def=definition.save_slice_info_def, import_scope=import_scope
            )


def finder(graph: Graph, import_scope: str | None) -> Callable[[str], Any]:
    """A function from a name in a proto to the graph element in ``import_scope``."""
    return lambda name: graph.as_graph_element(prepend_name_scope(name, import_scope))


def wrong_type_requested(variable: Any, dtype: DType) -> str:
    """The error of an op whose other input has another type: often numbers of numpy, which are float64."""
    own = variable.dtype.base_dtype.name
    return (
        f"Incompatible type conversion requested to type '{dtype.name}' for variable of type '{variable.dtype.name}'."
        f" The variable is {variable.name!r}; cast what it meets: tf.cast(x, tf.{own}), or x.astype(np.{own})."
    )


def _convert(variable: Variable, dtype: DType | None = None, name: str | None = None, as_ref: bool = False) -> Any:
    if dtype is not None and dtype.base_dtype is not variable.dtype.base_dtype:
        raise ValueError(wrong_type_requested(variable, dtype))
    return variable._reference if as_ref else variable.value()


register_tensor_conversion_function(Variable, _convert, 99)


def _operator_of_value(operator: str) -> Callable[..., Any]:
    # Looked up at each call, because the arithmetic ops define the operators of Tensor later.
    def run(self: Variable, *args: object, **kwargs: object) -> Any:
        return getattr(Tensor, operator)(self.value(), *args, **kwargs)

    run.__name__ = operator
    return run


for _operator in Tensor.OVERLOADABLE_OPERATORS - {"__eq__", "__ne__"}:
    setattr(Variable, _operator, _operator_of_value(_operator))
