"""The staleness of updates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tfmini as tf
from tfmini.runtime.worker.task_state import BUCKETS, PartCounts, Staleness


def run(session: str, is_training: bool = True) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(session_handle=session, is_training=is_training))


def test_staleness_counts_the_updates_of_others_meanwhile() -> None:
    counts = PartCounts()
    slow_began = counts.updates
    for _ in range(3):
        counts.over(run("quick"), counts.updates, False)
    counts.over(run("slow"), slow_began, False)
    assert counts.staleness["quick"].summary() == (3, 0.0, 0, (3, *[0] * (BUCKETS - 1)))
    assert counts.staleness["slow"].latest == 3
    assert counts.staleness["slow"].summary() == (1, 3.0, 3, (0, 0, 1, *[0] * (BUCKETS - 3)))  # 2 and 3


def test_a_part_that_failed_or_changes_nothing_is_no_update() -> None:
    counts = PartCounts()
    counts.over(run("a"), 0, True)
    counts.over(run("a", is_training=False), 0, False)
    assert (counts.parts, counts.failed, counts.updates, counts.staleness) == (2, 1, 0, {})


def test_memory_is_bounded_and_the_last_bucket_has_all_above() -> None:
    counts = PartCounts()
    counts.updates = 1 << 40
    for before in (0, 1, 1 << 40):
        counts.over(run("a"), before, False)
    assert len(counts.staleness["a"].counts) == 2
    _, _, _, buckets = counts.staleness["a"].summary()
    assert buckets[BUCKETS - 1] == 2 and sum(buckets) == 3


def test_without_updates_there_is_a_summary() -> None:
    assert Staleness().summary() == (0, 0.0, 0, (0,) * BUCKETS)


def test_runs_of_a_graph_that_is_forgotten_still_count() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.constant(1) + tf.constant(2)) == 3
        worker = session.master.master.worker
        (graph,) = worker.graphs.values()
        worker.deregister_graph(graph.handle)
    assert worker.counts.executed == 1
