"""Batching with queues: ``tf.train.batch``, ``shuffle_batch`` and their ``_join`` and ``maybe_`` variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_n_to_tensor_or_indexed_slices, convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.casting import cast
from tfmini.ops.array.partition import dynamic_partition
from tfmini.ops.control import no_op
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.math.elementwise import maximum, subtract
from tfmini.ops.queues.queues import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from tfmini.ops.sparse.sparse_tensor import SparseTensor
from tfmini.ops.summary.functions import scalar
from tfmini.shapes import TensorShape, as_shape
from tfmini.train.inputs.queue_runners import QueueRunner, add_queue_runner
from tfmini.train.inputs.sparse_batching import SparseColumns

MakeQueue = Callable[[list[Any], Any], QueueBase]


def _as_list(tensors: Any) -> list[Any]:
    return [tensors[key] for key in sorted(tensors, key=str)] if isinstance(tensors, dict) else list(tensors)


def _as_lists(tensors_list: Any) -> list[list[Any]]:
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


def _checked_keep(keep_input: Any, enqueue_many: bool) -> Tensor:
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


def _shapes(lists: list[list[Tensor]], shapes: Any, enqueue_many: bool) -> Any:
    """The given shapes of an element's components, or those inferred from all sources."""
    if shapes is not None:
        return shapes
    found = []
    for same in zip(*lists):
        for tensor in same:
            if tensor.shape.ndims is None:
                raise ValueError(f"Cannot infer Tensor's rank: {tensor}")
        merged: TensorShape | None = None
        for tensor in same:
            shape = as_shape(tensor.shape)
            shape = shape.with_rank_at_least(1)[1:] if enqueue_many else shape
            if merged is None:
                merged = shape
            else:
                merged.merge_with(shape)
        found.append(merged.as_list() if merged is not None else None)
    return found


def _enqueue_op(queue: QueueBase, tensors: list[Tensor], enqueue_many: bool, keep: Tensor) -> Any:
    enqueue = queue.enqueue_many if enqueue_many else queue.enqueue
    if keep.shape.ndims == 1:
        chosen = cast(keep, dtypes.int32)
        return enqueue([dynamic_partition(t, chosen, num_partitions=2)[1] for t in tensors])
    return smart_cond(keep, lambda: enqueue(tensors), no_op)


def _pipeline(
    lists: list[list[Any]], batch_size: Any, keep_input: Any, threads: int, enqueue_many: bool, shapes: Any,
    smaller_final: bool, make_queue: MakeQueue, full: Callable[[QueueBase], tuple[str, Tensor]], name: str,
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
    lists: list[list[Any]], batch_size: Any, keep_input: Any, threads: int, capacity: int, enqueue_many: bool,
    shapes: Any, dynamic_pad: bool, smaller_final: bool, shared_name: str | None, name: str | None, default: str,
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
    lists: list[list[Any]], batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any, threads: int,
    seed: int | None, enqueue_many: bool, shapes: Any, smaller_final: bool, shared_name: str | None,
    name: str | None, default: str,
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
    tensors: Any, batch_size: Any, num_threads: int = 1, capacity: int = 32, enqueue_many: bool = False,
    shapes: Any = None, dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
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
    tensors: Any, keep_input: Any, batch_size: Any, num_threads: int = 1, capacity: int = 32,
    enqueue_many: bool = False, shapes: Any = None, dynamic_pad: bool = False,
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
    tensors_list: Any, batch_size: Any, capacity: int = 32, enqueue_many: bool = False, shapes: Any = None,
    dynamic_pad: bool = False, allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """`batch` of several sources, each with its own thread (``tf.train.batch_join``).

    Args:
      tensors_list: a list of lists or dictionaries of tensors.
    """
    return maybe_batch_join(tensors_list, True, batch_size, capacity, enqueue_many, shapes, dynamic_pad,
                            allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("tf.train.maybe_batch_join")
def maybe_batch_join(
    tensors_list: Any, keep_input: Any, batch_size: Any, capacity: int = 32, enqueue_many: bool = False,
    shapes: Any = None, dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`batch_join` of the elements for which ``keep_input`` is true (``tf.train.maybe_batch_join``)."""
    found = _batch(_as_lists(tensors_list), batch_size, keep_input, 1, capacity, enqueue_many, shapes, dynamic_pad,
                   allow_smaller_final_batch, shared_name, name, "batch_join")  # fmt: skip
    return _like(tensors_list[0], found)


@export("tf.train.shuffle_batch")
def shuffle_batch(
    tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, num_threads: int = 1,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
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
    tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any, num_threads: int = 1,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`shuffle_batch` of the elements for which ``keep_input`` is true (``tf.train.maybe_shuffle_batch``)."""
    found = _shuffle([_as_list(tensors)], batch_size, capacity, min_after_dequeue, keep_input, num_threads, seed,
                     enqueue_many, shapes, allow_smaller_final_batch, shared_name, name, "shuffle_batch")  # fmt: skip
    return _like(tensors, found)


@export("tf.train.shuffle_batch_join")
def shuffle_batch_join(
    tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int, seed: int | None = None,
    enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`shuffle_batch` of several sources, each with its own thread (``tf.train.shuffle_batch_join``)."""
    return maybe_shuffle_batch_join(tensors_list, batch_size, capacity, min_after_dequeue, True, seed, enqueue_many,
                                    shapes, allow_smaller_final_batch, shared_name, name)  # fmt: skip


@export("tf.train.maybe_shuffle_batch_join")
def maybe_shuffle_batch_join(
    tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """`shuffle_batch_join` of the elements for which ``keep_input`` is true (``tf.train.maybe_shuffle_batch_join``)."""
    found = _shuffle(_as_lists(tensors_list), batch_size, capacity, min_after_dequeue, keep_input, 1, seed,
                     enqueue_many, shapes, allow_smaller_final_batch, shared_name, name,
                     "shuffle_batch_join")  # fmt: skip
    return _like(tensors_list[0], found)
