"""``tf.get_variable`` and ``tf.variable_scope``: variables shared by name."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoping import get_graph_from_inputs, name_scope
from tfmini.ops.variables import kind as variable_kind
from tfmini.ops.variables.kind import (
    disable_resource_variables,
    enable_resource_variables,
    resource_variables_enabled,
    variable_creator_scope,
)
from tfmini.ops.variables.scope_defaults import VariableScope, first_given
from tfmini.ops.variables.store import AUTO_REUSE, Request, default_variable_store

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
    scopes: _Scopes = get_default_graph().attachments.setdefault(variable_kind.SCOPES_KEY, _Scopes())
    return scopes


@export("tf.get_variable_scope")
def get_variable_scope() -> VariableScope:
    """The current variable scope (``tf.get_variable_scope``)."""
    return _scopes().current_scope


@export("tf.get_variable")
def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = None,
    aggregation: Any = None,
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
      trainable, collections, caching_device, validate_shape, use_resource, constraint: see `Variable`.
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
    name: str | None, shape: Any, dtype: Any, initializer: Any, trainable: bool, partitioner: Any, collections: Any
) -> Any:
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
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        reuse: Any = None,
        dtype: Any = None,
        use_resource: bool | None = None,
        constraint: Any = None,
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
        settings = {key: getattr(source, key) if new is None else new for key, new in self._settings.items()}
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


def _chained(getter: Callable[..., Any] | None, outer: Callable[..., Any] | None) -> Any:
    if getter is None or outer is None:
        return getter or outer

    def both(true_getter: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        true_getter = kwargs.pop("getter") if true_getter is None else true_getter
        return getter(functools.partial(outer, true_getter), *args, **kwargs)

    return both


@export("tf.variable_op_scope")
@contextmanager
def variable_op_scope(
    values: Any, name_or_scope: Any, default_name: str | None = None, *args: Any, **kwargs: Any
) -> Iterator[VariableScope]:
    """The old form of `variable_scope`, with the values first (``tf.variable_op_scope``)."""
    with variable_scope(name_or_scope, default_name, values, *args, **kwargs) as scope:
        yield scope
