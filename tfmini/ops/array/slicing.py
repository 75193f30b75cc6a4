"""Slices of a tensor: ``tf.slice``, ``tf.strided_slice`` and ``tensor[...]``."""

from __future__ import annotations

from builtins import slice as Window
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.conversion import convert_to_tensor, is_convertible
from tfmini.graph.families import Operation, Tensor, name_scope, op, same_shape
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape, given_shape
from tfmini.ops.array.joining import stack
from tfmini.ops.array.kernel_arguments import as_element, as_ndarray, refuse
from tfmini.ops.array.shape import shape
from tfmini.shapes import Dimension, RawShape

MASKS = (
    "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0;"
    " new_axis_mask: int = 0; shrink_axis_mask: int = 0"
)
_slice = op("Slice(input: T, begin: Index, size: Index) -> output: T; T: type; Index: {int32, int64}", work="none")
_strided_slice = op(
    f"StridedSlice(input: T, begin: Index, end: Index, strides: Index) -> output: T; {MASKS}", work="none"
)
_strided_slice_grad = op(
    f"StridedSliceGrad(shape: Index, begin: Index, end: Index, strides: Index, dy: T) -> output: T; {MASKS}",
    shape=given_shape,
)
strided_slice_assign_op = op(
    "StridedSliceAssign(ref: Ref(T), begin: Index, end: Index, strides: Index, value: T)"
    f" -> output_ref: Ref(T); {MASKS}",
    shape=same_shape,
    writes="update",
    differentiable=None,
)
newaxis = None


# ---- Slice --------------------------------------------------------------------------------------


@_slice.shape
def _slice_shape(node: Operation) -> list[RawShape]:
    before = node.inputs[0].raw_shape
    begin, size = (constant_value(t) for t in node.inputs[1:])
    for tensor in node.inputs[1:]:
        if before is None and tensor.raw_shape and tensor.raw_shape[0] is not None:
            before = (None,) * tensor.raw_shape[0]
        if before is not None and tensor.raw_shape and tensor.raw_shape[0] not in (None, len(before)):
            raise ValueError(f"Shape must be rank {tensor.raw_shape[0]} but is rank {len(before)}")
    if before is None:
        return [None]
    unknown: list[Any] = [None] * len(before)
    starts: Any = unknown if begin is None else begin.tolist()
    if begin is None and size is not None:  # TensorFlow looks into a computed begin beside a constant size of -1 only
        known = constant_value_as_shape(node.inputs[1]) or unknown
        starts = [b if s == -1 else None for b, s in zip(known, size.tolist())]
    counts = constant_value_as_shape(node.inputs[2]) or unknown if size is None else size.tolist()
    return [tuple(_sliced(d, b, s) for d, b, s in zip(before, starts, counts))]


def _sliced(dim: int | None, begin: int | None, size: int | None) -> int | None:
    if size is None:
        return None
    if size < -1:
        raise ValueError(f"Invalid value in tensor used for shape: {size}")
    if size == -1:
        if dim is not None and begin is not None and begin > dim:
            raise ValueError(f"Negative dimension size caused by subtracting {begin} from {dim}")
        return None if dim is None or begin is None else dim - begin
    return size  # a part that is too large is the kernel's error, as in TensorFlow: a branch may never run


@_slice.kernel("CPU")
def _slice_kernel(value: Array, begin: Array, size: Array) -> Any:
    if begin.ndim != 1 or size.ndim != 1:
        refuse(
            f"Expected begin and size arguments to be 1-D tensors of size {value.ndim}, but got shapes"
            f" {list(begin.shape)} and {list(size.shape)} instead."
        )
    starts, sizes = begin.tolist(), size.tolist()
    if len(starts) != value.ndim or len(sizes) != value.ndim:
        refuse(
            "Expected begin and size arguments to be 1-D tensors of size"
            f" {value.ndim}, but got shapes [{len(starts)}] and [{len(sizes)}] instead."
        )
    window = []
    for i, (start, count, dim) in enumerate(zip(starts, sizes, value.shape)):
        if not 0 <= start <= dim:
            refuse(f"Expected begin[{i}] in [0, {dim}], but got {start}")
        stop = dim if count == -1 else start + count
        if not start <= stop <= dim:
            refuse(f"Expected size[{i}] in [0, {dim - start}], but got {count}")
        window.append(Window(start, stop))
    return value[tuple(window)]


@_slice.gradient
def _slice_gradient(node: Operation, grad: Tensor) -> list[Any]:
    value, begin, _ = node.inputs
    after = raw_ops.Sub(raw_ops.Sub(shape(value), shape(grad)), _as_int32(begin))
    paddings = stack([_as_int32(begin), after], axis=1)
    return [raw_ops.Pad(grad, paddings), None, None]


def _as_int32(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype is dtypes.int32 else raw_ops.Cast(tensor, DstT=dtypes.int32)


# ---- StridedSlice -------------------------------------------------------------------------------


def slice_index(
    attrs: Mapping[str, Any], begin: Array, end: Array, strides: Array, rank: int | None
) -> tuple[Any, ...]:
    """The numpy index that the masks and bounds describe.

    Elements are slice, int (which removes the axis), None (a new axis) and Ellipsis.

    Raises:
      ValueError: for a zero stride, two ellipses, or more indices than dimensions.
    """
    ellipsis = attrs["ellipsis_mask"]
    if ellipsis & (ellipsis - 1):
        raise ValueError("Multiple ellipses in slice spec not allowed")
    found: list[Any] = []
    used = 0
    for i, (low, high, step) in enumerate(zip(begin, end, strides)):
        bit = 1 << i
        if (ellipsis | attrs["new_axis_mask"]) & bit:
            found.append(Ellipsis if ellipsis & bit else None)
            continue
        used += 1
        if step == 0:
            raise ValueError(f"strides[{i}] must be non-zero")
        if attrs["shrink_axis_mask"] & bit:
            if step < 0:
                raise ValueError("only stride 1 allowed on non-range indexing.")
            found.append(low)
        else:
            found.append(
                Window(None if attrs["begin_mask"] & bit else low, None if attrs["end_mask"] & bit else high, step)
            )
    if rank is not None and used > rank:
        raise ValueError(f"Index out of range using input dim {rank}; input has only {rank} dims")
    return tuple(found)


_UNKNOWN = object()


@_strided_slice.shape
def _strided_slice_shape(node: Operation) -> list[RawShape]:
    before = node.inputs[0].raw_shape
    values = [constant_value(t) for t in node.inputs[1:]]
    count = next((v.size for v in values if v is not None), None)
    if count is None:
        count = next((t.raw_shape[0] for t in node.inputs[1:] if t.raw_shape), None)
    if before is None or count is None:
        return [None]
    lists: list[Any] = [[_UNKNOWN] * count if v is None else v.tolist() for v in values]
    if values[2] is None:
        lists[2] = [1] * count
    begin, end, strides = lists
    index = slice_index(node.attrs, begin, end, strides, len(before))
    return [_indexed_shape(before, index, known_step=values[2] is not None)]


def _indexed_shape(before: tuple[int | None, ...], index: tuple[Any, ...], known_step: bool) -> RawShape:
    used = sum(i is not None and i is not Ellipsis for i in index)
    dims = iter(enumerate(before))
    result: list[int | None] = []
    for item in index:
        if item is None:
            result.append(1)
        elif item is Ellipsis:
            result.extend(next(dims)[1] for _ in range(len(before) - used))
        elif isinstance(item, Window):
            result.append(_window_size(next(dims)[1], item, known_step))
        else:
            axis, dim = next(dims)
            if item is not _UNKNOWN and dim is not None and not -dim <= item < dim:
                raise ValueError(f"slice index {item} of dimension {axis} out of bounds.")
    return (*result, *(dim for _, dim in dims))


def _window_size(dim: int | None, window: Window, known_step: bool) -> int | None:
    low, high, step = window.start, window.stop, window.step
    if not known_step or low is _UNKNOWN or high is _UNKNOWN:
        return None
    if dim is not None:
        return len(range(*window.indices(dim)))
    if low is None and high is None and step == 1:
        return None
    # An empty slice is empty whatever the size; all other results depend on it.
    same_sign = low is not None and high is not None and (low < 0) == (high < 0)
    return 0 if same_sign and ((high - low) * step <= 0) else None


@_strided_slice.kernel_factory("CPU")
def _strided_slice_kernel(node: Node) -> Any:
    attrs = node.attrs
    if attrs["shrink_axis_mask"] == 1 and not attrs["ellipsis_mask"] | attrs["new_axis_mask"]:
        return _element_kernel(attrs)

    def run(value: Array, begin: Array, end: Array, strides: Array) -> Any:
        return _take(attrs, value, begin, end, strides)

    return run


def _element_kernel(attrs: Mapping[str, Any]) -> Any:
    """A fast path for ``x[i]``, the most common slice."""

    def run(value: Array, begin: Array, end: Array, strides: Array) -> Any:
        if begin.size != 1:
            return _take(attrs, value, begin, end, strides)
        try:
            return value[begin[0]]
        except IndexError:
            return _take(attrs, value, begin, end, strides)

    return run


def _take(attrs: Mapping[str, Any], value: Array, begin: Array, end: Array, strides: Array) -> Any:
    value = as_ndarray(value)
    try:
        index = slice_index(attrs, begin.tolist(), end.tolist(), strides.tolist(), value.ndim)
        return value[index]
    except (ValueError, IndexError) as error:
        raise InvalidArgumentError.of(_out_of_bounds(value.shape, locals().get("index")) or str(error)) from None


def _out_of_bounds(shape: tuple[int, ...], index: tuple[Any, ...] | None) -> str | None:
    if index is None:
        return None
    try:
        _indexed_shape(shape, index, known_step=True)
    except ValueError as error:
        return str(error)
    return None


@_strided_slice.gradient
def _strided_slice_gradient(node: Operation, grad: Tensor) -> list[Any]:
    value, begin, end, strides = node.inputs
    masks = {name: mask for name, mask in node.attrs.items() if name.endswith("_mask")}
    whole = shape(value, out_type=begin.dtype.base_dtype)
    return [_strided_slice_grad(whole, begin, end, strides, grad, **masks), None, None, None]


@_strided_slice_grad.kernel("CPU")
def _strided_slice_grad_kernel(shape: Array, begin: Array, end: Array, strides: Array, dy: Array, *, node: Node) -> Any:
    sizes = tuple(shape.tolist())
    check_room(sizes, dy.dtype.itemsize)
    result = np.zeros(sizes, dy.dtype)
    try:
        result[slice_index(node.attrs, begin.tolist(), end.tolist(), strides.tolist(), len(sizes))] = dy
    except (ValueError, IndexError) as error:
        raise InvalidArgumentError.of(str(error)) from None
    return result


@_strided_slice_grad.gradient
def _strided_slice_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    masks = {name: mask for name, mask in node.attrs.items() if name.endswith("_mask")}
    return [None, None, None, None, _strided_slice(grad, *node.inputs[1:4], **masks)]


@strided_slice_assign_op.kernel("CPU")
def _strided_slice_assign_kernel(
    ref: Any, begin: Array, end: Array, strides: Array, value: Array, *, node: Node
) -> Any:
    def write(array: Array) -> None:
        index = slice_index(node.attrs, begin.tolist(), end.tolist(), strides.tolist(), array.ndim)
        array[index] = as_element(value)

    try:
        ref.update(write)
    except (ValueError, IndexError) as error:
        raise InvalidArgumentError.of(str(error)) from None
    return ref


# ---- public functions ---------------------------------------------------------------------------


@export("tf.slice")
def slice(input_: TensorLike, begin: TensorLike, size: TensorLike, name: str | None = None) -> Tensor:
    """The slice of ``size`` (-1: to the end) that starts at ``begin`` (``tf.slice``)."""
    return _slice(input_, begin, size, name=name)


# The name for modules that also need Python's own slice.
slice_ = slice


@export("tf.strided_slice")
def strided_slice(
    input_: TensorLike, begin: TensorLike, end: TensorLike, strides: TensorLike | None = None, begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
    var: TensorLike | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Python slicing with bounds as tensors (``tf.strided_slice``).

    Bit i of a mask applies to the i-th index: its begin or end is ignored, it is an ellipsis or a new
    axis, or it selects one element and removes the axis. ``var`` is accepted and unused.
    """
    if strides is None:
        strides = raw_ops.OnesLike(convert_to_tensor(begin))
    masks = {
        "begin_mask": begin_mask, "end_mask": end_mask, "ellipsis_mask": ellipsis_mask,
        "new_axis_mask": new_axis_mask, "shrink_axis_mask": shrink_axis_mask,
    }  # fmt: skip
    return _strided_slice(input_, begin, end, strides, name=name, **masks)


def strided_slice_assign(ref: TensorLike, spec: object, value: TensorLike, name: str | None = None) -> Tensor:
    """Writes ``value`` into ``ref[spec]`` of a ref variable; returns the ref."""
    with name_scope(name, "StridedSliceAssign") as scope:
        begin, end, strides, masks = _parse(spec)
        return strided_slice_assign_op(ref, begin, end, strides, value, name=scope, **masks)


def getitem(tensor: Tensor, spec: object) -> Tensor:
    """``tensor[spec]``: ints, slices, ``...``, ``tf.newaxis`` and integer scalar tensors.

    Raises:
      TypeError: for any other kind of index.
      ValueError: when an index is out of range.
    """
    if isinstance(spec, Tensor) and spec.dtype.is_bool:
        return _where_true(tensor, spec)
    if isinstance(spec, np.ndarray) and spec.dtype == bool:
        return _where_true(tensor, convert_to_tensor(spec))
    graph = tensor.graph
    with graph.as_default(), name_scope(None, "strided_slice") as scope:
        begin, end, strides, masks = _parse(spec)
        return _strided_slice(tensor, begin, end, strides, name=scope, **masks)


def _where_true(tensor: Tensor, mask: Tensor) -> Tensor:
    """``tensor[mask]`` for a boolean tensor: the elements where it is true."""
    rows = raw_ops.Where(mask)
    return raw_ops.GatherNd(tensor, rows)


def _parse(spec: object) -> tuple[Any, Any, Any, dict[str, int]]:
    items = spec if isinstance(spec, (list, tuple)) else (spec,)
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[Any] = []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for i, item in enumerate(items):
        low, high, step, flags = _parse_item(item)
        begin.append(low)
        end.append(high)
        strides.append(step)
        for flag in flags:
            masks[flag] |= 1 << i
    wide = any(isinstance(v, Tensor) and v.dtype is dtypes.int64 for v in (*begin, *end, *strides))
    bounds = [_bounds(v, wide, label) for v, label in ((begin, "stack"), (end, "stack_1"), (strides, "stack_2"))]
    return bounds[0], bounds[1], bounds[2], masks


def _parse_item(item: object) -> tuple[Any, Any, Any, tuple[str, ...]]:
    if isinstance(item, Window):
        flags = (("begin_mask",) if item.start is None else ()) + (("end_mask",) if item.stop is None else ())
        low, high, step = (_position(p, default) for p, default in ((item.start, 0), (item.stop, 0), (item.step, 1)))
        return low, high, step, flags
    if item is Ellipsis:
        return 0, 0, 1, ("ellipsis_mask",)
    if item is newaxis:
        return 0, 0, 1, ("new_axis_mask",)
    position = _position(item, 0)
    return position, position + 1, 1, ("shrink_axis_mask",)


def _position(item: object, default: int) -> Any:
    if item is None:
        return default
    if isinstance(item, Dimension):
        return item.value
    if not isinstance(item, Tensor) and (hasattr(item, "_as_graph_element") or is_convertible(item)):
        item = convert_to_tensor(item)
    if isinstance(item, Tensor):
        # TensorFlow accepts any integer scalar as an index; the op takes int32 and int64.
        if item.dtype.base_dtype not in (dtypes.int32, dtypes.int64) or item.raw_shape not in (None, ()):
            raise TypeError(_bad_index(item))
        return item
    if isinstance(item, (bool, str, bytes, float)) or not hasattr(item, "__index__"):
        raise TypeError(_bad_index(item))
    return item.__index__()


def _bad_index(item: object) -> str:
    return (
        "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 tensors are"
        f" valid indices, got {item!r}"
    )


def _bounds(values: list[Any], wide: bool, name: str) -> Any:
    dtype = dtypes.int64 if wide else dtypes.int32
    if not any(isinstance(v, Tensor) for v in values):
        limit = np.iinfo(np.int32)
        # Bounds such as sys.maxsize are clipped: no int32 axis is longer.
        clipped = values if wide else [min(max(v, limit.min), limit.max) for v in values]
        return constant(np.array(clipped, dtype.numpy), name=name)
    parts = [raw_ops.Cast(v, DstT=dtype) if isinstance(v, Tensor) and v.dtype is not dtype else v for v in values]
    return raw_ops.Pack([constant(p, dtype) if not isinstance(p, Tensor) else p for p in parts], axis=0, name=name)


Tensor._override_operator("__getitem__", getitem)

export_names("tf", "newaxis")
