"""The plans of a session: bounded, and usable for as long as somebody has them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import tfmini as tf
from tests.runtime.test_resources_session_owners import free_cluster, until
from tfmini.runtime.client import session as session_module
from tfmini.runtime.master import master_session

LIMIT = 5


def values() -> list[Any]:
    """Twenty tensors that need two tasks each."""
    found = []
    for i in range(20):
        with tf.device("/job:ps/task:0"):
            x = tf.random_uniform([], i, i, dtype=tf.float32)
        with tf.device("/job:worker/task:0"):
            found.append(x + 1.0)
    return found


@pytest.mark.parametrize("calls", [LIMIT, 4096])
def test_a_loop_of_ever_new_fetches_keeps_a_bounded_number_of_plans(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_session, "PLAN_LIMIT", LIMIT)
    monkeypatch.setattr(session_module, "CALL_LIMIT", calls)
    spec = free_cluster(("ps", 0), ("worker", 0))
    with tf.train.Server(spec, "ps", 0) as ps, tf.train.Server(spec, "worker", 0) as worker:
        fetches = values()
        with tf.Session(worker.target) as session:
            for i, fetch in enumerate(fetches):
                assert session.run(fetch) == i + 1.0
            (master,) = worker.master.sessions.values()
            assert len(master.book.plans) == len(worker.worker.graphs) == LIMIT
            if calls == LIMIT:
                gc.collect()
                until(lambda: len(ps.worker.graphs) <= LIMIT + 1, "the end of old plans")
            else:  # the client still has them, so that they are not made again
                assert len(ps.worker.graphs) == 20
            for i, fetch in enumerate(fetches):
                assert session.run(fetch) == i + 1.0
        until(lambda: not ps.worker.graphs and not worker.worker.graphs, "the end of the session")


def test_plans_of_a_local_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_session, "PLAN_LIMIT", LIMIT)
    fetches = [tf.constant(i) for i in range(20)]
    with tf.Session() as session:
        for _ in range(2):
            for i, fetch in enumerate(fetches):
                assert session.run(fetch) == i
        (master,) = session.master.master.sessions.values()
        assert len(master.book.plans) == len(master.cluster.worker.graphs) == LIMIT
