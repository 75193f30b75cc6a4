"""The dataflow ops of conds and loops, and functions that apply them to tensors, references and composites.

Most of them compute nothing: the executor implements them (dead tensors, frames, iterations).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, TensorLike
from tfmini.errors import InternalError
from tfmini.graph import nest
from tfmini.graph.conversion import (
    IndexedSlices,
    convert_to_tensor,
    convert_to_tensor_or_indexed_slices,
    internal_convert,
)
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    all_of,
    colocate_with,
    name_scope,
    op,
    same_shape,
    second_shape,
    sized,
)
from tfmini.graph.node import Node
from tfmini.graph.op_types import RunningStep
from tfmini.ops.array.filling import range as range_
from tfmini.ops.array.identity import cast, identity_op
from tfmini.ops.array.kernel_arguments import check_components, refuse
from tfmini.ops.array.shape import shape_internal
from tfmini.ops.composites import SparseTensor
from tfmini.shapes import RawShape, merge_raw, with_rank

_FRAME = "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10"

switch_op: OpHandle[Any] = op(
    "Switch(data: T, pred: bool) -> output_false: T, output_true: T; T: type", flow="switch", forwards="value"
)
merge_op: OpHandle[Any] = op(
    "Merge(inputs: N * T) -> output: T, value_index: int32; T: type; N: int >= 1", flow="merge", aggregates=True
)
enter_op = op(f"Enter(data: T) -> output: T; {_FRAME}", flow="enter", forwards="value")
exit_op = op("Exit(data: T) -> output: T; T: type", shape=same_shape, flow="exit", forwards="value")
next_iteration_op = op(
    "NextIteration(data: T) -> output: T; T: type", shape=same_shape, flow="next_iteration", forwards="value"
)
loop_cond = op("LoopCond(input: bool) -> output: bool", forwards="value", hands_on=True)
loop_cond.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 0)])
loop_cond.kernel("CPU")(lambda value: value)
ref_switch_op: OpHandle[Any] = op(
    "RefSwitch(data: Ref(T), pred: bool) -> output_false: Ref(T), output_true: Ref(T); T: type",
    uninit_ok=True, flow="switch", forwards="value",
)  # fmt: skip
all_of(switch_op, ref_switch_op).shape(sized("*, () -> *0, *0"))
ref_merge_op: OpHandle[Any] = op(
    "RefMerge(inputs: Ref(N * T)) -> output: Ref(T), value_index: int32; T: type; N: int >= 1", flow="merge"
)
ref_enter_op = op(f"RefEnter(data: Ref(T)) -> output: Ref(T); {_FRAME}", shape=same_shape, flow="enter",
                  forwards="value")  # fmt: skip
ref_exit_op = op("RefExit(data: Ref(T)) -> output: Ref(T); T: type", shape=same_shape, flow="exit", forwards="value")
ref_next_iteration_op = op(
    "RefNextIteration(data: Ref(T)) -> output: Ref(T); T: type",
    shape=same_shape, flow="next_iteration", forwards="value",
)  # fmt: skip
ref_identity_op = op(
    "RefIdentity(input: Ref(T)) -> output: Ref(T); T: type", uninit_ok=True, shape=same_shape, forwards="value"
)
ref_identity_op.kernel("CPU")(lambda ref: ref)
ref_identity_op.gradient(lambda node, grad: [grad])
ref_select = op("RefSelect(index: int32, inputs: Ref(N * T)) -> output: Ref(T); T: type; N: int >= 1")
ref_select.without_gradient()

nest.register_composite(
    SparseTensor,
    lambda value: [value.indices, value.values, value.dense_shape],
    lambda like, parts: SparseTensor(*parts),
)


# ---- shapes -----------------------------------------------------------------------------------


@all_of(merge_op, ref_merge_op).shape
def _merge_shape(node: Operation) -> list[RawShape]:
    common = node.inputs[0].raw_shape
    for tensor in node.inputs[1:]:
        raw = tensor.raw_shape
        if common is None or raw is None or len(raw) != len(common):
            return [None, ()]
        common = tuple(a if a == b else None for a, b in zip(common, raw))
    return [common, ()]


@enter_op.shape
def _enter_shape(node: Operation) -> list[RawShape]:
    # The shape of a loop variable may change; `enter` sets what is known of it.
    return [node.inputs[0].raw_shape if node.attrs["is_constant"] else None]


@ref_select.shape
def _ref_select_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    first = node.inputs[1].raw_shape
    same = first is not None and None not in first and all(t.raw_shape == first for t in node.inputs[2:])
    return [first if same else None]


# ---- kernels ----------------------------------------------------------------------------------


def _steer(*inputs: TensorLike) -> Any:
    raise InternalError.of("An op that steers was called; the compiler turns these into Python's own.")


for _handle in (switch_op, merge_op, enter_op, exit_op, next_iteration_op, ref_switch_op, ref_merge_op, ref_enter_op,
                ref_exit_op, ref_next_iteration_op):  # fmt: skip
    _handle.kernel("CPU")(_steer)  # So the placer knows the devices that have them.


@ref_select.kernel("CPU")
def _ref_select(index: Array, inputs: list[Any]) -> Any:
    position = int(index)
    if not 0 <= position < len(inputs):
        refuse(f"Index must be in the range [0, {len(inputs)}) but got {position}")
    return inputs[position]


# ---- one tensor -------------------------------------------------------------------------------


def _as_tensor_or_composite(value: object, dtype: DTypeLike | None = None, name: str | None = None) -> Any:
    if nest.is_composite(value):
        return value
    return internal_convert(value, dtype, name, as_ref=True)


def _like_source(source: Tensor, result: Tensor) -> Tensor:
    """``result`` with the type and shape of the variable behind a resource handle."""
    result.handle_data = source.handle_data
    return result


def _mapped(value: object, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies ``function`` to a tensor, or to each component of a composite."""
    value = _as_tensor_or_composite(value)
    if isinstance(value, Tensor):
        return function(value)
    return nest.map_structure(function, value, expand_composites=True)


def _by_reference(tensor: Tensor, plain: OpHandle, by_ref: OpHandle) -> OpHandle:
    return by_ref if tensor.dtype._is_ref_dtype else plain


def identity(value: Any, name: str | None = None) -> Any:
    """``value`` itself under a new name; a reference stays one."""
    return _mapped(value, lambda t: _like_source(t, _by_reference(t, identity_op, ref_identity_op)(t, name=name)))


def exit(value: TensorLike, name: str | None = None) -> Any:
    """``value`` of the last iteration, outside of its loop."""
    return _mapped(value, lambda t: _like_source(t, _by_reference(t, exit_op, ref_exit_op)(t, name=name)))


def next_iteration(value: TensorLike, name: str | None = None) -> Any:
    """``value`` in the next iteration."""
    handles = next_iteration_op, ref_next_iteration_op
    return _mapped(value, lambda t: _like_source(t, _by_reference(t, *handles)(t, name=name)))


def enter(
    value: TensorLike, frame_name: str, is_constant: bool = False, parallel_iterations: int = 10, use_ref: bool = True,
    use_input_shape: bool = True, name: str | None = None,
) -> Any:  # fmt: skip
    """``value`` inside a loop.

    Args:
      frame_name: of the loop; unique within the graph.
      is_constant: make it available in every iteration instead of only in the first.
      parallel_iterations: how many iterations may be in flight.
      use_ref: whether a reference stays one.
      use_input_shape: whether the static shape is that of ``value``; the shape of a loop variable may vary.
    """
    attrs: dict[str, Any] = {
        "frame_name": frame_name, "is_constant": is_constant, "parallel_iterations": parallel_iterations,
    }  # fmt: skip

    def one(tensor: Tensor) -> Tensor:
        handle = _by_reference(tensor, enter_op, ref_enter_op if use_ref else enter_op)
        result: Tensor = handle(tensor, name=name, **attrs)
        if use_input_shape:
            result.raw_shape = merge_raw(result.raw_shape, tensor.raw_shape)
        return _like_source(tensor, result)

    return _mapped(value, one)


# ---- switch and merge -------------------------------------------------------------------------


def switch(
    data: TensorLike, pred: TensorLike, dtype: DTypeLike | None = None, name: str | None = None
) -> tuple[Any, Any]:
    """``data`` as (value if ``pred`` is false, value if it is true); the other one is dead.

    Args:
      data: a tensor or composite.
      pred: a scalar bool.
      dtype: of ``data``, if it must be converted.
    """
    with name_scope(name, "Switch", [data, pred]) as scope:
        data = _as_tensor_or_composite(data, dtype, "data")
        pred = convert_to_tensor(pred, name="pred")
        if isinstance(data, Tensor):
            return _switch_tensor(switch_op, data, pred, scope)
        pairs = [_switch_tensor(switch_op, t, pred, None) for t in nest.flatten(data, expand_composites=True)]
        sides = [nest.pack_sequence_as(data, list(side), expand_composites=True) for side in zip(*pairs)]
        return sides[0], sides[1]


def _switch_tensor(handle: OpHandle, data: Tensor, pred: Tensor, name: str | None) -> tuple[Tensor, Tensor]:
    if_false, if_true = handle(data, pred, name=name)
    return _like_source(data, if_false), _like_source(data, if_true)


def switch_beside(data: Tensor, pred: Tensor, name: str = "Switch") -> tuple[Any, Any]:
    """`switch` on the device of ``data``, which keeps references."""
    data = _as_tensor_or_composite(data, name="data")
    with colocate_with(data, ignore_existing=True):
        if isinstance(data, Tensor) and data.dtype._is_ref_dtype:
            return _switch_tensor(ref_switch_op, data, pred, name)
        return switch(data, pred, name=name)


def merge(inputs: Sequence[Any], name: str | None = None) -> tuple[Any, Tensor]:
    """Returns (the value that is alive among ``inputs``, its index).

    Args:
      inputs: tensors or composites of one kind; tensors are converted where others are `IndexedSlices`.

    Raises:
      ValueError: when one of them is None.
    """
    if any(value is None for value in inputs):
        raise ValueError(f"At least one of the merge inputs is None: {inputs}")
    with name_scope(name, "Merge", inputs) as scope:
        values = [_as_tensor_or_composite(value) for value in inputs]
        if all(isinstance(value, Tensor) for value in values):
            return _merge_tensors(values, scope)
        if all(isinstance(value, (Tensor, IndexedSlices)) for value in values):
            values = as_indexed_slices_list(values)
        for value in values[1:]:
            nest.assert_same_structure(values[0], value, expand_composites=True)
        columns = zip(*(nest.flatten(value, expand_composites=True) for value in values))
        merged = [_merge_tensors(list(column), None) for column in columns]
        chosen = [tensor for tensor, _ in merged]
        return nest.pack_sequence_as(values[0], chosen, expand_composites=True), merged[0][1]


def _merge_tensors(tensors: list[Tensor], name: str | None) -> tuple[Tensor, Tensor]:
    handle = ref_merge_op if all(t.dtype._is_ref_dtype for t in tensors) else merge_op
    output, index = handle(tensors, name=name)
    # Lists of different elements may meet, so that nothing is known of the elements.
    return output if output.dtype is dtypes.variant else _like_source(tensors[0], output), index


# ---- indexed slices ---------------------------------------------------------------------------


def as_indexed_slices(value: TensorLike) -> IndexedSlices:
    """``value`` as the slices of all its rows.

    Raises:
      TypeError: when it is neither a tensor nor `IndexedSlices`.
    """
    value = convert_to_tensor_or_indexed_slices(value)
    if isinstance(value, IndexedSlices):
        return value
    if not isinstance(value, Tensor):
        raise TypeError(f"Not a Tensor or IndexedSlices: {type(value)}")
    # Not a constant, because the indices must be dead in a branch that is not taken.
    sizes = shape_internal(value, optimize=False)
    return IndexedSlices(value, range_(0, sizes[0]), sizes)


def as_indexed_slices_list(values: list[Any]) -> list[IndexedSlices]:
    """`as_indexed_slices` of each value, with indices of one type."""
    slices = [as_indexed_slices(value) for value in values]
    if all(s.indices.dtype is slices[0].indices.dtype for s in slices):
        return slices
    return [IndexedSlices(s.values, cast(s.indices, dtypes.int64), s.dense_shape) for s in slices]


# ---- Stacks: hold values of a loop's forward iterations for its backprop iterations --------------------------------
# A handle is the `Stack` itself; it lives as long as a value of the step refers to it. The kernels take
# ``step`` because they have effects, which their declarations do not show; of a pop the handle shows it.

stack_op = op(
    "StackV2(max_size: int32) -> handle: resource; elem_type: type; stack_name: string = ''",
    stateful=True,
    shape=[(2,)],
)
push_op = op(
    "StackPushV2(handle: resource, elem: T) -> output: T; T: type; swap_memory: bool = false",
    shape=second_shape, hands_on=True,
)  # fmt: skip
pop_op = op(
    "StackPopV2(handle: resource) -> elem: elem_type; elem_type: type", shape=[None], hands_on=True
)  # fmt: skip
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
def _stack(max_size: Array, *, stack_name: bytes, node: Node) -> Stack:
    name = stack_name.decode() or node.name
    size = int(max_size)
    return Stack(f"{name}_{next(_serial)}", size if size > 0 else -1)


@ref_stack_op.kernel("CPU")
def _ref_stack(step: RunningStep, *, stack_name: bytes, node: Node) -> Stack:
    name = stack_name.decode() or node.name
    return Stack(f"{name}_{next(_serial)}", -1)


@all_of(push_op, ref_push_op).kernel("CPU")
def _push(step: RunningStep, handle: Stack, elem: object) -> Any:
    values = handle.values
    if handle.closed:
        handle.refuse("has already been closed.")
    if -1 < handle.max_size < len(values):
        handle.refuse(f"overflowed its max_size ({handle.max_size})")
    values.append(elem)
    return elem


@all_of(pop_op, ref_pop_op).kernel_factory("CPU")
def _pop(node: Node) -> Callable[[Stack], Any]:
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
def _close(step: RunningStep, handle: Stack) -> tuple[()]:
    handle.closed = True
    handle.values.clear()
    return ()
