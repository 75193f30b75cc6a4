"""Batches of elements of one kind, and resampled ones: ``tf.contrib.training.bucket``, ``stratified_sample``, …"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity, stop_gradient
from tfmini.ops.array.layout import repeat
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import squeeze
from tfmini.ops.checks import assert_greater_equal, assert_less, assert_less_equal
from tfmini.ops.control import group, no_op
from tfmini.ops.flow.cond import cond, smart_cond
from tfmini.ops.math.comparison import equal, greater_equal, less
from tfmini.ops.math.reductions import bincount, reduce_max, reduce_mean, reduce_sum
from tfmini.ops.queues.queues import FIFOQueue, PaddingFIFOQueue, QueueBase
from tfmini.ops.random_functions import random_poisson, random_uniform
from tfmini.ops.summary import scalar
from tfmini.ops.variables.scope import get_local_variable, get_variable, variable_scope
from tfmini.shapes import TensorShape
from tfmini.train.input_batches import (
    SparseColumns,
    _as_list,
    _checked_keep,
    _like,
    _shapes,
    _types,
    _validated,
    batch,
    maybe_batch,
)
from tfmini.train.optimizers.moving_averages import assign_moving_average
from tfmini.train.queue_runners import QueueRunner, add_queue_runner

_END = (errors.OutOfRangeError, errors.CancelledError)


@export("tf.contrib.training.bucket")
def bucket(
    tensors: Any, which_bucket: TensorLike, batch_size: Any, num_buckets: int, num_threads: int = 1,
    capacity: int = 32, bucket_capacities: Sequence[int] | None = None, shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, keep_input: TensorLike = True, shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Batches of the elements that come to the same bucket (``tf.contrib.training.bucket``).

    Each bucket has a queue; a full batch of one goes to the queue from which the results come.

    Args:
      tensors: a list or dictionary of tensors, one element.
      which_bucket: an int32 scalar below ``num_buckets``.
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
        queues: list[QueueBase] = [kind(rooms[i], types, known, shared_name=names[i], name=f"bucket_queue_{i}")
                  for i in range(num_buckets)]  # fmt: skip
        fixed = None if each or allow_smaller_final_batch else constant_value(convert_to_tensor(batch_size))
        rows = [TensorShape([fixed]).concatenate(shape) for shape in queues[0].shapes]
        top = PaddingFIFOQueue(capacity, [dtypes.int32, *types], [TensorShape([]), *rows], shared_name=shared_name,
                               name="top_queue")  # fmt: skip
        enqueue = smart_cond(keep, lambda: _into_one(queues, chosen, parts), no_op)
        _run_queues(queues, top, [enqueue] * num_threads, sizes, allow_smaller_final_batch)
        for queue in queues:
            scalar(f"bucket/{queue.name}/size", cast(top.size(), dtypes.float32))
        scalar(f"bucket/{top.name}/fraction_of_{capacity}_full", cast(top.size(), dtypes.float32) * (1.0 / capacity))
        number, *found = top.dequeue(name="dequeue_top")
        return number, _like(tensors, sparse.restore(found[0] if len(found) == 1 else found))


def _into_one(queues: Sequence[QueueBase], chosen: Tensor, parts: list[Any]) -> Any:
    """An op that puts an element into the queue of its bucket."""
    ops = [cond(equal(chosen, i), lambda queue=queue: queue.enqueue(parts), no_op) for i, queue in enumerate(queues)]  # type: ignore[misc]
    return group(*ops, name="group_enqueues")


def _run_queues(
    queues: Sequence[QueueBase], top: QueueBase, enqueue: list[Any], sizes: list[Any], smaller: bool
) -> None:
    """Adds the runners: of elements into buckets, and of full buckets into the queue of batches."""

    def taken(i: int) -> list[Any]:
        dequeue = queues[i].dequeue_up_to if smaller else queues[i].dequeue_many
        found = dequeue(sizes[i], name=f"read_bucket_{i}")
        return list(found) if isinstance(found, (list, tuple)) else [found]

    moves = [top.enqueue([constant(i), *taken(i)], name=f"enqueue_from_bucket_{i}") for i in range(len(queues))]
    stop = top.close(cancel_pending_enqueues=True)
    add_queue_runner(QueueRunner(queues[0], moves, top.close(), stop, _END))
    ends = [group(*(queue.close(cancel_pending_enqueues=cancel) for queue in queues)) for cancel in (False, True)]
    add_queue_runner(QueueRunner(top, enqueue, ends[0], ends[1], _END))


@export("tf.contrib.training.bucket_by_sequence_length")
def bucket_by_sequence_length(
    input_length: TensorLike, tensors: Any, batch_size: Any, bucket_boundaries: Sequence[int], num_threads: int = 1,
    capacity: int = 32, bucket_capacities: Sequence[int] | None = None, shapes: Sequence[Any] | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, keep_input: TensorLike = True, shared_name: str | None = None,
    name: str | None = None,
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
    for before, after in zip(bucket_boundaries, bucket_boundaries[1:]):
        if not isinstance(before, int) or not isinstance(after, int):
            raise TypeError(f"bucket boundaries must be integers, but saw: {before} and {after}")
        if before >= after:
            raise ValueError(f"Buckets must contain sequential increasing lengths, but saw: {before} before {after}")
    with name_scope(name, "bucket_by_sequence_length", [input_length, *_as_list(tensors)]) as scope:
        length = convert_to_tensor(input_length, dtypes.int32, name="input_length")
        number = reduce_sum(cast(greater_equal(length, list(bucket_boundaries)), dtypes.int32))
        shapes = None if shapes is None else [TensorShape([]), *shapes]
        _, (lengths, *found) = bucket(
            [length, *_as_list(tensors)], number, batch_size, len(bucket_boundaries) + 1, num_threads, capacity,
            bucket_capacities, shapes, dynamic_pad, allow_smaller_final_batch, keep_input, shared_name, scope,
        )  # fmt: skip
        return lengths, dict(zip(sorted(tensors, key=str), found)) if isinstance(tensors, dict) else found


# ---- resampling ------------------------------------------------------------------------------------------------------


def _singles(tensors: list[Any], enqueue_many: bool, capacity: int, threads: int) -> list[Tensor]:
    """The elements one by one, from a queue."""
    found = batch(tensors, 1, threads, capacity, enqueue_many)
    return [squeeze(part, [0]) for part in (found if isinstance(found, (list, tuple)) else [found])]


def _kept(tensors: list[Tensor], probability: Tensor, batch_size: TensorLike, threads: int) -> list[Any]:
    """Batches of the elements that stay with a probability."""
    keep = less(random_uniform([]), cast(probability, dtypes.float32))
    found = maybe_batch(tensors, keep, batch_size, threads)
    return list(found) if isinstance(found, (list, tuple)) else [found]


@export("tf.contrib.training.rejection_sample")
def rejection_sample(
    tensors: Sequence[Any], accept_prob_fn: Callable[[list[Any]], Tensor], batch_size: TensorLike,
    queue_threads: int = 1, enqueue_many: bool = False, prebatch_capacity: int = 16, prebatch_threads: int = 1,
    runtime_checks: bool = False, name: str | None = None,
) -> list[Any]:  # fmt: skip
    """Batches of elements, each of which stays with its probability (``tf.contrib.training.rejection_sample``).

    Args:
      tensors: a list of tensors: one element, or with ``enqueue_many`` a batch of elements.
      accept_prob_fn: a function from the tensors of one element to its probability, a scalar.
      queue_threads: how many threads enqueue what stays.
      prebatch_capacity, prebatch_threads: of the queue that takes batches apart.
      runtime_checks: whether a step fails where a probability is not in [0, 1].
    """
    with name_scope(name, "rejection_sample", tensors):
        parts = _validated(list(tensors), "Expected at least one tensor in rejection_sample().")
        if enqueue_many:
            parts = _singles(parts, True, prebatch_capacity, prebatch_threads)
        probability = convert_to_tensor(accept_prob_fn(parts))
        if runtime_checks:
            checks = [assert_less_equal(probability, 1.0), assert_greater_equal(probability, 0.0)]
            with control_dependencies(checks):
                probability = identity(probability)
        return _kept(parts, probability, batch_size, queue_threads)


@export("tf.contrib.training.stratified_sample")
def stratified_sample(
    tensors: Sequence[Any], labels: TensorLike, target_probs: TensorLike, batch_size: TensorLike,
    init_probs: TensorLike | None = None, enqueue_many: bool = False, queue_capacity: int = 16,
    threads_per_queue: int = 1, name: str | None = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Batches with given shares of the classes, by leaving elements out (``tf.contrib.training.stratified_sample``).

    Args:
      tensors: a list of tensors: one element, or with ``enqueue_many`` a batch of elements.
      labels: the class of the element, an int scalar; a vector with ``enqueue_many``.
      target_probs: [classes], the wanted shares.
      init_probs: the shares in the data; None estimates them.
      queue_capacity, threads_per_queue: of the two queues.

    Returns:
      (the batches of ``tensors``, the batch of labels).

    Raises:
      ValueError: when shapes do not fit, shares do not add up to one, or a class without elements is wanted.
    """
    with name_scope(name, "stratified_sample", [*tensors, labels]):
        parts = _validated(list(tensors), "Expected at least one tensor in stratified_sample().")
        number = convert_to_tensor(labels)
        if number.shape.ndims != int(enqueue_many):
            raise ValueError(f"labels must be {'a vector' if enqueue_many else 'a scalar'}, but have {number.shape}")
        for part in parts if enqueue_many else []:
            part.shape[:1].assert_is_compatible_with(number.shape[:1])
        wanted = _shares(target_probs, "target_probs")
        classes = wanted.shape.as_list()[0]
        with control_dependencies([assert_greater_equal(number, 0), assert_less(number, classes)]):
            number = identity(number)
        number, *parts = _singles([number, *parts], enqueue_many, queue_capacity, threads_per_queue)
        given = _estimated(number, classes) if init_probs is None else _shares(init_probs, "init_probs")
        _check_attainable(given, wanted)
        ratio = where(equal(given, 0.0), given, wanted / where(equal(given, 0.0), given + 1.0, given))
        found = _kept([number, *parts], gather(ratio / reduce_max(ratio), number), batch_size, threads_per_queue)
        return found[1:], found[0]


def _shares(value: TensorLike, name: str) -> Tensor:
    shares: Tensor = convert_to_tensor(value, dtypes.float32, name=name)
    known = constant_value(shares)
    if known is not None and abs(np.sum(known) - 1.0) > 1e-3:
        raise ValueError(f"{name} must sum to one, but its sum is {np.sum(known)}")
    return shares


def _check_attainable(given: Tensor, wanted: Tensor) -> None:
    known, target = constant_value(given), constant_value(wanted)
    if known is not None and target is not None and np.any((known == 0) & (target > 0)):
        raise ValueError("Some initial probability class has zero probability and a nonzero target probability")


def _estimated(label: Tensor, classes: int | None) -> Any:
    """The shares of the classes so far; all classes begin with the same number of elements."""
    counts = get_variable("class_count", initializer=np.full(classes, 10, np.int64), trainable=False)
    total = cast(counts.assign_add(cast(bincount(label, minlength=classes), dtypes.int64)), dtypes.float32)
    return total / reduce_sum(total)


@export("tf.contrib.training.resample_at_rate")
def resample_at_rate(
    inputs: Sequence[Any], rates: TensorLike, scope: str | None = None, seed: int | None = None,
    back_prop: bool = False,
) -> list[Any]:  # fmt: skip
    """Each row a random number of times, its rate on average (``tf.contrib.training.resample_at_rate``).

    Args:
      inputs: tensors, [batch_size, …].
      rates: [batch_size]; the numbers have Poisson distributions with these means.
      seed: of the numbers.
      back_prop: whether gradients flow to ``inputs``.
    """
    with name_scope(scope, "resample_at_rate", [*inputs, rates]):
        means = convert_to_tensor(rates, name="rates")
        numbers = cast(random_poisson(means, [], seed=seed), dtypes.int32)
        rows = repeat(range_of(shape_of(means)[0]), numbers)
        found = [gather(convert_to_tensor(tensor), rows) for tensor in inputs]
        return found if back_prop else [stop_gradient(tensor) for tensor in found]


@export("tf.contrib.training.weighted_resample")
def weighted_resample(
    inputs: Sequence[Any], weights: TensorLike, overall_rate: TensorLike, scope: str | None = None,
    mean_decay: float = 0.999, seed: int | None = None,
) -> tuple[list[Any], Tensor]:  # fmt: skip
    """`resample_at_rate` in proportion to weights (``tf.contrib.training.weighted_resample``).

    Args:
      inputs: tensors, [batch_size, …].
      weights: [batch_size].
      overall_rate: the mean of the rates, over many steps.
      mean_decay: of the moving average of the weights, a local variable.

    Returns:
      (the rows, the rate of each).
    """
    with name_scope(scope, "weighted_resample", inputs) as opened:
        weights = convert_to_tensor(weights)
        with variable_scope(scope, "estimate_mean", inputs):
            kept = get_local_variable("estimated_mean", initializer=cast(0, weights.dtype), dtype=weights.dtype)
            mean = assign_moving_average(kept, reduce_mean(weights), mean_decay)
        rates = weights * overall_rate / mean
        chosen, *found = resample_at_rate([rates, *inputs], rates, opened, seed)
        return found, chosen


@export("tf.contrib.training.FeedingQueueRunner")
class FeedingQueueRunner(QueueRunner):
    """A runner each of whose operations gets feeds from a function (``tf.contrib.training.FeedingQueueRunner``).

    Args:
      feed_fns: for each of ``enqueue_ops`` a function that returns its feeds; None: no feeds.
      The others are those of `QueueRunner`.
    """

    def __init__(
        self, queue: QueueBase | None = None, enqueue_ops: Sequence[Any] | None = None, close_op: object = None,
        cancel_op: object = None, feed_fns: Sequence[Callable[[], Mapping[Any, Any]]] | None = None,
        queue_closed_exception_types: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types or _END)
        functions = [lambda: {} for _ in self.enqueue_ops] if feed_fns is None else list(feed_fns)
        if len(functions) != len(self.enqueue_ops):
            raise ValueError(
                f"If feed_fns is not None, it must have the length of enqueue_ops, {len(functions)} has not"
            )
        self._feeds = dict(zip(self.enqueue_ops, functions))

    def _enqueuing(self, sess: Any, enqueue_op: Any) -> Any:
        return lambda: sess.run(enqueue_op, self._feeds[enqueue_op]())

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Raises NotImplementedError: functions that feed cannot be written to a file."""
        raise NotImplementedError("A FeedingQueueRunner has functions that feed it, which no proto can hold.")
