"""Attempts that fail, are interrupted, or whose step ends before the answer: nothing is lost, no other step fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.fake_wait import FakeWait
from tests.ops.queues.queue_calls import KINDS, put, queue_of, take, take_many
from tfmini import dtypes, errors
from tfmini.graph.op_types import Wait
from tfmini.ops.queues.accumulator_state import DenseAccumulatorState, SparseAccumulatorState
from tfmini.ops.queues.barrier import MutexState
from tfmini.ops.queues.queue_state import QueueState
from tfmini.ops.queues.staging_state import MapStageState, StageState
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState


class _Deaf(FakeWait):
    """A wait whose step ends between the last element and the answer."""

    def done(self, result: Any = None) -> bool:
        self.ended = True
        return False


class _Interrupted(FakeWait):
    """A wait in which Ctrl-C arrives."""

    def done(self, result: Any = None) -> bool:
        super().done(result)
        raise KeyboardInterrupt

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        raise KeyboardInterrupt


class _Gate(WaitingState):
    """An object whose attempts run functions, once it is open."""

    def __init__(self) -> None:
        super().__init__(1)
        self.is_open = False
        self.given_back: list[Any] = []

    def open(self) -> None:
        self.is_open = True
        self.changed()


class _Passage(Attempt):
    def __init__(self, gate: _Gate, function: Callable[[], Any], wait: Wait) -> None:
        super().__init__(wait)
        self.gate, self.function = gate, function

    def cause(self) -> str:
        return "the gate"

    def advance(self) -> int:
        if not self.gate.is_open:
            return STUCK
        self.result = self.function()
        return OVER

    def give_back(self) -> None:
        self.gate.given_back.append(self.result)


def _passing(gate: _Gate, function: Callable[[], Any], wait: FakeWait | None = None) -> FakeWait:
    wait = wait or FakeWait()
    gate.submit(gate.lines[0], _Passage(gate, function, wait))
    return wait


def _raise(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (KeyError("no such"), errors.InternalError),
        (MemoryError("no room"), errors.ResourceExhaustedError),
        (errors.InvalidArgumentError.of("bad"), errors.InvalidArgumentError),
    ],
)
def test_an_exception_of_an_attempt_ends_its_own_step_only(raised: Exception, expected: type[Exception]) -> None:
    gate = _Gate()
    before, bad, after = _passing(gate, lambda: 1), _passing(gate, _raise(raised)), _passing(gate, lambda: 2)
    gate.open()
    assert (before.value, after.value) == (1, 2)
    with pytest.raises(expected, match=str(raised) if isinstance(raised, (KeyError, MemoryError)) else "bad"):
        _ = bad.value
    assert gate.given_back == [()]


def test_an_answer_without_memory_for_the_batch_loses_no_element(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(capacity=10)
    batch, behind = take_many(queue, 3), take_many(queue, 2)
    full, put_back = QueueState.as_batch, []

    def scarce(self: QueueState, elements: list[Any]) -> Any:
        put_back.append(len(elements))
        if len(put_back) == 1:
            raise MemoryError
        return full(self, elements)

    monkeypatch.setattr(QueueState, "as_batch", scarce)
    assert put(queue, 1, 2, 3).value == ()
    with pytest.raises(errors.ResourceExhaustedError, match="out of memory"):
        _ = batch.value
    assert behind.value[0].tolist() == [1, 2] and take(queue).value[0] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_element_whose_step_ends_before_the_answer_goes_to_the_next_one(kind: type[QueueState]) -> None:
    queue = queue_of(kind, capacity=5)
    queue.dequeue(_Deaf())
    queue.dequeue_many(_Deaf(), 2, False)
    next_one = take(queue)
    put(queue, 7, 8)
    assert next_one.value[0] in (7, 8)
    assert queue.size() == 1


def test_a_tuple_of_a_staging_area_goes_back_if_its_step_has_ended() -> None:
    area = StageState("s", 0, 100)
    area.put(FakeWait(), [np.ones(2)])
    area.get(_Deaf(), 1)
    assert area.size() == 1 and area.bytes == 16
    keyed = MapStageState("m", 0, 0, 2, False)
    for key in (1, 2):
        keyed.put(FakeWait(), key, [0, 1], [np.float32(key), np.float32(0)])
    keyed.get(_Deaf(), 1, [0], remove=True)
    keyed.get(_Deaf(), 1, [0, 1], remove=True)
    keyed.get_any(_Deaf(), [0, 1])
    assert sorted(keyed.complete) == [1, 2] and keyed.bytes == 16
    assert None not in keyed.complete[1] + keyed.complete[2]


@pytest.mark.parametrize("reduction", ["MEAN", "SUM"])
def test_gradients_whose_step_ends_before_the_answer_go_to_the_next_mean(reduction: str) -> None:
    dense = DenseAccumulatorState("d", dtypes.float32, (2,), reduction)
    sparse = SparseAccumulatorState("s", dtypes.float32, (4, 1), reduction)
    gradients = {
        dense: [np.float32([1, 2]), np.float32([3, 6])],
        sparse: [(np.array([0, 2]), np.float32([[1], [2]]), None), (np.array([2]), np.float32([[4]]), None)],
    }
    for state, (first, second) in gradients.items():
        state.take_when(_Deaf(), 2)
        state.apply(0, first, who="w0")
        state.apply(0, second, who="w1")
        assert (state.step, state.count, state.taken) == (0, 2, 0) and state.ledger.waiting() == {"w0", "w1"}
        wait = FakeWait()
        state.take_when(wait, 2)
        found = wait.value if state is dense else wait.value[1].ravel()
        wanted = np.array([4, 8] if state is dense else [1, 6])
        counts = np.array([2, 2] if state is dense else [1, 2]) if reduction == "MEAN" else 1
        np.testing.assert_allclose(found, wanted / counts)
        assert (state.step, state.count, state.taken) == (1, 0, 1) and not state.ledger.waiting()


def test_a_mutex_whose_step_has_ended_goes_to_the_next_one() -> None:
    mutex = MutexState("m")
    mutex.acquire(_Deaf())
    wait = FakeWait()
    mutex.acquire(wait)
    assert not wait.is_pending and mutex.is_locked


def test_ctrl_c_while_an_attempt_is_stored_does_not_block_the_line() -> None:
    queue = queue_of()
    with pytest.raises(KeyboardInterrupt):
        queue.dequeue(_Interrupted())
    behind = take(queue)
    put(queue, 1)
    assert behind.value[0] == 1


def test_ctrl_c_in_one_answer_leaves_the_other_answers() -> None:
    gate = _Gate()
    first, second = FakeWait(), FakeWait()
    _passing(gate, lambda: 1, first)
    first.done = _Interrupted().done  # type: ignore[method-assign]
    _passing(gate, lambda: 2, second)
    with pytest.raises(KeyboardInterrupt):
        gate.open()
    assert second.value == 2


def test_ctrl_c_in_an_attempt_of_another_step_leaves_what_has_finished() -> None:
    gate = _Gate()
    before, _ = _passing(gate, lambda: 1), _passing(gate, _raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        gate.open()
    assert before.value == 1


def test_a_mean_without_memory_leaves_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    state = DenseAccumulatorState("a", dtypes.float32, None, "MEAN")
    gradient = np.ones(2, np.float32)
    for _ in range(2):
        state.apply(0, gradient)
    with monkeypatch.context() as patch:
        patch.setattr(DenseAccumulatorState, "_reduced", lambda self: _raise(MemoryError())())
        wait = FakeWait()
        state.take_when(wait, 2)
    with pytest.raises(errors.ResourceExhaustedError):
        _ = wait.value
    assert (state.step, state.count, state.taken) == (0, 2, 0)
    wait = FakeWait()
    state.take_when(wait, 2)
    assert wait.value.tolist() == [1, 1]
