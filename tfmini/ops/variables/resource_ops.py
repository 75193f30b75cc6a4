"""Variables by handle: ``VarHandleOp`` and the ops that take a variable's resource handle.

The value of a handle is the `VariableState` itself. A read is a snapshot: later updates do not
change it (see `state`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.dtypes import DType, cpp_name
from tfmini.errors import NotFoundError
from tfmini.graph.families import IndexedSlices, Operation, OpHandle, Tensor, all_of, op
from tfmini.graph.node import Node
from tfmini.numerics.update_rules import as_rows, check_nd_indices, check_row_indices, scatter_rows
from tfmini.ops.array import gather as array_gather
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.variables import ref_ops
from tfmini.ops.variables.ref_ops import merged_shape
from tfmini.ops.variables.state import VariableState, find_or_make, new_state
from tfmini.shapes import RawShape, at_least_rank, format_raw, with_rank

var_handle = op(
    """VarHandleOp() -> resource: resource
        container: string = ''
        shared_name: string = ''
        dtype: type
        shape: shape""",
    stateful=True,
    shape=[()],
    variable="resource",
    on_ps=True,
    hints=("debug_name",),
)
read_variable = op("ReadVariableOp(resource: resource) -> value: dtype; dtype: type", stateful=True, forwards="value")
assign_variable: OpHandle[Operation] = op(
    "AssignVariableOp(resource: resource, value: dtype); dtype: type", stateful=True, writes="assign"
)
assign_add_variable: OpHandle[Operation] = op(
    "AssignAddVariableOp(resource: resource, value: dtype); dtype: type",
    stateful=True,
    writes="update",
    taken_back_by="Sub",
)
assign_sub_variable: OpHandle[Operation] = op(
    "AssignSubVariableOp(resource: resource, value: dtype); dtype: type",
    stateful=True,
    writes="update",
    taken_back_by="Add",
)
var_is_initialized = op(
    "VarIsInitializedOp(resource: resource) -> is_initialized: bool", stateful=True, shape=[()], of_variable=True
)
var_is_initialized.kernel("CPU")(lambda state: np.bool_(state.is_initialized))
variable_shape = op(
    "VariableShape(input: resource) -> output: out_type; out_type: {int32, int64} = DT_INT32", stateful=True
)
variable_shape.kernel("CPU")(lambda state, *, out_type: np.array(np.shape(state.read()), out_type.numpy))
destroy_resource: OpHandle[Operation] = op(
    "DestroyResourceOp(resource: resource); ignore_lookup_error: bool = true",
    stateful=True,
    shape=[],
    of_variable=True,
)
resource_count_up_to = op(
    "ResourceCountUpTo(resource: resource) -> output: T; limit: int; T: {int32, int64}", stateful=True, writes="update"
)
resource_gather = op(
    """ResourceGather(resource: resource, indices: Tindices) -> output: dtype
        batch_dims: int = 0
        validate_indices: bool = true
        dtype: type
        Tindices: {int32, int64}""",
    stateful=True,
    looks_up=True,
)
resource_gather_nd = op(
    "ResourceGatherNd(resource: resource, indices: Tindices) -> output: dtype; dtype: type; Tindices: {int32, int64}",
    stateful=True,
    looks_up=True,
)

for _handle in (var_handle, assign_variable, assign_add_variable, assign_sub_variable, var_is_initialized,
                variable_shape, destroy_resource, resource_count_up_to):  # fmt: skip
    _handle.not_differentiable()

PASSES_HANDLE_ON = frozenset({"Identity", "Switch", "Enter", "Merge", "NextIteration", "Exit", "StopGradient"})


def handle_data(handle: Tensor) -> tuple[DType | None, RawShape]:
    """The dtype and static shape of the variable behind a handle, as far as they are known."""
    seen: set[int] = set()
    while id(handle) not in seen:
        seen.add(id(handle))
        if handle.handle_data is not None:
            return handle.handle_data
        if handle.op.type == "VarHandleOp":
            return handle.op.attrs["dtype"], handle.op.attrs["shape"]
        if handle.op.type not in PASSES_HANDLE_ON:
            break
        handle = handle.op.inputs[0]
    return None, None


# ---- shapes of reads and assignments -------------------------------------------------------------------------------


@resource_count_up_to.shape
def _count_shape(node: Operation) -> list[RawShape]:
    with_rank(handle_data(node.inputs[0])[1], 0)
    return [()]


def _shape_behind(node: Operation, action: str) -> RawShape:
    """The shape of the variable behind the first input; its type must be the node's.

    Raises:
      ValueError: it is not.
    """
    dtype, shape = handle_data(node.inputs[0])
    if dtype is not None and dtype is not node.attrs["dtype"]:
        types = f"Expected {cpp_name(dtype)} got {cpp_name(node.attrs['dtype'])}"
        raise ValueError(f"Trying to {action} variable with wrong dtype. {types}")
    return shape


read_variable.shape(lambda node: [_shape_behind(node, "read")])


@all_of(assign_variable, assign_add_variable, assign_sub_variable).shape
def _assign_shape(node: Operation) -> list[RawShape]:
    ref_ops.merged_shape(_shape_behind(node, "initialize handle for"), node.inputs[1].raw_shape)
    return []


@variable_shape.shape
def _shape_shape(node: Operation) -> list[RawShape]:
    shape = handle_data(node.inputs[0])[1]
    return [(None,) if shape is None else (len(shape),)]


@resource_gather.shape
def _gather_shape(node: Operation) -> list[RawShape]:
    params, indices = handle_data(node.inputs[0])[1], node.inputs[1].raw_shape
    if params is None or indices is None:
        return [None]
    at_least_rank(params, 1)
    batch = node.attrs["batch_dims"]
    return [params[:batch] + indices[batch:] + params[batch + 1 :]]


@resource_gather_nd.shape
def _gather_nd_shape(node: Operation) -> list[RawShape]:
    params, indices = handle_data(node.inputs[0])[1], node.inputs[1].raw_shape
    if params is None or not indices or indices[-1] is None:
        return [None]
    if indices[-1] > len(params):
        raise ValueError(f"indices.shape[-1] must be <= params.rank, but saw indices shape: {indices}")
    return [indices[:-1] + params[indices[-1] :]]


# ---- kernels of reads and assignments ------------------------------------------------------------------------------


@var_handle.state_kernel("CPU")
def _handle_state(
    resources: Any, *, container: bytes, shared_name: bytes, node: Node, dtype: DType, shape: RawShape
) -> VariableState:
    name = shared_name.decode() or node.name
    place = container.decode() or getattr(resources, "default_container", "localhost")
    message = (
        f"Error while reading resource variable {name} from Container: {place}. This could mean that the variable was"
        f" uninitialized. Not found: {_missing(place, name)}"
    )
    make = partial(new_state, node.device, name, dtype, shape, container=place, message=message)
    return find_or_make(resources, container, node.device, name, make, is_resource=True)


def _missing(container: str, name: str) -> str:
    return f"Resource {container}/{name}/N10tensorflow3VarE does not exist."


def _check_dtype(state: VariableState, dtype: DType, action: str) -> None:
    if state.dtype is not dtype:
        text = f"Trying to {action} variable with wrong dtype. Expected "
        names = cpp_name(state.dtype), cpp_name(dtype)
        refuse(f"{text}{names[0]} got {names[1]}")


@read_variable.kernel("CPU")
def _read(state: VariableState, *, dtype: DType) -> Any:
    if state.dtype is not dtype and state.is_initialized:
        _check_dtype(state, dtype, "read")
    return state.read()


@assign_variable.kernel("CPU")
def _assign(state: VariableState, value: Array, *, dtype: DType) -> tuple[()]:
    if state.dtype is not dtype:
        if state.is_initialized:
            _check_dtype(state, dtype, "assign")
        state.dtype = dtype  # The first assignment decides, as in TensorFlow, where it creates the variable.
    state.assign(value, False)
    return ()


@assign_add_variable.kernel("CPU")
def _assign_add(state: VariableState, value: Array) -> tuple[()]:
    state.update(ref_ops.add_in_place, value)
    return ()


@assign_sub_variable.kernel("CPU")
def _assign_sub(state: VariableState, value: Array) -> tuple[()]:
    state.update(ref_ops.subtract_in_place, value)
    return ()


@destroy_resource.kernel("CPU")
def _destroy(state: VariableState, *, ignore_lookup_error: bool) -> tuple[()]:
    if not ignore_lookup_error and not state.is_initialized:
        raise NotFoundError.of(_missing(state.container, state.name))
    state.clear()
    return ()


@resource_count_up_to.kernel("CPU")
def _count_up_to(state: VariableState, *, limit: int, T: DType) -> Any:
    _check_dtype(state, T, "count up")
    return ref_ops.count_up_to(state, limit=limit)


@resource_gather.kernel("CPU")
def _gather(state: VariableState, indices: Array, *, batch_dims: int, dtype: DType) -> Any:
    params = state.read()
    _check_dtype(state, dtype, "read")
    if not batch_dims:
        check_row_indices(indices, params.shape[0])
        return params.take(indices, axis=0)
    check_row_indices(indices, params.shape[batch_dims])
    grid = np.ogrid[tuple(slice(n) for n in indices.shape[:batch_dims])]
    extra = (1,) * (indices.ndim - batch_dims)
    return params[(*(g.reshape(g.shape + extra) for g in grid), indices)]


@resource_gather_nd.kernel("CPU")
def _gather_nd(state: VariableState, indices: Array, *, dtype: DType) -> Any:
    params = state.read()
    _check_dtype(state, dtype, "read")
    check_nd_indices(indices, params.shape)
    return params[tuple(np.moveaxis(indices, -1, 0))]


# ---- scatter ops ----------------------------------------
# Scatter updates of variables: ``ScatterAdd``, ``ScatterNdUpdate`` and the like, by reference and by handle.

_ORDERED = "{half, bfloat16, float, double, int32, int64}"
_OPERATIONS = {"Update": "type", "Add": "numbertype", "Sub": "numbertype", "Mul": "numbertype",
               "Div": "numbertype", "Min": _ORDERED, "Max": _ORDERED}  # fmt: skip


# ---- shapes of scatter ops -----------------------------------------------------------------------------------------


def _check_row_shapes(shape: RawShape, indices: RawShape, updates: RawShape) -> None:
    if shape is None or indices is None or updates == ():
        return
    at_least_rank(shape, 1)
    merged_shape(indices + shape[1:], updates)


def _check_nd_shapes(shape: RawShape, indices: RawShape, updates: RawShape) -> None:
    if shape is None or not indices or indices[-1] is None:
        return
    depth = indices[-1]
    if depth > len(shape):
        raise ValueError(f"Index innermost dimension length must be <= params rank; saw: {depth} vs. {len(shape)}")
    merged_shape(indices[:-1] + shape[depth:], updates)


def _shape_of(check: Callable[..., None], by_handle: bool) -> Callable[[Operation], list[RawShape]]:
    def shape(node: Operation) -> list[RawShape]:
        variable, indices, updates = node.inputs
        whole = handle_data(variable)[1] if by_handle else variable.raw_shape
        check(whole, indices.raw_shape, updates.raw_shape)
        return [] if by_handle else [whole]

    return shape


# ---- kernels of scatter ops ----------------------------------------------------------------------------------------


def _update_rows(buffer: Array, operation: str, indices: Array, updates: Array) -> None:
    indices, updates = np.asarray(indices), np.asarray(updates, buffer.dtype)
    if not buffer.ndim:
        refuse("params must be at least 1-D, got shape []")
    wanted = indices.shape + buffer.shape[1:]
    if updates.ndim and updates.shape != wanted:
        refuse(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape "
            f"{format_raw(updates.shape)}, indices.shape {format_raw(indices.shape)},"
            f" params.shape {format_raw(buffer.shape)}"
        )
    if not indices.size:
        return
    check_row_indices(indices, len(buffer))
    if updates.ndim or not buffer.ndim - 1:
        updates = np.broadcast_to(updates, wanted).reshape(indices.size, *buffer.shape[1:])
    scatter_rows(operation, buffer, indices.ravel(), updates)


def _update_nd(buffer: Array, operation: str, indices: Array, updates: Array) -> None:
    updates = np.asarray(updates, buffer.dtype)
    check_nd_indices(indices, buffer.shape)
    depth = indices.shape[-1]
    slice_shape = buffer.shape[depth:]
    if updates.shape != indices.shape[:-1] + slice_shape:
        refuse(
            "Must have updates.shape = indices.shape[:batch_dim] + params_shape[slice_dim:], got updates.shape: "
            f"{format_raw(updates.shape)}, indices.shape: {format_raw(indices.shape)}, params_shape:"
            f" {format_raw(buffer.shape)}, slice_dim: {depth}, and batch_dim: {indices.ndim - 1}"
        )
    count = int(np.prod(indices.shape[:-1], dtype=np.int64))
    if not count:
        return
    rows, numbers = as_rows(buffer, indices)
    scatter_rows(operation, rows, numbers, updates.reshape(count, *slice_shape))


def _kernel(update: Callable[..., None], operation: str, by_handle: bool) -> Callable[..., Any]:
    def scatter(state: VariableState, indices: Array, updates: Array) -> Any:
        state.update(update, operation, indices, updates)
        return () if by_handle else state

    return scatter


# ---- declarations: one op per operation and way of naming the variable -------------------------


def _declare(operation: str, signature: str, allowed: str, locking: str = "") -> OpHandle[Any]:
    by_handle, of_rows = ": resource" in signature, "Nd" not in signature
    element = "dtype" if by_handle and of_rows else "T"
    output = "" if by_handle else " -> output_ref: Ref(T)"
    handle = op(
        f"{signature}, indices: Tindices, updates: {element}){output}; {element}: {allowed};"
        f" Tindices: {{int32, int64}}{locking and '; use_locking: bool = ' + locking}",
        stateful=by_handle,
        writes="scatter",
        shape=_shape_of(_check_row_shapes if of_rows else _check_nd_shapes, by_handle),
    )
    handle.kernel("CPU")(_kernel(_update_rows if of_rows else _update_nd, operation, by_handle))
    if not by_handle and of_rows and operation in ("update", "min", "max"):  # as in TensorFlow
        handle.without_gradient()
    else:
        handle.not_differentiable()
    return handle


scatter_ops: dict[str, OpHandle] = {}
scatter_nd_ops: dict[str, OpHandle] = {}
resource_scatter_ops: dict[str, OpHandle[Operation]] = {}
resource_scatter_nd_ops: dict[str, OpHandle[Operation]] = {}

for _name, _allowed in _OPERATIONS.items():
    _operation, _locking = _name.lower(), "true" if _name == "Update" else "false"
    scatter_ops[_operation] = _declare(_operation, f"Scatter{_name}(ref: Ref(T)", _allowed, _locking)
    resource_scatter_ops[_operation] = _declare(
        _operation, f"ResourceScatter{_name}(resource: resource", "type" if _name == "Update" else "numbertype"
    )
    if _name in ("Update", "Add", "Sub"):
        scatter_nd_ops[_operation] = _declare(_operation, f"ScatterNd{_name}(ref: Ref(T)", _allowed, _locking)
        resource_scatter_nd_ops[_operation] = _declare(
            _operation, f"ResourceScatterNd{_name}(ref: resource", "type", "true"
        )


# ---- Gradients through reads of resource variables: dense for whole reads, sparse for gathered rows ----------------

read_variable.gradient(lambda node, grad: [grad])


@resource_gather.gradient
def _gather_gradient(node: Operation, grad: Tensor) -> list[Any]:
    handle, indices = node.inputs
    whole = variable_shape(handle)
    count = array_shape.expand_dims(array_shape.size(indices), 0)
    values_shape = array_joining.concat([count, getitem(whole, slice(1, None))], 0)
    values = array_shape.reshape(grad, values_shape)
    return [IndexedSlices(values, array_shape.reshape(indices, count), whole), None]


@resource_gather_nd.gradient
def _gather_nd_gradient(node: Operation, grad: Tensor) -> list[Any]:
    handle, indices = node.inputs
    whole = variable_shape(handle, out_type=indices.dtype)
    if indices.shape.ndims == 2 and indices.shape.as_list()[-1] == 1:
        return [IndexedSlices(grad, array_shape.squeeze(indices, axis=-1), whole), None]
    return [array_gather.scatter_nd(indices, grad, whole), None]
