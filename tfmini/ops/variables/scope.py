"""``tf.get_variable`` and ``tf.variable_scope``: variables shared by name."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from operator import attrgetter
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph.attr_checks import while_context_of
from tfmini.graph.families import convert_to_tensor, get_default_graph, name_scope
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import get_collection, get_collection_ref, get_graph_from_inputs
from tfmini.ops.variables.base import (
    SCOPES_KEY,
    VariableAggregation,
    VariableSynchronization,
    disable_resource_variables,
    enable_resource_variables,
    resource_variables_enabled,
    variable_creator_scope,
)
from tfmini.ops.variables.store import AUTO_REUSE, Request, VariableStore, _AutoReuse, default_variable_store

# ---- ``tf.VariableScope``: the defaults of ``tf.get_variable`` in a part of the program ----------------------------


@export("tf.VariableScope")
class VariableScope:
    """The defaults of `get_variable` in a part of the program (``tf.VariableScope``).

    Each is a read-only property with a setter method ``set_<name>``: ``initializer``,
    ``regularizer``, ``caching_device``, ``partitioner``, ``custom_getter``, ``dtype``, ``use_resource``.
    """

    def __init__(
        self,
        reuse: bool | _AutoReuse | None,
        name: str = "",
        initializer: Callable[..., Any] | TensorLike | None = None,
        regularizer: Callable[..., Any] | None = None,
        caching_device: str | Callable[..., Any] | None = None,
        partitioner: Callable[..., Any] | None = None,
        custom_getter: Callable[..., Any] | None = None,
        name_scope: str = "",
        dtype: DTypeLike = dtypes.float32,
        use_resource: bool | None = None,
        constraint: Callable[..., Any] | None = None,
    ) -> None:
        self._name, self._name_scope, self._reuse = name, name_scope, reuse
        self._initializer, self._regularizer, self._constraint = initializer, regularizer, constraint
        self._caching_device, self._partitioner, self._custom_getter = caching_device, partitioner, custom_getter
        self._dtype, self._use_resource = dtype, use_resource

    @property
    def name(self) -> str:
        """The prefix of variable names, without a final ``/``."""
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The name scope that was opened with this variable scope."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        """False, True or AUTO_REUSE."""
        return self._reuse

    initializer = property(attrgetter("_initializer"))
    regularizer = property(attrgetter("_regularizer"))
    caching_device = property(attrgetter("_caching_device"))
    partitioner = property(attrgetter("_partitioner"))
    custom_getter = property(attrgetter("_custom_getter"))
    dtype = property(attrgetter("_dtype"))
    constraint = property(attrgetter("_constraint"))

    @property
    def use_resource(self) -> bool | None:
        return self._use_resource

    def reuse_variables(self) -> None:
        """Sets ``reuse`` to True: further variables of this scope must exist."""
        self._reuse = True

    def set_initializer(self, initializer: Callable[..., Any] | TensorLike) -> None:
        self._initializer = initializer

    def set_regularizer(self, regularizer: Callable[..., Any]) -> None:
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Callable[..., Any]) -> None:
        self._custom_getter = custom_getter

    def set_dtype(self, dtype: DTypeLike) -> None:
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        self._use_resource = use_resource

    def get_collection(self, name: str) -> list[Any]:
        """The items of a collection whose names are in this scope."""
        return get_default_graph().get_collection(name, self._name + "/" if self._name else "")

    def trainable_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self,
        var_store: VariableStore,
        name: str,
        shape: ShapeLike | TensorLike = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Callable[..., Any] | None = None,
        reuse: bool | _AutoReuse | None = None,
        trainable: bool | None = None,
        collections: str | Sequence[str] | None = None,
        caching_device: str | Callable[..., Any] | None = None,
        partitioner: Callable[..., Any] | None = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Callable[..., Any] | None = None,
        constraint: Callable[..., Any] | None = None,
        synchronization: VariableSynchronization | int | None = None,
        aggregation: VariableAggregation | int | None = None,
    ) -> Any:
        """`tf.get_variable` in this scope, from a given store."""
        full_name = f"{self._name}/{name}" if self._name else name
        # Name scopes do not affect the names of variables.
        with name_scope(None):
            _check_types_agree(dtype, initializer)
            synchronization = VariableSynchronization.AUTO if synchronization is None else synchronization
            request = Request(
                full_name,
                shape,
                dtypes.as_dtype(self._dtype if dtype is None else dtype).base_dtype,
                first_given(initializer, self._initializer),
                first_given(regularizer, self._regularizer),
                first_given(reuse, self._reuse),
                # Custom getters decide by this what they do with a variable: they get no None.
                synchronization is not VariableSynchronization.ON_READ if trainable is None else trainable,
                collections,
                first_given(caching_device, self._caching_device),
                first_given(partitioner, self._partitioner, planned_partitioner(full_name)),
                validate_shape,
                first_given(use_resource, self._use_resource),
                first_given(constraint, self._constraint),
                synchronization,
                VariableAggregation.NONE if aggregation is None else aggregation,
            )
            return var_store.get_variable(request, first_given(custom_getter, self._custom_getter))


def planned_partitioner(name: str) -> Any:
    """The partitioner that the device functions in force have for a variable, innermost first; None without one.

    A device function has partitioners if it has a method ``partitioner_of``, as a placement plan.
    """
    for level in reversed(get_default_graph().scopes.devices):
        if level is None:
            return None
        asked = getattr(level, "partitioner_of", None)
        found = None if asked is None else asked(name)
        if found is not None:
            return found
    return None


def first_given(*choices: object) -> Any:
    """The first of the choices that is not None."""
    return next((c for c in choices if c is not None), None)


def _check_types_agree(dtype: DTypeLike | None, initializer: Callable[..., Any] | TensorLike | None) -> None:
    if dtype is None or initializer is None or callable(initializer):
        return
    found = convert_to_tensor(initializer).dtype.base_dtype
    if found is not dtypes.as_dtype(dtype).base_dtype:
        wanted = dtypes.as_dtype(dtype)
        raise ValueError(f"Initializer type '{found}' and explicit dtype '{wanted}' don't match.")


# ---- ``tf.get_variable`` and ``tf.variable_scope`` -----------------------------------------------------------------

__all__ = [
    "AUTO_REUSE", "VariableScope", "disable_resource_variables", "enable_resource_variables", "get_local_variable",
    "get_partitioned_variable", "get_variable", "get_variable_scope", "no_regularizer", "resource_variables_enabled",
    "variable_creator_scope", "variable_op_scope", "variable_scope",
]  # fmt: skip


@export("tf.no_regularizer")
def no_regularizer(_: Any) -> None:
    """A regularizer that returns None; it disables that of a scope (``tf.no_regularizer``)."""


class _Scopes(threading.local):
    """A graph's variable scopes: the current one and the number of times each name was opened, per thread."""

    def __init__(self) -> None:
        self.current_scope = VariableScope(False)
        self.counts: dict[str, int] = {}

    def open(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def close_below(self, name: str) -> None:
        for known in self.counts:
            if known.startswith(name + "/"):
                self.counts[known] = 0

    def unique(self, prefix: str) -> str:
        """``prefix``, with a number if the current scope has used it before."""
        name = f"{self.current_scope.name}/{prefix}" if self.current_scope.name else prefix
        suffix, number = "", 0
        while self.counts.get(name + suffix):
            number += 1
            suffix = f"_{number}"
        return prefix + suffix


def _scopes() -> _Scopes:
    scopes: _Scopes = get_default_graph().attachments.setdefault(SCOPES_KEY, _Scopes())
    return scopes


@export("tf.get_variable_scope")
def get_variable_scope() -> VariableScope:
    """The current variable scope (``tf.get_variable_scope``)."""
    return _scopes().current_scope


@export("tf.get_variable")
def get_variable(
    name: str,
    shape: ShapeLike | TensorLike = None,
    dtype: DTypeLike | None = None,
    initializer: Callable[..., Any] | TensorLike | None = None,
    regularizer: Callable[..., Any] | None = None,
    trainable: bool | None = None,
    collections: str | Sequence[str] | None = None,
    caching_device: str | Callable[..., Any] | None = None,
    partitioner: Callable[..., Any] | None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[..., Any] | None = None,
    synchronization: VariableSynchronization | int | None = None,
    aggregation: VariableAggregation | int | None = None,
) -> Any:
    """The variable of that name in the variable scope, created or shared by the scope's ``reuse``.

    The scope gives the defaults of the arguments (``tf.get_variable``).

    Args:
      name: relative to the variable scope; name scopes are ignored.
      shape: fully defined, or None if the initializer is a value.
      dtype: default float32.
      initializer: a function ``(shape, dtype=…)``, an `Initializer`, or a value; default Glorot's
        uniform for floats, zeros for integers, bools and strings.
      regularizer: a function from the variable to a loss, which is added to REGULARIZATION_LOSSES.
      trainable, collections, caching_device, validate_shape, use_resource, constraint, synchronization,
        aggregation: see `Variable`.
      partitioner: a function ``(shape, dtype)`` -> number of parts per axis; gives a `PartitionedVariable`.
      custom_getter: a function ``(getter, name, …)`` that is called instead, with the default getter.

    Raises:
      ValueError: when ``reuse`` forbids to share or to create the variable, or its shape or dtype differs.
    """
    return get_variable_scope().get_variable(
        default_variable_store(),
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=collections,
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


@export("tf.get_local_variable")
@functools.wraps(get_variable, assigned=("__annotations__",))
def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Any:
    """`get_variable` for a variable that is local to the process: in LOCAL_VARIABLES, not trainable."""
    names = ("shape", "dtype", "initializer", "regularizer", "trainable", "collections", "caching_device",
             "partitioner", "validate_shape", "use_resource", "custom_getter", "constraint")  # fmt: skip
    settings = {**dict(zip(names, args)), **kwargs, "trainable": False}
    settings["collections"] = [*(settings.get("collections") or ()), GraphKeys.LOCAL_VARIABLES]
    return get_variable(name, **settings)


vars(get_local_variable)["__signature__"] = inspect.signature(get_variable)


def get_partitioned_variable(
    name: str | None, shape: ShapeLike | TensorLike, dtype: DTypeLike | None,
    initializer: Callable[..., Any] | TensorLike, trainable: bool, partitioner: Callable[..., Any], collections: Any,
) -> Any:  # fmt: skip
    """A partitioned variable; if ``name`` is None, with the name of the scope (for `create_partitioned_variables`)."""
    scope = get_variable_scope()
    if scope.custom_getter is not None:
        raise ValueError(
            "Private access to _get_partitioned_variable is not allowed when a custom getter is set.  Current custom"
            f" getter: {scope.custom_getter}.  It is likely that you're using create_partitioned_variables.  If so,"
            " consider instead using get_variable with a non-empty partitioner parameter instead."
        )
    request = Request(
        "/".join(part for part in (scope.name, name) if part),
        shape,
        dtypes.as_dtype(dtype),
        first_given(initializer, scope.initializer),
        scope.regularizer,
        scope.reuse,
        trainable,
        collections,
        scope.caching_device,
        partitioner,
        use_resource=first_given(scope.use_resource, resource_variables_enabled()),
        constraint=scope.constraint,
    )
    with name_scope(None):
        return default_variable_store().get_partitioned(request)


@export("tf.variable_scope")
class variable_scope:
    """Opens a variable scope and, with it, a name scope (``tf.variable_scope``).

    Args:
      name_or_scope: a name below the current scope, a `VariableScope` to enter again, or None.
      default_name: the name when ``name_or_scope`` is None; made unique.
      values: inputs; the scope is for their graph.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: defaults of `get_variable` inside; None: those of the outer scope.
      reuse: None: that of the outer scope; True: variables must exist; AUTO_REUSE: create missing ones.
      auxiliary_name_scope: False: do not open a name scope.

    Raises:
      TypeError, ValueError: for arguments that do not fit together.
      RuntimeError: when scopes are not closed in the order of nesting.
    """

    def __init__(
        self,
        name_or_scope: str | VariableScope | None,
        default_name: str | None = None,
        values: Any = None,
        initializer: Callable[..., Any] | TensorLike | None = None,
        regularizer: Callable[..., Any] | None = None,
        caching_device: str | Callable[..., Any] | None = None,
        partitioner: Callable[..., Any] | None = None,
        custom_getter: Callable[..., Any] | None = None,
        reuse: bool | _AutoReuse | None = None,
        dtype: DTypeLike | None = None,
        use_resource: bool | None = None,
        constraint: Callable[..., Any] | None = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if reuse not in (True, False, None, AUTO_REUSE):
            raise ValueError("The reuse parameter must be True or False or None.")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(f"The auxiliary_name_scope must be `True` or `False`, while get {auxiliary_name_scope}")
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        self._graph = get_graph_from_inputs(values or ())
        self._settings = {
            "initializer": initializer, "regularizer": regularizer, "caching_device": caching_device,
            "partitioner": partitioner, "dtype": dtype, "use_resource": use_resource,
        }  # fmt: skip
        self._custom_getter = custom_getter
        self._constraint = constraint
        self._reuse = reuse or None  # False means the same as None: an inner scope cannot disable reuse.
        self._auxiliary = auxiliary_name_scope
        self._entered: list[tuple[VariableScope, ExitStack]] = []

    def __enter__(self) -> VariableScope:
        target = self._name_or_scope
        with ExitStack() as stack:
            stack.enter_context(self._graph.as_default())
            if target is None:
                if self._reuse:
                    raise ValueError("reuse=True cannot be used without a name_or_scope")
                opened = stack.enter_context(self._name_scope(self._default_name or ""))
                scope = self._below(_scopes().unique(self._default_name or ""), opened)
            elif isinstance(target, VariableScope):
                stack.enter_context(self._name_scope(target.name.rpartition("/")[2]))
                scope = self._derived(target, target.name, target.original_name_scope, self._reuse or target.reuse)
            elif isinstance(target, str):
                opened = stack.enter_context(self._name_scope(target))
                scope = self._below(target, opened if target or not self._auxiliary else target)
            else:
                raise TypeError("VariableScope: name_or_scope must be a string or VariableScope.")
            stack.enter_context(_in_force(scope, jumped=isinstance(target, VariableScope)))
            self._entered.append((scope, stack.pop_all()))
        return scope

    def __exit__(self, *error: object) -> None:
        scope, stack = self._entered[-1]
        if _scopes().current_scope is not scope:
            raise RuntimeError("Improper nesting of variable_scope: one that was opened inside is still open.")
        self._entered.pop()
        stack.__exit__(*error)  # type: ignore[arg-type]

    def _name_scope(self, name: str) -> AbstractContextManager[str]:
        if name and self._auxiliary:
            return name_scope(name)
        current = get_default_graph().get_name_scope()
        return name_scope(current + "/" if current else None)

    def _below(self, name: str, opened: str) -> VariableScope:
        outer = _scopes().current_scope
        full_name = f"{outer.name}/{name}" if outer.name else name
        return self._derived(outer, full_name, opened, self._reuse or outer.reuse)

    def _derived(self, source: VariableScope, name: str, opened: str, reuse: Any) -> VariableScope:
        settings: dict[str, Any] = {
            key: getattr(source, key) if new is None else new for key, new in self._settings.items()
        }
        getter = _chained(self._custom_getter, source.custom_getter)
        return VariableScope(
            reuse, name, custom_getter=getter, name_scope=opened, constraint=self._constraint, **settings
        )


@contextmanager
def _in_force(scope: VariableScope, jumped: bool) -> Iterator[None]:
    scopes = _scopes()
    outer = scopes.current_scope
    scopes.open(scope.name)
    counts = dict(scopes.counts)
    scopes.current_scope = scope
    try:
        yield
    finally:
        if jumped:
            scopes.counts = counts
        else:
            scopes.close_below(scope.name)
        scopes.current_scope = outer


def opened_once(prefix: str) -> str:
    """`prefix`, with a number if the current scope has opened it before; from now on it counts as opened."""
    scopes = _scopes()
    name, outer = scopes.unique(prefix), scopes.current_scope.name
    scopes.open(f"{outer}/{name}" if outer else name)
    return name


def cache_outside_loops(scope: VariableScope) -> None:
    """From now on, new variables of ``scope`` are read once, on the device of what builds them, as for RNNs in TF 1.15.

    A loop that uses them gets a copy before it begins. Without it, a resource variable on a ps would be sent in each
    iteration. In a loop of the caller nothing is cached: each of its iterations sees what the one before has changed.
    """
    inside = while_context_of(get_default_graph()._get_control_flow_context())
    if scope.caching_device is None and inside is None:
        scope.set_caching_device(lambda op: op.device)


def _chained(getter: Callable[..., Any] | None, outer: Callable[..., Any] | None) -> Any:
    if getter is None or outer is None:
        return getter or outer

    def both(true_getter: Callable[..., Any] | None = None, *args: object, **kwargs: Any) -> Any:
        true_getter = kwargs.pop("getter") if true_getter is None else true_getter
        return getter(functools.partial(outer, true_getter), *args, **kwargs)

    return both


@export("tf.variable_op_scope")
@contextmanager
def variable_op_scope(
    values: TensorLike, name_or_scope: Any, default_name: str | None = None, *args: Any, **kwargs: Any
) -> Iterator[VariableScope]:
    """The old form of `variable_scope`, with the values first (``tf.variable_op_scope``)."""
    with variable_scope(name_or_scope, default_name, values, *args, **kwargs) as scope:
        yield scope


# ---- Functions that create their variables at the first call and share them later (``tf.make_template``) -----------

_LOG = logging.getLogger("tensorflow")


@export("tf.make_template")
def make_template(
    name_: str, func_: Callable[..., Any], create_scope_now_: bool = False, unique_name_: str | None = None,
    custom_getter_: Callable[..., Any] | None = None, **kwargs: object,
) -> Template:  # fmt: skip
    """Wraps a function whose `get_variable` calls create variables at its first call and share them later.

    Args:
      name_: name of the variable scope, made unique.
      func_: the function.
      create_scope_now_: choose the scope's name now instead of at the first call.
      unique_name_: an exact name, instead of ``name_``.
      custom_getter_: for the variables.
      kwargs: bound to the function's arguments.

    Raises:
      ValueError: when ``name_`` is None.
    """
    function = functools.partial(func_, **kwargs) if kwargs else func_
    return Template(name_, function, create_scope_now_, unique_name_, custom_getter_)


class Template:
    """The result of `make_template`; it is called like the function."""

    def __init__(
        self, name: str, func: Callable[..., Any], create_scope_now: bool = False, unique_name: str | None = None,
        custom_getter: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        if name is None:
            raise ValueError("name cannot be None.")
        self._name, self._func = name, func
        self._unique_name, self._custom_getter = unique_name, custom_getter
        self._variable_scope: VariableScope | None = None
        self._called = False
        if create_scope_now:
            self._variable_scope = self._new_scope()

    def _new_scope(self) -> VariableScope:
        """Make the variable scope alone: each call opens a name scope of its own, the first one, too."""
        name = self._unique_name or _scopes().unique(self._name)
        with variable_scope(name, custom_getter=self._custom_getter, auxiliary_name_scope=False) as scope:
            scope._name_scope = name
            return scope

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self._variable_scope is not None:
            with variable_scope(self._variable_scope, reuse=self._called or None):
                return self._call(args, kwargs)
        with variable_scope(self._unique_name, self._name, custom_getter=self._custom_getter) as scope:
            self._variable_scope = scope
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._called:
            result = self._func(*args, **kwargs)
            self._called = True
            return result
        trainable = get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        everything = get_collection_ref(GraphKeys.GLOBAL_VARIABLES)
        counts = len(trainable), len(everything)
        result = self._func(*args, **kwargs)
        if len(trainable) != counts[0]:
            raise ValueError(
                "Trainable variable created when calling a template after the first time, perhaps you used tf.Variable"
                f" when you meant tf.get_variable: {trainable[counts[0] :]}"
            )
        if len(everything) != counts[1]:
            _LOG.info(
                "New variables created when calling a template after the first time, perhaps you used tf.Variable when"
                " you meant tf.get_variable: %s", everything[counts[1] :],
            )  # fmt: skip
        return result

    @property
    def name(self) -> str:
        """The given name, before it was made unique."""
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        return self._func

    @property
    def variable_scope(self) -> VariableScope | None:
        """The variable scope; None before the first call."""
        return self._variable_scope

    var_scope = variable_scope

    @property
    def variable_scope_name(self) -> str | None:
        """The scope's name with a final slash."""
        if self._variable_scope is None:
            return None
        name = self._variable_scope.name
        return name if not name or name.endswith("/") else name + "/"

    def _collected(self, key: str) -> list[Any]:
        return get_collection(key, self.variable_scope_name) if self._called else []

    @property
    def trainable_variables(self) -> list[Any]:
        return self._collected(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def global_variables(self) -> list[Any]:
        return self._collected(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self) -> list[Any]:
        return self._collected(GraphKeys.LOCAL_VARIABLES)

    @property
    def variables(self) -> list[Any]:
        """The global, then the local variables that the function created."""
        return self.global_variables + self.local_variables

    @property
    def non_trainable_variables(self) -> list[Any]:
        trainable = {id(v) for v in self.trainable_variables}
        return [v for v in self.global_variables if id(v) not in trainable]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables
