"""Batching with queues: ``tf.train.batch``, ``shuffle_batch``, their ``_join`` and ``maybe_`` variants, and buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any

from tfmini import dtypes
from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_n_to_tensor_or_indexed_slices, convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, name_scope
from tfmini.layers.core import sharing
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import fill
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.partition import boolean_mask, dynamic_partition
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import size as size_of
from tfmini.ops.array.slicing import strided_slice
from tfmini.ops.composites import SparseTensor
from tfmini.ops.control import group, no_op, with_dependencies
from tfmini.ops.debugging import Assert
from tfmini.ops.flow.cond import cond, smart_cond
from tfmini.ops.io.files import matching_files
from tfmini.ops.math.comparison import equal, greater, greater_equal
from tfmini.ops.math.elementwise import maximum, subtract
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.queues.queues import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from tfmini.ops.random_functions import random_shuffle
from tfmini.ops.sparse.serialization import add_many_sparse, add_sparse, take_many_sparse
from tfmini.ops.summary import scalar
from tfmini.ops.variables.base import Variable
from tfmini.shapes import TensorShape, as_shape
from tfmini.train.queue_runners import END_OF_INPUT, QueueRunner, add_queue_runner

# ---- Sparse components of batching queues: a map stores the sparse tensors, the queue holds their handles ----------


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


def _gated(gates: list[Tensor], item: object) -> Any:
    if isinstance(item, SparseTensor):
        parts = (item.indices, item.values, item.dense_shape)
        return SparseTensor(*(with_dependencies(gates, part) for part in parts))
    return with_dependencies(gates, item)


# ---- batching ------------------------------------------------------------

MakeQueue = Callable[[list[Any], Any], QueueBase]


def _as_list(tensors: Any) -> list[Any]:
    return [tensors[key] for key in sorted(tensors, key=str)] if isinstance(tensors, dict) else list(tensors)


def _as_lists(tensors_list: Sequence[Any]) -> list[list[Any]]:
    if not tensors_list:
        raise ValueError("Expected at least one set of tensors")
    if isinstance(tensors_list[0], dict):
        keys = set(tensors_list[0])
        if any(set(tensors) != keys for tensors in tensors_list[1:]):
            raise ValueError("All dictionaries in tensors_list must have the same keys")
    return [_as_list(tensors) for tensors in tensors_list]


def _like(original: Any, tensors: Any) -> Any:
    if not isinstance(original, dict):
        return tensors
    if len(original) == 1:
        tensors = [tensors]
    return dict(zip(sorted(original, key=str), tensors))


def _checked_keep(keep_input: TensorLike, enqueue_many: bool) -> Tensor:
    keep = convert_to_tensor(keep_input)
    rank = keep.shape.ndims
    if rank is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if not enqueue_many and rank == 1:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    if rank > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    return keep


def _types(lists: list[list[Tensor]]) -> list[dtypes.DType]:
    first = [t.dtype.base_dtype for t in lists[0]]
    for tensors in lists[1:]:
        other = [t.dtype.base_dtype for t in tensors]
        if other != first:
            names = [", ".join(t.name for t in side) for side in (first, other)]
            raise TypeError(f"Expected types to be consistent: {names[0]} vs. {names[1]}.")
    return first


def _shapes(
    lists: list[list[Tensor]], shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None, enqueue_many: bool
) -> Any:
    """The given shapes of an element's components, or those inferred from all sources."""
    if shapes is not None:
        return shapes
    found = []
    for same in zip(*lists):
        for tensor in same:
            if tensor.shape.ndims is None:
                raise ValueError(f"Cannot infer Tensor's rank: {tensor}")
        elements = [as_shape(t.shape).with_rank_at_least(1)[1:] if enqueue_many else as_shape(t.shape) for t in same]
        for other in elements[1:]:
            elements[0].merge_with(other)
        found.append(elements[0].as_list())
    return found


def _enqueue_op(queue: QueueBase, tensors: list[Tensor], enqueue_many: bool, keep: Tensor) -> Any:
    enqueue = queue.enqueue_many if enqueue_many else queue.enqueue
    if keep.shape.ndims == 1:
        chosen = cast(keep, dtypes.int32)
        return enqueue([dynamic_partition(t, chosen, num_partitions=2)[1] for t in tensors])
    return smart_cond(keep, lambda: enqueue(tensors), no_op)


def _pipeline(
    lists: list[list[Any]], batch_size: TensorLike, keep_input: TensorLike, threads: int, enqueue_many: bool,
    shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None, smaller_final: bool, make_queue: MakeQueue,
    full: Callable[[QueueBase], tuple[str, Tensor]], name: str,
) -> Any:  # fmt: skip
    """Adds queue, runner, summary and dequeue to the graph, in TensorFlow's order."""
    keep = _checked_keep(keep_input, enqueue_many)
    sparse = SparseColumns(lists[0], enqueue_many)
    stored = [sparse.store(tensors, keep) for tensors in lists]
    queue = make_queue(_types(stored), _shapes(stored, shapes, enqueue_many))
    operations = [_enqueue_op(queue, tensors, enqueue_many, keep) for tensors in stored]
    add_queue_runner(QueueRunner(queue, operations * threads))
    scalar(*full(queue))
    dequeue = queue.dequeue_up_to if smaller_final else queue.dequeue_many
    return sparse.restore(dequeue(batch_size, name=name))


def _fraction(capacity: int) -> Callable[[QueueBase], tuple[str, Tensor]]:
    return lambda queue: (
        f"fraction_of_{capacity}_full",
        cast(queue.size(), dtypes.float32) * (1.0 / capacity),
    )


def _fraction_over(capacity: int, least: int) -> Callable[[QueueBase], tuple[str, Tensor]]:
    room = capacity - least
    return lambda queue: (
        f"fraction_over_{least}_of_{room}_full",
        cast(maximum(0, subtract(queue.size(), least)), dtypes.float32) * (1.0 / room),
    )


def _validated(tensors: list[Any], what: str) -> list[Any]:
    found = [t if isinstance(t, SparseTensor) else convert_n_to_tensor_or_indexed_slices([t])[0] for t in tensors]
    if not found:
        raise ValueError(what)
    return found


def _batch(
    lists: list[list[Any]], batch_size: TensorLike, keep_input: TensorLike, threads: int, capacity: int,
    enqueue_many: bool, shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None, dynamic_pad: bool,
    smaller_final: bool, shared_name: str | None, name: str | None, default: str,
) -> Any:  # fmt: skip
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
    with name_scope(name, default, [*(t for tensors in lists for t in tensors), keep_input]) as scope:
        lists = [_validated(tensors, f"Expected at least one tensor in {default}().") for tensors in lists]
        return _pipeline(
            lists, batch_size, keep_input, threads, enqueue_many, shapes, smaller_final,
            lambda types, known: kind(capacity=capacity, dtypes=types, shapes=known, shared_name=shared_name),
            _fraction(capacity), scope,
        )  # fmt: skip


def _shuffle(
    lists: list[list[Any]], batch_size: TensorLike, capacity: int, min_after_dequeue: int, keep_input: TensorLike,
    threads: int, seed: int | None, enqueue_many: bool, shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None,
    smaller_final: bool, shared_name: str | None, name: str | None, default: str,
) -> Any:  # fmt: skip
    with name_scope(name, default, [*(t for tensors in lists for t in tensors), keep_input]) as scope:
        if capacity <= min_after_dequeue:
            raise ValueError(f"capacity {capacity} must be bigger than min_after_dequeue {min_after_dequeue}.")
        lists = [_validated(tensors, f"Expected at least one tensor in {default}().") for tensors in lists]
        return _pipeline(
            lists, batch_size, keep_input, threads, enqueue_many, shapes, smaller_final,
            lambda types, known: RandomShuffleQueue(
                capacity, min_after_dequeue, types, known, seed=seed, shared_name=shared_name
            ),
            _fraction_over(capacity, min_after_dequeue), scope,
        )  # fmt: skip


# ---- the public functions -------------------------------------------------------------------


@export("tf.train.batch")
def batch(
    tensors: TensorLike | Mapping[str, Any], batch_size: TensorLike, num_threads: int = 1, capacity: int = 32,
    enqueue_many: bool = False, shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Batches of ``tensors``, which a queue runner enqueues (``tf.train.batch``).

    Args:
      tensors: a list or dictionary of tensors.
      batch_size: number of elements in a batch.
      num_threads: number of enqueuing threads of the queue runner.
      capacity: capacity of the queue.
      enqueue_many: whether each tensor is a batch of elements.
      shapes: shapes of the components, if they are not known.
      dynamic_pad: pad elements of different sizes with zeros.
      allow_smaller_final_batch: make a smaller batch of the remaining elements at the end.
      shared_name: name under which sessions share the queue.
      name: name of the name scope.

    Returns:
      A list or dictionary like ``tensors``, with the batch as first dimension; a single tensor if the list has
      one element.

    Raises:
      ValueError: when a shape is not known.
    """
    return maybe_batch(tensors, True, batch_size, num_threads, capacity, enqueue_many, shapes, dynamic_pad,
                       allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("tf.train.maybe_batch")
def maybe_batch(
    tensors: TensorLike | Mapping[str, Any], keep_input: TensorLike, batch_size: TensorLike, num_threads: int = 1,
    capacity: int = 32, enqueue_many: bool = False,
    shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`batch` of the elements for which ``keep_input`` is true (``tf.train.maybe_batch``).

    Args:
      keep_input: a bool scalar; with ``enqueue_many`` also a bool vector with one value per element.
    """
    found = _batch([_as_list(tensors)], batch_size, keep_input, num_threads, capacity, enqueue_many, shapes,
                   dynamic_pad, allow_smaller_final_batch, shared_name, name, "batch")  # fmt: skip
    return _like(tensors, found)


@export("tf.train.batch_join")
def batch_join(
    tensors_list: Sequence[Any], batch_size: TensorLike, capacity: int = 32, enqueue_many: bool = False,
    shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`batch` of several sources, each with its own thread (``tf.train.batch_join``).

    Args:
      tensors_list: a list of lists or dictionaries of tensors.
    """
    return maybe_batch_join(tensors_list, True, batch_size, capacity, enqueue_many, shapes, dynamic_pad,
                            allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("tf.train.maybe_batch_join")
def maybe_batch_join(
    tensors_list: Sequence[Any], keep_input: TensorLike, batch_size: TensorLike, capacity: int = 32,
    enqueue_many: bool = False, shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """`batch_join` of the elements for which ``keep_input`` is true (``tf.train.maybe_batch_join``)."""
    found = _batch(_as_lists(tensors_list), batch_size, keep_input, 1, capacity, enqueue_many, shapes, dynamic_pad,
                   allow_smaller_final_batch, shared_name, name, "batch_join")  # fmt: skip
    return _like(tensors_list[0], found)


@export("tf.train.shuffle_batch")
def shuffle_batch(
    tensors: TensorLike | Mapping[str, Any], batch_size: TensorLike, capacity: int, min_after_dequeue: int,
    num_threads: int = 1, seed: int | None = None, enqueue_many: bool = False,
    shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`batch` in random order (``tf.train.shuffle_batch``).

    Args:
      min_after_dequeue: minimum number of elements that stay in the queue, for shuffling.
      seed: seed of the order.

    Raises:
      ValueError: when ``capacity`` is not greater than ``min_after_dequeue``, or a shape is not known.
    """
    return maybe_shuffle_batch(tensors, batch_size, capacity, min_after_dequeue, True, num_threads, seed,
                               enqueue_many, shapes, allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("tf.train.maybe_shuffle_batch")
def maybe_shuffle_batch(
    tensors: TensorLike | Mapping[str, Any], batch_size: TensorLike, capacity: int, min_after_dequeue: int,
    keep_input: TensorLike, num_threads: int = 1, seed: int | None = None, enqueue_many: bool = False,
    shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`shuffle_batch` of the elements for which ``keep_input`` is true (``tf.train.maybe_shuffle_batch``)."""
    found = _shuffle([_as_list(tensors)], batch_size, capacity, min_after_dequeue, keep_input, num_threads, seed,
                     enqueue_many, shapes, allow_smaller_final_batch, shared_name, name, "shuffle_batch")  # fmt: skip
    return _like(tensors, found)


@export("tf.train.shuffle_batch_join")
def shuffle_batch_join(
    tensors_list: Sequence[Any], batch_size: TensorLike, capacity: int, min_after_dequeue: int, seed: int | None = None,
    enqueue_many: bool = False, shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`shuffle_batch` of several sources, each with its own thread (``tf.train.shuffle_batch_join``)."""
    return maybe_shuffle_batch_join(tensors_list, batch_size, capacity, min_after_dequeue, True, seed, enqueue_many,
                                    shapes, allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("tf.train.maybe_shuffle_batch_join")
def maybe_shuffle_batch_join(
    tensors_list: Sequence[Any], batch_size: TensorLike, capacity: int, min_after_dequeue: int, keep_input: TensorLike,
    seed: int | None = None, enqueue_many: bool = False,
    shapes: Sequence[Any] | Mapping[str, Any] | TensorShape | None = None, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`shuffle_batch_join` of the elements for which ``keep_input`` is true (``tf.train.maybe_shuffle_batch_join``)."""
    found = _shuffle(_as_lists(tensors_list), batch_size, capacity, min_after_dequeue, keep_input, 1, seed,
                     enqueue_many, shapes, allow_smaller_final_batch, shared_name, name,
                     "shuffle_batch_join")  # fmt: skip
    return _like(tensors_list[0], found)


# ---- batches of elements of one kind ---------------------------------------------------------------------------------


@export("tf.contrib.training.bucket")
def bucket(
    tensors: Any, which_bucket: TensorLike, batch_size: Any, num_buckets: int, num_threads: int = 1,
    capacity: int = 32, bucket_capacities: Sequence[int] | None = None, shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, keep_input: TensorLike = True,
    shared_name: str | None = None, name: str | None = None,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Batches of the elements that come to the same bucket (``tf.contrib.training.bucket``).

    Each bucket has a queue; a full batch of one goes to the queue from which the results come.

    Args:
      tensors: a list or dictionary of tensors, one element.
      which_bucket: an int32 scalar; elements for which it is not in [0, ``num_buckets``) are left out.
      batch_size: of all buckets, or a list with that of each.
      num_threads: how many threads enqueue elements.
      capacity: of the queue of batches; also of the buckets, unless ``bucket_capacities`` has theirs.
      The others are those of `maybe_batch`.

    Returns:
      (the bucket, an int32 scalar; its batch: a list or dictionary as ``tensors``, one tensor for a list of one).

    Raises:
      ValueError: when a shape is not known, or a list has another length than ``num_buckets``.
    """
    each = isinstance(batch_size, (list, tuple))
    sizes = list(batch_size) if each else [batch_size] * num_buckets
    rooms = [capacity] * num_buckets if bucket_capacities is None else list(bucket_capacities)
    if len(sizes) != num_buckets:
        raise ValueError("If batch_size is a list it must have num_buckets elements")
    if len(rooms) != num_buckets:
        raise ValueError(f"The list bucket_capacities ({rooms}) must have exactly num_buckets ({num_buckets}) elements")
    with name_scope(name, "bucket", _as_list(tensors)):
        parts = _validated(_as_list(tensors), "Expected at least one tensor in bucket().")
        keep = _checked_keep(keep_input, False)
        sparse = SparseColumns(parts, False)
        parts = sparse.store(parts, keep)
        types, known = _types([parts]), _shapes([parts], shapes, False)
        chosen = convert_to_tensor(which_bucket, dtypes.int32, name="which_bucket")
        kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
        names = [None if shared_name is None else f"{shared_name}_{i}" for i in range(num_buckets)]
        queues: list[QueueBase] = [
            kind(rooms[i], types, known, shared_name=names[i], name=f"bucket_queue_{i}") for i in range(num_buckets)
        ]
        fixed = None if each or allow_smaller_final_batch else constant_value(convert_to_tensor(batch_size))
        rows = [TensorShape([fixed]).concatenate(shape) for shape in queues[0].shapes]
        top = PaddingFIFOQueue(capacity, [dtypes.int32, *types], [TensorShape([]), *rows], shared_name=shared_name,
                               name="top_queue")  # fmt: skip
        enqueue = smart_cond(keep, lambda: _into_one(queues, chosen, parts), no_op)
        _run_queues(queues, top, [enqueue] * num_threads, sizes, allow_smaller_final_batch)
        for queue in queues:
            scalar(f"bucket/{queue.name}/size", cast(queue.size(), dtypes.float32))
        scalar(f"bucket/{top.name}/fraction_of_{capacity}_full", cast(top.size(), dtypes.float32) * (1.0 / capacity))
        number, *found = top.dequeue(name="dequeue_top")
        return number, _like(tensors, sparse.restore(found[0] if len(found) == 1 else found))


def _into_one(queues: Sequence[QueueBase], chosen: Tensor, parts: list[Any]) -> Any:
    """An op that puts an element into the queue of its bucket."""
    puts = (cond(equal(chosen, i), partial(queue.enqueue, parts), no_op) for i, queue in enumerate(queues))
    return group(*puts, name="group_enqueues")


def _run_queues(
    queues: Sequence[QueueBase], top: QueueBase, enqueue: list[Any], sizes: list[Any], smaller: bool
) -> None:
    """Adds the runners: of elements into buckets, and of full buckets into the queue of batches."""

    def taken(i: int) -> list[Any]:
        dequeue = queues[i].dequeue_up_to if smaller else queues[i].dequeue_many
        return nest.flatten(dequeue(sizes[i], name=f"read_bucket_{i}"))

    moves = [top.enqueue([constant(i), *taken(i)], name=f"enqueue_from_bucket_{i}") for i in range(len(queues))]
    stop = top.close(cancel_pending_enqueues=True)
    add_queue_runner(QueueRunner(queues[0], moves, top.close(), stop, END_OF_INPUT))
    ends = [group(*(queue.close(cancel_pending_enqueues=cancel) for queue in queues)) for cancel in (False, True)]
    add_queue_runner(QueueRunner(top, enqueue, ends[0], ends[1], END_OF_INPUT))


@export("tf.contrib.training.bucket_by_sequence_length")
def bucket_by_sequence_length(
    input_length: TensorLike, tensors: Any, batch_size: Any, bucket_boundaries: Sequence[int], num_threads: int = 1,
    capacity: int = 32, bucket_capacities: Sequence[int] | None = None, shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, keep_input: TensorLike = True,
    shared_name: str | None = None, name: str | None = None,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Batches of sequences of about the same length (``tf.contrib.training.bucket_by_sequence_length``).

    Args:
      input_length: the length of the element, an int32 scalar.
      bucket_boundaries: increasing lengths; a bucket begins at each, and one is for what is shorter than all.
      The others are those of `bucket`.

    Returns:
      (the lengths, [batch_size]; the batch, as from `bucket`).

    Raises:
      TypeError: when ``bucket_boundaries`` is no list of ints.
      ValueError: when it is empty or does not increase.
    """
    if not isinstance(bucket_boundaries, (list, tuple)):
        raise TypeError(f"bucket_boundaries must be a list or tuple, but received: {bucket_boundaries}")
    if not bucket_boundaries:
        raise ValueError("bucket_boundaries must not be empty")
    if not all(isinstance(each, Integral) for each in bucket_boundaries):
        raise TypeError(f"bucket boundaries must be integers, but saw: {bucket_boundaries}")
    for before, after in pairwise(bucket_boundaries):
        if before >= after:
            raise ValueError(f"Buckets must contain sequential increasing lengths, but saw: {before} before {after}")
    with name_scope(name, "bucket_by_sequence_length", [input_length, *_as_list(tensors)]):
        length = convert_to_tensor(input_length, dtypes.int32, name="input_length")
        number = reduce_sum(cast(greater_equal(length, list(bucket_boundaries)), dtypes.int32))
        shapes = None if shapes is None else [TensorShape([]), *shapes]
        _, (lengths, *found) = bucket(
            [length, *_as_list(tensors)], number, batch_size, len(bucket_boundaries) + 1, num_threads, capacity,
            bucket_capacities, shapes, dynamic_pad, allow_smaller_final_batch, keep_input, shared_name,
        )  # fmt: skip
        return lengths, dict(zip(sorted(tensors, key=str), found)) if isinstance(tensors, dict) else found


# ---- input producers ----------------------------------------
# Queues that produce inputs: ``tf.train.string_input_producer``, ``slice_input_producer``, ``limit_epochs``, …


@export("tf.io.match_filenames_once", "tf.train.match_filenames_once")
def match_filenames_once(pattern: TensorLike, name: str | None = None) -> Any:
    """A local variable whose initializer finds the names of the files that match (``tf.train.match_filenames_once``).

    Args:
      pattern: one or more glob patterns.
      name: name of the variable; default ``matching_filenames``.
    """
    with name_scope(name, "matching_filenames", [pattern]) as scope:
        return Variable(
            name=scope, initial_value=matching_files(pattern), trainable=False, validate_shape=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
        )  # fmt: skip


@export("tf.train.limit_epochs")
def limit_epochs(tensor: TensorLike, num_epochs: int | None = None, name: str | None = None) -> Any:
    """Returns ``tensor`` in ``num_epochs`` steps, then raises `OutOfRangeError` (``tf.train.limit_epochs``).

    The count is a local variable, so ``tf.local_variables_initializer`` must run first.

    Raises:
      ValueError: when ``num_epochs`` is not positive.
    """
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name, "limit_epochs", [tensor]) as scope:
        zero = constant(0, dtype=dtypes.int64)
        epochs = Variable(zero, name="epochs", trainable=False, collections=[GraphKeys.LOCAL_VARIABLES])
        with control_dependencies([epochs.count_up_to(num_epochs)]):
            return identity(tensor, name=scope)


@dataclass
class _Producing:
    """The arguments that the producers share.

    Attributes:
      num_epochs: how often each element is produced; then the queue ends with OutOfRangeError. None: without end.
      shuffle: whether the elements of an epoch come in random order.
      seed: of that order.
      capacity: the most elements that the queue holds.
      shared_name: sessions with this name at one server share the queue.
      name: of the ops.
    """

    num_epochs: int | None = None
    shuffle: bool = True
    seed: int | None = None
    capacity: int = 32
    shared_name: str | None = None
    name: str | None = None


@export("tf.train.input_producer")
@sharing(_Producing, before={"summary_name": "name"})
def input_producer(
    given: _Producing, input_tensor: TensorLike, element_shape: ShapeLike = None, *, summary_name: str | None = None,
    cancel_op: object = None,
) -> QueueBase:  # fmt: skip
    """A queue that a queue runner fills with the rows of ``input_tensor`` repeatedly (``tf.train.input_producer``).

    Args:
      input_tensor: [n, …].
      element_shape: shape of a row, if it is not known.
      num_epochs: number of repetitions; None for no end. See `limit_epochs`.
      shuffle: whether to shuffle the rows in each epoch.
      seed: seed of the shuffling.
      capacity: capacity of the queue.
      shared_name: name under which sessions share the queue.
      summary_name: name of a summary of the queue's fill level.
      name: name of the queue.
      cancel_op: see `QueueRunner`.

    Raises:
      ValueError: when the shape of a row is not known.
    """
    with name_scope(given.name, "input_producer", [input_tensor]):
        tensor = convert_to_tensor(input_tensor, name="input_tensor")
        shape = tensor.shape[1:].merge_with(element_shape)
        if not shape.is_fully_defined():
            raise ValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be specified"
            )
        if given.shuffle:
            tensor = random_shuffle(tensor, seed=given.seed)
        tensor = limit_epochs(tensor, given.num_epochs)
        dtype, called = tensor.dtype.base_dtype, given.name or ""
        queue = FIFOQueue(given.capacity, [dtype], [shape], shared_name=given.shared_name, name=called)
        add_queue_runner(QueueRunner(queue, [queue.enqueue_many([tensor])], cancel_op=cancel_op))
        if summary_name is not None:
            scalar(summary_name, cast(queue.size(), dtypes.float32) * (1.0 / given.capacity))
        return queue


@export("tf.train.string_input_producer")
@sharing(_Producing)
def string_input_producer(given: _Producing, string_tensor: Any, *, cancel_op: object = None) -> QueueBase:
    """A queue of strings, usually file names (``tf.train.string_input_producer``); see `input_producer`.

    Raises:
      ValueError: when the list is empty. (An empty tensor makes the step fail.)
    """
    problem = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, Tensor) and not hasattr(string_tensor, "graph") and not len(string_tensor):
        raise ValueError(problem)
    with name_scope(given.name, "input_producer", [string_tensor]) as scope:
        tensor = convert_to_tensor(string_tensor, dtype=dtypes.string)
        with control_dependencies([Assert(greater(size_of(tensor), 0), [problem])]):
            tensor = identity(tensor)
        summary_name, more = f"fraction_of_{given.capacity}_full", {**vars(given), "name": scope}
        return input_producer(tensor, [], summary_name=summary_name, cancel_op=cancel_op, **more)


@export("tf.train.range_input_producer")
@sharing(_Producing)
def range_input_producer(given: _Producing, limit: TensorLike) -> QueueBase:
    """A queue of the integers from 0 to ``limit - 1`` (``tf.train.range_input_producer``); see `input_producer`."""
    with name_scope(given.name, "input_producer", [limit]) as scope:
        summary_name, more = f"fraction_of_{given.capacity}_full", {**vars(given), "name": scope}
        return input_producer(range_of(limit), [], summary_name=summary_name, **more)


@export("tf.train.slice_input_producer")
@sharing(_Producing)
def slice_input_producer(given: _Producing, tensor_list: Sequence[Any]) -> list[Tensor]:
    """One row of each tensor, all with the same index (``tf.train.slice_input_producer``); see `input_producer`.

    Args:
      tensor_list: tensors with equal first dimensions.

    Raises:
      ValueError: when the list is empty.
    """
    with name_scope(given.name, "input_producer", tensor_list):
        tensors = convert_n_to_tensor_or_indexed_slices(tensor_list)
        if not tensors:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        sizes: Any = shape_of(tensors[0])
        rows = sizes[0]
        queue = range_input_producer(rows, **{**vars(given), "name": None})
        index = queue.dequeue()
        return [gather(tensor, index) for tensor in tensors]
