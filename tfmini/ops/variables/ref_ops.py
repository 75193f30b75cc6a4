"""Variables by reference: ``VariableV2`` and the ops that read, set and count them.

The value of a ``Ref`` output is the `VariableState` itself; the compiler reads it for every
consumer that does not take a reference. Updates are always exclusive, which TensorFlow allows for
both values of ``use_locking``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.dtypes import DType, cpp_name
from tfmini.errors import InternalError, NotFoundError, OutOfRangeError
from tfmini.graph.families import Operation, all_of, declared_shape, op, same_shape
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.variables.state import VariableState, find_or_make, new_state
from tfmini.shapes import RawShape, format_raw, merge_raw, with_rank

variable_v2 = op(
    "VariableV2() -> ref: Ref(dtype); shape: shape; dtype: type; container: string = ''; shared_name: string = ''",
    stateful=True,
    shape=declared_shape,
    variable="reference",
    on_ps=True,
    differentiable=False,
)
variable_v1 = op(
    "Variable() -> ref: Ref(dtype); shape: shape; dtype: type; container: string = ''; shared_name: string = ''",
    stateful=True,
    variable="reference",
    on_ps=True,
    differentiable=False,
)
temporary_variable = op(
    "TemporaryVariable() -> ref: Ref(dtype); shape: shape; dtype: type; var_name: string = ''",
    stateful=True,
    shape=declared_shape,
    differentiable=False,
)
destroy_temporary_variable = op(
    "DestroyTemporaryVariable(ref: Ref(T)) -> value: T; T: type; var_name: string",
    shape=same_shape,
    differentiable=None,
)
assign_op = op(
    """Assign(ref: Ref(T), value: T) -> output_ref: Ref(T)
        T: type
        validate_shape: bool = true
        use_locking: bool = true""",
    uninit_ok=True,
    writes="assign",
    differentiable=False,
)
assign_add_op = op(
    "AssignAdd(ref: Ref(T), value: T) -> output_ref: Ref(T); T: numbertype; use_locking: bool = false",
    writes="update",
    taken_back_by="Sub",
    differentiable=False,
)
assign_sub_op = op(
    "AssignSub(ref: Ref(T), value: T) -> output_ref: Ref(T); T: numbertype; use_locking: bool = false",
    writes="update",
    taken_back_by="Add",
    differentiable=False,
)
is_initialized_op = op(
    "IsVariableInitialized(ref: Ref(dtype)) -> is_initialized: bool; dtype: type",
    uninit_ok=True,
    shape=[()],
    differentiable=False,
)
count_up_to_op = op(
    "CountUpTo(ref: Ref(T)) -> output: T; limit: int; T: {int32, int64}",
    stateful=True,  # It runs even if no op uses the number.
    writes="update",
    differentiable=False,
)


# ---- shapes ---------------------------------------------------------------------------------


@variable_v1.shape
def _legacy_shape(node: Operation) -> list[RawShape]:
    # The legacy op could not express an unknown shape: it has the scalar shape instead.
    return [node.attrs["shape"] or None]


def merged_shape(a: RawShape, b: RawShape) -> RawShape:
    """The shape that both describe.

    Raises:
      ValueError: with TensorFlow's message, when the shapes differ.
    """
    try:
        return merge_raw(a, b)
    except ValueError as error:
        text = str(error)
        if a is not None and b is not None and len(a) == len(b):
            at = next(i for i, (x, y) in enumerate(zip(a, b)) if None not in (x, y) and x != y)
            text = f"Dimension {at} in both shapes must be equal, but are {a[at]} and {b[at]}"
        raise ValueError(f"{text}. Shapes are {format_raw(a)} and {format_raw(b)}.") from None


@assign_op.shape
def _assign_shape(node: Operation) -> list[RawShape]:
    value = node.inputs[1].raw_shape
    return [merged_shape(node.inputs[0].raw_shape, value) if node.attrs["validate_shape"] else value]


@all_of(assign_add_op, assign_sub_op).shape
def _update_shape(node: Operation) -> list[RawShape]:
    return [merged_shape(node.inputs[0].raw_shape, node.inputs[1].raw_shape)]


@count_up_to_op.shape
def count_shape(node: Operation) -> list[RawShape]:
    """Shape function of ``CountUpTo``: the counter must be a scalar."""
    with_rank(node.inputs[0].raw_shape, 0)
    return [()]


# ---- kernels --------------------------------------------------------------------------------


@all_of(variable_v2, variable_v1).state_kernel("CPU")
def _variable_state(
    resources: Any, *, container: bytes, shared_name: bytes, node: Any, dtype: DType, shape: RawShape
) -> VariableState:
    name = shared_name.decode() or node.name
    declared = None if node.op == "Variable" and not shape else shape
    message = f"Attempting to use uninitialized value {node.name}"
    make = partial(new_state, node.device, name, dtype, declared, container=container.decode(), message=message)
    state = find_or_make(resources, container, node.device, name, make, is_resource=False)
    if state.dtype is not dtype:
        raise InternalError.of(
            f"Output 0 of type {cpp_name(state.dtype)}_ref does not match declared output type {cpp_name(dtype)}_ref"
            f" for node {node.name}: a variable of that name and another type exists on this task."
            " Rename it or reset the container."
        )
    return state


@temporary_variable.kernel("CPU")
def _temporary_state(*, var_name: bytes, node: Node, dtype: DType, shape: RawShape) -> VariableState:
    # Every step has a new one, private to the step.
    state = VariableState(var_name.decode() or node.name, dtype, shape)
    if shape is not None and None not in shape:
        check_room([size or 0 for size in shape], dtype.numpy.itemsize)
        state.assign(np.zeros(shape, dtype.numpy))
    return state


@destroy_temporary_variable.kernel("CPU")
def _destroy_temporary(ref: VariableState, *, var_name: bytes, node: Node) -> Any:
    name = var_name.decode()
    if ref.name != name or not ref.is_initialized:
        why = f"the input is {ref.name!r}" if ref.name != name else "it was destroyed before"
        raise NotFoundError.of(f"{node.name}: there is no temporary variable {name!r} in this step; {why}.")
    value = ref.read()
    ref.clear()
    return value


@assign_op.kernel("CPU")
def _assign(ref: VariableState, value: Array, *, validate_shape: bool) -> VariableState:
    ref.assign(value, validate_shape)
    return ref


def add_in_place(buffer: Array, delta: Array) -> None:
    """``buffer += delta`` for equal shapes."""
    check_same_size(buffer, delta)
    np.add(buffer, delta, out=buffer)


def subtract_in_place(buffer: Array, delta: Array) -> None:
    """``buffer -= delta`` for equal shapes."""
    check_same_size(buffer, delta)
    np.subtract(buffer, delta, out=buffer)


def check_same_size(buffer: Array, delta: Array) -> None:
    """Refuses an update of another shape.

    Raises:
      InvalidArgumentError: with both shapes.
    """
    if buffer.shape != delta.shape:
        shapes = f"{format_raw(buffer.shape)} and {format_raw(delta.shape)}"
        refuse(f"Parameters and update must be the same size: {shapes}")


@assign_add_op.kernel("CPU")
def _assign_add(ref: VariableState, value: Array) -> VariableState:
    ref.update(add_in_place, value)
    return ref


@assign_sub_op.kernel("CPU")
def _assign_sub(ref: VariableState, value: Array) -> VariableState:
    ref.update(subtract_in_place, value)
    return ref


@is_initialized_op.kernel("CPU")
def is_initialized(state: VariableState) -> Any:
    """Whether the variable was ever assigned, as a numpy bool."""
    return np.bool_(state.is_initialized)


@count_up_to_op.kernel("CPU")
def count_up_to(state: VariableState, *, limit: int) -> Any:
    """Adds one and returns the value before.

    Raises:
      OutOfRangeError: when it has reached ``limit``.
    """
    return state.update(_count, limit)


def _count(buffer: Any, limit: int) -> Any:
    if np.ndim(buffer):
        refuse(f"input is not a scalar: {list(buffer.shape)}")
    before = buffer[()]
    if before >= limit:
        raise OutOfRangeError.of(f"Reached limit of {limit}")
    buffer += 1
    return before
