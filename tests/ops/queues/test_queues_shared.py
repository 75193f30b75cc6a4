"""One queue on a parameter server, clients in several processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
from tfmini.testing import ProcessCluster

_CLIENT = """
import sys
import tfmini as tf
with tf.device("/job:ps/task:0"):
    queue = tf.FIFOQueue(10, tf.int32, shapes=[()], shared_name="jobs")
with tf.Session(sys.argv[1]) as session:
    session.run(queue.size())
    print("ready", flush=True)
    print(session.run(queue.dequeue_many(int(sys.argv[2]))).tolist(), flush=True)
"""


def _client(cluster: ProcessCluster, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CLIENT, cluster.target("worker", 0), str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip() == "ready"
    return process


def test_no_element_is_lost_when_a_client_is_killed() -> None:
    with ProcessCluster(ps=1, workers=1) as cluster, tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(10, tf.int32, shapes=[()], shared_name="jobs")
        with tf.Session(cluster.target("worker", 0)) as session:
            one = _client(cluster, 2)
            session.run(queue.enqueue_many([[1, 2]]))
            assert one.communicate(timeout=60)[0].strip() == "[1, 2]"
            killed = _client(cluster, 3)
            session.run(queue.enqueue_many([[3, 4]]))  # part of the batch that the client waits for
            deadline = time.monotonic() + 60
            while session.run(queue.size()) and time.monotonic() < deadline:
                pass  # until the client's batch has taken them
            killed.kill()
            killed.communicate(timeout=60)
            # Once the server has noticed, the elements are back; until then this waits for them.
            assert session.run(queue.dequeue_many(2), options=tf.RunOptions(timeout_in_ms=60_000)).tolist() == [3, 4]


def test_sessions_of_two_workers_find_a_shared_queue_without_a_device() -> None:
    with ProcessCluster(ps=1, workers=2) as cluster:
        queue = tf.FIFOQueue(10, tf.int32, shapes=[()], shared_name="jobs")
        gradients = tf.ConditionalAccumulator(tf.float32, shape=(), shared_name="gradients")
        put = [queue.enqueue(3), gradients.apply_grad(2.0)]
        targets = [cluster.target("worker", task) for task in range(2)]
        with tf.Session(targets[0]) as one, tf.Session(targets[1]) as other:
            one.run(put)
            assert other.run(queue.dequeue(), options=tf.RunOptions(timeout_in_ms=60_000)) == 3
            assert other.run(gradients.num_accumulated()) == 1


def _status(pid: int, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_thousand_waiting_dequeues_need_little_memory_and_no_threads() -> None:
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster, tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(10, tf.int32, shared_name="q")
        get, close, size = queue.dequeue(), queue.close(), queue.size()
        with tf.Session(cluster.server.target) as session:
            session.run(size)
            master = session.master
            plan = master.prepare(((), (get.name,), ()))
            (server,) = cluster.processes.values()
            memory, threads = _status(server.pid, "VmRSS"), _status(server.pid, "Threads")
            ends: list[Any] = []
            all_ended = Waiter()

            def end(error: Any, *_: Any) -> None:
                ends.append(error)
                if len(ends) == 10_000:
                    all_ended.set()

            for _ in range(10_000):
                master.session.new_step(plan, end, None).start([])
            session.run(size)  # goes the same way, so all of them are there
            assert _status(server.pid, "VmRSS") - memory < 100_000
            # Ten thousand would be one each; those of pools are as many as there are cores.
            assert _status(server.pid, "Threads") <= threads + 8 + 2 * (os.cpu_count() or 1)
            assert not ends
            session.run(close)
            # Nothing else is asked of the server meanwhile: its threads would get in each other's way at every answer.
            assert get_reactor().drive(all_ended, get_reactor().now() + 200), f"{len(ends)} answers"
            assert {type(error) for error in ends} == {tf.errors.OutOfRangeError} and len(ends) == 10_000
