"""The choice between reference and resource variables, and ``tf.variable_creator_scope``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph

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
