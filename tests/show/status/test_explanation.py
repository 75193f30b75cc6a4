"""Explanations of snapshots that are made by hand."""

from __future__ import annotations

from tfmini.runtime import snapshot as s
from tfmini.show.status.explanation import (
    MISSING,
    NO_STEP,
    RUNS_NOTHING,
    culprit_lines,
    explain,
    explanation_lines,
    without_passing,
)

PS, CHIEF, OTHER = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"


def wait(step: int, kind: str, on: str = "", since_s: float = 9.0, *from_tasks: str) -> s.WaitSnapshot:
    return s.WaitSnapshot(str(step), "", kind, f"{kind} {on}".strip(), since_s, on=on, from_tasks=from_tasks)


def pending(step: int, action: str, on: str) -> s.PendingSnapshot:
    return s.PendingSnapshot(str(step), action, on)


def task(name: str, *waits: s.WaitSnapshot, runs: tuple[int, ...] = (), **more: object) -> s.TaskSnapshot:
    running = tuple(s.StepSnapshot(str(step), "", "this process", 9.0) for step in runs)
    return s.TaskSnapshot(name, "", waits=waits, running=running, **more)  # type: ignore[arg-type]


def cluster(*tasks: s.TaskSnapshot) -> s.ClusterSnapshot:
    return s.ClusterSnapshot("", 0.0, 0.0, tasks)


def two_queues(*more: s.PendingSnapshot, second_since_s: float = 9.0) -> s.ClusterSnapshot:
    ps = task(
        PS,
        wait(1, s.ELEMENT, "a"),
        wait(2, s.ELEMENT, "b", second_since_s),
        pending=(pending(1, s.PUT, "b"), pending(2, s.PUT, "a"), *more),
    )
    return cluster(ps, task(CHIEF, runs=(1,)), task(OTHER, runs=(2,)))


def test_a_deadlock_between_two_queues_is_shown_as_a_cycle() -> None:
    found = explain(two_queues())
    ((first, second),) = found.cycles
    assert (first.who, first.wait.on, second.who, second.wait.on) == (CHIEF, "a", OTHER, "b")
    assert found.culprits == ()
    assert explanation_lines(found)[:4] == [
        "DEADLOCK of 2 waits:",
        "  worker/0 waits for element a for 9.0 s (on ps/0)",
        "    <- worker/1 waits for element b for 9.0 s (on ps/0)",
        "    <- worker/0 (see above)",
    ]


def test_a_cycle_is_no_deadlock_if_another_step_may_end_it() -> None:
    assert len(explain(two_queues()).cycles) == 1
    ended = two_queues(pending(3, s.PUT, "b"))
    ps, *others = ended.tasks
    third = task("/job:worker/replica:0/task:2", wait(3, s.COMPUTES), runs=(3,))
    found = explain(cluster(ps, *others, third))
    assert found.cycles == () and {culprit.task for culprit in found.culprits} == {third.task}


def test_a_wait_that_is_short_belongs_to_a_step_that_moves() -> None:
    assert explain(two_queues(second_since_s=0.1)).cycles == ()


def test_the_stuck_worker_of_a_synchronous_run_is_found_behind_the_token_and_the_gradient() -> None:
    ps = task(
        PS, wait(1, s.TOKEN, "tokens", 9.0, CHIEF), wait(7, s.GRADIENT, "W/grad", 9.0, OTHER),
        pending=(pending(7, s.PUT, "tokens"), pending(7, s.TAKE, "W/grad")),
    )  # fmt: skip
    found = explain(cluster(ps, task(CHIEF, runs=(1, 7)), task(OTHER)))
    (culprit,) = found.culprits
    assert found.cycles == ()
    assert (culprit.task, culprit.kind, set(culprit.steps)) == (OTHER, RUNS_NOTHING, {"1", "7"})
    computing = task(OTHER, wait(2, s.COMPUTES, "PyFunc (node slow)"), runs=(2,))
    ps = task(
        PS, *ps.waits, wait(2, s.TENSOR, "gradient:0", 9.0, OTHER), pending=(*ps.pending, pending(2, s.PUT, "W/grad"))
    )
    (culprit,) = explain(cluster(ps, task(CHIEF, runs=(1, 7)), computing)).culprits
    assert (culprit.task, culprit.kind) == (OTHER, s.COMPUTES)
    assert [(hop.who, hop.wait.kind) for hop in culprit.way] == [
        (CHIEF, s.TOKEN), (CHIEF, s.GRADIENT), (OTHER, s.COMPUTES),
    ]  # fmt: skip


def test_a_task_that_does_not_answer_is_the_culprit_of_those_who_wait_for_its_tensors() -> None:
    silent = s.TaskSnapshot(PS, "", s.SILENT, "connection refused")
    waiting = task(CHIEF, wait(1, s.TENSOR, "W:0", 9.0, PS), runs=(1,))
    (culprit,) = explain(cluster(silent, waiting)).culprits
    assert (culprit.task, culprit.kind, culprit.text) == (PS, s.SILENT, "is silent: connection refused")


def test_what_keeps_a_stuck_task_is_what_it_computes() -> None:
    stuck = task(PS, wait(5, s.COMPUTES, "MatMul"), state=s.STUCK, why="busy")
    waiting = task(CHIEF, wait(1, s.TENSOR, "W:0", 9.0, PS), runs=(1,))
    (culprit,) = explain(cluster(stuck, waiting)).culprits
    assert (culprit.task, culprit.kind, culprit.text) == (PS, s.COMPUTES, "computes MatMul")


def test_an_element_that_no_step_enqueues() -> None:
    ps = task(PS, wait(1, s.ELEMENT, "a"))
    (culprit,) = explain(cluster(ps, task(CHIEF, runs=(1,)))).culprits
    assert (culprit.task, culprit.kind, culprit.text) == ("", NO_STEP, 'no step puts anything into "a"')


def test_a_step_that_waits_for_its_own_later_enqueue_waits_for_itself() -> None:
    ps = task(PS, wait(1, s.ELEMENT, "a"), pending=(pending(1, s.PUT, "a"),))
    ((hop,),) = explain(cluster(ps, task(CHIEF, runs=(1,)))).cycles
    assert hop.wait.on == "a"


def test_a_lock_leads_to_its_holder_and_a_collective_to_the_absent_ranks() -> None:
    ps = task(PS, wait(1, s.LOCK, "m"), wait(2, s.ELEMENT, "a"), pending=(pending(2, s.RELEASE, "m"),))
    ring = task(CHIEF, wait(1, s.COLLECTIVE, "group 1", 9.0, OTHER), runs=(1,))
    found = explain(cluster(ps, ring, task(OTHER, runs=(2,))))
    assert {culprit.kind for culprit in found.culprits} == {NO_STEP}


def test_ranks_that_are_not_there_keep_a_group_from_forming() -> None:
    """A group that has not formed does not know its members."""
    first = task(CHIEF, wait(1, s.COLLECTIVE, "group 1", 9.0), runs=(1,))
    (culprit,) = explain(cluster(task(PS), first, task(OTHER))).culprits
    assert (culprit.task, culprit.kind, culprit.steps) == (OTHER, RUNS_NOTHING, ("1",))
    assert explanation_lines(explain(cluster(first, task(OTHER))))[0].startswith("worker/1 runs no step: 1 step waits")
    (alone,) = explain(cluster(task(PS), first)).culprits
    assert (alone.task, alone.kind) == (CHIEF, s.COLLECTIVE)


def test_without_waits_there_is_nothing_to_explain() -> None:
    assert explanation_lines(explain(cluster(task(PS)))) == ["No step has waited for long.", ""]


def test_what_a_slow_ps_computes_for_several_steps_is_one_culprit() -> None:
    """That a third step has just ended its part there is not told beside it."""
    computing = [s.WaitSnapshot(str(i), "", s.COMPUTES, f"computes MatMul (node m_{i})", 3.0 + i) for i in (1, 2)]
    late = s.WaitSnapshot("3", "", s.TENSOR, "m", 2.0, from_tasks=(PS,))
    (found,) = explain(cluster(task(PS, *computing), task(CHIEF, runs=(1, 3)), task(OTHER, late, runs=(2,)))).culprits
    assert (found.task, found.kind, found.steps) == (PS, s.COMPUTES, ("1", "2"))
    (line,) = culprit_lines(found)
    assert line == "ps/0 computes MatMul (node m_1), MatMul (node m_2): 2 steps wait for it, for 5.0 s."


def test_a_task_that_waits_for_another_part_is_not_missing() -> None:
    """The worker sends to ps/0 when it has what ps/1 sends; ps/1 has just ended its part."""
    other = "/job:ps/replica:0/task:1"
    here = s.WaitSnapshot("1", "", s.TENSOR, "gradient", 2.0, from_tasks=(CHIEF,))
    there = s.WaitSnapshot("1", "", s.TENSOR, "W:0", 2.0, from_tasks=(other,))
    answer = s.WaitSnapshot("1", "", s.ANSWER, "the part of ps/0", 2.0, from_tasks=(PS,))
    found = explain(cluster(task(PS, here), task(other), task(CHIEF, there, answer, runs=(1,))))
    assert [(culprit.task, culprit.kind) for culprit in found.culprits] == [(other, MISSING)]
    assert without_passing(found, found) == found
    assert without_passing(explain(cluster()), found).culprits == ()


def test_queue_runners_that_wait_for_room_are_no_deadlock_of_each_other() -> None:
    """Their queue is full, and the client that takes from it is between two steps."""
    waits = [wait(step, s.ROOM, "q", 9.0, CHIEF) for step in (5, 6)]
    running = tuple(s.StepSnapshot(str(step), "", "", 9.0, trains=False, fills=True) for step in (5, 6))
    found = explain(cluster(s.TaskSnapshot(CHIEF, "", waits=tuple(waits), running=running)))
    (culprit,) = found.culprits
    assert found.cycles == () and (culprit.task, culprit.kind) == (CHIEF, RUNS_NOTHING)
    assert culprit_lines(culprit)[0] == "worker/0 only fills queues: 2 steps wait for it, for 9.0 s."


def test_a_deadlock_of_steps_that_do_not_train_is_one() -> None:
    """Two workers that wait for each other at the end of a run, in graphs that have ops that train."""
    ps = task(PS, wait(1, s.ELEMENT, "a", 9.0, OTHER), wait(2, s.ELEMENT, "b", 9.0, CHIEF))
    ends = [s.TaskSnapshot(name, "", running=(s.StepSnapshot(step, "", "", 9.0, trains=False),))
            for name, step in ((CHIEF, "1"), (OTHER, "2"))]  # fmt: skip
    assert len(explain(cluster(ps, *ends)).cycles) == 1
