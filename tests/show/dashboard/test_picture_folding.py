"""Which tasks are one box."""

from __future__ import annotations

from tests.show.dashboard.clusters import name_of, silent, task, working
from tfmini.runtime.snapshot import COMPUTES, TENSOR, WaitSnapshot
from tfmini.show.dashboard.picture import LONG_S, fold, group_name


def boxes(cluster, rates=None) -> dict[str, tuple[str, str]]:
    return {box.name: (box.state, box.kind) for box in fold(cluster.tasks, rates or {})}


def test_a_small_cluster_has_a_box_per_task() -> None:
    assert list(boxes(working(2, 3))) == ["ps/0", "ps/1", "worker/0", "worker/1", "worker/2"]


def test_equal_tasks_of_a_large_job_are_one_box() -> None:
    assert boxes(working(2, 98)) == {"ps/0": ("ok", ""), "ps/1": ("ok", ""), "worker/0…97 ×98": ("ok", "")}


def test_lost_slow_and_waiting_tasks_stand_alone() -> None:
    cluster = silent(working(1, 20), "worker/7")
    wait = WaitSnapshot("1", "a", TENSOR, "W", LONG_S)
    waiting = task("worker/3", waits=(wait,))
    computing = task("worker/4", waits=(WaitSnapshot("1", "a", COMPUTES, "MatMul", LONG_S),))
    others = {waiting.task: waiting, computing.task: computing}
    tasks = [others.get(each.task, each) for each in cluster.tasks]
    rates = {name_of(f"worker/{i}"): 10.0 for i in range(20)} | {name_of("worker/5"): 4.0}
    found = {box.name: (box.state, box.kind) for box in fold(tasks, rates)}
    assert found == {
        "ps/0": ("ok", ""), "worker/0…2, 4, … 8…19 ×17": ("ok", ""), "worker/3": ("waits", ""),
        "worker/5": ("ok", "slow"), "worker/7": ("silent", ""),
    }  # fmt: skip


def test_many_exceptions_of_a_kind_are_a_box_too() -> None:
    cluster = working(1, 40)
    for i in range(15):
        cluster = silent(cluster, f"worker/{i}")
    assert boxes(cluster) == {"ps/0": ("ok", ""), "worker/0…14 ×15": ("silent", ""), "worker/15…39 ×25": ("ok", "")}


def test_every_task_is_in_one_box() -> None:
    cluster = silent(working(12, 88), "worker/9")
    found = [name for box in fold(cluster.tasks, {}) for name in box.tasks]
    assert sorted(found) == sorted(task.task for task in cluster.tasks)


def test_group_names() -> None:
    assert group_name([name_of("ps/3")]) == "ps/3"
    assert group_name([name_of(f"ps/{i}") for i in (2, 0, 1, 5)]) == "ps/0…2, 5 ×4"


def test_a_task_that_is_to_be_alone_shares_no_box() -> None:
    names = [box.name for box in fold(working(1, 20).tasks, {}, {name_of("worker/7")})]
    assert names == ["ps/0", "worker/0…6, 8…19 ×19", "worker/7"]
