"""The log of events, from snapshots alone."""

from __future__ import annotations

import dataclasses

from tests.show.dashboard.clusters import START, name_of, replaced, silent, task, working
from tfmini.runtime.snapshot import ClusterSnapshot, EventSnapshot
from tfmini.show.dashboard.history import LIMIT, EventLog, sentence


def at(cluster: ClusterSnapshot, seconds: float) -> ClusterSnapshot:
    return dataclasses.replace(cluster, taken_s=START + seconds)


def told(log: EventLog, since: int = 0) -> list[tuple[str, str]]:
    return [(event.kind, sentence(event)) for event in log.since(since)]


def test_tasks_join_are_lost_and_come_back() -> None:
    log, cluster = EventLog(), working(1, 1)
    log.take(cluster)
    assert told(log) == [("joined", "ps/0: at localhost:1"), ("joined", "worker/0: at localhost:1")]
    count = log.count
    for second in (5, 6, 8, 9):
        log.take(at(silent(cluster, "ps/0"), second))
    log.take(at(cluster, 10))
    assert told(log, count) == [("lost", "ps/0: connection refused"), ("back", "ps/0: it answers again after 5 s")]
    assert log.since(count)[0].time_s == START + 5
    assert log.since(log.count) == []


def test_a_task_that_misses_an_answer_is_not_lost() -> None:
    log, cluster = EventLog(), working(1, 1)
    log.take(cluster)
    count = log.count
    for second in range(1, 10):
        log.take(at(silent(cluster, "ps/0") if second % 3 else cluster, second))
    assert told(log, count) == []


def test_another_incarnation_is_a_restart() -> None:
    log, cluster = EventLog(), working(1, 1)
    log.take(cluster)
    log.take(at(silent(cluster, "worker/0"), 1))
    count = log.count
    log.take(at(replaced(cluster, "worker/0", task("worker/0", incarnation="2")), 3))
    assert told(log, count) == [("restarted", "worker/0: another process has its place after 2 s")]


def test_a_task_that_is_not_in_the_cluster_any_more_is_lost() -> None:
    log = EventLog()
    log.take(working(1, 2))
    count = log.count
    for second in (1, 4):
        log.take(at(working(1, 1), second))
    assert told(log, count) == [("lost", "worker/1: no task knows it any more")]


def test_saved_checkpoints_are_told_once() -> None:
    log = EventLog()
    saved = EventSnapshot(START - 5, "saved", "/tmp/model.ckpt-10", "step 10")
    again = EventSnapshot(START + 1, "saved", "/tmp/model.ckpt-10", "step 10")
    for second in range(3):
        events = (saved, again) if second else (saved,)
        log.take(at(replaced(working(1, 1), "worker/0", task("worker/0", events=events)), second))
    assert told(log)[0] == ("saved", "/tmp/model.ckpt-10: step 10")
    assert [kind for kind, _ in told(log)].count("saved") == 2


def test_what_several_tasks_report_of_one_is_told_once() -> None:
    """The loss of a task before the page began; of a later one the page knows itself."""
    log, cluster = EventLog(), working(1, 3)
    for i in range(3):
        early = EventSnapshot(START - 20 - i, "lost", name_of("ps/0"), "no heartbeat")
        late = EventSnapshot(START + 1, "lost", name_of("ps/0"), "no heartbeat")
        cluster = replaced(cluster, f"worker/{i}", task(f"worker/{i}", events=(early, late)))
    log.take(cluster)
    log.take(at(cluster, 2))
    assert [event for event in told(log) if event[0] == "lost"] == [("lost", "ps/0: no heartbeat")]


def test_the_log_is_bounded() -> None:
    log, cluster = EventLog(), working(1, 1)
    for turn in range(LIMIT):
        for second, now in enumerate((cluster, silent(cluster, "ps/0"), silent(cluster, "ps/0"))):
            log.take(at(now, 10 * turn + 3 * second))
    assert len(log.kept) == LIMIT and log.count == 2 * LIMIT + 1
    assert len(log.since(0)) == LIMIT and len(log.since(log.count - 3)) == 3
