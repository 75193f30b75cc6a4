"""Stacks: hold values of a loop's forward iterations for its backprop iterations.

A handle is the `Stack` itself; it lives as long as a value of the step refers to it. The kernels take
``step`` because they have effects, which their declarations do not show; of a pop the handle shows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tfmini.graph.families import Operation, OpHandle, all_of, op, second_shape, sized
from tfmini.ops.array.kernel_arguments import check_components, refuse

stack_op = op(
    "StackV2(max_size: int32) -> handle: resource; elem_type: type; stack_name: string = ''",
    stateful=True,
    shape=[(2,)],
)
push_op = op(
    "StackPushV2(handle: resource, elem: T) -> output: T; T: type; swap_memory: bool = false", shape=second_shape
)
pop_op = op("StackPopV2(handle: resource) -> elem: elem_type; elem_type: type", shape=[None])
close_op: OpHandle[Operation] = op("StackCloseV2(handle: resource)")
# The first version: the handle is a reference to a string, and the stack belongs to the step.
ref_stack_op = op(
    "Stack() -> handle: Ref(string); elem_type: type; stack_name: string = ''", stateful=True, shape=[(2,)]
)
ref_push_op = op(
    "StackPush(handle: Ref(string), elem: T) -> output: T; T: type; swap_memory: bool = false", shape=second_shape
)
ref_pop_op = op("StackPop(handle: Ref(string)) -> elem: elem_type; elem_type: type", shape=[None])
ref_close_op: OpHandle[Operation] = op("StackClose(handle: Ref(string))")
all_of(close_op, ref_close_op).shape(sized("_ ->"))
all_of(stack_op, push_op, pop_op, close_op, ref_stack_op, ref_push_op, ref_pop_op, ref_close_op).not_differentiable()

_serial = itertools.count()


class Stack:
    """A stack of values of one type.

    Args:
      name: for error messages.
      max_size: the most values that it can hold; negative: no limit.
    """

    __slots__ = ("name", "max_size", "values", "closed")

    def __init__(self, name: str, max_size: int) -> None:
        self.name = name
        self.max_size = max_size
        self.values: list[Any] = []
        self.closed = False

    def read(self) -> np.ndarray[Any, Any]:
        """The value of a reference to a stack: the container and the name."""
        found = np.empty(2, object)
        found[:] = [b"_stacks", self.name.encode()]
        return found

    def refuse(self, what: str) -> NoReturn:
        """Raises an error that names the stack."""
        refuse(f"Stack[{self.name}] {what}")


@stack_op.kernel("CPU")
def _stack(max_size: Any, *, stack_name: bytes, node: Any) -> Stack:
    name = stack_name.decode() or node.name
    size = int(max_size)
    return Stack(f"{name}_{next(_serial)}", size if size > 0 else -1)


@ref_stack_op.kernel("CPU")
def _ref_stack(step: Any, *, stack_name: bytes, node: Any) -> Stack:
    name = stack_name.decode() or node.name
    return Stack(f"{name}_{next(_serial)}", -1)


@all_of(push_op, ref_push_op).kernel("CPU")
def _push(step: Any, handle: Stack, elem: Any) -> Any:
    values = handle.values
    if handle.closed:
        handle.refuse("has already been closed.")
    if -1 < handle.max_size < len(values):
        handle.refuse(f"overflowed its max_size ({handle.max_size})")
    values.append(elem)
    return elem


@all_of(pop_op, ref_pop_op).kernel_factory("CPU")
def _pop(node: Any) -> Callable[[Stack], Any]:
    elem_type = node.attrs["elem_type"]
    dtype = elem_type.numpy

    def pop(handle: Stack) -> Any:
        try:
            found = handle.values.pop()
        except IndexError:
            handle.refuse("has already been closed." if handle.closed else "is empty when calling Pop().")
        if getattr(found, "dtype", None) is not dtype:  # gradients of loops pop all their values: a quick look first
            check_components([found], [elem_type])
        return found

    return pop


@all_of(close_op, ref_close_op).kernel("CPU")
def _close(step: Any, handle: Stack) -> tuple[()]:
    handle.closed = True
    handle.values.clear()
    return ()
