"""Sparse tensors and datasets as single values: how they pass through one variant tensor."""

from __future__ import annotations

from typing import Any, NamedTuple

from tfmini.data.structure import Leaf
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.sparse_tensor import SparseTensor
from tfmini.shapes import RawShape

# Stateful, so that constants are not folded: what it makes is no array.
pack_op = op("_PackSparse(indices: int64, values: T, dense_shape: int64) -> packed: variant; T: type", stateful=True)
unpack_op = op("_UnpackSparse(packed: variant) -> indices: int64, values: T, dense_shape: int64; T: type; rank: int")
pack_op.not_differentiable()
unpack_op.not_differentiable()


class SparseValue(NamedTuple):
    """A sparse tensor on its way through a pipeline: arrays int64 [n, rank], [n], int64 [rank]."""

    indices: Any
    values: Any
    dense_shape: Any


@pack_op.shape
def _scalar(node: Operation) -> list[RawShape]:
    return [()]


@unpack_op.shape
def _parts(node: Operation) -> list[RawShape]:
    rank = node.attrs["rank"] if node.attrs["rank"] >= 0 else None
    return [(None, rank), (None,), (rank,)]


@pack_op.kernel("CPU")
def _pack(indices: Any, values: Any, dense_shape: Any) -> SparseValue:
    return SparseValue(indices, values, dense_shape)


@unpack_op.kernel("CPU")
def _unpack(packed: SparseValue) -> tuple[Any, Any, Any]:
    return tuple(packed)


def component_of(value: Any) -> Tensor:
    """The single tensor in which a leaf of a normalized element travels."""
    if isinstance(value, SparseTensor):
        return pack_op(value.indices, value.values, value.dense_shape, name="PackSparse")  # type: ignore[no-any-return]
    return getattr(value, "_variant_tensor", value)  # type: ignore[no-any-return]


def value_of(leaf: Leaf, component: Tensor) -> Any:
    """What users see of a component: the inverse of `component_of`."""
    if leaf.kind is SparseTensor:
        rank = -1 if leaf.shape is None else len(leaf.shape)
        parts = unpack_op(component, T=leaf.dtype, rank=rank, name="UnpackSparse")
        return SparseTensor(parts.indices, parts.values, parts.dense_shape)
    if leaf.inner is not None:
        return leaf.kind._of(component, leaf.inner)  # type: ignore[attr-defined]
    return component
