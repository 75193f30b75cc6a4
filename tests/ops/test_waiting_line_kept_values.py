"""State that outlives a step owns its values: no fed buffer and no borrowed memory stays in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.fake_wait import FakeWait
from tfmini import dtypes
from tfmini.ops.queues.accumulator_state import DenseAccumulatorState, SparseAccumulatorState
from tfmini.ops.queues.barrier import Barrier
from tfmini.ops.queues.queue_state import QueueState
from tfmini.ops.queues.staging import MapStagingArea, StagingArea
from tfmini.ops.queues.staging_state import MapStageState, StageState
from tfmini.ops.sparse.serialization import SparseMap, add_sparse, take_many_sparse
from tfmini.ops.waiting_line import own

# placeholder [1, 2] and its reshape [2] -> (the op that keeps one of them, what returns the first element)
Store = Callable[[Any, Any], tuple[Any, Any]]


def _queue(fed: Any, flat: Any) -> tuple[Any, Any]:
    queue = tf.FIFOQueue(5, [tf.float32, tf.float32])
    return queue.enqueue([flat, flat]), queue.dequeue()


def _rows(fed: Any, flat: Any) -> tuple[Any, Any]:
    queue = tf.RandomShuffleQueue(5, 0, [tf.float32], shapes=[[2]])
    return queue.enqueue_many([tf.reshape(flat, [1, 2])]), queue.dequeue()


def _stage(fed: Any, flat: Any) -> tuple[Any, Any]:
    area = StagingArea([tf.float32, tf.float32])
    return area.put([flat, flat]), area.get()


def _map_stage(fed: Any, flat: Any) -> tuple[Any, Any]:
    area = MapStagingArea([tf.float32, tf.float32])
    return area.put(1, [flat, flat], [0, 1]), area.get(1)[1]


def _accumulator(fed: Any, flat: Any) -> tuple[Any, Any]:
    accumulator = tf.ConditionalAccumulator(tf.float32)
    return accumulator.apply_grad(flat), accumulator.take_grad(1)


def _accumulator_without_ops(fed: Any, flat: Any) -> tuple[Any, Any]:
    accumulator = tf.ConditionalAccumulator(tf.float32)
    return accumulator.apply_grad(fed), accumulator.take_grad(1)


def _sparse_accumulator(fed: Any, flat: Any) -> tuple[Any, Any]:
    accumulator = tf.SparseConditionalAccumulator(tf.float32)
    return accumulator.apply_grad([0], fed), accumulator.take_grad(1).values


def _barrier(fed: Any, flat: Any) -> tuple[Any, Any]:
    barrier = Barrier([tf.float32], shapes=[[2]])
    return barrier.insert_many(0, ["k"], fed), barrier.take_many(1)[2]


def _table(fed: Any, flat: Any) -> tuple[Any, Any]:
    table = tf.contrib.lookup.MutableHashTable(tf.int64, tf.float32, [0.0, 0.0])
    return table.insert([1], fed), table.lookup([1])


def _variable(fed: Any, flat: Any) -> tuple[Any, Any]:
    variable = tf.Variable([0.0, 0.0])
    return variable.assign(flat), variable


def _sparse_map(fed: Any, flat: Any) -> tuple[Any, Any]:
    number = add_sparse([[0], [1]], flat, [2], shared_name="kept")
    return number, take_many_sparse([0], dtype=tf.float32, shared_name="kept").sparse_values


def _dataset(fed: Any, flat: Any) -> tuple[Any, Any]:
    iterator = tf.data.Dataset.from_tensors(flat).make_initializable_iterator()
    return iterator.initializer, iterator.get_next()


def _captured(fed: Any, flat: Any) -> tuple[Any, Any]:
    iterator = tf.data.Dataset.range(1).map(lambda _: flat + 0).make_initializable_iterator()
    return iterator.initializer, iterator.get_next()


def _sparse_dataset(fed: Any, flat: Any) -> tuple[Any, Any]:
    sparse = tf.SparseTensor([[0, 0], [0, 1]], flat, [1, 2])
    iterator = tf.data.Dataset.from_tensors(sparse).make_initializable_iterator()
    return iterator.initializer, iterator.get_next().values


@pytest.mark.parametrize(
    "store",
    [
        _queue, _rows, _stage, _map_stage, _accumulator, _accumulator_without_ops, _sparse_accumulator, _barrier,
        _table, _variable, _sparse_map, _dataset, _captured, _sparse_dataset,
    ],
)  # fmt: skip
def test_a_fed_buffer_may_be_used_again(store: Store) -> None:
    fed = tf.placeholder(tf.float32, [1, 2])
    keep, take = store(fed, tf.reshape(fed, [2]))
    buffer = np.ones((1, 2), np.float32)
    with tf.Session() as session:
        session.run(keep, {fed: buffer})
        buffer[:] = 99
        found = session.run(take)
    for value in found if isinstance(found, (list, tuple)) else [found]:
        assert np.ravel(value).tolist() == [1, 1]


def _kept_in_states(value: Any) -> list[Any]:
    """The arrays of state objects after each has been given an array."""
    queue = QueueState("q", 9, [dtypes.float32], [])
    queue.enqueue(FakeWait(), [value])
    staged, mapped = StageState("s", 0, 0), MapStageState("m", 0, 0, 1, False)
    staged.put(FakeWait(), [value])
    mapped.put(FakeWait(), 1, [0], [value])
    dense, sparse = (
        kind("a", dtypes.float32, None, "MEAN") for kind in (DenseAccumulatorState, SparseAccumulatorState)
    )
    dense.apply(0, value)
    sparse.apply(0, (np.arange(len(value)), value, None))
    sparse_map = SparseMap()
    sparse_map.add(np.zeros((2, 1), np.int64), value, np.array([2]))
    parts = [queue._elements[0][0], staged._tuples[0][0], mapped.complete[1][0], dense._sum, sparse._values]
    return [*parts, sparse_map._tensors[0][1]]


def test_state_keeps_no_memory_of_another_task() -> None:
    borrowed = np.frombuffer(bytearray(8), np.float32)
    for kept in _kept_in_states(borrowed):
        assert kept.base is None and not np.shares_memory(kept, borrowed)


def test_state_keeps_an_array_of_the_runtime_without_a_copy() -> None:
    private = np.ones(2, np.float32)
    for kept in _kept_in_states(private):
        assert kept is private


def test_scalars_and_strings_are_kept_as_they_are() -> None:
    for value in (np.float32(1), b"text", object()):
        assert own(value) is value
