"""Segments that compute without an end hold no connection: the deadline, a close and the client's death end them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster
TRANSPORTS = {
    "lane": {"TFMINI_LANE": "on", "TFMINI_STREAM": "on"},
    "zmq": {"TFMINI_LANE": "off", "TFMINI_STREAM": "off"},
}
KINDS = ["loop", "answered loop", "dataset"]


@pytest.fixture(params=TRANSPORTS)
def cluster(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessCluster]:
    for name, value in TRANSPORTS[request.param].items():
        monkeypatch.setenv(name, value)
    with ProcessCluster(ps=1, workers=2, local=("worker", 0)) as cluster:
        yield cluster


class Endless:
    """Ops of a ps: ``forever`` goes on without an end and counts its rounds in ``rounds``."""

    def __init__(self, kind: str, device: str = "/job:ps/task:0") -> None:
        with tf.device(device):
            self.rounds = tf.get_variable("rounds", [], tf.int64, tf.zeros_initializer())
            self.seen = self.rounds + 0
            self.one = tf.placeholder_with_default(1, []) + 0
            self.forever = getattr(self, f"_{kind.replace(' ', '_')}")()

    def _count(self, value: Any) -> Any:
        with tf.control_dependencies([tf.assign_add(self.rounds, 1)]):
            return tf.identity(value)

    def _loop(self) -> Any:
        return tf.while_loop(lambda i: i >= 0, lambda i: self._count(i + 0), [self.one])

    def _answered_loop(self) -> Any:
        """A loop that would wait, for an element that is always there."""
        queue = tf.FIFOQueue(1, [tf.int32], shapes=[[]])

        def turn(i: Any) -> Any:
            with tf.control_dependencies([queue.enqueue(i)]):
                return self._count(queue.dequeue())

        return tf.while_loop(lambda i: i >= 0, turn, [self.one])

    def _dataset(self) -> Any:
        """A read that finds nothing; it cannot count."""
        numbers = tf.data.Dataset.range(10).repeat().filter(lambda i: i < 0)
        return tf.data.make_one_shot_iterator(numbers).get_next()

    def wait_for_start(self, session: Any) -> None:
        poll(lambda: session.run(self.seen), "the first round")

    def wait_for_end(self, session: Any) -> None:
        poll(lambda: session.run(self.seen) == session.run(self.seen), "the last round")


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_ends_what_computes_without_an_end(cluster: ProcessCluster, kind: str) -> None:
    for target in (cluster.server.target, cluster.target("worker", 1)):  # of this process, and of another one
        with tf.Graph().as_default():
            ops = Endless(kind)
            config = tf.ConfigProto(operation_timeout_in_ms=60_000)  # of the steps that must not be held up
            with tf.Session(target, config=config) as session, tf.Session(target, config=config) as other:
                session.run(ops.rounds.initializer)
                with pytest.raises(tf.errors.DeadlineExceededError):
                    session.run(ops.forever, options=tf.RunOptions(timeout_in_ms=500))
                assert (session.run(ops.one), other.run(ops.one)) == (1, 1)
                ops.wait_for_end(session)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_closing_the_session_ends_what_computes_without_an_end(cluster: ProcessCluster, kind: str) -> None:
    for target in (cluster.server.target, cluster.target("worker", 1)):
        with tf.Graph().as_default():
            ops, ended = Endless(kind), []
            with tf.Session(target) as session, tf.Session(target) as other:
                session.run(ops.rounds.initializer)

                def run(session: Any = session, ops: Any = ops, ended: Any = ended) -> None:
                    try:
                        session.run(ops.forever)
                    except tf.errors.OpError as error:
                        ended.append(type(error))

                thread = threading.Thread(target=run)
                thread.start()
                ops.wait_for_start(other)
                session.close()
                thread.join(60)
                assert ended and ended[0] is tf.errors.CancelledError
                ops.wait_for_end(other)


_CLIENT = """
import sys
import tfmini as tf
with tf.device("/job:ps/task:0"):
    rounds = tf.get_variable("rounds", [], tf.int64, tf.zeros_initializer())
    def turn(i):
        with tf.control_dependencies([tf.assign_add(rounds, 1)]):
            return tf.identity(i)
    forever = tf.while_loop(lambda i: i >= 0, turn, [tf.placeholder_with_default(1, []) + 0])
session = tf.Session(sys.argv[1])
session.run(rounds.initializer)
session.run(forever)
"""


def test_the_death_of_the_client_ends_what_computes_without_an_end(cluster: ProcessCluster) -> None:
    """Its connection breaks, which is heard of although the ps computes."""
    ops = Endless("loop")
    with tf.Session(cluster.server.target) as session:
        session.run(ops.rounds.initializer)
        client = subprocess.Popen([sys.executable, "-c", _CLIENT, cluster.target("worker", 1)])
        try:
            ops.wait_for_start(session)
        finally:
            os.kill(client.pid, signal.SIGKILL)
            client.wait()
        ops.wait_for_end(session)


def test_two_loops_without_an_end_keep_the_threads_from_nobody(cluster: ProcessCluster) -> None:
    """As many as the pool has threads, and more."""
    ops = Endless("loop")
    sessions = [tf.Session(cluster.server.target) for _ in range(2 + (os.cpu_count() or 1))]
    sessions[0].run(ops.rounds.initializer)

    def run(session: Any) -> None:
        with pytest.raises(tf.errors.CancelledError):
            session.run(ops.forever)

    threads = [threading.Thread(target=run, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    with tf.Session(cluster.server.target, config=tf.ConfigProto(operation_timeout_in_ms=60_000)) as other:
        ops.wait_for_start(other)
        assert other.run(ops.one * 2) == 2
        for session in sessions:
            session.close()
        for thread in threads:
            thread.join(60)
        ops.wait_for_end(other)


def test_a_deadline_ends_a_local_loop_whose_answers_are_always_there() -> None:
    ops = Endless("answered loop", "")
    with tf.Session() as session:
        session.run(ops.rounds.initializer)
        with pytest.raises(tf.errors.DeadlineExceededError, match="did not end within 0.3 s"):
            session.run(ops.forever, options=tf.RunOptions(timeout_in_ms=300))
        assert session.run(ops.one) == 1
