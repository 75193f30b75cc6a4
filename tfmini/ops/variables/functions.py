"""``tf.Variable`` and the functions over a graph's variables: collections, initialisers, reports."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.families import Operation, Tensor, colocate_with, device, get_default_graph, name_scope
from tfmini.graph.meta_graph import register_proto_function
from tfmini.graph.names import GraphKeys
from tfmini.graph.scoping import add_to_collection, get_collection
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import partition as array_partition
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.control import group
from tfmini.ops.math.comparison import logical_not
from tfmini.ops.variables.assignment import is_variable_initialized
from tfmini.ops.variables.base import SaveSliceInfo, Variable, VariableAggregation, VariableSynchronization
from tfmini.ops.variables.partitioned_variable import PartitionedVariable
from tfmini.ops.variables.ref_variable import RefVariable
from tfmini.ops.variables.resource_variable import BaseResourceVariable, ResourceVariable

__all__ = [
    "BaseResourceVariable", "PartitionedVariable", "RefVariable", "ResourceVariable", "SaveSliceInfo", "Variable",
    "VariableAggregation", "VariableSynchronization", "all_variables", "assert_variables_initialized",
    "global_variables", "global_variables_initializer", "initialize_all_variables", "initialize_local_variables",
    "initialize_variables", "is_variable_initialized", "local_variables", "local_variables_initializer",
    "model_variables", "moving_average_variables", "report_uninitialized_variables", "trainable_variables",
    "variables_initializer",
]  # fmt: skip


@export("tf.global_variables")
def global_variables(scope: str | None = None) -> list[Any]:
    """The variables shared by all tasks (``tf.global_variables``); ``scope`` is a regex of their names.

    Args:
      scope: a regex that the beginning of a variable's name must match; None: all.

    Returns:
      A list of variables of the default graph, in the order in which they were made.
    """
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


@export("tf.local_variables")
def local_variables(scope: str | None = None) -> list[Any]:
    """The variables of one process, which are not saved (``tf.local_variables``).

    Args:
      scope: a regex that the beginning of a variable's name must match; None: all.

    Returns:
      A list of variables of the default graph, in the order in which they were made.
    """
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


@export("tf.model_variables")
def model_variables(scope: str | None = None) -> list[Any]:
    """The variables used for inference (``tf.model_variables``)."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


@export("tf.trainable_variables")
def trainable_variables(scope: str | None = None) -> list[Any]:
    """The variables that optimizers update (``tf.trainable_variables``).

    Args:
      scope: a regex that the beginning of a variable's name must match; None: all.

    Returns:
      A list of variables of the default graph, in the order in which they were made.
    """
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


@export("tf.moving_average_variables")
def moving_average_variables(scope: str | None = None) -> list[Any]:
    """The variables with a moving average (``tf.moving_average_variables``).

    Args:
      scope: a regex that the beginning of a variable's name must match; None: all.

    Returns:
      A list of variables of the default graph, in the order in which they were made.
    """
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


all_variables = global_variables


@export("tf.variables_initializer", "tf.initializers.variables")
def variables_initializer(var_list: Iterable[Any] | None, name: str = "init") -> Operation:
    """An op that initialises the variables (``tf.variables_initializer``); a no-op for an empty list.

    Args:
      var_list: variables.
      name: of the op.
    """
    return group(*[v.initializer for v in var_list or ()], name=name)


@export("tf.global_variables_initializer", "tf.initializers.global_variables")
def global_variables_initializer() -> Operation:
    """An op that initialises the global variables (``tf.global_variables_initializer``)."""
    return variables_initializer(global_variables())


@export("tf.local_variables_initializer", "tf.initializers.local_variables")
def local_variables_initializer() -> Operation:
    """An op that initialises the local variables (``tf.local_variables_initializer``)."""
    return variables_initializer(local_variables())


initialize_variables = variables_initializer
initialize_all_variables = global_variables_initializer
initialize_local_variables = local_variables_initializer


def _variables_to_check(var_list: Iterable[Any] | None) -> list[Any]:
    if var_list is not None:
        return list(var_list)
    found = global_variables() + local_variables()
    if found:
        return found
    # A graph that was imported without collections still has the ops.
    return [op.outputs[0] for op in get_default_graph().get_operations() if op.type in ("Variable", "VariableV2")]


@export("tf.assert_variables_initialized")
def assert_variables_initialized(var_list: Iterable[Any] | None = None) -> Tensor | None:
    """A tensor that fails with FailedPreconditionError while a variable has no value.

    None if there are no variables (``tf.assert_variables_initialized``).
    """
    ranks = []
    for variable in _variables_to_check(var_list):
        with colocate_with(variable.op):
            ranks.append(array_shape.rank_internal(variable, optimize=False))
    if not ranks:
        return None
    return ranks[0] if len(ranks) == 1 else array_joining.stack(ranks)


@export("tf.report_uninitialized_variables")
def report_uninitialized_variables(
    var_list: Iterable[Any] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """The names of the variables without a value, as a 1-D string tensor (``tf.report_uninitialized_variables``).

    Args:
      var_list: default: the global and local variables.
      name: the name scope of its ops.
    """
    variables = _variables_to_check(var_list)
    place = os.environ.get("TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING", "/cpu:0")
    with name_scope(name):
        checks = [is_variable_initialized(v) for v in variables]
        with device(place):
            if not checks:
                return constant([], dtype=dtypes.string)
            without_value = logical_not(array_joining.stack(checks))
            names = constant([v.op.name for v in variables])
            return array_partition.boolean_mask(names, without_value)


def _to_proto(variable: Variable, export_scope: str | None = None) -> Any:
    return variable.to_proto(export_scope=export_scope)


for _key in (
    GraphKeys.GLOBAL_VARIABLES,
    GraphKeys.TRAINABLE_VARIABLES,
    GraphKeys.MOVING_AVERAGE_VARIABLES,
    GraphKeys.LOCAL_VARIABLES,
    GraphKeys.MODEL_VARIABLES,
    GraphKeys.METRIC_VARIABLES,
    GraphKeys.GLOBAL_STEP,
):
    register_proto_function(_key, "VariableDef", _to_proto, Variable.from_proto)

export_names("tf", "all_variables initialize_all_variables initialize_local_variables initialize_variables")


# ---- A graph's resources that must be initialised and are not variables, and the ops that do and check that --------


class RegisteredResource(NamedTuple):
    """A resource, the op that creates it, and a bool tensor that is true after that op has run."""

    handle: Any
    create: Operation
    is_initialized: Tensor


def register_resource(
    handle: TensorLike, create_op: Operation, is_initialized_op: Tensor, is_shared: bool = True
) -> None:
    """Adds a resource to the graph's collections.

    Args:
      handle: its handle tensor.
      create_op: the op that creates it.
      is_initialized_op: a bool scalar.
      is_shared: whether all workers share it, and the chief creates it; otherwise each session creates its own.
    """
    key = GraphKeys.RESOURCES if is_shared else GraphKeys.LOCAL_RESOURCES
    add_to_collection(key, RegisteredResource(handle, create_op, is_initialized_op))


def shared_resources() -> list[RegisteredResource]:
    """The resources that the chief initialises."""
    return get_collection(GraphKeys.RESOURCES)


def local_resources() -> list[RegisteredResource]:
    """The resources that every session initialises."""
    return get_collection(GraphKeys.LOCAL_RESOURCES)


def initialize_resources(resource_list: Iterable[RegisteredResource], name: str = "init") -> Operation:
    """An op that initialises resources; a no-op for an empty list."""
    return group(*[resource.create for resource in resource_list], name=name)


def report_uninitialized_resources(
    resource_list: Iterable[RegisteredResource] | None = None, name: str = "report_uninitialized_resources"
) -> Tensor:
    """The names of the resources that are not initialised, as a 1-D string tensor.

    Args:
      resource_list: default: the shared and the local ones.
      name: the name scope of its ops.
    """
    found = list(resource_list) if resource_list is not None else shared_resources() + local_resources()
    place = os.environ.get("TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING", "/cpu:0")
    with name_scope(name), device(place):
        if not found:
            return constant([], dtype=dtypes.string)
        missing = logical_not(array_joining.stack([resource.is_initialized for resource in found]))
        names = constant([resource.handle.name for resource in found])
        return array_partition.boolean_mask(names, missing)
