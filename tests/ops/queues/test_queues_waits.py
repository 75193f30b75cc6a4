"""Each wait of the ops, each way of ending it, on the state objects: no session, no threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.ops.fake_wait import PENDING, FakeWait
from tests.ops.queues.queue_calls import KINDS, full, put, queue_of, take
from tfmini import dtypes, errors
from tfmini.ops.io.reader_state import IdentityReaderState
from tfmini.ops.queues.accumulator_state import DenseAccumulatorState, SparseAccumulatorState
from tfmini.ops.queues.barrier import BarrierState, MutexState
from tfmini.ops.queues.queue_state import QueueState
from tfmini.ops.queues.staging_state import MapStageState, StageState


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
    "stage.put": Case(lambda: (s := _stage_full(), lambda w: s.put(w, [np.int64(2)])), lambda s: s.get(FakeWait(), 1)),
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
def test_when_a_step_ends_its_wait_is_forgotten_and_the_next_is_served(name: str) -> None:
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
def test_a_wait_is_cancelled_when_its_container_is_reset(name: str) -> None:
    state, start = CASES[name].begin()
    wait = FakeWait()
    start(wait)
    (state.queue if name.startswith("reader") else state).clear()
    with pytest.raises(errors.CancelledError, match="deleted by a reset"):
        _ = wait.value


# ---- readers --------------------------------------------------------------------------------


def test_reads_take_turns_and_a_cancelled_one_lets_the_next_begin() -> None:
    reader, start = _reader()
    first, second = FakeWait(), FakeWait()
    start(first)
    start(second)
    first.end_step()
    _feed_reader(reader)
    assert second.value == [(b"unit", b"unit")]
    assert (reader.produced, reader.units_finished) == (1, 1)
