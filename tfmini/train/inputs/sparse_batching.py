"""Sparse components of batching queues: a map stores the sparse tensors, the queue holds their handles."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tfmini import dtypes
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill
from tfmini.ops.array.gather import gather
from tfmini.ops.array.masking import boolean_mask
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.slicing import strided_slice
from tfmini.ops.control import with_dependencies
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.ops.sparse.tensors_map import add_many_sparse, add_sparse, take_many_sparse


class SparseColumns:
    """The sparse components of a source, and the ops that store and restore them.

    Args:
      tensors: the components of the first source.
      enqueue_many: whether the components are batches of elements.
    """

    def __init__(self, tensors: list[Any], enqueue_many: bool) -> None:
        self.is_sparse = [isinstance(t, SparseTensor) for t in tensors]
        self._enqueue_many = enqueue_many
        self._map_ops: list[Operation | None] = [None] * len(tensors)
        self._ranks = [t.dense_shape.shape[0].value if isinstance(t, SparseTensor) else None for t in tensors]

    def store(self, tensors: list[Any], keep: Tensor) -> list[Tensor]:
        """Stores the sparse tensors of a source; returns its components with handles in their places.

        Raises:
          ValueError: when the first source has sparse tensors in other places.
        """
        if [isinstance(t, SparseTensor) for t in tensors] != self.is_sparse:
            raise ValueError(f"Inconsistent SparseTensors list: {tensors}")
        found = []
        for i, tensor in enumerate(tensors):
            if not self.is_sparse[i]:
                found.append(tensor)
                continue
            numbers = self._stored(i, tensor, keep)
            found.append(expand_dims(numbers, -1))
        return found

    def _stored(self, i: int, tensor: SparseTensor, keep: Tensor) -> Tensor:
        if keep.shape.ndims == 1:
            rows = strided_slice(tensor.indices, [0, 0], [0, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
            kept = gather(keep, rows)
            kept.set_shape([None])  # boolean_mask needs a known rank
            indices, values = boolean_mask(tensor.indices, kept), boolean_mask(tensor.values, kept)
            return self._add(i, SparseTensor(indices, values, tensor.dense_shape))
        if not self._enqueue_many:
            return smart_cond(keep, lambda: self._add(i, tensor), lambda: constant(-1, dtypes.int64))  # type: ignore[no-any-return]
        rows = strided_slice(tensor.dense_shape, [0], [1])
        numbers: Tensor = smart_cond(keep, lambda: self._add(i, tensor), lambda: fill(rows, constant(-1, dtypes.int64)))
        numbers.set_shape([None])
        return numbers

    def _add(self, i: int, tensor: SparseTensor) -> Tensor:
        handle = add_many_sparse if self._enqueue_many else add_sparse
        first = self._map_ops[i]
        shared = first.name if first is not None else ""
        with nullcontext() if first is None else colocate_with(first):  # the map is its device's
            number: Tensor = handle(tensor.indices, tensor.values, tensor.dense_shape, shared_name=shared)
        if first is None:
            self._map_ops[i] = number.op
        return number

    def restore(self, batches: Any) -> Any:
        """The dequeued components with sparse tensors in place of their handles."""
        if not any(self.is_sparse):
            return batches
        is_list = isinstance(batches, (list, tuple))
        found = [
            self._taken(i, batch) if self.is_sparse[i] else batch
            for i, batch in enumerate(batches if is_list else [batches])
        ]
        # The map must release the dequeued tensors even if the component is not fetched.
        gates = [t.values if isinstance(t, SparseTensor) else t for t in found]
        found = [_gated(gates, t) for t in found]
        return found if is_list else found[0]

    def _taken(self, i: int, numbers: Tensor) -> SparseTensor:
        first = self._map_ops[i]
        assert first is not None
        with name_scope(None, "TakeManySparseFromTensorsMap"), colocate_with(first):
            shared = first.get_attr("shared_name").decode() or first.name
            indices, values, shape = take_many_sparse(
                squeeze(numbers, [1]), dtype=first.get_attr("T"), shared_name=shared
            )
        known = self._ranks[i]
        if known is not None:
            rank = known + (0 if self._enqueue_many else 1)
            indices.set_shape([None, rank])
            shape.set_shape([rank])
        return SparseTensor(indices, values, shape)


def _gated(gates: list[Tensor], item: Any) -> Any:
    if isinstance(item, SparseTensor):
        parts = (item.indices, item.values, item.dense_shape)
        return SparseTensor(*(with_dependencies(gates, part) for part in parts))
    return with_dependencies(gates, item)
