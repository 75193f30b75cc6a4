"""Clocks and rounds of workers."""

from __future__ import annotations

import pytest

from tests.ops.fake_wait import FakeWait
from tfmini import errors
from tfmini.ops.queues.pace import ClocksState, RoundsState


def go_on(clocks: ClocksState, worker: int, staleness: int) -> FakeWait:
    wait = FakeWait()
    clocks.go_on_when(wait, worker, staleness)
    return wait


def arrive(rounds: RoundsState, worker: int, ended: int = 0) -> FakeWait:
    wait = FakeWait()
    rounds.arrive(wait, worker, ended)
    return wait


def leads(wait: FakeWait) -> bool:
    return bool(wait.value[0])


def end(rounds: RoundsState, leader: FakeWait) -> None:
    assert leader.value[1].take() is rounds
    rounds.end()


def test_a_worker_goes_on_when_the_slowest_is_near_enough() -> None:
    clocks = ClocksState("c", 3)
    for _ in range(3):
        clocks.tick(0)
    clocks.tick(1)
    wait = go_on(clocks, 0, staleness=2)
    assert wait.is_pending and wait.cause == 'workers 2 (has ended 0) to end 1 rounds, in clocks "c"'
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


def test_the_step_that_completes_a_round_leads_and_its_end_answers_all() -> None:
    rounds = RoundsState("r", 3, 0)
    first, second = arrive(rounds, 0), arrive(rounds, 1)
    assert first.is_pending and second.is_pending
    assert first.cause == 'the gradients of workers 1, 2 for round 0 of "r"'
    third = arrive(rounds, 2)
    leader = next(wait for wait in (first, second, third) if not wait.is_pending)
    others = [wait for wait in (first, second, third) if wait is not leader]
    assert leads(leader) and all(wait.is_pending for wait in others)
    end(rounds, leader)
    assert [leads(wait) for wait in others] == [False, False] and rounds.ended == 1


def test_another_step_leads_where_the_leader_ends_without() -> None:
    rounds = RoundsState("r", 2, 0)
    waits = [arrive(rounds, 0), arrive(rounds, 1)]
    leader, other = sorted(waits, key=lambda wait: wait.is_pending)
    assert leads(leader) and other.is_pending
    state = leader.value[1].take()  # as when its step ends and nothing refers to the lead
    state.lead_again()
    assert leads(other)
    end(rounds, other)
    assert rounds.ended == 1


def test_a_step_that_ends_before_it_learns_that_it_leads_gives_the_lead_on() -> None:
    rounds = RoundsState("r", 2, 0)
    first = arrive(rounds, 0)
    first.ended = True  # its step has ended, and the cancellation has not come yet
    second = arrive(rounds, 1)
    assert first.answers == [] and leads(second)


def test_a_late_worker_is_answered_at_once_and_does_not_count() -> None:
    rounds = RoundsState("r", 3, 1)
    first = arrive(rounds, 0)
    second = arrive(rounds, 1)
    end(rounds, first if not first.is_pending else second)
    assert not leads(arrive(rounds, 2, ended=0)) and rounds.arrived == set()


def test_a_round_does_not_wait_for_those_who_leave() -> None:
    rounds = RoundsState("r", 3, 0)
    first, second = arrive(rounds, 0), arrive(rounds, 1)
    rounds.leave(2)
    assert [first.is_pending, second.is_pending].count(False) == 1


def test_who_begins_again_learns_whether_it_has_arrived() -> None:
    rounds = RoundsState("r", 2, 0)
    assert rounds.enter(0, b"w") == (0, False)
    arrive(rounds, 0)
    assert rounds.enter(0, b"w") == (0, True)
    with pytest.raises(errors.InvalidArgumentError, match='an update of "r" changes w; worker 1 has v'):
        rounds.enter(1, b"v")


def test_a_task_that_has_restarted_is_noticed() -> None:
    with pytest.raises(errors.AbortedError, match="its task has restarted"):
        arrive(RoundsState("r", 2, 0), 1, ended=3)
