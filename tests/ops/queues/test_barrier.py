"""Barriers as state objects."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.fake_wait import FakeWait
from tfmini import dtypes, errors
from tfmini.ops.queues.barrier import Barrier, BarrierState


def test_barrier_gives_tuples_by_the_age_of_their_first_part() -> None:
    barrier = BarrierState("b", [dtypes.int64, dtypes.string], [(), ()])
    keys = np.array([b"x", b"y"], object)
    barrier.insert_many(0, keys, np.array([1, 2]))
    barrier.insert_many(0, np.array([b"z"], object), np.array([3]))
    wait = FakeWait()
    barrier.take_many(wait, 3, False)
    barrier.insert_many(1, np.array([b"z"], object), np.array([b"c"], object))
    with pytest.raises(errors.InvalidArgumentError, match="Key x already has a value for component 0 in barrier b"):
        barrier.insert_many(0, keys[:1], np.array([1]))
    barrier.close(False)
    with pytest.raises(errors.CancelledError, match="brand new key: w"):
        barrier.insert_many(0, np.array([b"w"], object), np.array([1]))
    barrier.insert_many(1, keys, np.array([b"a", b"b"], object))
    indices, found, numbers, letters = wait.value
    assert found.tolist() == [b"x", b"y", b"z"] and numbers.tolist() == [1, 2, 3] and indices[0] == -(2**63)
    assert letters.tolist() == [b"a", b"b", b"c"]


def test_closing_a_barrier_ends_takes_that_cannot_be_satisfied() -> None:
    barrier = BarrierState("b", [dtypes.int64], [()])
    wait = FakeWait()
    barrier.take_many(wait, 1, False)
    barrier.close(True)
    with pytest.raises(errors.OutOfRangeError, match="is closed and has insufficient elements"):
        _ = wait.value
    with pytest.raises(errors.OutOfRangeError, match=r"Barrier 'b' is closed.*requested 3, total size 0"):
        barrier.take_many(FakeWait(), 3, False)


def test_a_barrier_of_other_components_than_a_node_says_is_refused() -> None:
    barrier = Barrier([tf.float32], shapes=[[]])
    take = tf.raw_ops.BarrierTakeMany(
        handle=barrier.barrier_ref, num_elements=1, component_types=[tf.float32, tf.int32], allow_small_batch=True
    )
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="float, not float, int"):
        session.run(take)
