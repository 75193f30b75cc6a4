"""One queue on a parameter server, clients in several processes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import tfmini as tf
from tfmini.testing.process_cluster import ProcessCluster

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


@pytest.mark.timeout(60)
def test_items_go_to_other_processes_and_none_is_lost_with_a_killed_client() -> None:
    with ProcessCluster(ps=1, workers=1) as cluster, tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(10, tf.int32, shapes=[()], shared_name="jobs")
        with tf.Session(cluster.target("worker", 0)) as session:
            one = _client(cluster, 2)
            session.run(queue.enqueue_many([[1, 2]]))
            assert one.communicate(timeout=20)[0].strip() == "[1, 2]"
            killed = _client(cluster, 3)
            session.run(queue.enqueue_many([[3, 4]]))  # part of the batch that the client waits for
            deadline = time.monotonic() + 20
            while session.run(queue.size()) and time.monotonic() < deadline:
                pass  # until the client's batch has taken them
            killed.kill()
            killed.communicate(timeout=20)
            # Once the server has noticed, the elements are back; until then this waits for them.
            assert session.run(queue.dequeue_many(2), options=tf.RunOptions(timeout_in_ms=20_000)).tolist() == [3, 4]
