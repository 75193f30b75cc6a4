"""Stages that take elements without an end for one of their own: they end with the step, and lose nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.fake_wait import FakeWait
from tfmini.data.pipeline import TURN, FunctionSource, GeneratorStage, Reading, Source, compiled
from tfmini.data.stages import Batch, Shard
from tfmini.graph.op_types import kernel_for
from tfmini.ops.queues.queue_state import QueueState
from tfmini.runtime.resources import ResourceManager

Dataset = tf.data.Dataset

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


class Varying(Source):
    """A source whose epochs have other lengths; it is not opened the first ``failures`` times after the first epoch."""

    def __init__(self, lengths: list[int], failures: int = 0) -> None:
        super().__init__(self.begin)
        self.left, self.failures, self.is_first = lengths, failures, True

    def begin(self, _: Reading) -> GeneratorStage:
        if self.failures and not self.is_first:
            self.failures -= 1
            raise tf.errors.UnavailableError(None, None, "not now")
        self.is_first = False
        return GeneratorStage(iter([(i,) for i in range(self.left.pop(0))]))


def shuffled_and_repeated(source: Source, size: int, epochs: int) -> Any:
    """The stage of `Dataset.shuffle` and `repeat`, which is one."""
    shuffle, repeat = (kernel_for(f"{name}Dataset", "CPU") for name in ("Shuffle", "Repeat"))
    assert shuffle is not None and repeat is not None
    dataset = shuffle.function(source, np.int64(size), np.int64(1), np.int64(2), reshuffle_each_iteration=True)
    return repeat.function(dataset, np.int64(epochs)).open(Reading(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_epochs_without_elements_end_no_shuffled_dataset(size: int) -> None:
    lengths = [0, 2, 0, 0, 3, 1, 1, 1, 2, 0]
    stage = shuffled_and_repeated(Varying(list(lengths)), size, len(lengths))
    found = [element[0] for element in stage]
    expected = iter(found)
    for length in lengths:  # the epochs do not mix
        assert sorted(next(expected) for _ in range(length)) == list(range(length))
    assert len(found) == sum(lengths)


def test_a_shuffled_dataset_goes_on_after_an_epoch_that_could_not_begin() -> None:
    stage = shuffled_and_repeated(Varying([2] * 5, failures=2), 1, -1)
    found: list[Any] = []
    while len(found) < 8:
        try:
            found.append(next(stage)[0])
        except tf.errors.UnavailableError:
            found.append("error")
    assert [sorted(found[:2]), found[2:4], sorted(found[4:6]), sorted(found[6:])] == [
        [0, 1],
        ["error"] * 2,
        [0, 1],
        [0, 1],
    ]


def test_the_buffer_of_a_shuffled_dataset_has_room_for_what_is_there() -> None:
    stage = shuffled_and_repeated(Varying([10] * 2000), 10**9, 2000)
    assert sum(1 for _ in stage) == 20_000
    assert len(stage.buffer) <= 64


def test_rows_of_other_sizes_are_told_as_by_the_op_of_a_map_and_a_batch() -> None:
    rows = Dataset.from_generator(lambda: iter([[1], [2], [[4, 5, 6]]]), tf.int32)
    for made in (rows.map(tf.negative).batch(4), rows.apply(tf.data.experimental.map_and_batch(tf.negative, 4))):
        element = made.make_one_shot_iterator().get_next()
        with (
            tf.Session() as session,
            pytest.raises(tf.errors.InvalidArgumentError, match="number of elements does not"),
        ):
            session.run(element)
    element = rows.batch(4).make_one_shot_iterator().get_next()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="with different shapes"):
        session.run(element)


def test_a_padded_shape_that_a_step_refuses() -> None:
    sizes = tf.constant([5], tf.int64) * -1
    element = Dataset.from_tensors([1, 2]).padded_batch(2, sizes).make_one_shot_iterator().get_next()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError):
        session.run(element)


def test_random_ops_that_take_the_seed_of_the_graph_around_give_a_warning() -> None:
    tf.set_random_seed(10)
    with pytest.warns(UserWarning, match="Seed 10 from outer graph might be getting used by function"):
        Dataset.range(4).map(lambda x: x + tf.cast(tf.random_uniform([]), tf.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Dataset.range(4).map(tf.negative)
        Dataset.range(4).map(lambda x: x + tf.cast(tf.random_uniform([], seed=3), tf.int64))


def test_a_tensor_array_is_no_state_of_a_scan() -> None:
    start = tf.TensorArray(tf.int64, size=1, element_shape=[])
    with pytest.raises(TypeError, match="A TensorArray cannot be the state"):
        Dataset.range(2).apply(tf.data.experimental.scan(start, lambda state, x: (state, x)))
    with pytest.raises(TypeError, match="A TensorArray cannot be the state"):
        Dataset.range(2).reduce(start, lambda state, x: state)
