"""Sums of the contributions to one gradient: ``tf.AggregationMethod``, ``tf.UnconnectedGradients``."""

from __future__ import annotations

import enum
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, internal_convert
from tfmini.graph.families import Operation, Tensor, colocate_with, name_scope
from tfmini.ops.array.constant import constant


@export("tf.AggregationMethod")
class AggregationMethod:
    """How ``tf.gradients`` adds contributions.

    ``ADD_N`` (the default) adds all of them in one op; the experimental methods add them one after
    another, so that each can be freed earlier.
    """

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


@export("tf.UnconnectedGradients")
class UnconnectedGradients(enum.Enum):
    """What ``tf.gradients`` returns for an x on which no y depends."""

    NONE = "none"
    ZERO = "zero"


def sum_gradients(found: list[Any], method: int | None, op: Operation) -> Any:
    """The sum of contributions to one output of ``op``: dense if one of them is dense, else indexed slices.

    Raises:
      ValueError: for an unknown method.
      TypeError: when a contribution is neither a tensor nor indexed slices.
    """
    if method not in (None, 0, 1, 2):
        raise ValueError(f"Invalid `aggregation_method` specified {method}.")
    if not all(isinstance(g, (Tensor, IndexedSlices)) for g in found):
        raise TypeError("gradients have to be either all Tensors or all IndexedSlices")
    if len(found) == 1:
        return found[0]
    if any(isinstance(g, Tensor) for g in found):
        return _sum_dense([internal_convert(g) for g in found], method, op)
    return _sum_slices(found)


def _add_n(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else raw_ops.AddN(tensors)


def _sum_dense(tensors: list[Tensor], method: int | None, op: Operation) -> Tensor:
    if not method:
        return _sum_per_device(tensors)
    with name_scope(op.name + "_gradient_sum"):
        total = tensors[0]
        for tensor in tensors[1:]:
            total = _add_n([total, tensor])
        return total


def _sum_per_device(tensors: list[Tensor]) -> Tensor:
    """Adds the contributions of each device there, then the sums: one transfer per device."""
    by_device: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device, []).append(tensor)
    sums = []
    for where in sorted(by_device):
        with colocate_with(by_device[where][0].op, ignore_existing=True):
            sums.append(_add_n(by_device[where]))
    return _add_n(sums)


def _sum_slices(found: list[IndexedSlices]) -> IndexedSlices:
    """All rows concatenated; the op that applies them adds rows of the same index."""
    indices = [g.indices for g in found]
    if any(i.dtype.base_dtype is not indices[0].dtype.base_dtype for i in indices):
        cast = raw_ops.Cast
        indices = [cast(i, DstT=dtypes.int64) if i.dtype.base_dtype is not dtypes.int64 else i for i in indices]
    concat = raw_ops.ConcatV2
    return IndexedSlices(
        concat([g.values for g in found], constant(0, name="concat/axis"), name="concat"),
        concat(indices, constant(0, name="concat/axis"), name="concat"),
        found[0].dense_shape,
    )
