"""The tasks of a step at a glance: loads, folds, and what is worth a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.show.inspection.cluster_graphs import towers
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.findings import Load, Overview, fold_label, overview


def load(task: str, sends: int = 0, receives: int = 0, ops: int = 1, state: int = 0) -> Load:
    job, index = task.split("/")
    return Load(f"/job:{job}/replica:0/task:{index}/device:CPU:0", ops, sends, receives, state, 0)


def labels(loads: Sequence[Load]) -> list[str]:
    return [fold_label(fold) for fold in Overview(tuple(loads), {}).folds()]


def test_tasks_that_are_alike_fold_and_others_stay_alone() -> None:
    ps = [load(f"ps/{i}", 1000 + 5 * i, 1000) for i in range(4)]
    ps[2] = load("ps/2", 9000, 1000)
    workers = [load(f"worker/{i}", 500, 500) for i in range(3)] + [load("worker/3", ops=0)]
    assert labels([*ps, *workers]) == ["ps/0, 1, 3 ×3", "ps/2", "worker/0…2 ×3", "worker/3"]


def test_tasks_without_a_part_fold() -> None:
    assert labels([load("worker/0", 5000), *(load(f"worker/{i}", ops=0) for i in range(1, 100))]) == [
        "worker/0", "worker/1…99 ×99",
    ]  # fmt: skip


def test_many_different_tasks_share_few_folds_and_an_outlier_stays_alone() -> None:
    loads = [load(f"ps/{i}", 10_000 + 200 * i, 10_000) for i in range(99)]
    found = labels([*loads, load("ps/99", 900_000, 10_000)])
    assert len(found) <= 16 and found[-1] == "ps/99"


@pytest.mark.parametrize(
    ("indices", "label"),
    [([3], "worker/3"), ([0, 1], "worker/0, 1 ×2"), ([0, 2, 4, 6, 8], "worker/0, 2, … 8 ×5")],
)
def test_labels_of_folds(indices: list[int], label: str) -> None:
    assert fold_label([load(f"worker/{i}") for i in indices]) == label


def test_an_overloaded_task_and_the_busiest_link_are_named() -> None:
    large = 1_500_000
    a, b, c = (load("ps/0", large, large), load("ps/1", 500_000, 500_000), load("worker/0", 2 * 10**6, 2 * 10**6))
    seen = Overview((a, b, c, load("worker/1", ops=0)), {(a.device, c.device): large, (c.device, a.device): large})
    assert seen.overloaded == [(a, 1.5)]
    assert seen.sentences() == [
        "ps/0 is overloaded: it sends and receives 3,000,000 B, 1.5 times the mean of the job ps.",
        "The busiest link is ps/0 → worker/0: 1,500,000 B (1 other has as many).",
        "1 task has no part in this client's step.",
    ]


def test_a_small_step_overloads_nobody() -> None:
    assert Overview((load("ps/0", 300, 300), load("ps/1", 100, 100)), {}).overloaded == []


def test_a_step_of_sixteen_tasks() -> None:
    seen = overview(inspect(towers(8, 8, greedy=5), ps=8, workers=8))
    assert [load.device for load, _ in seen.overloaded][0].startswith("/job:ps/replica:0/task:0")
    assert seen.busiest_link is not None
    assert [short(device) for device in seen.busiest_link] == ["worker/0", "worker/5"]
    sent, received = sum(load.sends for load in seen.loads), sum(load.receives for load in seen.loads)
    assert sum(seen.links.values()) == sent == received


def test_all_overloaded_tasks_are_named() -> None:
    busy = [load(f"ps/{i}", 10**7, 10**7) for i in range(5)]
    seen = Overview((*busy, *(load(f"ps/{i}", 1, 1) for i in range(5, 20))), {})
    assert seen.sentences()[2:] == [f"{seen.sentences()[2]}", "ps/3, ps/4 are overloaded, too."]
