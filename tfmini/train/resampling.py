"""``tf.contrib.training``: batches in which elements appear as often as a program wants, and batches of segments.

Tensors of elements have any dtype; probabilities, shares and rates are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import ones as ones_of
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity, stop_gradient
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import repeat, tile
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import expand_dims, reshape, squeeze
from tfmini.ops.array.shape import rank as rank_of
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.slicing import slice as slice_of
from tfmini.ops.checks import assert_greater_equal, assert_less, assert_less_equal
from tfmini.ops.control import group
from tfmini.ops.debugging import Assert
from tfmini.ops.math.comparison import equal, greater, less, less_equal, logical_and, logical_not
from tfmini.ops.math.elementwise import floordiv, floormod
from tfmini.ops.math.reductions import bincount, reduce_max, reduce_mean, reduce_sum
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.queues.barrier import Barrier
from tfmini.ops.queues.queues import FIFOQueue
from tfmini.ops.random_functions import random_poisson, random_uniform
from tfmini.ops.string_ops import as_string, string_join
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.scope import get_local_variable, variable_scope
from tfmini.train.input_batches import (
    _validated,
    batch,
    maybe_batch,
)
from tfmini.train.optimizers.moving_averages import assign_moving_average


def _singles(tensors: list[Any], enqueue_many: bool, capacity: int, threads: int) -> list[Tensor]:
    """The elements one by one, from a queue."""
    return [squeeze(part, [0]) for part in nest.flatten(batch(tensors, 1, threads, capacity, enqueue_many))]


def _kept(tensors: list[Tensor], probability: Tensor, batch_size: TensorLike, threads: int) -> list[Any]:
    """Batches of the elements that stay with a probability."""
    keep = less(random_uniform([]), cast(probability, dtypes.float32))
    return nest.flatten(maybe_batch(tensors, keep, batch_size, threads))


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

    Returns:
      the batches of ``tensors``, a list.

    Raises:
      ValueError: when there are no tensors.
    """
    with name_scope(name, "rejection_sample", tensors):
        parts = _validated(list(tensors), "Expected at least one tensor in rejection_sample().")
        if enqueue_many:
            parts = _singles(parts, True, prebatch_capacity, prebatch_threads)
        probability = convert_to_tensor(accept_prob_fn(parts))
        if runtime_checks:
            checks = [assert_less_equal(probability, 1.0), assert_greater_equal(probability, 0.0)]
            with control_dependencies(checks):
                probability = identity(probability, name="prob_with_checks")
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
    given.shape.assert_is_compatible_with(wanted.shape)
    if known is not None and target is not None and np.any((known == 0) & (target > 0)):
        raise ValueError("Some initial probability class has zero probability and a nonzero target probability")


def _estimated(label: Tensor, classes: int | None) -> Any:
    """The shares of the classes so far; all classes begin with the same number of elements."""
    counts = Variable(np.full(classes, 10, np.int64), trainable=False, name="class_count")
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

    Returns:
      the rows of ``inputs``, in their order, a list.
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


# ---- Batches of segments of sequences, whose states go from one segment to the next -------------------------------

_HEAD = ("length", "total_length", "next_key", "sequence", "sequence_count")  # of the barrier's components


def _checked(value: Tensor, holds: TensorLike, told: list[Any], name: str, *values: Tensor) -> Tensor:
    """The value, whose step fails with a text and values unless a condition holds."""
    text = string_join([part if isinstance(part, str) else as_string(part) for part in told])
    with control_dependencies([Assert(holds, [text, *values])]):
        return identity(value, name=name)


class NextQueuedSequenceBatch:
    """A batch of segments (``tf.contrib.training.NextQueuedSequenceBatch``), made by `SequenceQueueingStateSaver`.

    All attributes are tensors whose first dimension is the batch.

    Attributes:
      key, next_key: string; ``"00000_of_00002:the key"``, and that of the next segment or ``"STOP:the key"``.
      insertion_index: int64, the order of the examples, from -2**63.
      length, total_length: int32, of the segment and of the example before padding.
      sequence, sequence_count: int32, the segment's number and how many the example has.
      batch_size: an int32 scalar.
      sequences, context: name -> the segments, and what is the same in all segments of an example.
    """

    def __init__(self, state_saver: SequenceQueueingStateSaver) -> None:
        saver = self._saver = state_saver
        found = saver.barrier.take_many(saver.batch_size, saver._allow_small_batch, name="BarrierTakeMany")
        self.insertion_index, self.key, values = found
        received = dict(zip(saver._columns, values))
        for name in _HEAD:
            setattr(self, name, received["", name])
        self.sequences, self.context, states = (
            {name: value for (kind, name), value in received.items() if kind == wanted}
            for wanted in ("sequence", "context", "state")
        )
        self.batch_size = squeeze(shape_of(self.length))
        self._is_done = received["", "sequence"] + 1 >= received["", "sequence_count"]
        with control_dependencies([saver._tokens.dequeue_many(reduce_sum(cast(self._is_done, dtypes.int32)))]):
            self._states = {name: identity(value) for name, value in states.items()}

    length: Tensor
    next_key: Tensor

    def state(self, state_name: str) -> Tensor:
        """The states that the segments begin with: the first ones, or what `save_state` kept.

        Raises:
          KeyError: there is no such state.
        """
        return self._states[state_name]

    def save_state(self, state_name: str, value: TensorLike, name: str | None = None) -> Operation:
        """An op that keeps the states of the next segments. It has to run with each batch.

        Args:
          value: [batch, …] of the type of the first states.

        Raises:
          KeyError: there is no such state.
          ValueError: the shape is known, and is another one.
        """
        if state_name not in self._states:
            raise KeyError(f"state was not declared: {state_name}")
        with name_scope(name, "InputQueueingStateSaver_SaveState", [value]):
            given, wanted = identity(value, name=f"convert_{state_name}"), self._states[state_name]
            rank = len(wanted.shape.as_list())
            try:
                known = given.shape.with_rank(rank).merge_with(wanted.shape)
            except ValueError as error:
                raise ValueError(f"Rank check failed for {given.name}: {error}") from None
            told = [f"Rank of tensor {given.name} should be: {rank}, shape received:"]
            same = equal(rank_of(given), rank)
            given = _checked(given, same, told, "rank_checked", shape_of(given))
            given.set_shape(known)
            rows = reshape(where(logical_not(self._is_done)), [-1])
            return self._saver.barrier.insert_many(
                self._saver._place("state", state_name), gather(self.next_key, rows), gather(given, rows),
                name=f"BarrierInsertState_{state_name}",
            )  # fmt: skip


@export("tf.contrib.training.SequenceQueueingStateSaver")
class SequenceQueueingStateSaver:
    """Cuts sequences into segments, and gives batches of them (``tf.contrib.training.SequenceQueueingStateSaver``).

    The segments of an example come in successive batches, each with the state that `NextQueuedSequenceBatch.save_state`
    kept for it. A thread must run `prefetch_op`, which takes one example.

    Args:
      batch_size: an int or an int32 scalar.
      num_unroll: the length of a segment.
      input_length: int32 scalar, the example's length before padding.
      input_key: string scalar, another for each example.
      input_sequences: name -> [length, …]; the lengths are equal, and a multiple of ``num_unroll``.
      input_context: name -> tensor of a known shape, which all segments get.
      initial_states: name -> tensor of a known shape, the state of the first segment.
      capacity: the greatest number of examples that have begun; at least ``batch_size``.
      allow_small_batch: whether the last batches may be smaller, after `close`.

    Raises:
      TypeError: a dictionary, a name or a dtype is of another kind.
      ValueError: there are no states, a shape is not known, or ``capacity`` is below ``batch_size``.
    """

    def __init__(
        self, batch_size: Any, num_unroll: int, input_length: TensorLike, input_key: TensorLike,
        input_sequences: dict[str, Any], input_context: dict[str, Any], initial_states: dict[str, Any],
        capacity: int | None = None, allow_small_batch: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        _check_states(initial_states)
        self.batch_size, self.num_unroll, self._allow_small_batch = batch_size, num_unroll, allow_small_batch
        key = convert_to_tensor(input_key, dtypes.string)
        if capacity is not None and isinstance(batch_size, Tensor):
            with control_dependencies([
                assert_greater_equal(capacity, batch_size, message="capacity needs to be >= batch_size.")
            ]):  # fmt: skip
                key = identity(key)
        elif capacity is not None and capacity < batch_size:
            raise ValueError(f"capacity {capacity} needs to be >= batch_size {batch_size}")
        self._tokens = FIFOQueue(-1 if capacity is None else capacity, [dtypes.int32], [()])  # one for each example
        with name_scope(name, "InputQueueingStateSaver") as scope:
            self.name = self._scope = scope
            self._key = key
            self._sequences = _named("sequence", input_sequences, 1)
            self._context, self._states = _named("context", input_context), _named("state", initial_states)
            self._padded, self._length = self._checked_lengths(input_length)
            self._columns = [("", name) for name in _HEAD]
            types = [dtypes.int32, dtypes.int32, dtypes.string, dtypes.int32, dtypes.int32]
            shapes: list[Any] = [()] * len(_HEAD)
            for kind, found in (("sequence", self._sequences), ("context", self._context), ("state", self._states)):
                self._columns += [(kind, name) for name in found]
                types += [value.dtype for value in found.values()]
                rows = [num_unroll] if kind == "sequence" else []
                shapes += [rows + value.shape.as_list()[len(rows) :] for value in found.values()]
            self.barrier = Barrier(types, shapes)
        self._prefetch_op: Operation | None = None
        self._next_batch: NextQueuedSequenceBatch | None = None

    def _checked_lengths(self, input_length: TensorLike) -> tuple[Tensor, Tensor]:
        """The length with padding, and without; the sequences are checked as well."""
        padded = identity(shape_of(next(iter(self._sequences.values())))[0], name="padded_length")
        told = [f"Tensor {padded.name} should be a multiple of: {self.num_unroll}, but saw value: ", padded]
        fits = logical_and(equal(floormod(padded, self.num_unroll), 0), greater(padded, 0))
        padded = _checked(padded, fits, [*told, ". Consider setting pad=True."], "multiple_of_checked")
        for name, value in self._sequences.items():
            label, size = f"sorted_sequences_{name}", shape_of(value)[0]
            told = [f"Dimension 0 of tensor labeled {label} should be: ", padded, ", shape received: ", size]
            self._sequences[name] = _checked(value, equal(size, padded), told, f"dims_checked_{label}")
        length = convert_to_tensor(input_length)
        if length.dtype != dtypes.int32:
            raise TypeError(f"length dtype must be int32, but received: {length.dtype!r}")
        told = ["Input length should be <= than length from sequences: ", length, " vs. ", padded]
        return padded, _checked(length, less_equal(length, padded), told, "length")

    def _place(self, kind: str, name: str) -> int:
        """The number of a component of the barrier."""
        return self._columns.index((kind, name))

    @property
    def prefetch_op(self) -> Operation:
        """The op that takes an example; it waits while ``capacity`` examples have begun."""
        if self._prefetch_op is None:
            with name_scope(None), name_scope(self._scope):
                self._prefetch_op = self._prefetch()
        return self._prefetch_op

    def _prefetch(self) -> Operation:
        count = floordiv(self._padded, self.num_unroll)
        number, ones = range_of(count), ones_of(reshape(count, [1]), dtypes.int32)
        keys = string_join(
            [as_string(number, width=5, fill="0"), "_of_", as_string(count, width=5, fill="0"), ":", self._key]
        )
        next_keys = concat([slice_of(keys, [1], [-1]), [string_join(["STOP:", self._key])]], 0)
        left = self._length - self.num_unroll * number
        head = [clip_by_value(left, 0, self.num_unroll), self._length * ones, next_keys, number, count * ones]
        values = {("", name): value for name, value in zip(_HEAD, head)}
        for name, value in self._sequences.items():
            sizes = stack([count, self.num_unroll, *value.shape.as_list()[1:]])
            values["sequence", name] = reshape(value, sizes)
        for name, value in self._context.items():
            values["context", name] = tile(expand_dims(value, 0), stack([count, *(1 for _ in value.shape.as_list())]))
        inserted = [self.barrier.insert_many(self._place(*place), keys, value) for place, value in values.items()]
        token = self._tokens.enqueue([0])
        with control_dependencies([inserted[_HEAD.index("sequence")], token]):  # all segments get one number
            first = slice_of(keys, [0], [1])
            inserted += [
                self.barrier.insert_many(self._place("state", name), first, expand_dims(value, 0))
                for name, value in self._states.items()
            ]
        return group(token, *inserted, name="StateSaverPrefetchGroup")

    @property
    def next_batch(self) -> NextQueuedSequenceBatch:
        """The batch that a step takes."""
        if self._next_batch is None:
            self.prefetch_op  # noqa: B018  # its ops come first
            with name_scope(None), name_scope(self._scope):
                self._next_batch = NextQueuedSequenceBatch(self)
        return self._next_batch

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """An op after which no example is taken; with ``cancel_pending_enqueues``, begun ones do not go on, either."""
        with name_scope(name, "SQSSClose") as scope:
            closed = self.barrier.close(cancel_pending_enqueues, "BarrierClose")
            return group(closed, self._tokens.close(cancel_pending_enqueues, "FIFOClose"), name=scope)


def _check_states(states: Any) -> None:
    if not isinstance(states, dict):
        raise TypeError("initial_states must be a dictionary")
    if not states:
        raise ValueError("initial_states may not be empty: the states tell when the next segment may come")
    for name in states:
        if not isinstance(name, str):
            raise TypeError(f"state name must be a string: {name}")
        if ":" in name:
            raise ValueError(f"state name may not have a colon: '{name}'")


def _named(kind: str, values: dict[str, Any], free: int = 0) -> dict[str, Tensor]:
    """The tensors by name, in order; all but the first ``free`` dimensions must be known."""
    found = {name: convert_to_tensor(values[name], name=f"{kind}_{name}") for name in sorted(values)}
    for name, value in found.items():
        if not value.shape[free:].is_fully_defined():
            told = "(ignoring first dimension)" if free else ""
            raise ValueError(f"Shape for {kind} {name} is not fully defined {told}: {value.shape}")
    return found


export_names("tf.contrib.training", "NextQueuedSequenceBatch")
