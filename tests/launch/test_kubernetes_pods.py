"""What pods say of a run, without a cluster."""

from __future__ import annotations

from typing import Any

from tfmini.launch.kubernetes import (
    ATTEMPT_LABEL,
    INDEX_LABEL,
    JOB_LABEL,
    Ended,
    Follow,
    Placed,
    PodBook,
    Told,
    is_over,
)
from tfmini.launch.supervision import TaskId

PS, FIRST, SECOND = TaskId("ps", 0), TaskId("worker", 0), TaskId("worker", 1)


def pod(task: TaskId, code: int | None = None, at: str = "", attempt: int = 0, **status: Any) -> dict[str, Any]:
    labels = {JOB_LABEL: task.job, INDEX_LABEL: str(task.task), ATTEMPT_LABEL: str(attempt)}
    state: dict[str, Any] = {"running": {}} if code is None else {"terminated": {"exitCode": code, "finishedAt": at}}
    return {
        "metadata": {"name": f"{task.job}-{task.task}-{attempt}", "labels": labels},
        "spec": {"nodeName": "node"},
        "status": {"containerStatuses": [{"state": state}], **status},
    }


def read_all(book: PodBook, *tasks: TaskId) -> None:
    for task in tasks:
        book.log_ended(task, book.pod_of(task))


def test_a_task_is_placed_read_and_ends() -> None:
    book = PodBook([FIRST])
    assert book.look([pod(FIRST)]) == [Placed(FIRST, "node"), Follow(FIRST, "worker-0-0")]
    assert book.look([pod(FIRST)]) == [] and book.missing == []
    assert book.look([pod(FIRST, 0)]) == []  # its output is still being read
    read_all(book, FIRST)
    assert book.look([pod(FIRST, 0)]) == [Ended(FIRST, 0)]
    assert book.look([], over=True) == []


def test_output_is_read_on_where_its_connection_was_lost() -> None:
    book = PodBook([FIRST])
    book.look([pod(FIRST)])
    read_all(book, FIRST)
    assert book.look([pod(FIRST)]) == [Follow(FIRST, "worker-0-0")]
    read_all(book, FIRST)
    # It has ended meanwhile: the rest is read before the end is told.
    assert book.look([pod(FIRST, 3)]) == [Follow(FIRST, "worker-0-0")]
    read_all(book, FIRST)
    assert book.look([pod(FIRST, 3)]) == [Ended(FIRST, 3)]


def test_the_cause_comes_before_what_was_killed_for_it() -> None:
    book = PodBook([PS, FIRST, SECOND])
    book.look([pod(PS), pod(FIRST), pod(SECOND)])
    book.look([pod(PS, 143, "t2"), pod(FIRST, 143, "t1"), pod(SECOND, 7, "t1")])
    read_all(book, PS, FIRST)
    assert book.look([pod(SECOND, 7, "t1")]) == []  # the first to end is still being read
    read_all(book, SECOND)
    assert book.look([]) == [Ended(SECOND, 7), Ended(FIRST, 143), Ended(PS, 143)]


def test_a_pod_that_is_gone_has_ended_when_nothing_replaces_it() -> None:
    book = PodBook([PS, FIRST])
    book.look([pod(PS), pod(FIRST)])
    read_all(book, PS, FIRST)
    assert book.look([]) == []  # its Job may still make another
    assert book.look([], over=True) == [Ended(PS, 137), Ended(FIRST, 137)]


def test_the_ends_of_an_attempt_are_final_if_it_is_the_last() -> None:
    book = PodBook([FIRST, SECOND], restarts=1)
    book.look([pod(FIRST), pod(SECOND)])
    book.look([pod(FIRST, 0), pod(SECOND, 1)])
    read_all(book, FIRST, SECOND)
    assert book.look([pod(FIRST, 0), pod(SECOND, 1)]) == []
    again = [pod(FIRST, attempt=1), pod(SECOND, attempt=1)]
    told, *follows = book.look([pod(FIRST, 0), *again])
    assert told == Told("the JobSet has started all tasks again (1 of 1).")
    assert follows == [Follow(FIRST, "worker-0-1"), Follow(SECOND, "worker-1-1")]
    book.look([pod(FIRST, 2, attempt=1), pod(SECOND, attempt=1)])
    read_all(book, FIRST)
    assert book.look([pod(FIRST, 2, attempt=1), pod(SECOND, attempt=1)]) == [Ended(FIRST, 2)]


def test_it_says_once_why_a_pod_waits() -> None:
    book = PodBook([FIRST])
    waiting = pod(FIRST, containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull", "message": "no image"}}}])
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    unplaced = {**pod(FIRST, containerStatuses=None, conditions=[why]), "spec": {}}
    assert book.look([unplaced]) == [Told("worker/0: Unschedulable: no room", FIRST)] and book.missing == [FIRST]
    assert book.look([waiting]) == [Placed(FIRST, "node"), Told("worker/0: ErrImagePull: no image", FIRST)]
    assert book.look([waiting]) == []


def test_an_evicted_pod_and_one_without_memory_say_so() -> None:
    book = PodBook([FIRST, SECOND])
    full = pod(FIRST, 137, "t1")
    full["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    evicted = pod(SECOND, containerStatuses=None, phase="Failed", reason="Evicted", message="the node had no disk")
    found = book.look([full, evicted])
    assert Told("worker/0 was killed because it used more memory than it may.", FIRST) in found
    assert Told("worker/1: Evicted: the node had no disk", SECOND) in found
    read_all(book, FIRST, SECOND)
    assert book.look([full, evicted]) == [Ended(FIRST, 137), Ended(SECOND, 137)]


def test_a_jobset_is_over_when_it_has_succeeded_or_failed() -> None:
    assert not is_over({}) and not is_over({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}})
    assert is_over({"status": {"conditions": [{"type": "Completed", "status": "True"}]}})
    assert not is_over({"status": {"conditions": [{"type": "Failed", "status": "False"}]}})
