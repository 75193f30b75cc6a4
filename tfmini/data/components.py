"""Components of elements: a sparse tensor or a dataset travels in one variant tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tfmini.data.structure import Leaf, Structure
from tfmini.dtypes import DType, int64
from tfmini.graph import nest
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.ops.array.kernel_arguments import check_components, refuse
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.shapes import RawShape

# Stateful, so that the compiler does not fold it: a `SparseValue` is no array.
pack_op = op(
    "_PackSparse(indices: int64, values: T, dense_shape: int64) -> packed: variant; T: type",
    stateful=True,
    shape=[()],
    differentiable=False,
)
pack_op.kernel("CPU")(lambda indices, values, dense_shape: SparseValue(indices, values, dense_shape))
unpack_op: OpHandle[Any] = op(
    "_UnpackSparse(packed: variant) -> indices: int64, values: T, dense_shape: int64; T: type; rank: int",
    differentiable=False,
)


class SparseValue(NamedTuple):
    """A sparse tensor in a pipeline, as arrays: indices int64 [n, rank], values [n], dense_shape int64 [rank]."""

    indices: Any
    values: Any
    dense_shape: Any


@unpack_op.shape
def _parts(node: Operation) -> list[RawShape]:
    rank = node.attrs["rank"] if node.attrs["rank"] >= 0 else None
    return [(None, rank), (None,), (rank,)]


@unpack_op.kernel("CPU")
def _unpack(packed: SparseValue, *, T: DType, rank: int) -> tuple[Any, Any, Any]:
    check_components(packed, [int64, T, int64])
    shapes = [np.shape(part) for part in packed]
    if [len(shape) for shape in shapes] != [2, 1, 1] or rank >= 0 and not shapes[0][1] == shapes[2][0] == rank:
        refuse(f"A sparse tensor of rank {rank} has indices, values and dense_shape of shapes {shapes}")
    return tuple(packed)


def _component_of(value: Any) -> Tensor:
    """The single tensor that represents a leaf of a normalized element."""
    if isinstance(value, SparseTensor):
        return pack_op(value.indices, value.values, value.dense_shape, name="PackSparse")
    return getattr(value, "_variant_tensor", value)  # type: ignore[no-any-return]


def components_of(value: Any) -> list[Tensor]:
    """The components of a normalized element, one per leaf."""
    return [_component_of(leaf) for leaf in nest.flatten(value)]


def element_of(structure: Structure, components: Iterable[Tensor]) -> Any:
    """The element that components represent: the inverse of `components_of`."""
    return structure.pack([_value_of(leaf, component) for leaf, component in zip(structure.leaves, components)])


def _value_of(leaf: Leaf, component: Tensor) -> Any:
    """The tensor, sparse tensor or dataset that a component represents: the inverse of `_component_of`."""
    if leaf.kind is SparseTensor:
        rank = -1 if leaf.shape is None else len(leaf.shape)
        parts = unpack_op(component, T=leaf.dtype, rank=rank, name="UnpackSparse")
        return SparseTensor(parts.indices, parts.values, parts.dense_shape)
    if leaf.inner is not None:
        return leaf.kind._of(component, leaf.inner)  # type: ignore[attr-defined]
    return component
