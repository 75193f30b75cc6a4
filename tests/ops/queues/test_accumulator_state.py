"""Accumulators of gradients as state objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.fake_wait import FakeWait
from tfmini import dtypes, errors
from tfmini.ops.queues.accumulator_state import DenseAccumulatorState, SparseAccumulatorState


def test_stale_gradients_are_dropped_and_counted() -> None:
    state = DenseAccumulatorState("a", dtypes.float32, (2,), "MEAN")
    wait = FakeWait()
    state.take_when(wait, 2)
    assert state.apply(0, np.array([1, 2], np.float32), who="w0")
    assert state.apply(0, np.array([3, 4], np.float32), who="w1")
    assert wait.value.tolist() == [2, 3] and wait.value.dtype == np.float32
    assert not state.apply(0, np.array([9, 9], np.float32), who="w1")
    found = state.statistics()
    assert (found["step"], found["applied"], found["stale"], found["taken"]) == (1, 2, 1, 1)
    assert found["applied_by"] == {"w0": 1, "w1": 1} and found["stale_by"] == {"w1": 1}
    with pytest.raises(errors.InvalidArgumentError, match=r"Shape mismatch: expected \[2\], got \[3\]"):
        state.apply(1, np.zeros(3, np.float32))


def test_accumulation_does_not_change_the_callers_array() -> None:
    state = DenseAccumulatorState("a", dtypes.float32, None, "SUM")
    first = np.array([1, 2], np.float32)
    first.flags.writeable = False
    for _ in range(3):
        state.apply(0, first)
    wait = FakeWait()
    state.take_when(wait, 3)
    assert wait.value.tolist() == [3, 6] and first.tolist() == [1, 2]


def test_the_mean_of_sparse_gradients_is_per_row() -> None:
    state = SparseAccumulatorState("a", dtypes.float32, (4, 1), "MEAN")
    state.apply(0, (np.array([0, 2]), np.array([[1], [2]], np.float32), None))
    state.apply(0, (np.array([2, 3]), np.array([[4], [5]], np.float32), np.array([4, 1])))
    wait = FakeWait()
    state.take_when(wait, 2)
    indices, values, shape = wait.value
    assert indices.tolist() == [0, 2, 3] and values.ravel().tolist() == [1, 3, 5] and shape.tolist() == [4, 1]
    with pytest.raises(errors.InvalidArgumentError, match="index of slice 0 exceeded limits of shape; index is 4"):
        state.apply(9, (np.array([4]), np.ones((1, 1), np.float32), None))


class Session:
    """Stands for the resources of a session."""


def test_a_renewed_accumulator_has_no_gradients_and_refuses_the_sessions_before() -> None:
    state = DenseAccumulatorState("a", dtypes.float32, (), "MEAN")
    old, new = Session(), Session()
    state.users.add(old)
    state.set_step(7)
    state.apply(7, np.float32(9), "w0", old)
    wait = FakeWait()
    state.take_when(wait, 2, old)
    state.renew(3)
    with pytest.raises(errors.AbortedError, match="'a' was emptied: the chief has initialised or restored the model"):
        _ = wait.value
    state.users.add(old)  # as when its program is bound again
    state.users.add(new)
    for call in (lambda: state.apply(8, np.float32(9), "w0", old), lambda: state.take_when(FakeWait(), 1, old)):
        with pytest.raises(errors.AbortedError):
            call()
    assert state.apply(3, np.float32(1), "w0", new)
    assert (state.step, state.count) == (3, 1)
    entries = state.ledger.as_plain()["entries"]
    assert [(e["step"], e["accepted"], e["stale"]) for e in entries] == [(7, {}, {"w0": 1}), (3, {"w0": 1}, {})]


@pytest.mark.parametrize("kind", [tf.ConditionalAccumulator, tf.SparseConditionalAccumulator])
@pytest.mark.parametrize("dtype", [tf.int32, tf.uint8])
def test_accumulators_of_integers_are_refused_as_in_tensorflow(kind: Any, dtype: Any) -> None:
    taken = kind(dtype).take_grad(1)
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="No OpKernel was registered"):
        session.run(taken)
