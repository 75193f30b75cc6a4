"""The functions that change a variable or a reference: ``tf.assign``, ``tf.scatter_add``, ``tf.count_up_to``…

Each takes a variable of either kind, or a reference tensor.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tfmini.core_types import Array, GraphTensor, ShapeLike, TensorLike
from tfmini.dtypes import DType
from tfmini.errors import InvalidArgumentError
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    control_dependencies,
    convert_to_tensor,
    name_scope,
    op,
    same_shape,
)
from tfmini.graph.node import Node
from tfmini.graph.scoping import counted_as
from tfmini.ops.array.slicing import MASKS, slice_index, strided_slice_assign_op
from tfmini.ops.math.broadcast import named
from tfmini.ops.variables import ref_ops
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.ref_variable import beside
from tfmini.ops.variables.resource_ops import handle_data, read_variable, scatter_nd_ops, scatter_ops
from tfmini.ops.variables.resource_variable import BaseResourceVariable
from tfmini.out_of_scope import Advising
from tfmini.shapes import RawShape, as_raw


def variable_op(
    shape: ShapeLike, dtype: DType, name: str = "Variable", container: str = "", shared_name: str = ""
) -> Tensor:
    """A reference variable without an initial value (``state_ops.variable_op_v2``)."""
    return ref_ops.variable_v2(
        shape=as_raw(shape), dtype=dtype, name=name, container=container, shared_name=shared_name
    )


def _reference(ref: Any) -> Tensor:
    return ref._reference if isinstance(ref, Variable) else ref


def _assigns_itself(ref: object) -> bool:
    """Whether TensorFlow asks ``ref`` for its method: of a tensor only the part of a variable has one."""
    return isinstance(ref, BaseResourceVariable) or (isinstance(ref, Tensor) and not ref.dtype._is_ref_dtype)


def _update(handle: OpHandle, ref: Variable | GraphTensor, *values: TensorLike, **attrs: object) -> Any:
    reference = _reference(ref)
    return beside(reference, handle(reference, *values, **attrs))


@export("tf.assign")
def assign(
    ref: GraphTensor, value: TensorLike, validate_shape: bool | None = None, use_locking: bool | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Replaces the value (``tf.assign``); returns ``ref`` after the assignment.

    Args:
      ref: a variable or reference; it may be uninitialised.
      value: the new value, of the same type.
      validate_shape: require the shape of the variable (default); False: the shape may change.
      use_locking: accepted; assignments are always exclusive.
    """
    if _assigns_itself(ref):
        return ref.assign(value, name=name)  # type: ignore[attr-defined]
    validate = True if validate_shape is None else validate_shape
    locking = True if use_locking is None else use_locking
    return _update(ref_ops.assign_op, ref, value, validate_shape=validate, use_locking=locking, name=name)


@export("tf.assign_add")
def assign_add(ref: GraphTensor, value: TensorLike, use_locking: bool | None = None, name: str | None = None) -> Any:
    """Adds ``value`` (``tf.assign_add``); returns ``ref`` after it.

    Args:
      ref: a variable.
      value: a tensor of its dtype and shape.
      use_locking: an attr of the op; no update is lost with or without it.
      name: of the op.
    """
    if _assigns_itself(ref):
        return ref.assign_add(value)  # type: ignore[attr-defined]  # Without the name, as in TensorFlow.
    return _update(ref_ops.assign_add_op, ref, value, use_locking=bool(use_locking), name=name)


@export("tf.assign_sub")
def assign_sub(
    ref: Variable | GraphTensor, value: TensorLike, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Subtracts ``value`` (``tf.assign_sub``); returns ``ref`` after it."""
    if _assigns_itself(ref):
        return ref.assign_sub(value)  # type: ignore[union-attr]
    return _update(ref_ops.assign_sub_op, ref, value, use_locking=bool(use_locking), name=name)


@export("tf.count_up_to")
def count_up_to(ref: Variable | GraphTensor, limit: int, name: str | None = None) -> Tensor:
    """Adds one and returns the value before; OutOfRangeError if that is ``limit`` or more (``tf.count_up_to``)."""
    if isinstance(ref, BaseResourceVariable):
        return ref.count_up_to(limit)
    return _update(ref_ops.count_up_to_op, ref, limit=limit, name=name)  # type: ignore[no-any-return]


@export("tf.is_variable_initialized")
def is_variable_initialized(variable: GraphTensor, name: str | None = None) -> Tensor:
    """Whether the variable has a value, a bool scalar (``tf.is_variable_initialized``)."""
    if isinstance(variable, Variable):
        return variable.is_initialized(name)
    return _update(ref_ops.is_initialized_op, variable, name=name)  # type: ignore[no-any-return]


class ScatterFunction(Protocol):
    """A public function that changes rows, or slices at index vectors."""

    def __call__(
        self,
        ref: Variable | GraphTensor,
        indices: TensorLike,
        updates: TensorLike,
        use_locking: bool = False,
        name: str | None = None,
    ) -> Any: ...


def _of_rows(operation: str, text: str) -> ScatterFunction:
    """Makes the function that applies an operation to rows; assignments lock if nothing else is said."""

    def function(
        ref: Variable | GraphTensor, indices: TensorLike, updates: TensorLike,
        use_locking: bool = operation == "update", name: str | None = None,
    ) -> Any:  # fmt: skip
        if isinstance(ref, Variable):
            return ref.scatter_rows(operation, indices, updates, use_locking, name)
        return _update(scatter_ops[operation], ref, indices, updates, use_locking=use_locking, name=name)

    return named(function, f"scatter_{operation}", text)


def _of_points(operation: str, text: str) -> ScatterFunction:
    """Makes the function that applies an operation at index vectors, as `_of_rows`."""

    def function(
        ref: Variable | GraphTensor, indices: TensorLike, updates: TensorLike,
        use_locking: bool = operation == "update", name: str | None = None,
    ) -> Any:  # fmt: skip
        if isinstance(ref, Variable):
            return ref.scatter_points(operation, indices, updates, use_locking, name)
        return _update(scatter_nd_ops[operation], ref, indices, updates, use_locking=use_locking, name=name)

    return named(function, f"scatter_nd_{operation}", text)


scatter_update = _of_rows(
    "update",
    """Assigns rows: ``ref[indices] = updates`` (``tf.scatter_update``).

    Args:
      ref: a variable of shape [n, ...].
      indices: row numbers of any shape; a repeated row gets its last update.
      updates: shape ``indices.shape + ref.shape[1:]``, or a scalar.

    Raises (when run):
      InvalidArgumentError: for a row number out of range.
    """,
)
scatter_add = _of_rows("add", "Adds to rows; repeated rows add up (``tf.scatter_add``).")
scatter_sub = _of_rows("sub", "Subtracts from rows (``tf.scatter_sub``).")
scatter_mul = _of_rows("mul", "Multiplies rows (``tf.scatter_mul``).")
scatter_div = _of_rows("div", "Divides rows (``tf.scatter_div``).")
scatter_min = _of_rows("min", "Takes the minimum of rows and updates (``tf.scatter_min``).")
scatter_max = _of_rows("max", "Takes the maximum of rows and updates (``tf.scatter_max``).")
scatter_nd_update = _of_points("update", "Assigns the slices at index vectors (``tf.scatter_nd_update``).")
scatter_nd_add = _of_points("add", "Adds to the slices at index vectors (``tf.scatter_nd_add``).")
scatter_nd_sub = _of_points("sub", "Subtracts from the slices at index vectors (``tf.scatter_nd_sub``).")
export_names("tf", "scatter_update scatter_add scatter_sub scatter_mul scatter_div scatter_min scatter_max")
export_names("tf", "scatter_nd_update scatter_nd_add scatter_nd_sub")


@export("tf.batch_scatter_update")
def batch_scatter_update(
    ref: Variable | GraphTensor, indices: TensorLike, updates: TensorLike, use_locking: bool = True,
    name: str | None = None,
) -> Any:  # fmt: skip
    """`scatter_update` along the last dimension of ``indices`` (``tf.batch_scatter_update``).

    The dimensions before it are batches that ``ref``, ``indices`` and ``updates`` share:
    ``ref[b..., indices[b..., j]] = updates[b..., j]``.

    Raises:
      ValueError: when the rank of ``indices`` is unknown.
    """
    with name_scope(name):
        indices = convert_to_tensor(indices, name="indices")
        rank = indices.shape.ndims
        if rank is None:
            raise ValueError("batch_scatter_update does not allow indices with unknown shape.")
        with counted_as(5 + (rank - 1) * (13 + rank)):
            own = raw_ops.ExpandDims(indices, -1)
            sizes = raw_ops.Shape(own, out_type=indices.dtype)
            batches = [_positions(sizes, axis, rank + 1) for axis in range(rank - 1)]
            points = raw_ops.ConcatV2([*batches, own], -1) if batches else own
        return scatter_nd_update(ref, points, updates, use_locking)


def _batch_scatter_update(
    self: Variable, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
) -> Any:
    """Assigns `IndexedSlices` whose indices have batch dimensions, as `batch_scatter_update` does."""
    return batch_scatter_update(self, sparse_delta.indices, sparse_delta.values, use_locking, name)


Variable.batch_scatter_update = _batch_scatter_update


def _positions(sizes: Tensor, axis: int, rank: int) -> Tensor:
    """An array of 0, 1, 2, … along ``axis``, constant along every other axis."""
    scalar = raw_ops.Reshape(raw_ops.Slice(sizes, [axis], [1]), np.zeros(0, np.int32))
    zero, one = (convert_to_tensor(number, dtype=sizes.dtype) for number in (0, 1))
    column = [-1 if i == axis else 1 for i in range(rank)]
    numbers = raw_ops.Reshape(raw_ops.Range(zero, scalar, one), column)
    return raw_ops.BroadcastTo(numbers, sizes)


# ---- ``variable[1:3].assign(value)``: writes to a slice of a variable ----------------------------------------------

_BOUNDS = "begin: Index, end: Index, strides: Index, value: T"
resource_strided_slice_assign_op: OpHandle[Operation] = op(
    f"ResourceStridedSliceAssign(ref: resource, {_BOUNDS}); {MASKS}",
    stateful=True,
    writes="update",
    differentiable=False,
)
tensor_strided_slice_update_op = op(
    f"TensorStridedSliceUpdate(input: T, {_BOUNDS}) -> output: T; {MASKS}", shape=same_shape, differentiable=None
)


@resource_strided_slice_assign_op.shape
def _nothing(node: Operation) -> list[RawShape]:
    dtype, _ = handle_data(node.inputs[0])
    if dtype is not None and dtype is not node.attrs["T"]:
        raise ValueError(f"Trying to assign {node.attrs['T'].name} to a part of a variable of type {dtype.name}")
    return []


def _write(array: Any, node: Any, begin: Any, end: Any, strides: Any, value: Any) -> None:
    try:
        array[slice_index(node.attrs, begin.tolist(), end.tolist(), strides.tolist(), array.ndim)] = value
    except (ValueError, IndexError) as error:
        raise InvalidArgumentError.of(str(error)) from None


@resource_strided_slice_assign_op.kernel("CPU")
def _assign_kernel(ref: Any, begin: Any, end: Any, strides: Any, value: Any, *, node: Any) -> tuple[()]:
    ref.update(lambda array: _write(array, node, begin, end, strides, value))
    return ()


@tensor_strided_slice_update_op.kernel("CPU")
def _update_kernel(input: Array, begin: Array, end: Array, strides: Array, value: Array, *, node: Node) -> Any:
    result = input.copy()
    _write(result, node, begin, end, strides, value)
    return result


# What stands between a slice and its variable: a read; in a branch or a loop, also what brings the read inside.
_PASSED_ON = ("Identity", "Switch", "Enter")


def sliced_assign(part: Tensor, value: TensorLike, name: str | None = None) -> Tensor:
    """Writes ``value`` to the slice ``part`` of a variable; returns the whole variable.

    Raises:
      ValueError: when ``part`` is not a slice of a variable.
    """
    node = part.op
    source, *bounds = node.inputs
    masks = {key: mask for key, mask in node.attrs.items() if key.endswith("_mask")}
    with name_scope(name, "strided_slice_assign", [part]) as scope:
        if source.op.type == "ReadVariableOp":
            handle = source.op.inputs[0]
            value = convert_to_tensor(value, part.dtype)
            done = resource_strided_slice_assign_op(handle, *bounds, value, name=scope, **masks)
            with control_dependencies([done]):
                return read_variable(handle, dtype=handle_data(handle)[0])
        while source.op.type in _PASSED_ON and not source.dtype._is_ref_dtype:
            source = source.op.inputs[0]
        if not source.dtype._is_ref_dtype:
            raise ValueError("Sliced assignment is only supported for variables")
        return strided_slice_assign_op(source, *bounds, value, name=scope, **masks)


def _late_attribute(tensor: Tensor, name: str) -> Any:
    """Gives slices the method ``assign``, as in TensorFlow; called for attributes that a Tensor does not have."""
    if name == "assign" and tensor.op.type == "StridedSlice":
        return lambda value, name=None: sliced_assign(tensor, value, name)
    return Advising.__getattr__(tensor, name)  # type: ignore[attr-defined]


Tensor.__getattr__ = _late_attribute  # type: ignore[attr-defined]
