"""Stacks: the history that a loop's forward pass leaves for its backward pass.

A handle is the `Stack` itself; it lives as long as a value of the step refers to it.
"""

from __future__ import annotations

import itertools
from typing import Any

from tfmini.errors import InvalidArgumentError
from tfmini.graph.operation import Operation
from tfmini.graph.registry import op
from tfmini.shapes import RawShape, with_rank

stack_op = op(
    "StackV2(max_size: int32) -> handle: resource; elem_type: type; stack_name: string = ''", stateful=True
)
push_op = op("StackPushV2(handle: resource, elem: T) -> output: T; T: type; swap_memory: bool = false")
pop_op = op("StackPopV2(handle: resource) -> elem: elem_type; elem_type: type")
close_op = op("StackCloseV2(handle: resource)")
for _handle in (stack_op, push_op, pop_op, close_op):
    _handle.not_differentiable()

_serial = itertools.count()


@stack_op.shape
def _stack_shape(node: Operation) -> list[RawShape]:
    return [(2,)]


@push_op.shape
def _push_shape(node: Operation) -> list[RawShape]:
    return [node._inputs[1]._shape]


@pop_op.shape
def _pop_shape(node: Operation) -> list[RawShape]:
    return [None]


@close_op.shape
def _close_shape(node: Operation) -> list[RawShape]:
    with_rank(node._inputs[0]._shape, 1)
    return []


class Stack:
    """Values of one type, last in first out.

    Args:
      name: for error messages.
      max_size: how many values it holds, without a limit when negative.
    """

    __slots__ = ("name", "max_size", "values", "closed")

    def __init__(self, name: str, max_size: int) -> None:
        self.name = name
        self.max_size = max_size
        self.values: list[Any] = []
        self.closed = False

    def check(self, problem: bool, what: str) -> None:
        """Refuses to go on when there is a problem."""
        if problem:
            raise InvalidArgumentError(None, None, f"Stack[{self.name}] {what}")


@stack_op.kernel("CPU")
def _stack(max_size: Any, *, stack_name: bytes, node: Any) -> Stack:
    name = stack_name.decode() or node.name
    size = int(max_size)
    return Stack(f"{name}_{next(_serial)}", size if size > 0 else -1)


@push_op.kernel("CPU")
def _push(handle: Stack, elem: Any) -> Any:
    handle.check(handle.closed, "has already been closed.")
    handle.check(-1 < handle.max_size < len(handle.values), f"overflowed its max_size ({handle.max_size})")
    handle.values.append(elem)
    return elem


@pop_op.kernel("CPU")
def _pop(handle: Stack) -> Any:
    handle.check(handle.closed, "has already been closed.")
    handle.check(not handle.values, "is empty when calling Pop().")
    return handle.values.pop()


@close_op.kernel("CPU")
def _close(handle: Stack) -> tuple[()]:
    handle.closed = True
    handle.values.clear()
    return ()
