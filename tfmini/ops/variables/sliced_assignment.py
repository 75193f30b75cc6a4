"""``variable[1:3].assign(value)``: writes to a slice of a variable."""

from __future__ import annotations

from typing import Any

from tfmini.errors import InvalidArgumentError
from tfmini.graph.families import Operation, OpHandle, Tensor, control_dependencies, name_scope, op, same_shape
from tfmini.ops.array.slicing import MASKS, slice_index, strided_slice_assign_op
from tfmini.ops.variables.resource_ops import handle_data, read_variable
from tfmini.shapes import RawShape

_BOUNDS = "begin: Index, end: Index, strides: Index, value: T"
resource_strided_slice_assign_op: OpHandle[Operation] = op(
    f"ResourceStridedSliceAssign(ref: resource, {_BOUNDS}); {MASKS}",
    stateful=True,
    writes="update",
    differentiable=False,
)
tensor_strided_slice_update_op = op(
    f"TensorStridedSliceUpdate(input: T, {_BOUNDS}) -> output: T; {MASKS}", shape=same_shape, differentiable=False
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
def _update_kernel(input: Any, begin: Any, end: Any, strides: Any, value: Any, *, node: Any) -> Any:
    result = input.copy()
    _write(result, node, begin, end, strides, value)
    return result


def sliced_assign(part: Tensor, value: Any, name: str | None = None) -> Tensor:
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
            done = resource_strided_slice_assign_op(handle, *bounds, value, name=scope, **masks)
            with control_dependencies([done]):
                return read_variable(handle, dtype=handle_data(handle)[0])
        while source.op.type == "Identity" and not source.dtype._is_ref_dtype:
            source = source.op.inputs[0]
        if not source.dtype._is_ref_dtype:
            raise ValueError("Sliced assignment is only supported for variables")
        return strided_slice_assign_op(source, *bounds, value, name=scope, **masks)


def _late_attribute(tensor: Tensor, name: str) -> Any:
    """Gives slices the method ``assign``, as in TensorFlow; called for attributes that a Tensor does not have."""
    if name == "assign" and tensor.op.type == "StridedSlice":
        return lambda value, name=None: sliced_assign(tensor, value, name)
    raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}")


Tensor.__getattr__ = _late_attribute  # type: ignore[attr-defined]
