"""The ops of tensor arrays: declarations, shapes and kernels over `TensorArrayState`.

The kernels take ``step`` because they have effects, which their declarations do not show.
"""

from __future__ import annotations

import itertools
from typing import Any, NoReturn

import numpy as np

from tfmini.core_types import Array
from tfmini.dtypes import DType, cpp_name
from tfmini.errors import UnimplementedError
from tfmini.graph.families import Operation, OpHandle, all_of, op, sized
from tfmini.graph.node import Node
from tfmini.graph.op_types import RunningStep
from tfmini.memory import check_room
from tfmini.ops.array.kernel_arguments import as_element, refuse
from tfmini.shapes import RawShape, compatible_raw, format_raw, merge_dims, with_rank

# ---- `TensorArrayState`: the state behind a TensorArray handle while a step runs -----------------------------------
# The handle is the state itself, so it lives as long as a value of the step refers to it. Each execution
# of a TensorArrayV3 node, in each iteration of a loop, has its own state.

_ENTRY_BYTES = 16  # of an element that has not been written


class TensorArrayState:
    """Write-once elements of one type; in a gradient array, writes to one element are added up.

    Args:
      name: for error messages.
      dtype: of the elements.
      size: the initial number of elements.
      element_shape: of every element, as far as it is known.
      dynamic: a write beyond the end makes the array longer.
      clear_after_read: an element is freed by its first read, and then cannot be read again.
      identical_shapes: all elements have the shape of the first one written.
      is_gradient: writes to one index add up, and elements that were never written read as zeros.
    """

    __slots__ = ("name", "dtype", "values", "shapes", "cleared", "was_read", "element_shape", "dynamic",
                 "clear_after_read", "identical_shapes", "is_gradient", "gradients", "closed")  # fmt: skip

    def __init__(
        self, name: str, dtype: DType, size: int, element_shape: RawShape, dynamic: bool, clear_after_read: bool,
        identical_shapes: bool, is_gradient: bool = False,
    ) -> None:  # fmt: skip
        check_room((size,), _ENTRY_BYTES)
        self.name = name
        self.dtype = dtype
        # Per index: the value, or None (never written, cleared, or a gradient's implied zeros).
        self.values: list[Any] = [None] * size
        # Per index: the shape, once it is known; that is so for all written elements.
        self.shapes: list[tuple[int, ...] | None] = [None] * size
        self.cleared: set[int] = set()
        self.was_read: set[int] = set()
        self.element_shape = element_shape
        self.dynamic = dynamic
        self.clear_after_read = clear_after_read
        self.identical_shapes = identical_shapes
        self.is_gradient = is_gradient
        self.gradients: dict[bytes, TensorArrayState] = {}
        self.closed = False

    def write(self, index: int, value: Any) -> None:
        """Stores one element.

        Raises:
          InvalidArgumentError: for an index or shape that does not fit, a second write, or a write
            after the read.
        """
        self._check_open()
        count = len(self.values)
        if not 0 <= index < count:
            if index < 0 or not self.dynamic:
                self._refuse(f"Tried to write to index {index} but array is not resizeable and size is: {count}")
            grown = index + 1 - count
            check_room((grown,), _ENTRY_BYTES)
            self.values.extend([None] * grown)
            self.shapes.extend([None] * grown)
        shape: tuple[int, ...] = () if type(value) is bytes else value.shape
        if self.element_shape != shape:
            self._meet_shape(index, shape)
        if index in self.was_read:
            self._refuse(f"Could not write to TensorArray index {index} because it has already been read.")
        if self.shapes[index] is None:
            self.shapes[index] = shape
            self.values[index] = value
        elif self.is_gradient:
            self._add(index, value, shape)
        else:
            self._refuse(f"Could not write to TensorArray index {index} because it has already been written to.")

    def _meet_shape(self, index: int, shape: tuple[int, ...]) -> None:
        if not compatible_raw(self.element_shape, shape):
            self._refuse(
                f"Could not write to TensorArray index {index} because the value shape is {format_raw(shape)} which is"
                f" incompatible with the TensorArray's inferred element shape: {format_raw(self.element_shape)}"
                " (consider setting infer_shape=False)."
            )
        if self.identical_shapes:
            self.element_shape = shape

    def _add(self, index: int, value: Array, shape: tuple[int, ...]) -> None:
        known = self.shapes[index]
        if known != shape:
            self._refuse(
                f"Could not aggregate to TensorArray index {index} because the existing shape is {format_raw(known)}"
                f" but the new input shape is {format_raw(shape)}."
            )
        before = self.values[index]
        self.values[index] = value if before is None else np.add(before, value)

    def read(self, index: int) -> Any:
        """One element; zeros of the element shape where nothing was written.

        Raises:
          InvalidArgumentError: for an index beyond the end, a second read of a cleared element, or
            an element that was not written and whose shape is not known.
        """
        self._check_open()
        if not 0 <= index < len(self.values):
            refuse(f"Tried to read from index {index} but array size is: {len(self.values)}")
        value = self.values[index]
        if value is None:
            value = self._zeros(index)
        self.was_read.add(index)
        if self.clear_after_read:
            self.values[index] = None
            self.cleared.add(index)
        return value

    def _zeros(self, index: int) -> Any:
        if index in self.cleared:
            self._refuse(
                f"Could not read index {index} twice because it was cleared after a previous read (perhaps try"
                " setting clear_after_read = false?)."
            )
        shape: Any = self.shapes[index]
        if shape is None:
            shape = known = self.element_shape
            if known is None or None in known:
                self._refuse(
                    f"Could not read from TensorArray index {index}.  Furthermore, the element shape is not fully"
                    f" defined: {format_raw(known)}.  It is possible you are working with a resizeable TensorArray and"
                    " stop_gradients is not allowing the gradients to be written.  If you set the full element_shape"
                    " property on the forward TensorArray, the proper all-zeros tensor will be returned instead of"
                    " incurring this error."
                )
        if self.dtype.name == "string":
            refuse(f"tensor_array::TensorSetZero type not supported: {self.dtype.name}")
        return np.zeros(shape, self.dtype.numpy)[()]

    def gradient(self, source: bytes, prepended: tuple[int, ...] = ()) -> TensorArrayState:
        """The array of the elements' gradients for one call of ``tf.gradients``.

        Args:
          source: identifies that call.
          prepended: the leading sizes that the gradients have in addition to those of the elements.
        """
        found = self.gradients.get(source)
        if found is None:
            # The gradient's size is this array's, which must not change any more.
            self.dynamic = False
            shape = None if self.element_shape is None else (*prepended, *self.element_shape)
            found = TensorArrayState(
                f"{self.name}@{source.decode(errors='replace')}", self.dtype, len(self.values), shape, False, True,
                self.identical_shapes, is_gradient=True,
            )  # fmt: skip
            found.shapes = [None if s is None else (*prepended, *s) for s in self.shapes]
            self.gradients[source] = found
        return found

    def close(self) -> None:
        """Frees the elements; the array cannot be used afterwards."""
        self.closed = True
        self.values.clear()
        self.shapes.clear()

    def _check_open(self) -> None:
        if self.closed:
            self._refuse(f"{self.name} has already been closed.", prefix="TensorArray ")

    def _refuse(self, text: str, prefix: str | None = None) -> NoReturn:
        start = f"TensorArray {self.name}: " if prefix is None else prefix
        refuse(start + text)


# ---- The declarations ----------------------------------------------------------------------------------------------

tensor_array_op: OpHandle[Any] = op(
    """TensorArrayV3(size: int32) -> handle: resource, flow: float
    dtype: type
    element_shape: shape = unknown_rank
    dynamic_size: bool = false
    clear_after_read: bool = true
    identical_element_shapes: bool = false
    tensor_array_name: string = ''""",
    stateful=True,
    differentiable=False,
    shape=sized("() -> 2, ()"),
)
write_op = op(
    "TensorArrayWriteV3(handle: resource, index: int32, value: T, flow_in: float) -> flow_out: float; T: type",
    hands_on=True,
)
read_op = op(
    "TensorArrayReadV3(handle: resource, index: int32, flow_in: float) -> value: dtype; dtype: type",
    hands_on=True,
)
gather_op = op(
    """TensorArrayGatherV3(handle: resource, indices: int32, flow_in: float) -> value: dtype
    dtype: type
    element_shape: shape = unknown_rank""",
)
scatter_op = op(
    "TensorArrayScatterV3(handle: resource, indices: int32, value: T, flow_in: float) -> flow_out: float; T: type",
)
concat_op: OpHandle[Any] = op(
    """TensorArrayConcatV3(handle: resource, flow_in: float) -> value: dtype, lengths: int64
    dtype: type
    element_shape_except0: shape = unknown_rank""",
)
split_op = op(
    "TensorArraySplitV3(handle: resource, value: T, lengths: int64, flow_in: float) -> flow_out: float; T: type",
)
size_op = op(
    "TensorArraySizeV3(handle: resource, flow_in: float) -> size: int32",
    differentiable=False,
)
close_op: OpHandle[Operation] = op("TensorArrayCloseV3(handle: resource)", differentiable=False)
grad_op: OpHandle[Any] = op(
    "TensorArrayGradV3(handle: resource, flow_in: float) -> grad_handle: resource, flow_out: float; source: string",
    stateful=True,
    differentiable=False,
)
grad_with_shape_op: OpHandle[Any] = op(
    "TensorArrayGradWithShape(handle: resource, flow_in: float, shape_to_prepend: int32)"
    " -> grad_handle: resource, flow_out: float; source: string",
    stateful=True,
    differentiable=False,
)

_serial = itertools.count()
_NO_FLOW = np.float32(0)
# The names in messages of TensorFlow's runtime that differ from those in Python.


# ---- shapes -----------------------------------------------------------------------------------


def _check_handle(node: Operation) -> None:
    raw = with_rank(node.inputs[0].raw_shape, 1)
    merge_dims(raw[0], 2)


@all_of(grad_op, grad_with_shape_op).shape
def _grad_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    return [(2,), ()]


@write_op.shape
def _write_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    with_rank(node.inputs[1].raw_shape, 0)
    with_rank(node.inputs[3].raw_shape, 0)
    return [()]


@read_op.shape
def _read_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    with_rank(node.inputs[1].raw_shape, 0)
    with_rank(node.inputs[2].raw_shape, 0)
    return [None]


@gather_op.shape
def _gather_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    count = with_rank(node.inputs[1].raw_shape, 1)[0]
    with_rank(node.inputs[2].raw_shape, 0)
    element = node.attrs["element_shape"]
    return [None if element is None else (count, *element)]


@scatter_op.shape
def _scatter_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    count = with_rank(node.inputs[1].raw_shape, 1)[0]
    value = node.inputs[2].raw_shape
    with_rank(node.inputs[3].raw_shape, 0)
    if value is not None:
        if not value:
            raise ValueError("Shape must be at least rank 1 but is rank 0")
        if count is not None and value[0] is not None and count != value[0]:
            raise ValueError(f"Dimensions must be equal, but are {value[0]} and {count}")
    return [()]


@concat_op.shape
def _concat_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    with_rank(node.inputs[1].raw_shape, 0)
    rest = node.attrs["element_shape_except0"]
    return [None if rest is None else (None, *rest), (None,)]


@split_op.shape
def _split_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    with_rank(node.inputs[2].raw_shape, 1)
    with_rank(node.inputs[3].raw_shape, 0)
    return [()]


@size_op.shape
def _size_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    return [()]


@close_op.shape
def _close_shape(node: Operation) -> list[RawShape]:
    _check_handle(node)
    return []


# ---- kernels ----------------------------------------------------------------------------------


def _check_written(array: TensorArrayState, dtype: DType) -> None:
    if array.dtype is not dtype:
        refuse(f"TensorArray dtype is {cpp_name(array.dtype)} but Op is trying to write dtype {cpp_name(dtype)}.")


def _check_requested(array: TensorArrayState, dtype: DType) -> None:
    if array.dtype is not dtype:
        refuse(f"TensorArray dtype is {cpp_name(array.dtype)} but Op requested dtype {cpp_name(dtype)}.")


@tensor_array_op.kernel("CPU")
def _new(
    size: Array, *, dtype: DType, element_shape: RawShape, dynamic_size: bool, clear_after_read: bool,
    identical_element_shapes: bool, tensor_array_name: bytes, node: Node,
) -> tuple[TensorArrayState, Any]:  # fmt: skip
    count = int(size)
    if count < 0:
        refuse(f"Size should be >= 0, but is: {count}")
    name = f"{tensor_array_name.decode(errors='replace') or node.name}_{next(_serial)}"
    state = TensorArrayState(
        name, dtype, count, element_shape, dynamic_size, clear_after_read, identical_element_shapes
    )
    return state, _NO_FLOW


@write_op.kernel("CPU")
def _write(step: RunningStep, handle: TensorArrayState, index: Array, value: Array, flow_in: Array, *, T: DType) -> Any:
    _check_written(handle, T)
    handle.write(int(index), value)
    return flow_in


@read_op.kernel("CPU")
def _read(step: RunningStep, handle: TensorArrayState, index: Array, flow_in: Array, *, dtype: DType) -> Any:
    _check_requested(handle, dtype)
    return handle.read(int(index))


@gather_op.kernel("CPU")
def _gather(
    step: RunningStep, handle: TensorArrayState, indices: Array, flow_in: Array, *, dtype: DType,
    element_shape: RawShape,
) -> Any:  # fmt: skip
    _check_requested(handle, dtype)
    if not indices.size:
        known = handle.element_shape if element_shape is None else element_shape
        if known is None or None in known:
            raise UnimplementedError.of(
                f"TensorArray has size zero, but element shape {format_raw(known)} is not fully defined. Currently only"
                " static shapes are supported when packing zero-size TensorArrays."
            )
        return np.empty((0, *known), dtype.numpy)
    values = [handle.read(index) for index in indices.tolist()]
    first = _shape_of(values[0])
    for i, value in enumerate(values):
        if _shape_of(value) != first:
            refuse(
                f"TensorArray has inconsistent shapes.  Index 0 has shape: {format_raw(first)} but index {i} has shape:"
                f" {format_raw(_shape_of(value))}"
            )
    return np.stack(values) if first else np.array([as_element(value) for value in values], dtype.numpy)


def _shape_of(value: Any) -> tuple[int, ...]:
    return () if type(value) is bytes else value.shape


@scatter_op.kernel("CPU")
def _scatter(
    step: RunningStep, handle: TensorArrayState, indices: Array, value: Array, flow_in: Array, *, T: DType
) -> Any:
    _check_written(handle, T)
    shape = _shape_of(value)
    if not shape:
        refuse(f"Expected value to be at least a vector, but received shape: {format_raw(shape)}")
    if len(indices) != shape[0]:
        refuse(f"Expected len(indices) == values.shape[0], but saw: {len(indices)} vs. {shape[0]}")
    if len(indices) and not handle.dynamic and (top := int(indices.max())) >= len(handle.values):
        refuse(f"Max scatter index must be < array size ({top} vs. {len(handle.values)})")
    for index, row in zip(indices.tolist(), value):
        handle.write(index, row)
    return flow_in


@concat_op.kernel("CPU")
def _concat(
    step: RunningStep, handle: TensorArrayState, flow_in: Array, *, dtype: DType, element_shape_except0: RawShape
) -> tuple[Any, Any]:
    _check_requested(handle, dtype)
    if not handle.values:
        rest = element_shape_except0
        if rest is None or None in rest:
            raise UnimplementedError.of(
                f"TensorArray has size zero, but element_shape_except0 {format_raw(rest)} is not fully defined."
                " Currently only static shapes are supported when concatenating zero-size TensorArrays."
            )
        return np.empty((0, *rest), dtype.numpy), np.empty(0, np.int64)
    values = [handle.read(index) for index in range(len(handle.values))]
    for i, value in enumerate(values):
        shape = _shape_of(value)
        if not shape:
            refuse(f"Concat saw a scalar shape at index {i} but requires at least vectors.  Did you mean to call pack?")
        if shape[1:] != values[0].shape[1:]:
            refuse(
                "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape:"
                f" {format_raw(values[0].shape[1:])} but index {i} has (excepting dimension 0) shape:"
                f" {format_raw(shape[1:])}"
            )
    if not compatible_raw(element_shape_except0, values[0].shape[1:]):
        refuse(
            f"TensorArray was passed element_shape_except0 {format_raw(element_shape_except0)} which does not match the"
            f" shape of its elements: {format_raw(values[0].shape[1:])}"
        )
    return np.concatenate(values), np.array([len(value) for value in values], np.int64)


@split_op.kernel("CPU")
def _split(
    step: RunningStep, handle: TensorArrayState, value: Array, lengths: Array, flow_in: Array, *, T: DType
) -> Any:
    _check_written(handle, T)
    shape = _shape_of(value)
    if not shape:
        refuse(f"Expected value to be at least a vector, but received shape: {format_raw(shape)}")
    total = int(lengths.sum())
    if total != shape[0]:
        refuse(
            f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} and value's shape"
            f" is: {format_raw(shape)} "
        )
    if not handle.dynamic and len(handle.values) != len(lengths):
        refuse(
            f"TensorArray's size is not equal to the size of lengths ({len(handle.values)} vs. {len(lengths)}), and the"
            " TensorArray is not marked as dynamically resizeable"
        )
    start = 0
    for index, length in enumerate(lengths.tolist()):
        handle.write(index, value[start : start + length])
        start += length
    return flow_in


@size_op.kernel("CPU")
def _size(step: RunningStep, handle: TensorArrayState, flow_in: Array) -> Any:
    return np.int32(len(handle.values))


@close_op.kernel("CPU")
def _close(step: RunningStep, handle: TensorArrayState) -> tuple[()]:
    handle.close()
    return ()


@grad_op.kernel("CPU")
def _grad(
    step: RunningStep, handle: TensorArrayState, flow_in: Array, *, source: bytes
) -> tuple[TensorArrayState, Any]:
    return handle.gradient(source), flow_in


@grad_with_shape_op.kernel("CPU")
def _grad_with_shape(
    step: RunningStep, handle: TensorArrayState, flow_in: Array, shape_to_prepend: Array, *, source: bytes
) -> tuple[TensorArrayState, Any]:
    return handle.gradient(source, tuple(shape_to_prepend.tolist())), flow_in
