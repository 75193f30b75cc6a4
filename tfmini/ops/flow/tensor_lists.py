"""Lists of tensors, the ops ``TensorList…``: values of a variant tensor, of which each change makes another list.

TensorFlow's functions for them were never public; `compat.ops_names` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes, protos
from tfmini.checkpoint.files import decode, encode
from tfmini.core_types import Array
from tfmini.dtypes import DType, cpp_name
from tfmini.graph import raw_ops
from tfmini.graph.attr_values import fill_typed_field, shape_proto, tensor_from_proto
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.memory import check_room
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.kernel_arguments import as_element, filled, refuse, zero_of
from tfmini.ops.waiting_line import own
from tfmini.shapes import RawShape, as_raw, at_least_rank, compatible_raw, format_raw, merge_raw, with_rank

# ---- `TensorList`: the value ---------------------------------------------------------------------------------------

_ENTRY_BYTES = 8  # of an element that was not set
_TYPE_NAME = "tensorflow::TensorList"
_LIMITS = 1 << 64  # a message has the limit modulo this


class TensorList:
    """Tensors of one type in a row. It never changes, so that steps and tables may share it.

    Args:
      elements: the values, None for those that were not set.
      element_dtype, element_shape: of every element, as far as the shape is known.
      limit: the most elements that may be pushed; -1: any number.
    """

    __slots__ = ("elements", "element_dtype", "element_shape", "limit")

    def __init__(self, elements: Iterable[Any], element_dtype: DType, element_shape: RawShape, limit: int = -1) -> None:
        self.elements, self.element_dtype, self.element_shape = tuple(elements), element_dtype, element_shape
        self.limit = limit

    def of(self, elements: Iterable[Any]) -> TensorList:
        """A list of the same kind with other elements."""
        return TensorList(elements, self.element_dtype, self.element_shape, self.limit)

    def zeros_like(self) -> TensorList:
        """The list of zeros in the shapes of the elements, for the op ``ZerosLike``."""
        return self.of(
            e.zeros_like() if isinstance(e, TensorList) else e if e is None else np.zeros(np.shape(e), e.dtype)[()]
            for e in self.elements
        )

    def __add__(self, other: TensorList) -> TensorList:
        """The sums of the elements, for the op ``AddN``; those that one list did not set are the other's."""
        if self.element_dtype is not other.element_dtype:
            _differ("of tensors of different dtypes", cpp_name(self.element_dtype), cpp_name(other.element_dtype))
        if not compatible_raw(self.element_shape, other.element_shape):
            shapes = format_raw(self.element_shape), format_raw(other.element_shape)
            _differ("of tensors with incompatible element shapes", *shapes)
        if len(self.elements) != len(other.elements):
            _differ("of tensors with different lengths", len(self.elements), len(other.elements))
        sums = [y if x is None else x if y is None else _sum(x, y) for x, y in zip(self.elements, other.elements)]
        return TensorList(sums, self.element_dtype, merge_raw(self.element_shape, other.element_shape))

    # ---- how checkpoints store it ------------------------------------------------------------------------------
    # The metadata are the number of elements that were not set and their places, the type, the limit and the shape.

    def message(self) -> Any:
        """The list as a VariantTensorDataProto, which is TensorFlow's."""
        unset = [place for place, element in enumerate(self.elements) if element is None]
        numbers = [len(unset), *unset, self.element_dtype.as_datatype_enum, self.limit % _LIMITS]
        shape = shape_proto(self.element_shape).SerializeToString()
        message = protos.VariantTensorDataProto(type_name=_TYPE_NAME, metadata=b"".join([*map(encode, numbers), shape]))
        for element in self.elements:
            if element is not None:
                _to_proto(element, self.element_dtype, message.tensors.add())
        return message

    @staticmethod
    def of_message(message: Any) -> TensorList:
        """The list in a VariantTensorDataProto.

        Raises:
          ValueError, TypeError: when it is that of no list.
        """
        if message.type_name != _TYPE_NAME:
            raise ValueError(f"a variant of type {message.type_name!r} is no list of tensors")
        count, position = decode(message.metadata, 0)
        unset = set[int]()
        for _ in range(count):
            place, position = decode(message.metadata, position)
            unset.add(place)
        kind, position = decode(message.metadata, position)
        limit, position = decode(message.metadata, position)
        shape = as_raw(protos.TensorShapeProto.FromString(message.metadata[position:]))
        dtype, length = dtypes.as_dtype(kind), count + len(message.tensors)
        if len(unset) != count or any(place >= length for place in unset):
            raise ValueError("the places of elements that were not set are wrong")
        given = iter(message.tensors)
        elements = [None if place in unset else _of_proto(next(given), dtype) for place in range(length)]
        return TensorList(elements, dtype, shape, limit - _LIMITS if limit * 2 >= _LIMITS else limit)


def _to_proto(element: Any, dtype: DType, proto: Any) -> None:
    proto.dtype = dtype.as_datatype_enum
    proto.tensor_shape.CopyFrom(shape_proto(np.shape(element)))
    if dtype is dtypes.variant:
        proto.variant_val.extend(one.message() for one in np.asarray(element, object).ravel())
    else:
        fill_typed_field(proto, np.asarray(element, object if dtype is dtypes.string else dtype.numpy))


def _of_proto(proto: Any, dtype: DType) -> Any:
    if dtypes.as_dtype(proto.dtype) is not dtype:
        raise ValueError("an element of a list has another type than the list")
    if dtype is not dtypes.variant:
        return tensor_from_proto(proto, repeats=False)[()]
    found = np.empty(len(proto.variant_val), object)
    found[:] = [TensorList.of_message(one) for one in proto.variant_val]
    return found.reshape([dim.size for dim in proto.tensor_shape.dim])[()]


def _sum(x: Array, y: Array) -> Array:
    if np.shape(x) != np.shape(y):
        refuse(f"Trying to add two tensors with incompatible element shapes. One is {format_raw(np.shape(x))} and the"
               f" other is {format_raw(np.shape(y))}")  # fmt: skip
    return x + y


def _differ(how: str, one: object, other: object) -> NoReturn:
    refuse(f"Trying to add two lists {how}. One is {one} and the other is {other}")


# ---- The declarations, and the shapes of elements as far as the graph tells them -----------------------------------

_OF, _BY = "element_dtype: type", "element_dtype: type; shape_type: {int32, int64}"


def _list_op(name: str, inputs: str, outputs: str, attrs: str = _OF, **options: Any) -> OpHandle[Any]:
    return op(f"TensorList{name}({inputs}) -> {outputs}; {attrs}", **options)


_MAKES, _CHANGES = "output_handle: variant", "input_handle: variant"
empty_op: OpHandle[Any] = op(
    f"EmptyTensorList(element_shape: shape_type, max_num_elements: int32) -> handle: variant; {_BY}",
    differentiable=None,
)
reserve_op = _list_op("Reserve", "element_shape: shape_type, num_elements: int32", "handle: variant", _BY,
                      differentiable=None)  # fmt: skip
from_tensor_op = _list_op("FromTensor", "tensor: element_dtype, element_shape: shape_type", _MAKES, _BY)
split_op = _list_op("Split", "tensor: element_dtype, element_shape: shape_type, lengths: int64", _MAKES, _BY)
_SCATTER = "tensor: element_dtype, indices: int32, element_shape: shape_type"
scatter_v1_op = _list_op("Scatter", _SCATTER, _MAKES, _BY)
scatter_op = _list_op("ScatterV2", f"{_SCATTER}, num_elements: int32", _MAKES, _BY)
scatter_into_op = _list_op("ScatterIntoExistingList", f"{_CHANGES}, tensor: element_dtype, indices: int32", _MAKES)
push_op = _list_op("PushBack", f"{_CHANGES}, tensor: element_dtype", _MAKES)
pop_op = _list_op("PopBack", f"{_CHANGES}, element_shape: int32", f"{_MAKES}, tensor: element_dtype")
push_batch_op = _list_op("PushBackBatch", "input_handles: variant, tensor: element_dtype", "output_handles: variant",
                         differentiable=False)  # fmt: skip
concat_lists_op = _list_op("ConcatLists", "input_a: variant, input_b: variant", "output: variant",
                           differentiable=False)  # fmt: skip
set_op = _list_op("SetItem", f"{_CHANGES}, index: int32, item: element_dtype", _MAKES)
get_op = _list_op("GetItem", f"{_CHANGES}, index: int32, element_shape: int32", "item: element_dtype")
gather_op = _list_op("Gather", f"{_CHANGES}, indices: int32, element_shape: int32", "values: element_dtype")
stack_op = _list_op("Stack", f"{_CHANGES}, element_shape: int32", "tensor: element_dtype",
                    f"{_OF}; num_elements: int = -1")  # fmt: skip
concat_op = _list_op("ConcatV2", f"{_CHANGES}, element_shape: shape_type, leading_dims: int64",
                     "tensor: element_dtype, lengths: int64", _BY)  # fmt: skip
concat_v1_op = _list_op("Concat", _CHANGES, "tensor: element_dtype, lengths: int64",
                        f"{_OF}; element_shape: shape = unknown_rank")  # fmt: skip
resize_op: OpHandle[Any] = op(f"TensorListResize({_CHANGES}, size: int32) -> {_MAKES}", stateful=True)
length_op: OpHandle[Any] = op(f"TensorListLength({_CHANGES}) -> length: int32", shape=[()], differentiable=False)
element_shape_op = _list_op("ElementShape", _CHANGES, "element_shape: shape_type", "shape_type: {int32, int64}",
                            differentiable=False)  # fmt: skip

_SHAPE_INPUT = {
    "EmptyTensorList": 0, "TensorListReserve": 0, "TensorListFromTensor": 1, "TensorListSplit": 1,
    "TensorListScatter": 2, "TensorListScatterV2": 2,
}  # fmt: skip
_PASSES_ON = frozenset(
    {handle.name for handle in (push_op, pop_op, push_batch_op, concat_lists_op, set_op, scatter_into_op, resize_op)}
    | {"Identity", "Enter", "Switch", "Exit", "StridedSlice", "Pack"}
)


def _given(tensor: Tensor) -> RawShape:
    """The shape that an input names; a scalar, -1, names none."""
    unknown = tensor.raw_shape == () and constant_value(tensor) is None
    return None if unknown else constant_value_as_shape(tensor)


def _element(handle: Tensor) -> tuple[DType | None, RawShape]:
    """The type and the static shape of the elements of a list, as far as the graph tells them."""
    node = handle.op
    if handle.handle_data is None and handle.dtype is dtypes.variant and not handle.value_index:
        if node.type in _SHAPE_INPUT:
            handle.handle_data = node.attrs["element_dtype"], _given(node.inputs[_SHAPE_INPUT[node.type]])
        elif node.type in _PASSES_ON:
            known, shape = _element(node.inputs[0])
            dtype = known or node.attrs.get("element_dtype")
            handle.handle_data = None if dtype is None else (dtype, shape)
    return handle.handle_data or (None, None)


def _checked(node: Operation, index: int = 0) -> RawShape:
    """The static shape of the elements of an input, a list that must be of the type that ``node`` names."""
    dtype, shape = _element(node.inputs[index])
    if dtype is not None and dtype is not node.attrs["element_dtype"]:
        wanted = cpp_name(node.attrs["element_dtype"])
        raise ValueError(f"Expected list with element dtype {wanted} but got list with element dtype {cpp_name(dtype)}")
    return shape


@all_of(empty_op, reserve_op, scatter_v1_op, scatter_op, from_tensor_op, split_op).shape
def _new_shape(node: Operation) -> list[RawShape]:
    given = _given(node.inputs[_SHAPE_INPUT[node.type]])
    rows = node.inputs[0].raw_shape
    if node.type == "TensorListFromTensor":  # the kernel refuses a scalar
        merge_raw(None if rows is None else rows[1:], given)
    elif node.type == "TensorListSplit":
        with_rank(node.inputs[2].raw_shape, 1)
        merge_raw(None if at_least_rank(rows, 1) is None else (None, *rows[1:]), given)  # type: ignore[index]
    return [()]


@all_of(push_op, set_op, scatter_into_op).shape
def _changed_shape(node: Operation) -> list[RawShape]:
    element = _checked(node)
    if node.type == "TensorListSetItem":
        merge_raw(node.inputs[2].raw_shape, element)
    elif node.type == "TensorListScatterIntoExistingList":
        at_least_rank(node.inputs[1].raw_shape, 1)
        with_rank(node.inputs[2].raw_shape, 1)
    return [()]


pop_op.shape(lambda node: [(), _checked(node)])


@push_batch_op.shape
def _push_batch_shape(node: Operation) -> list[RawShape]:
    lists, rows = with_rank(node.inputs[0].raw_shape, 1), at_least_rank(node.inputs[1].raw_shape, 1)
    _checked(node)
    return [merge_raw(lists, None if rows is None else rows[:1])]


@concat_lists_op.shape
def _concat_lists_shape(node: Operation) -> list[RawShape]:
    merge_raw(_checked(node), _checked(node, 1))
    return [merge_raw(node.inputs[0].raw_shape, node.inputs[1].raw_shape)]


get_op.shape(lambda node: [merge_raw(_checked(node), _given(node.inputs[2]))])


@gather_op.shape
def _gather_shape(node: Operation) -> list[RawShape]:
    element, indices = merge_raw(_checked(node), _given(node.inputs[2])), node.inputs[1].raw_shape
    return [None if element is None or indices is None else indices + element]


@stack_op.shape
def _stack_shape(node: Operation) -> list[RawShape]:
    element, count = merge_raw(_checked(node), _given(node.inputs[1])), node.attrs["num_elements"]
    return [None if element is None else (None if count == -1 else count, *element)]


@all_of(concat_op, concat_v1_op).shape
def _concat_shape(node: Operation) -> list[RawShape]:
    given = node.attrs["element_shape"] if len(node.inputs) == 1 else _given(node.inputs[1])
    element = at_least_rank(merge_raw(given, _checked(node)), 1)
    return [None if element is None else (None, *element[1:]), (None,)]


@resize_op.shape
def _resize_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[1].raw_shape, 0)
    _element(node.inputs[0])
    return [()]


@element_shape_op.shape
def _element_shape_shape(node: Operation) -> list[RawShape]:
    dtype, shape = _element(node.inputs[0])
    if dtype is not None and shape is None:
        return [None]  # a scalar, -1, when it runs
    return [(None if shape is None else len(shape),)]


# ---- Kernels -------------------------------------------------------------------------------------------------------


def _list_of(value: object, dtype: DType | None = None) -> TensorList:
    if isinstance(value, np.ndarray) and value.ndim:
        refuse(f"Input list must be a scalar saw: {format_raw(value.shape)}")
    found = value.item() if isinstance(value, np.ndarray) else value
    if not isinstance(found, TensorList):
        refuse(f"Input handle is not a list. Saw: '{type(found).__name__}'")
    if dtype is not None and found.element_dtype is not dtype:
        refuse(f"Invalid data types; op elements {cpp_name(dtype)} but list elements {cpp_name(found.element_dtype)}")
    return found


def _shape_in(value: Array) -> RawShape:
    """The shape that the value of an input names."""
    if not np.ndim(value):
        if value != -1:
            refuse("The only valid scalar shape tensor is the fully unknown shape specified as -1.")
        return None
    if np.ndim(value) != 1 or (value < -1).any():
        refuse(f"A shape is a vector of sizes of at least -1, which means unknown, but element_shape is {value}")
    return tuple(None if size == -1 else size for size in value.tolist())


def _merged(one: RawShape, other: RawShape) -> RawShape:
    if not compatible_raw(one, other):
        refuse(f"Incompatible shapes during merge: {format_raw(one)} vs. {format_raw(other)}")
    return merge_raw(one, other)


def _full(shape: RawShape, of: str) -> tuple[int, ...]:
    if shape is None or None in shape:
        refuse(f"{of}: {format_raw(shape)}; give element_shape")
    return shape  # type: ignore[return-value]


def _unset(count: int) -> list[None]:
    check_room((count,), _ENTRY_BYTES)
    return [None] * count


def _rows_of(tensor: Array, shape: RawShape) -> Array:
    if not np.ndim(tensor):
        refuse(f"Tensor must be at least a vector, but saw shape: {format_raw(np.shape(tensor))}")
    if not compatible_raw(shape, tensor.shape[1:]):
        refuse(f"Specified a list with shape {format_raw(shape)} from a tensor with shape"
               f" {format_raw(tensor.shape[1:])}")  # fmt: skip
    return tensor


def _zeros(shape: tuple[int, ...], dtype: DType) -> Any:
    return filled(shape, zero_of(dtype.numpy), dtype.numpy)[()]


@empty_op.kernel("CPU")
def _empty(element_shape: Array, max_num_elements: Array, *, element_dtype: DType) -> TensorList:
    if np.ndim(max_num_elements):
        refuse(f"max_num_elements expected to be a scalar but got shape: {format_raw(np.shape(max_num_elements))}")
    return TensorList((), element_dtype, _shape_in(element_shape), int(max_num_elements))


@reserve_op.kernel("CPU")
def _reserve(element_shape: Array, num_elements: Array, *, element_dtype: DType) -> TensorList:
    if num_elements < 0:
        refuse(f"The num_elements to reserve must be a non negative number, but got {num_elements}")
    return TensorList(_unset(int(num_elements)), element_dtype, _shape_in(element_shape))


@from_tensor_op.kernel("CPU")
def _from_tensor(tensor: Array, element_shape: Array, *, element_dtype: DType) -> TensorList:
    shape = _shape_in(element_shape)
    return TensorList([own(row) for row in _rows_of(tensor, shape)], element_dtype, shape)


@split_op.kernel("CPU")
def _split(tensor: Array, element_shape: Array, lengths: Array, *, element_dtype: DType) -> TensorList:
    shape = _shape_in(element_shape)
    if shape == ():
        refuse("TensorListSplit requires element_shape to be at least of rank 1, but saw: []")
    _rows_of(tensor, None if shape is None else shape[1:])
    rows, start = [], 0
    for length in lengths.tolist():
        if length < 0:
            refuse(f"Invalid value in lengths: {length}")
        if start + length > len(tensor):
            refuse(f"Attempting to slice [{start}, {start + length}] from tensor with length {len(tensor)}")
        rows.append(own(tensor[start : start + length]))
        start += length
    if start != len(tensor):
        refuse(f"Unused values in tensor. Length of tensor: {len(tensor)} Values used: {start}")
    return TensorList(rows, element_dtype, shape)


@scatter_v1_op.kernel("CPU")
def _scatter_v1(tensor: Array, indices: Array, element_shape: Array, *, element_dtype: DType) -> TensorList:
    return _scatter(tensor, indices, element_shape, np.array(-1, np.int32), element_dtype=element_dtype)


@scatter_op.kernel("CPU")
def _scatter(
    tensor: Array, indices: Array, element_shape: Array, num_elements: Array, *, element_dtype: DType
) -> TensorList:
    size, shape = int(num_elements), _shape_in(element_shape)
    if size < -1:
        refuse(f"TensorListScatter expects num_elements >= -1, found: {size}")
    if size >= 0 and indices.size and indices.max() >= size:
        refuse(f"TensorListScatter: Trying to scatter at index {indices.max()} in list with size {size}")
    return _scattered(TensorList(_unset(max(size, 0)), element_dtype, shape), _rows_of(tensor, shape), indices)


@scatter_into_op.kernel("CPU")
def _scatter_into(input_handle: Any, tensor: Array, indices: Array, *, element_dtype: DType) -> TensorList:
    return _scattered(_list_of(input_handle, element_dtype), _rows_of(tensor, None), indices)


def _scattered(into: TensorList, rows: Array, indices: Array) -> TensorList:
    if indices.ndim != 1 or len(indices) != len(rows):
        refuse(f"Expected len(indices) == tensor.shape[0], but saw: {format_raw(indices.shape)} vs. {len(rows)}")
    if indices.size and indices.min() < 0:
        refuse("Indices in TensorListScatter must all be non-negative.")
    missing = int(indices.max(initial=-1)) + 1 - len(into.elements)
    elements = [*into.elements, *_unset(max(missing, 0))]
    for index, row in zip(indices.tolist(), rows):
        elements[index] = own(row)
    return into.of(elements)


def _push(into: TensorList, value: Any, at: str = "") -> TensorList:
    if not compatible_raw(into.element_shape, np.shape(value)):
        refuse(f"Tried to append a tensor with incompatible shape to a list{at}. Op element shape:"
               f" {format_raw(np.shape(value))} list shape: {format_raw(into.element_shape)}")  # fmt: skip
    if into.limit != -1 and len(into.elements) >= into.limit:
        refuse(f"Tried to push item into a full list list size: {len(into.elements)} max_num_elements: {into.limit}")
    return into.of((*into.elements, own(value)))


push_op.kernel("CPU")(
    lambda input_handle, tensor, *, element_dtype: _push(_list_of(input_handle, element_dtype), tensor)
)


@push_batch_op.kernel("CPU")
def _push_back_batch(input_handles: Array, tensor: Array, *, element_dtype: DType) -> Any:
    if np.ndim(input_handles) != 1:
        refuse(f"Expected input_handles to be a vector, but saw shape: {format_raw(np.shape(input_handles))}")
    if len(_rows_of(tensor, None)) != len(input_handles):
        refuse(f"Expected tensor.shape[0] == input_handles.size, but saw {len(tensor)} vs. {len(input_handles)}")
    out = np.empty(len(input_handles), object)
    for i, (value, row) in enumerate(zip(input_handles, tensor)):
        out[i] = _push(_list_of(value, element_dtype), row, f" at index {i}")
    return out


@pop_op.kernel("CPU")
def _pop_back(input_handle: Any, element_shape: Array, *, element_dtype: DType) -> tuple[TensorList, Any]:
    found = _list_of(input_handle, element_dtype)
    if not found.elements:
        refuse("Trying to pop from an empty list.")
    return found.of(found.elements[:-1]), _read(found, -1, element_shape)


@concat_lists_op.kernel("CPU")
def _concat_lists(input_a: Any, input_b: Any, *, element_dtype: DType) -> Any:
    if np.shape(input_a) != np.shape(input_b):
        shapes = format_raw(np.shape(input_a)), format_raw(np.shape(input_b))
        refuse(f"Incompatible input TensorList tensor shapes: {shapes[0]} vs. {shapes[1]}")
    out = np.empty(np.shape(input_a), object)
    for i, pair in enumerate(zip(np.ravel(input_a), np.ravel(input_b))):
        a, b = (_list_of(value, element_dtype) for value in pair)
        if a.element_shape != b.element_shape:
            refuse(f"input_a and input_b TensorList element shapes are not identical at index {i}.  Saw"
                   f" {format_raw(a.element_shape)} vs. {format_raw(b.element_shape)}")  # fmt: skip
        out.flat[i] = a.of(a.elements + b.elements)
    return out if out.ndim else out.item()


def _at(found: TensorList, index: Array, what: str) -> int:
    if not 0 <= index < len(found.elements):
        refuse(f"Trying to {what} element {index} in a list with {len(found.elements)} elements.")
    return int(index)


@set_op.kernel("CPU")
def _set_item(input_handle: Any, index: Array, item: Any, *, element_dtype: DType) -> TensorList:
    found = _list_of(input_handle, element_dtype)
    place = _at(found, index, "modify")
    if not compatible_raw(found.element_shape, np.shape(item)):
        refuse("Tried to set a tensor with incompatible shape at a list index. Item element shape:"
               f" {format_raw(np.shape(item))} list shape: {format_raw(found.element_shape)}")  # fmt: skip
    return found.of((*found.elements[:place], own(item), *found.elements[place + 1 :]))


@get_op.kernel("CPU")
def _get_item(input_handle: Any, index: Array, element_shape: Array, *, element_dtype: DType) -> Any:
    found = _list_of(input_handle, element_dtype)
    return _read(found, _at(found, index, "access"), element_shape)


def _read(found: TensorList, place: int, element_shape: Array) -> Any:
    if found.elements[place] is not None:
        return found.elements[place]
    shape = _shape_of_all(found.elements, _merged(_shape_in(element_shape), found.element_shape))
    what = "Trying to read an uninitialized tensor but element_shape is not fully defined and no list element is set"
    return _zeros(_full(shape, what), found.element_dtype)


def _shape_of_all(values: Sequence[Any], shape: RawShape) -> RawShape:
    for value in values:
        if value is not None:
            shape = _merged(shape, np.shape(value))
    return shape


def _stacked(values: Sequence[Any], shape: RawShape, dtype: DType, what: str) -> Array:
    if not values:
        _full(shape, f"Tried to {what} no elements of a list with non-fully-defined element_shape")
    full = _full(_shape_of_all(values, shape), f"Tried to {what} elements that were not set, of a shape that is not"
                 " fully defined")  # fmt: skip
    out = filled((len(values), *full), zero_of(dtype.numpy), dtype.numpy)
    for i, value in enumerate(values):
        if value is not None:
            out[i] = as_element(value)
    return out


@stack_op.kernel("CPU")
def _stack(input_handle: Any, element_shape: Array, *, element_dtype: DType, num_elements: int) -> Any:
    found = _list_of(input_handle, element_dtype)
    if num_elements not in (-1, len(found.elements)):
        refuse(f"Operation expected a list with {num_elements} elements but got a list with {len(found.elements)}"
               " elements.")  # fmt: skip
    return _stacked(found.elements, _merged(_shape_in(element_shape), found.element_shape), element_dtype, "stack")


@gather_op.kernel("CPU")
def _gather(input_handle: Any, indices: Array, element_shape: Array, *, element_dtype: DType) -> Any:
    found = _list_of(input_handle, element_dtype)
    places = [_at(found, index, "gather") for index in np.ravel(indices)]
    shape = _merged(_shape_in(element_shape), found.element_shape)
    return _stacked([found.elements[place] for place in places], shape, element_dtype, "gather")


concat_v1_op.kernel("CPU")(
    lambda input_handle, *, element_dtype, element_shape: _joined(
        _list_of(input_handle, element_dtype), element_shape, []
    )
)


@concat_op.kernel("CPU")
def _concat(input_handle: Any, element_shape: Array, leading_dims: Array, *, element_dtype: DType) -> tuple[Any, Any]:
    return _joined(_list_of(input_handle, element_dtype), _shape_in(element_shape), leading_dims.tolist())


def _joined(found: TensorList, given: RawShape, leading: list[int]) -> tuple[Any, Any]:
    """The elements one after the other, and their lengths; ``leading`` has the lengths of those that were not set."""
    shape = _merged(given, found.element_shape)
    set_shapes = [np.shape(value) for value in found.elements if value is not None]
    if shape == () or () in set_shapes:
        refuse("Concat requires elements to be at least vectors, found scalars instead.")
    for one in set_shapes:
        shape = _merged(shape, (None if shape is None else shape[0], *one[1:]))
        _merged(None if shape is None else shape[:1], one[:1])
    rest = _full(None if shape is None else shape[1:], "Tried to concat a list whose elements have a non-fully-defined"
                 " shape, except the first dimension")  # fmt: skip
    first = shape[0] if shape else None
    if first is None and len({one[0] for one in set_shapes}) == 1:
        first = set_shapes[0][0]
    parts = []
    for i, value in enumerate(found.elements):
        if value is None:
            size = leading[i] if i < len(leading) else first
            if size is None:
                refuse(f"List contains uninitialized tensor at index {i} but leading_dims has only {len(leading)}"
                       " elements.")  # fmt: skip
            value = _zeros((size, *rest), found.element_dtype)
        parts.append(value)
    whole = np.concatenate(parts) if parts else _zeros((0, *rest), found.element_dtype)
    return whole, np.array([len(part) for part in parts], np.int64)


@resize_op.kernel("CPU")
def _resize(input_handle: Any, size: Array) -> TensorList:
    found = _list_of(input_handle)
    if size < 0:
        refuse(f"TensorListSlice expects size to be non-negative. Got: {size}")
    return found.of([*found.elements[: int(size)], *_unset(max(int(size) - len(found.elements), 0))])


length_op.kernel("CPU")(lambda input_handle: np.int32(len(_list_of(input_handle).elements)))


@element_shape_op.kernel("CPU")
def _element_shape(input_handle: Any, *, shape_type: DType) -> Any:
    shape = _list_of(input_handle).element_shape
    return np.array(-1 if shape is None else [-1 if s is None else s for s in shape], shape_type.numpy)[()]


# ---- Gradients: that of a list is the list of the gradients of its elements ----------------------------------------


def _shape_of(handle: Tensor) -> Tensor:
    return element_shape_op(handle, shape_type=dtypes.int32)  # type: ignore[no-any-return]


def _sizes_after_first(tensor: Tensor) -> Tensor:
    return raw_ops.Slice(raw_ops.Shape(tensor), [1], [-1])


def _no_gradients(like: Tensor, dtype: DType) -> Tensor:
    return reserve_op(_shape_of(like), length_op(like), element_dtype=dtype)  # type: ignore[no-any-return]


push_op.gradient(
    lambda node, grad: pop_op(grad, raw_ops.Shape(node.inputs[1]), element_dtype=node.attrs["element_dtype"])
)
stack_op.gradient(lambda node, grad: [from_tensor_op(grad, _sizes_after_first(grad)), None])
resize_op.gradient(lambda node, grad: [resize_op(grad, length_op(node.inputs[0])), None])
get_op.gradient(
    lambda node, grad: [set_op(_no_gradients(node.inputs[0], grad.dtype), node.inputs[1], grad), None, None]
)
gather_op.gradient(
    lambda node, grad: [scatter_into_op(_no_gradients(node.inputs[0], grad.dtype), grad, node.inputs[1]), None, None]
)


@pop_op.gradient
def _pop_gradient(node: Operation, list_grad: Tensor | None, grad: Tensor) -> list[Any]:
    if list_grad is None:
        list_grad = _no_gradients(node.outputs[0], grad.dtype)
    return [push_op(list_grad, grad), None]


@all_of(concat_op, concat_v1_op).gradient
def _concat_gradient(node: Operation, grad: Tensor, _: Any) -> list[Any]:
    lists = split_op(grad, _shape_of(node.inputs[0]), node.outputs[1])
    return [lists] + [None] * (len(node.inputs) - 1)


@split_op.gradient
def _split_gradient(node: Operation, grad: Tensor) -> list[Any]:
    tensor, _, lengths = node.inputs
    shape = raw_ops.ConcatV2([[-1], _sizes_after_first(tensor)], 0)
    return [concat_op(grad, shape, lengths, element_dtype=tensor.dtype)[0], None, None]


@from_tensor_op.gradient
def _from_tensor_gradient(node: Operation, grad: Tensor) -> list[Any]:
    tensor = node.inputs[0]
    count = tensor.raw_shape[0] if tensor.raw_shape else None
    shape = _sizes_after_first(tensor)
    stacked = stack_op(grad, shape, element_dtype=tensor.dtype, num_elements=-1 if count is None else count)
    return [stacked, None]


@set_op.gradient
def _set_gradient(node: Operation, grad: Tensor) -> list[Any]:
    _, index, item = node.inputs
    item_grad = get_op(grad, index, raw_ops.Shape(item), element_dtype=item.dtype)
    return [set_op(grad, index, raw_ops.ZerosLike(item)), None, item_grad]


@all_of(scatter_v1_op, scatter_op).gradient
def _scatter_gradient(node: Operation, grad: Tensor) -> list[Any]:
    tensor, indices = node.inputs[:2]
    gathered = gather_op(grad, indices, _sizes_after_first(tensor), element_dtype=tensor.dtype)
    return [gathered] + [None] * (len(node.inputs) - 1)


@scatter_into_op.gradient
def _scatter_into_gradient(node: Operation, grad: Tensor) -> list[Any]:
    _, tensor, indices = node.inputs
    gathered = gather_op(grad, indices, _sizes_after_first(tensor), element_dtype=tensor.dtype)
    return [scatter_into_op(grad, raw_ops.ZerosLike(tensor), indices), gathered, None]
