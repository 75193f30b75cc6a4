"""Stages that take elements without an end for one of their own: they end with the step, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.fake_wait import FakeWait
from tfmini.data.pipeline import TURN, FunctionSource, Reading, compiled
from tfmini.data.stages import Batch, Shard
from tfmini.graph.op_types import kernel_for
from tfmini.ops.queues.queue_state import QueueState
from tfmini.runtime.resources import ResourceManager

MANY, MORE = 1 << 62, 1 << 60
experimental = tf.data.experimental


def numbers() -> Any:
    return tf.data.Dataset.range(MANY)


ENDLESS: dict[str, Callable[[], Any]] = {
    "shuffle": lambda: numbers().shuffle(MORE),
    "batch": lambda: numbers().batch(MORE),
    "batch of failures": lambda: numbers().apply(
        experimental.map_and_batch(lambda x: tf.check_numerics(x / (x - x), ""), MORE)
    ),
    "sparse batch": lambda: numbers().map(lambda x: tf.reshape(x, [1])).apply(
        experimental.dense_to_sparse_batch(MORE, [1])
    ).map(lambda batch: batch.values),
    "padded batch": lambda: numbers().padded_batch(MORE, []),
    "repeat": lambda: tf.data.Dataset.range(0).repeat(MORE),
    "shard": lambda: numbers().shard(MORE, MORE - 1),
    "window": lambda: numbers().window(MORE).flat_map(lambda window: window),
    "distant windows": lambda: numbers().window(1, shift=MORE).skip(1).flat_map(lambda window: window),
    "unbatch": lambda: tf.data.Dataset.from_tensors(np.zeros(0)).repeat().apply(experimental.unbatch()),
    "parallel map": lambda: numbers().map(lambda x: tf.py_func(abs, [x], tf.int64), num_parallel_calls=1 << 30),
}  # fmt: skip


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_deadline_ends_a_stage_that_takes_elements_without_an_end(kind: str) -> None:
    element = experimental.get_single_element(ENDLESS[kind]().take(1))
    with tf.Session() as session, pytest.raises(tf.errors.DeadlineExceededError):
        session.run(element, options=tf.RunOptions(timeout_in_ms=50))


class _Stoppable(Reading):
    """A reading that stops when so many elements have been taken, once."""

    __slots__ = ("taken", "limit")

    def __init__(self, limit: int) -> None:
        super().__init__(None)
        self.taken, self.limit = 0, limit

    def elements(self) -> Any:
        for self.taken in range(1000):
            yield (np.int64(self.taken),)

    @property
    def stopped(self) -> bool:
        return self.taken >= self.limit

    def check(self) -> None:
        if self.stopped:
            self.limit = 1000
            raise tf.errors.DeadlineExceededError(None, None, "stopped")


@pytest.mark.parametrize("limit", [1, TURN, 2 * TURN + 5])
def test_the_step_after_a_deadline_goes_on_where_it_stopped(limit: int) -> None:
    for make, first in (
        (lambda stage, reading: Batch(stage, reading, 250, False), list(range(250))),
        (lambda stage, reading: Shard(stage, reading, 300, 299), 299),
    ):
        reading = _Stoppable(limit)
        stage = make(FunctionSource(lambda _, reading=reading: reading.elements()).open(reading), reading)
        with pytest.raises(tf.errors.DeadlineExceededError):
            next(stage)
        (value,) = next(stage)
        assert value.tolist() == first


def test_more_datasets_than_there_is_room_for_are_not_interleaved() -> None:
    dataset = numbers().interleave(lambda x: tf.data.Dataset.range(2), cycle_length=MORE)
    with tf.Session() as session, pytest.raises(tf.errors.ResourceExhaustedError, match="are free"):
        session.run(experimental.get_single_element(dataset.take(1)))


@pytest.mark.parametrize("shape", [[0], [1], [2]])
def test_a_vector_in_place_of_a_scalar_is_refused(shape: list[int]) -> None:
    counts = tf.placeholder_with_default(np.full(shape, 2), None)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="count must be a scalar"):
        session.run(experimental.get_single_element(numbers().take(counts)))


def test_a_name_in_place_of_a_function_is_refused() -> None:
    body: Any = "somebody's"
    with pytest.raises(tf.errors.InvalidArgumentError, match='has no function "somebody\'s"'):
        compiled(body, ResourceManager("c"), [])


def test_an_error_that_comes_with_the_end_of_the_reading_is_no_element() -> None:
    """A stage waits for an element of a queue; in one moment the queue is closed and the step of the reader ends."""
    requests, elements = (QueueState(name, -1, [tf.int64], [()]) for name in ("requests", "elements"))

    class Ending(Reading):
        def check(self) -> None:
            elements.close(FakeWait(), cancel_pending_enqueues=True)
            raise tf.errors.CancelledError(None, None, "the step has ended")

    kernel = kernel_for("_QueueDataset", "CPU")
    assert kernel is not None
    stage = kernel.function(requests, elements).open(Ending(None))
    with pytest.raises(StopIteration):
        next(stage)
