"""Gradients through reads of resource variables: dense for whole reads, sparse for gathered rows."""

from __future__ import annotations

from typing import Any

from tfmini.graph.families import IndexedSlices, Operation, Tensor
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import scatter as array_scatter
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.slicing import getitem
from tfmini.ops.variables.resource_ops import read_variable, resource_gather, resource_gather_nd, variable_shape

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
    return [array_scatter.scatter_nd(indices, grad, whole), None]
