"""Clocks of workers."""

from __future__ import annotations

import pytest

from tests.ops.fake_wait import FakeWait
from tfmini import errors
from tfmini.ops.queues.clocks import ClocksState


def go_on(clocks: ClocksState, worker: int, staleness: int) -> FakeWait:
    wait = FakeWait()
    clocks.go_on_when(wait, worker, staleness)
    return wait


def test_a_worker_goes_on_when_the_slowest_is_near_enough() -> None:
    clocks = ClocksState("c", 3)
    for _ in range(3):
        clocks.tick(0)
    clocks.tick(1)
    wait = go_on(clocks, 0, staleness=2)
    assert wait.is_pending and wait.cause == 'worker 2 (0 ended) to end 1 round, in clocks "c"'
    assert go_on(clocks, 1, staleness=1).value == 0
    clocks.tick(2)
    assert wait.value == 1


def test_waiting_workers_do_not_wait_for_each_other() -> None:
    clocks = ClocksState("c", 3)
    clocks.tick(0), clocks.tick(0), clocks.tick(1)
    far, near = go_on(clocks, 0, staleness=0), go_on(clocks, 1, staleness=0)
    clocks.tick(2)
    assert far.is_pending and near.value == 1  # the one that came later needs less


def test_who_leaves_holds_nobody_up_and_enters_beside_the_slowest() -> None:
    clocks = ClocksState("c", 3)
    for _ in range(5):
        clocks.tick(0), clocks.tick(1)
    wait = go_on(clocks, 0, staleness=1)
    clocks.leave(2)
    assert wait.value == 5
    with pytest.raises(errors.InvalidArgumentError, match="worker 2 has left"):
        clocks.tick(2)
    assert clocks.enter(2) == 5
    assert clocks.enter(1) == 5  # one that was killed goes on where it was


def test_who_joins_is_awaited_from_then_on_and_not_in_the_next_run() -> None:
    clocks = ClocksState("c", 1)
    clocks.tick(0), clocks.tick(0)
    clocks.admit(3), clocks.admit(2)
    assert clocks.workers == 3 and go_on(clocks, 0, staleness=0).value == 2
    assert clocks.enter(2) == 2
    clocks.tick(0)
    wait = go_on(clocks, 0, staleness=0)
    assert wait.is_pending and wait.cause == 'worker 2 (2 ended) to end 3 rounds, in clocks "c"'
    clocks.leave(2), clocks.leave(0)
    assert clocks.ended == [0]


def test_a_round_may_be_told_twice() -> None:
    clocks = ClocksState("c", 2)
    clocks.reach(0, 1), clocks.reach(0, 1)
    assert clocks.ended == [1, 0]
    clocks.leave(0)
    clocks.reach(0, 2)
    assert clocks.ended == [2, 0]


def test_when_all_have_left_the_next_run_begins_as_the_first_one() -> None:
    clocks = ClocksState("c", 2)
    for worker in (0, 1):
        clocks.tick(worker)
        clocks.leave(worker)
    clocks.tick(0)
    assert go_on(clocks, 0, staleness=0).is_pending  # worker 1 has not begun


def test_a_reset_of_the_container_ends_the_waits() -> None:
    clocks = ClocksState("c", 2)
    clocks.tick(0)
    wait = go_on(clocks, 0, staleness=0)
    clocks.clear()
    with pytest.raises(errors.CancelledError, match='"c" were deleted'):
        _ = wait.value
