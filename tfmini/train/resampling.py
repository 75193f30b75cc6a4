"""Queues and batches in which elements appear as often as a program wants: ``tf.contrib.training.stratified_sample``, …

Tensors of elements have any dtype; probabilities, shares and rates are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity, stop_gradient
from tfmini.ops.array.layout import repeat
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import squeeze
from tfmini.ops.checks import assert_greater_equal, assert_less, assert_less_equal
from tfmini.ops.math.comparison import equal, less
from tfmini.ops.math.reductions import bincount, reduce_max, reduce_mean, reduce_sum
from tfmini.ops.random_functions import random_poisson, random_uniform
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
