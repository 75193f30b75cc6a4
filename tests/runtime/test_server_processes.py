"""Clusters of real processes: training, sharing, consistency, failure."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tfmini as tf
from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster


def _linear_model(steps_var: bool = True):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    y = tf.placeholder(tf.float32, [None, 1], name="y")
    w = tf.Variable(tf.zeros([3, 1]), name="w")
    b = tf.Variable(tf.zeros([1]), name="b")
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    return x, y, w, loss, step, train


def _data():
    rng = np.random.RandomState(0)
    xs = rng.randn(64, 3).astype(np.float32)
    return xs, xs @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.3


def test_one_ps_one_worker_trains_like_a_local_session() -> None:
    xs, ys = _data()
    with tf.Graph().as_default():
        x, y, w, loss, _, train = _linear_model()
        init = tf.global_variables_initializer()
        with tf.Session() as session:
            session.run(init)
            for _ in range(20):
                session.run(train, {x: xs, y: ys})
            expected = session.run(w)
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster, tf.Graph().as_default():
        setter = tf.train.replica_device_setter(cluster=cluster.spec, worker_device="/job:worker/task:0")
        with tf.device(setter):
            x, y, w, loss, step, train = _linear_model()
            init = tf.global_variables_initializer()
        assert w.device == "/job:ps/task:0"
        with tf.Session(cluster.server.target) as session:
            session.run(init)
            for _ in range(20):
                session.run(train, {x: xs, y: ys})
            np.testing.assert_allclose(session.run(w), expected, rtol=1e-5)
            assert session.run(step) == 20


def test_two_ps_three_workers_share_variables_by_name() -> None:
    xs, ys = _data()
    with ProcessCluster(ps=2, workers=3) as cluster, tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=cluster.spec)):
            x, y, w, loss, step, train = _linear_model()
            init = tf.global_variables_initializer()
        sessions = [tf.Session(cluster.target("worker", i)) for i in range(3)]
        sessions[0].run(init)
        first = sessions[0].run(loss, {x: xs, y: ys})
        threads = [
            threading.Thread(target=lambda s=s: [s.run(train, {x: xs, y: ys}) for _ in range(15)]) for s in sessions
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sessions[2].run(step) == 45
        assert sessions[1].run(loss, {x: xs, y: ys}) < first / 5
        for session in sessions:
            session.close()


def test_one_graph_is_replicated_over_two_workers() -> None:
    with ProcessCluster(ps=1, workers=2) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            w = tf.Variable([1.0, 2.0], name="w")
        x = tf.placeholder(tf.float32, [2, 2])
        parts = []
        for i in range(2):
            with tf.device(f"/job:worker/task:{i}"):
                parts.append(tf.reduce_sum(x[i] * w))
        with tf.device("/job:ps/task:0"):
            total = tf.add_n(parts)
            grad = tf.gradients(total, w)[0]
            update = w.assign_sub(0.1 * grad)
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(w.initializer)
            feed = {x: [[1, 2], [3, 4]]}
            np.testing.assert_allclose(session.run(total, feed), 5 + 11)
            np.testing.assert_allclose(session.run(update, feed), [0.6, 1.4], rtol=1e-6)


def test_no_update_is_lost_between_clients() -> None:
    clients, updates = 3, 40
    with ProcessCluster(ps=1, workers=1) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(tf.zeros([1000]), name="counter")
            add = v.assign_add(tf.ones([1000]))
        sessions = [tf.Session(cluster.target("worker", 0)) for _ in range(clients)]
        sessions[0].run(v.initializer)
        torn: list[np.ndarray] = []

        def work(session: tf.Session) -> None:
            for _ in range(updates):
                session.run(add.op)
                value = session.run(v)
                if value.min() != value.max():
                    torn.append(value)

        threads = [threading.Thread(target=work, args=(s,)) for s in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not torn
        np.testing.assert_array_equal(sessions[0].run(v), np.full(1000, clients * updates))
        for session in sessions:
            session.close()


def test_control_edges_hold_across_tasks() -> None:
    with ProcessCluster(ps=2, workers=1) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            a = tf.Variable(0.0, name="a")
        with tf.device("/job:ps/task:1"):
            b = tf.Variable(0.0, name="b")
            with tf.control_dependencies([a.assign_add(1.0)]):
                second = b.assign_add(10.0)
        with tf.device("/job:worker/task:0"), tf.control_dependencies([second]):
            after = tf.no_op()
            with tf.device("/job:ps/task:0"):
                late_a = a.read_value()
            with tf.device("/job:ps/task:1"):
                late_b = b.read_value()
            total = tf.add(late_a, late_b)
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(tf.global_variables_initializer())
            for i in range(1, 6):
                session.run(after)
                assert session.run([a, b]) == [i, 10 * i]
            assert session.run(total) == 6 + 60


def test_an_error_names_the_node_and_the_task() -> None:
    with ProcessCluster(ps=1, workers=1) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(1.0, name="never_set")
        with tf.device("/job:worker/task:0"):
            use = v + 1.0
        with tf.Session(cluster.target("worker", 0)) as session:
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value never_set") as info:
                session.run(use)
            assert "/job:ps/replica:0/task:0" in str(info.value)
            session.run(v.initializer)
            assert session.run(use) == 2.0


def test_a_killed_ps_fails_the_steps_that_need_it_and_no_others() -> None:
    with ProcessCluster(ps=2, workers=1) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            a = tf.Variable(1.0, name="a")
        with tf.device("/job:ps/task:1"):
            b = tf.Variable(2.0, name="b")
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(tf.global_variables_initializer())
            session.run([a, b])
            cluster.kill("ps", 1)
            with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:1"):
                session.run(b)
            assert session.run(a) == 1.0
            cluster.start_task("ps", 1)
            cluster.wait_ready("ps", 1)
            with pytest.raises(tf.errors.AbortedError, match="restarted"):
                _until_not_unavailable(lambda: session.run(b))
        with tf.Session(cluster.target("worker", 0)) as fresh:
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value b"):
                fresh.run(b)
            assert fresh.run(a) == 1.0


def _until_not_unavailable(action) -> None:
    """A restarted task is Unavailable until the connection is up again; each try waits for it a little."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            action()
            return
        except tf.errors.UnavailableError:
            continue


def test_a_stopped_process_is_noticed_by_its_silence() -> None:
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            a = tf.Variable(1.0, name="a")
        with tf.Session(cluster.server.target) as session:
            session.run(a.initializer)
            session.run(a)
            cluster.kill("ps", 0, signal.SIGSTOP)
            gone = "/job:ps/replica:0/task:0.*silent: it sent nothing for 4 s"
            with pytest.raises(tf.errors.UnavailableError, match=gone):
                session.run(a)


def test_a_deadline_ends_a_step_that_waits_for_a_stopped_task() -> None:
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            a = tf.Variable(1.0, name="a")
        with tf.Session(cluster.server.target) as session:
            session.run(a.initializer)
            session.run(a)
            cluster.kill("ps", 0, signal.SIGSTOP)
            options = tf.RunOptions(timeout_in_ms=300)
            with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0"):
                session.run(a, options=options)


def test_a_task_that_is_not_up_is_waited_for_and_named(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ProcessCluster(ps=1, workers=1, local=("worker", 0))
    cluster.refuse("ps", 0)
    cluster.start_local()
    try:
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                c = tf.constant(1.0) + tf.placeholder_with_default(1.0, [])
            config = tf.ConfigProto(operation_timeout_in_ms=700)
            with tf.Session(cluster.server.target, config=config) as session:
                with pytest.raises(tf.errors.DeadlineExceededError) as info:
                    session.run(c)
                text = str(info.value)
                assert "/job:ps/replica:0/task:0" in text and cluster.spec.task_address("ps", 0) in text
    finally:
        cluster.stop()


def test_sessions_need_only_the_tasks_they_use() -> None:
    cluster = ProcessCluster(ps=1, workers=2, local=("worker", 0))
    cluster.start_task("ps", 0)  # /job:worker/task:1 is never started
    cluster.start_local()
    try:
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                v = tf.Variable(3.0)
            with tf.Session(cluster.server.target) as session:
                session.run(v.initializer)
                assert session.run(v) == 3.0
    finally:
        cluster.stop()


def test_a_client_uses_several_servers_one_after_the_other() -> None:
    with ProcessCluster(ps=1, workers=2) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(0.0, name="shared")
            add = v.assign_add(1.0)
        with tf.Session(cluster.target("worker", 0)) as one, tf.Session(cluster.target("worker", 1)) as two:
            one.run(v.initializer)
            one.run(add)
            two.run(add)
            assert one.run(v) == two.run(v) == 2.0
        with tf.Session() as local, pytest.raises(tf.errors.InvalidArgumentError, match="local"):
            local.run(v)


def test_reset_clears_containers_on_all_tasks() -> None:
    with ProcessCluster(ps=1, workers=1) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(5.0, name="v")
        target = cluster.target("worker", 0)
        session = tf.Session(target)
        session.run(v.initializer)
        tf.Session.reset(target, ["other"])
        fresh = tf.Session(target)
        assert fresh.run(v) == 5.0
        tf.Session.reset(target)
        with tf.Session(target) as last, pytest.raises(tf.errors.FailedPreconditionError):
            last.run(v)
        for _ in range(2):
            with pytest.raises(tf.errors.AbortedError, match="was reset by a client at 127.0.0.1 with the key of"):
                session.run(v)


def test_servers_end_cleanly_on_sigterm_and_ports_are_free_at_once() -> None:
    cluster = ProcessCluster(ps=1, workers=1).start()
    for job in ("ps", "worker"):
        cluster.wait_ready(job, 0)
    assert set(cluster.stop().values()) == {0}
    for job in ("ps", "worker"):
        spec = {job: [cluster.spec.task_address(job, 0)]}
        with tf.train.Server(spec, job_name=job, task_index=0) as server:
            assert server.target


def test_a_client_that_dies_in_a_step_leaves_the_server_usable() -> None:
    script = (
        "import sys, os, signal, tfmini as tf\n"
        "with tf.device('/job:ps/task:0'): v = tf.Variable(tf.zeros([4]), name='v'); a = v.assign_add(tf.ones([4]))\n"
        "s = tf.Session(sys.argv[1]); s.run(v.initializer); s.run(a.op)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with ProcessCluster(ps=1, workers=1) as cluster, tf.Graph().as_default():
        target = cluster.target("worker", 0)
        subprocess.run([sys.executable, "-c", script, target], timeout=200, check=False)
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(tf.zeros([4]), name="v")
        with tf.Session(target) as session:
            np.testing.assert_array_equal(session.run(v), np.ones(4))


def test_a_large_tensor_is_fed_sent_and_fetched() -> None:
    value = np.arange(16 << 20, dtype=np.float32)  # 64 MB
    with ProcessCluster(ps=1, workers=1) as cluster, tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None])
        with tf.device("/job:ps/task:0"):
            doubled = x * 2.0
        with tf.Session(cluster.target("worker", 0)) as session:
            np.testing.assert_array_equal(session.run(doubled, {x: value}), value * 2)


_OTHER_WORKER = """
import json, sys
import tfmini as tf
cluster = json.loads(sys.argv[1])
server = tf.train.Server(cluster, job_name=sys.argv[2], task_index=int(sys.argv[3]))
tf.py_func(lambda: "the other worker's function", [], tf.string)  # as every worker of this script builds it
print("ready", flush=True)
server.join()
"""


@pytest.mark.cluster
def test_a_py_func_never_runs_in_another_worker_of_the_same_script() -> None:
    with ProcessCluster(ps=0, workers=1, program=_OTHER_WORKER) as cluster:
        cluster.wait_ready("worker", 0)
        mine = tf.py_func(lambda: "my function", [], tf.string)
        with (
            tf.Session(cluster.target("worker", 0)) as session,
            pytest.raises(tf.errors.InvalidArgumentError, match="not found in this process"),
        ):
            session.run(mine)
