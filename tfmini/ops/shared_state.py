"""Finding the state objects of a task: shared by name, or private to one session.

State with a ``shared_name`` belongs to the task and is found by every session that names it.
State without one belongs to the session whose graph has the node; its name in messages is
``_<n>_<node name>``, as TensorFlow gives it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

import numpy as np

from tfmini.graph.op_types import ShapeRule
from tfmini.graph.registry import OpHandle, op
from tfmini.graph.traits import Traits

S = TypeVar("S")

_numbers = itertools.count()


def state_op(text: str, shape: ShapeRule, **traits: Unpack[Traits]) -> OpHandle[Any]:
    """Declares an op that makes, reads or changes such an object; it has no gradient. See `op`."""
    return op(text, stateful=True, shape=shape, differentiable=False, **traits)


def handle_value(name: str) -> Any:
    """The value of a reference to a state object: container and name, two strings."""
    out = np.empty(2, object)
    out[:] = (b"", name.encode())
    return out


def find_or_create(
    resources: Any, container: bytes, shared_name: bytes, node: Any, kind: str, create: Callable[[str], S]
) -> S:
    """The state object behind a handle node.

    Args:
      resources: the device's resource manager; its ``session``, if it has one, tells sessions apart.
      node: the handle's node; its name identifies private state.
      kind: ``queue``, ``table``, …; objects of several kinds may have one name.
      create: makes the object, given its name for messages.
    """
    if shared_name:
        name = shared_name.decode()
        return resources.lookup_or_create(container, kind, name, lambda: create(name))  # type: ignore[no-any-return]
    key = f"{getattr(resources, 'session', '')}/{node.name}"
    return resources.lookup_or_create(  # type: ignore[no-any-return]
        container, f"private {kind}", key, lambda: create(f"_{next(_numbers)}_{node.name}")
    )
