"""Each wait of the ops, each way of ending it, on the state objects: no session, no threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.ops.queue_calls import KINDS, full, put, queue_of, take
from tests.ops.waits import PENDING, FakeWait
from tfmini import dtypes, errors
from tfmini.ops.accumulator_state import DenseAccumulatorState, SparseAccumulatorState
from tfmini.ops.barrier import BarrierState
from tfmini.ops.mutex import MutexState
from tfmini.ops.queue_state import QueueState
from tfmini.ops.reader_kinds import IdentityReaderState
from tfmini.ops.staging_state import MapStageState, StageState


class Case(NamedTuple):
    """A wait, what ends it well, and how it is dropped with its container.

    Attributes:
      begin: makes the state; returns (state, function that starts a wait).
      satisfy: makes the answer possible.
    """

    begin: Callable[[], tuple[Any, Callable[[FakeWait], None]]]
    satisfy: Callable[[Any], None]


def _queue_cases(kind: type[QueueState]) -> dict[str, Case]:
    one = [np.int64(7), np.int64(7)]
    return {
        "enqueue": Case(lambda: (q := full(kind), lambda w: q.enqueue(w, one)), take),
        "enqueue_many": Case(
            lambda: (q := full(kind), lambda w: q.enqueue_many(w, [np.array([7]), np.array([7])])), take
        ),
        "dequeue": Case(lambda: (q := queue_of(kind), q.dequeue), lambda q: put(q, 1)),
        "dequeue_many": Case(
            lambda: (q := queue_of(kind), lambda w: q.dequeue_many(w, 2, False)), lambda q: put(q, 1, 2)
        ),
        "dequeue_up_to": Case(
            lambda: (q := queue_of(kind), lambda w: q.dequeue_many(w, 2, True)), lambda q: put(q, 1, 2)
        ),
        "close": Case(lambda: (q := _blocked_enqueue(kind), lambda w: q.close(w, False)), take),
    }


def _blocked_enqueue(kind: type[QueueState]) -> QueueState:
    queue = full(kind)
    put(queue, 3)
    return queue


def _stage_full() -> StageState:
    area = StageState("s", 1, 0)
    area.put(FakeWait(), [np.int64(1)])
    return area


def _map_full() -> MapStageState:
    area = MapStageState("m", 1, 0, 1, ordered=False)
    area.put(FakeWait(), 1, [0], [np.int64(1)])
    return area


def _mutex() -> MutexState:
    mutex = MutexState("m")
    mutex.held = FakeWait()  # type: ignore[attr-defined]
    mutex.acquire(mutex.held)  # type: ignore[attr-defined]
    return mutex


def _accumulate(state: Any) -> None:
    gradient = np.ones(2, np.float32)
    sparse = (np.array([0]), np.ones((1, 2), np.float32), None)
    state.apply(0, sparse if isinstance(state, SparseAccumulatorState) else gradient)


def _complete(barrier: BarrierState) -> None:
    barrier.insert_many(0, np.array([b"k"], object), np.array([1]))


def _reader() -> tuple[Any, Callable[[FakeWait], None]]:
    reader, queue = IdentityReaderState("r"), QueueState("q", -1, [dtypes.string], [()])
    reader.queue = queue  # type: ignore[attr-defined]
    return reader, lambda w: reader.read_records(w, queue, 1, at_once=True)


def _feed_reader(reader: Any) -> None:
    reader.queue.enqueue(FakeWait(), [b"unit"])


CASES: dict[str, Case] = {f"{k.kind}.{name}": case for k in KINDS for name, case in _queue_cases(k).items()} | {
    "accumulator.take": Case(
        lambda: (s := DenseAccumulatorState("a", dtypes.float32, (2,), "MEAN"), lambda w: s.take_when(w, 1)),
        _accumulate,
    ),
    "sparse_accumulator.take": Case(
        lambda: (s := SparseAccumulatorState("a", dtypes.float32, (3, 2), "MEAN"), lambda w: s.take_when(w, 1)),
        _accumulate,
    ),
    "barrier.take_many": Case(
        lambda: (b := BarrierState("b", [dtypes.int64], [()]), lambda w: b.take_many(w, 1, False)), _complete
    ),
    "stage.put": Case(
        lambda: (s := _stage_full(), lambda w: s.put(w, [np.int64(2)])), lambda s: s.get(FakeWait(), 1)
    ),
    "stage.get": Case(
        lambda: (s := StageState("s", 0, 0), lambda w: s.get(w, 1)), lambda s: s.put(FakeWait(), [np.int64(1)])
    ),
    "stage.peek": Case(
        lambda: (s := StageState("s", 0, 0), lambda w: s.peek(w, 0, 1)), lambda s: s.put(FakeWait(), [np.int64(1)])
    ),
    "map_stage.put": Case(
        lambda: (m := _map_full(), lambda w: m.put(w, 2, [0], [np.int64(2)])),
        lambda m: m.get(FakeWait(), 1, [0], remove=True),
    ),
    "map_stage.get": Case(
        lambda: (m := MapStageState("m", 0, 0, 1, False), lambda w: m.get(w, 5, [0], True)),
        lambda m: m.put(FakeWait(), 5, [0], [np.int64(1)]),
    ),
    "map_stage.peek": Case(
        lambda: (m := MapStageState("m", 0, 0, 1, False), lambda w: m.get(w, 5, [0], False)),
        lambda m: m.put(FakeWait(), 5, [0], [np.int64(1)]),
    ),
    "map_stage.get_any": Case(
        lambda: (m := MapStageState("m", 0, 0, 1, True), lambda w: m.get_any(w, [0])),
        lambda m: m.put(FakeWait(), 5, [0], [np.int64(1)]),
    ),
    "mutex.lock": Case(lambda: (m := _mutex(), m.acquire), lambda m: m.held.value.release()),
    "reader.read": Case(_reader, _feed_reader),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wait_is_answered_once_it_can_be(name: str) -> None:
    state, start = CASES[name].begin()
    wait = FakeWait()
    start(wait)
    assert wait.is_pending and wait.cause
    CASES[name].satisfy(state)
    assert wait.value is not PENDING


@pytest.mark.parametrize("name", CASES)
def test_a_wait_whose_step_ends_is_forgotten_and_the_next_one_served(name: str) -> None:
    state, start = CASES[name].begin()
    gone, stays = FakeWait(), FakeWait()
    start(gone)
    start(stays)
    gone.end_step()
    CASES[name].satisfy(state)
    assert gone.is_pending
    assert stays.value is not PENDING


@pytest.mark.parametrize("name", CASES)
def test_a_wait_of_a_step_that_has_ended_already_takes_nothing(name: str) -> None:
    state, start = CASES[name].begin()
    over, stays = FakeWait(), FakeWait()
    over.ended = True
    start(over)
    start(stays)
    CASES[name].satisfy(state)
    assert over.is_pending
    assert stays.value is not PENDING


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("mutex")])
def test_a_wait_on_what_is_dropped_is_cancelled(name: str) -> None:
    state, start = CASES[name].begin()
    wait = FakeWait()
    start(wait)
    (state.queue if name.startswith("reader") else state).clear()
    with pytest.raises(errors.CancelledError, match="deleted by a reset"):
        _ = wait.value


# ---- other state ----------------------------------------------------------------------------


def test_accumulator_drops_stale_gradients_and_counts() -> None:
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


def test_accumulated_gradient_does_not_change_what_was_given() -> None:
    state = DenseAccumulatorState("a", dtypes.float32, None, "SUM")
    first = np.array([1, 2], np.float32)
    first.flags.writeable = False
    for _ in range(3):
        state.apply(0, first)
    wait = FakeWait()
    state.take_when(wait, 3)
    assert wait.value.tolist() == [3, 6] and first.tolist() == [1, 2]


def test_sparse_mean_is_per_row() -> None:
    state = SparseAccumulatorState("a", dtypes.float32, (4, 1), "MEAN")
    state.apply(0, (np.array([0, 2]), np.array([[1], [2]], np.float32), None))
    state.apply(0, (np.array([2, 3]), np.array([[4], [5]], np.float32), np.array([4, 1])))
    wait = FakeWait()
    state.take_when(wait, 2)
    indices, values, shape = wait.value
    assert indices.tolist() == [0, 2, 3] and values.ravel().tolist() == [1, 3, 5] and shape.tolist() == [4, 1]
    with pytest.raises(errors.InvalidArgumentError, match="index of slice 0 exceeded limits of shape; index is 4"):
        state.apply(9, (np.array([4]), np.ones((1, 1), np.float32), None))


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


def test_a_lost_lock_token_frees_the_mutex() -> None:
    mutex = MutexState("m")
    first, second = FakeWait(), FakeWait()
    mutex.acquire(first)
    mutex.acquire(second)
    first.answers.clear()  # the step failed: nothing refers to the token any more
    assert second.value is not PENDING


def test_memory_limit_of_a_staging_area() -> None:
    area = StageState("s", 0, 16)
    area.put(FakeWait(), [np.zeros(2)])
    wait = FakeWait()
    area.put(wait, [np.zeros(1)])
    assert wait.is_pending
    area.empty()
    assert wait.value == ()
    with pytest.raises(errors.ResourceExhaustedError, match="combined size of '24' bytes"):
        area.put(FakeWait(), [np.zeros(3)])


def test_reads_take_turns_and_a_cancelled_one_lets_the_next_begin() -> None:
    reader, start = _reader()
    first, second = FakeWait(), FakeWait()
    start(first)
    start(second)
    first.end_step()
    _feed_reader(reader)
    assert second.value == [(b"unit", b"unit")]
    assert (reader.produced, reader.units_finished) == (1, 1)
