"""Processes that fork after they have used tfmini, as multiprocessing's children do."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf
from tfmini.runtime import options
from tfmini.runtime.executor.dispatch import TaskThreads
from tfmini.runtime.process import current_process
from tfmini.testing import ProcessCluster

pytestmark = [
    # Python warns that a forked child has only one of the threads: that is what these tests are about.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
_CHILD_S = 60


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns (a JSON value), or the error that it raises, in a forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(_CHILD_S)  # a child that hangs dies and has written nothing
        try:
            result: Any = work()
        except BaseException as error:  # noqa: BLE001 - a child must not go on with its parent's test
            result = f"{type(error).__name__}: {error}"
        try:
            os.write(writer, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    assert data, "the child hung"
    return json.loads(data)


def test_sibling_processes_use_different_step_ids() -> None:
    def count() -> list[int]:
        return [options.new_step_id() for _ in range(100)]

    one, other, own = in_child(count), in_child(count), count()
    assert len({*one, *other, *own}) == 300
    assert all(0 <= number < 1 << 56 for number in (*one, *other, *own))


def test_a_child_reaches_its_parents_server_and_not_a_copy() -> None:
    with tf.train.Server.create_local_server() as server:
        v = tf.Variable(1.0, name="v")
        with tf.Session(server.target) as session:
            session.run(v.initializer)

            def assign() -> float:
                with tf.Session(server.target) as own:
                    return float(own.run(v.assign(42.0)))

            assert in_child(assign) == 42.0
            assert session.run(v) == 42.0


def test_using_an_inherited_session_or_server_is_refused() -> None:
    with tf.train.Server.create_local_server() as server:
        a = tf.constant(1.0)
        unused = tf.Session(server.target)
        with tf.Session(server.target) as session:
            session.run(a)
            uses = (lambda: session.run(a), lambda: session.run(a + 1), session.list_devices, lambda: unused.run(a))
            for use in uses:
                said = in_child(use)
                assert said.startswith("FailedPreconditionError: This session of /job:local/replica:0/task:0 was made")
                assert "Make it after the fork" in said
            for use in (server.join, server.start):
                assert in_child(use).startswith("FailedPreconditionError: The server of /job:local/replica:0/task:0")
            assert in_child(lambda: (session.close(), server.stop())) == [None, None]
            assert session.run(a) == 1.0  # the child's closing and stopping did no harm
        unused.close()


def test_a_child_opens_remote_sessions_of_its_own() -> None:
    with ProcessCluster(ps=1, workers=0) as cluster:
        a = tf.constant(1.0)
        with tf.Session(cluster.target("ps", 0)) as session:
            assert session.run(a) == 1.0

            def run() -> float:
                with tf.Session(cluster.target("ps", 0)) as own:
                    return float(own.run(a + 1))

            assert in_child(run) == 2.0
            assert in_child(lambda: session.run(a)).startswith("FailedPreconditionError: This session with 127.0.0.1:")
            assert in_child(session.close) is None
            assert session.run(a) == 1.0


def test_a_child_goes_on_with_a_copy_of_a_local_session() -> None:
    v = tf.Variable(1.0)
    with tf.Session() as session:
        session.run(v.initializer)
        assert in_child(lambda: float(session.run(v.assign_add(1.0)))) == 2.0
        assert session.run(v) == 1.0


def test_a_child_starts_threads_of_its_own_for_long_segments() -> None:
    threads = TaskThreads(current_process(), None, pool_size=1)

    def long_work() -> list[bool]:
        ends = threading.Event(), threading.Event()
        assert threads.run_in_pool(ends[0].set)
        threads.spare.submit(ends[1].set)
        return [end.wait(20) for end in ends]

    try:
        assert long_work() == [True, True]  # the pool has all its threads
        assert in_child(long_work) == [True, True]
        assert long_work() == [True, True]
    finally:
        threads.close()
