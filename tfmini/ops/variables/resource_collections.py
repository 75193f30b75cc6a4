"""A graph's resources that must be initialised and are not variables, and the ops that do and check that."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import add_to_collection, device, get_collection, name_scope
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import masking as array_masking
from tfmini.ops.array.constant import constant
from tfmini.ops.control import group
from tfmini.ops.math.comparison import logical_not


class RegisteredResource(NamedTuple):
    """A resource, the op that creates it, and a bool tensor that is true after that op has run."""

    handle: Any
    create: Operation
    is_initialized: Tensor


def register_resource(handle: Any, create_op: Operation, is_initialized_op: Tensor, is_shared: bool = True) -> None:
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
        return array_masking.boolean_mask(names, missing)
