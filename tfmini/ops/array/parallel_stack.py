"""``tf.parallel_stack``: stacking along a new first axis where all shapes are known."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope, op
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import expand_dims
from tfmini.shapes import RawShape, format_raw, merge_raw

parallel_concat_op = op("ParallelConcat(values: N * T) -> output: T; N: int >= 1; T: type; shape: shape")
parallel_concat_op.not_differentiable()


@parallel_concat_op.shape
def _parallel_concat_shape(node: Operation) -> list[RawShape]:
    shape = node.attrs["shape"]
    if shape is None or None in shape:
        raise ValueError("shape attr must be fully defined")
    joined: RawShape = None
    for value in node.inputs:
        if value.raw_shape is None or None in value.raw_shape:
            raise ValueError("All input shapes must be fully defined.")
        if value.raw_shape[0] != 1:
            raise ValueError("Size of first dimension must be 1.")
        joined = merge_raw(joined, value.raw_shape)
    return [merge_raw((len(node.inputs), *(joined or ())[1:]), shape)]


@parallel_concat_op.kernel("CPU")
def _parallel_concat_kernel(values: list[Any], *, shape: Any) -> Any:
    result = np.concatenate(values, 0)
    if result.shape != tuple(shape):
        refuse(f"Expected shape {format_raw(shape)}, got {format_raw(result.shape)}")
    return result


@export("tf.parallel_stack")
def parallel_stack(values: Any, name: str = "parallel_stack") -> Tensor:
    """Tensors of one known shape joined along a new first axis (``tf.parallel_stack``). Only `stack` has gradients."""
    with name_scope(name):
        first = convert_to_tensor(values[0])
        shape = (len(values), *first.shape.as_list())
        return parallel_concat_op([expand_dims(value, 0) for value in values], shape=shape)
