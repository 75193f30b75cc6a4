"""Calls of collectives by steps that end early."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import errors
from tfmini.collectives import schedules
from tfmini.rpc import messages as m
from tfmini.runtime.collectives import calls
from tfmini.runtime.collectives.calls import BEGINS, LEAST, UNTOLD_MS
from tfmini.runtime.collectives.executor import CollectiveExecutor, RankCluster
from tfmini.runtime.collectives.past_lives import RETURN_S
from tfmini.runtime.process import current_process

TASK = "/job:worker/replica:0/task:0"


class Answer:
    """A wait, of a step that has ended or not."""

    def __init__(self, is_open: bool) -> None:
        self.step = types.SimpleNamespace(step_id=1)
        self.is_open = is_open
        self.value: Any = None
        self.error: errors.OpError | None = None

    def done(self, result: Any = None) -> None:
        self.value = result

    def fail(self, error: errors.OpError) -> None:
        self.error = error

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        return self.is_open


def call(executor: CollectiveExecutor, index: int, size: int, is_open: bool = True) -> Answer:
    attrs = {"merge_op": b"Add", "final_op": b"Id", "T": tf.float32, "group_key": 1, "group_size": size,
             "instance_key": 1}  # fmt: skip
    answer = Answer(is_open)
    node: Any = types.SimpleNamespace(op="CollectiveReduce", device=f"{TASK}/device:CPU:{index}", attrs=attrs)
    executor.begin(answer, node, np.ones(2, np.float32))
    return answer


def test_an_untold_member_fails_its_epoch_without_the_lock(monkeypatch: Any) -> None:
    """The answers of waits run code of steps, which may take other locks."""
    executor = CollectiveExecutor(TASK, current_process())
    held: list[bool] = []
    monkeypatch.setattr(executor, "failed", lambda epoch, error: held.append(executor.table.lock.locked()))
    executor.tell_left(m.CollectiveProbe(5, 0, 1, 1, 0, "", UNTOLD_MS, False), "")
    assert held == [False]
    executor.close()


def test_a_first_call_whose_step_has_ended_leaves_the_group_to_the_next() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    call(executor, 0, 2, is_open=False)
    answers = [call(executor, index, 2) for index in range(2)]
    assert [answer.value.tolist() for answer in answers] == [[2.0, 2.0], [2.0, 2.0]]
    executor.close()


def test_a_call_whose_step_has_ended_does_not_fix_the_size_of_the_group() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    call(executor, 0, 3, is_open=False)
    answers = [call(executor, index, 2) for index in range(2)]
    assert [answer.value.tolist() for answer in answers] == [[2.0, 2.0], [2.0, 2.0]]
    executor.close()


# ---- the steps that the members of a group have finished ------------------------------------


def step(
    executor: CollectiveExecutor, index: int, step_id: int, begins: bool = False, instance: int = 1, name: str = ""
) -> Answer:
    """A call of one of two devices in a step."""
    attrs = {"merge_op": b"Add", "final_op": b"Id", "T": tf.float32, "group_key": 1, "group_size": 2,
             "instance_key": instance, "_collective_name": name.encode()}  # fmt: skip
    attrs |= {BEGINS: True} if begins else {}
    answer = Answer(True)
    answer.step.step_id = step_id
    node: Any = types.SimpleNamespace(op="CollectiveReduce", device=f"{TASK}/device:CPU:{index}", attrs=attrs)
    executor.begin(answer, node, np.ones(2, np.float32))
    return answer


def both(executor: CollectiveExecutor, first: int, second: int, begins: bool = False) -> list[Answer]:
    return [step(executor, 0, first, begins), step(executor, 1, second, begins)]


def end_life(executor: CollectiveExecutor, finished_by_one: bool) -> None:
    """A failure ends the group; where ``finished_by_one``, only the first device has got the latest result."""
    members = list(executor.members.values())
    for member in members:
        if finished_by_one and member.rank == 1:  # as if the result had not arrived
            member._ordinal -= 1
        was_idle = member.is_idle
        executor.fail(member, errors.UnavailableError.of("a connection broke"))
        if was_idle:  # the next step is told
            told = step(executor, int(member.device[-1]), 99)
            assert isinstance(told.error, errors.UnavailableError) and "a connection broke" in told.error.message


def test_members_that_have_finished_different_steps_are_told() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    both(executor, 2, 12)
    end_life(executor, finished_by_one=True)
    for answer in both(executor, 3, 13):
        assert isinstance(answer.error, errors.FailedPreconditionError)
        text = f"at the same step: {TASK}/device:CPU:0 has finished 2, {TASK}/device:CPU:1 has finished 1."
        assert text in answer.error.message
    # Again and again, until they get the same variables.
    assert all(answer.error is not None for answer in both(executor, 4, 14))
    for answers in (both(executor, 5, 15, begins=True), both(executor, 6, 16)):
        assert [answer.value.tolist() for answer in answers] == [[2.0, 2.0]] * 2
    executor.close()


def test_members_at_the_same_step_go_on_after_a_failure() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    end_life(executor, finished_by_one=False)
    waiting = step(executor, 0, 2)
    assert waiting.error is None and waiting.value is None
    assert step(executor, 1, 12).value.tolist() == waiting.value.tolist() == [2.0, 2.0]
    # One is interrupted before the other calls: nobody has finished the step.
    begun = step(executor, 0, 3)
    end_life(executor, finished_by_one=False)
    assert begun.error is not None
    assert [answer.value.tolist() for answer in both(executor, 4, 14)] == [[2.0, 2.0]] * 2
    executor.close()


def test_members_with_a_part_of_a_step_are_told() -> None:
    """The first of two buckets may have been applied, and nobody knows by whom."""
    executor = CollectiveExecutor(TASK, current_process())
    for step_id in (1, 2):
        answers = [step(executor, i, 10 * i + step_id, instance=bucket) for bucket in (1, 2) for i in (0, 1)]
        assert all(answer.value is not None for answer in answers)
    assert all(answer.value is not None for answer in both(executor, 3, 13))
    begun = step(executor, 0, 3, instance=2)
    end_life(executor, finished_by_one=False)
    assert begun.error is not None
    for answer in both(executor, 4, 14):
        assert isinstance(answer.error, errors.FailedPreconditionError)
        assert f"{TASK}/device:CPU:0 has the results of a part of a step" in answer.error.message
        assert f"{TASK}/device:CPU:1 has finished 3" in answer.error.message
    assert [answer.error for answer in both(executor, 5, 15, begins=True)] == [None, None]
    executor.close()


def interrupt(executor: CollectiveExecutor) -> None:
    """Ends the group while no call is under way, as for a rank that is told that another one has left it."""
    for member in list(executor.members.values()):
        executor.failed(member.epoch, errors.AbortedError.of("a rank has left"))


def test_a_step_does_not_go_on_in_the_next_life_of_its_group() -> None:
    """A rank that was restarted begins with its first step, and would meet the others in the middle of theirs."""
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    interrupt(executor)
    for instance in (2, 3):
        answer = step(executor, 0, 1, instance=instance)
        assert isinstance(answer.error, errors.AbortedError) and "a rank has left" in answer.error.message
    first = step(executor, 1, 12, begins=True)  # of the restarted rank
    assert step(executor, 0, 2, begins=True).value is not None and first.value is not None
    assert [answer.error for answer in both(executor, 3, 13)] == [None, None]
    executor.close()


def test_the_next_step_learns_that_its_group_has_ended() -> None:
    """Its session broadcasts the variables again, as the sessions of the other ranks do; once is enough."""
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    interrupt(executor)
    for answer in both(executor, 2, 12):
        assert isinstance(answer.error, errors.AbortedError) and "its group has ended" in answer.error.message
    assert [answer.value.tolist() for answer in both(executor, 3, 13)] == [[2.0, 2.0]] * 2
    executor.close()


def test_who_lost_a_step_in_the_middle_says_so() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    interrupt(executor)
    for answer in both(executor, 1, 12):  # the step of the first goes on, that of the other is the next
        assert isinstance(answer.error, errors.AbortedError)
    for answer in both(executor, 2, 13):
        assert isinstance(answer.error, errors.FailedPreconditionError)
        assert f"{TASK}/device:CPU:0 has the results of a part of a step" in answer.error.message
    executor.close()


def test_a_restarted_member_joins_at_the_step_of_the_others() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 11)
    end_life(executor, finished_by_one=False)
    del executor.table.state.past.of[1, f"{TASK}/device:CPU:1"]  # as in a new process
    assert [answer.value.tolist() for answer in both(executor, 2, 12)] == [[2.0, 2.0]] * 2
    end_life(executor, finished_by_one=False)
    assert {life.finished for life in executor.table.state.past.of.values()} == {2}
    executor.close()


def test_without_memory_for_the_result_the_group_ends(monkeypatch: Any) -> None:
    """The result of a ring gets its memory when data arrive, from nobody who could be told of the failure."""

    def no_memory(value: Any) -> Any:
        raise MemoryError("no more")

    executor = CollectiveExecutor(TASK, current_process())
    monkeypatch.setattr(calls, "result_memory", no_memory)
    monkeypatch.setattr(schedules, "DIRECT_LIMIT", 0)
    answers = [call(executor, index, 2) for index in range(2)]
    for answer in answers:
        assert isinstance(answer.error, errors.ResourceExhaustedError) and "no more" in answer.error.message
    executor.close()


# ---- names ------------------------------------------------------------------------------------


def test_a_name_that_is_in_use_on_a_rank_is_refused_and_the_first_call_goes_on() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    both(executor, 1, 1)
    first = step(executor, 0, 2, instance=5, name="loss")
    again = step(executor, 0, 3, instance=5, name="loss")
    assert isinstance(again.error, errors.InvalidArgumentError)
    assert "Duplicate name: rank 0 (" in again.error.message and 'of "loss"' in again.error.message
    other = step(executor, 1, 2, instance=5, name="loss")
    assert first.value.tolist() == other.value.tolist() == [2.0, 2.0]
    executor.close()


def test_named_calls_meet_although_their_steps_have_different_numbers() -> None:
    executor = CollectiveExecutor(TASK, current_process())
    one = [step(executor, 0, 1, instance=5, name="a"), step(executor, 0, 1, instance=6, name="b")]
    two = [step(executor, 1, 7, instance=6, name="b"), step(executor, 1, 8, instance=5, name="a")]
    assert [answer.value.tolist() for answer in one + two] == [[2.0, 2.0]] * 4
    executor.close()


# ---- tasks that come to their end ---------------------------------------------------------------


class Clock:
    """The clock of an executor in a cluster of three workers and a ps, whose leader is worker 0."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        tasks = {f"/job:worker/replica:0/task:{i}": "" for i in range(3)} | {"/job:ps/replica:0/task:0": ""}
        ranks = RankCluster(tasks, lambda task, address: None, self._later)
        self.executor = CollectiveExecutor(TASK, current_process(), ranks)
        self.executor.now = lambda: self.time

    def _later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self.timers.append((self.time + seconds, call, args))

    def pass_s(self, seconds: float) -> None:
        self.time += seconds
        due = [timer for timer in self.timers if timer[0] <= self.time]
        self.timers = [timer for timer in self.timers if timer[0] > self.time]
        for _, called, args in due:
            called(*args)

    def call(self, name: str, size: int = 3, least: int = 0, group_key: int = 1) -> Answer:
        attrs = {"merge_op": b"Add", "final_op": b"Id", "T": tf.float32, "group_key": group_key, "group_size": size,
                 "instance_key": 1, "_collective_name": name.encode()}  # fmt: skip
        attrs |= {LEAST: least, BEGINS: True} if least else {}
        answer = Answer(True)
        node: Any = types.SimpleNamespace(op="CollectiveReduce", device=f"{TASK}/device:CPU:0", attrs=attrs)
        self.executor.begin(answer, node, np.ones(2, np.float32))
        return answer

    def end(self, task: int, is_final: bool = True, incarnation: int = 7) -> None:
        name = f"/job:worker/replica:0/task:{task}"
        self.executor.ended(m.CollectiveEnd(name, incarnation, "it has ended", is_final))


def test_a_group_that_waits_for_a_task_that_has_ended_fails() -> None:
    clock = Clock()
    waiting, smaller = clock.call("a"), clock.call("b", size=2, group_key=2)
    clock.end(2)
    clock.pass_s(0.1)
    assert isinstance(waiting.error, errors.UnknownError)
    assert "/job:worker/replica:0/task:2 has ended" in waiting.error.message
    assert smaller.error is None  # the other two may be its members
    assert isinstance(clock.call("a").error, errors.UnknownError)
    clock.executor.returned("/job:worker/replica:0/task:2", 8)  # somebody has started it again
    assert clock.call("a").error is None
    clock.executor.close()


def test_a_call_that_begins_while_a_task_ends_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def ends_meanwhile(self: Answer, cause: str, cancel: Callable[[], None]) -> bool:
        clock.end(2)
        clock.pass_s(0.1)
        return True

    monkeypatch.setattr(Answer, "on_cancel", ends_meanwhile)
    error = clock.call("a").error
    assert isinstance(error, errors.UnknownError) and "task:2 has ended" in error.message
    assert not clock.executor.members
    clock.executor.close()


def test_a_group_whose_members_are_known_fails_with_the_end_of_a_member_only() -> None:
    clock = Clock()
    others = {key: f"/job:worker/replica:0/task:{key}" for key in (1, 2)}
    clock.executor.ended_tasks.groups = {key: (TASK, other) for key, other in others.items()}
    one, two = clock.call("a", size=2), clock.call("b", size=2, group_key=2)
    clock.end(2)
    clock.pass_s(0.1)
    assert one.error is None and isinstance(two.error, errors.UnknownError)
    clock.executor.close()


def test_a_group_waits_some_time_for_a_server_that_was_stopped() -> None:
    clock = Clock()
    waiting = clock.call("a")
    clock.end(1, is_final=False)
    clock.pass_s(RETURN_S - 1)
    assert waiting.error is None
    clock.pass_s(2)
    assert isinstance(waiting.error, errors.UnknownError)
    clock.executor.close()


def test_an_elastic_group_waits_as_long_as_enough_members_are_left() -> None:
    clock = Clock()
    waiting = clock.call("a", least=2)
    clock.end(2)
    clock.pass_s(0.1)
    assert waiting.error is None
    clock.end(1)
    clock.pass_s(0.1)
    assert isinstance(waiting.error, errors.UnknownError)
    clock.executor.close()
