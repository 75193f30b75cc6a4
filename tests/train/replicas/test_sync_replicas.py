"""SyncReplicasOptimizer: its graph, what it computes, how it ends, and its ledger."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.oracle import Oracle
from tests.train.replicas import sync_cases as cases
from tfmini.testing import ProcessCluster
from tfmini.train.replicas import sync_replicas
from tfmini.train.replicas.sync_state import SyncLedger

STEPS, BATCH = 5, 8


# ---- the graph ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(oracle: Oracle) -> Any:
    return oracle.call(cases.outcomes)


def _of_sync_training(ops: dict[str, list[Any]]) -> dict[str, list[Any]]:
    # Gradients and reports have graphs of their own. The queue that TensorFlow 1.15 gives its runner is the
    # token queue in 2.x, which is placed on CPUs.
    others = ("gradients/", "report_uninitialized", "dummy_queue", "sync_token_q_Close", "add", "Sum", "Square")
    return {
        name: [kind, [i for i in inputs if not i.startswith("gradients/")], controls,
               place.replace("/device:cpu:*", ""), shared]
        for name, (kind, inputs, controls, place, shared) in ops.items()
        if not name.startswith(others)
    }  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("options", cases.OPTIONS)
def test_graph_is_tensorflows(expected: Any, options: str, sparse: bool) -> None:
    opt, train = cases.build(tf, options, sparse)
    wanted = expected[f"{options}-{sparse}"]
    assert train.name == wanted["train"]
    assert opt.chief_init_op.name == wanted["chief_init"]
    assert opt.local_step_init_op.name == wanted["local_init"]
    assert opt.ready_for_local_init_op.name == wanted["ready"]
    ours = _of_sync_training(cases.describe(tf.get_default_graph()))
    theirs = _of_sync_training(wanted["ops"])
    assert len(ours) >= 60
    assert ours == theirs


def test_calls_out_of_order_and_wrong_arguments_are_refused() -> None:
    opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 5, total_num_replicas=2)
    v = tf.Variable(1.0)
    for call, text in [
        (opt.get_chief_queue_runner, "Should be called after apply_gradients"),
        (opt.get_init_tokens_op, "should be called after apply_gradients"),
        (lambda: opt.ledger(None), "should be called after apply_gradients"),
        (opt.make_session_run_hook(True).begin, "should be called before using the hook"),
        (lambda: opt.apply_gradients([]), "Must supply at least one variable"),
        (lambda: opt.apply_gradients([(tf.constant(1.0), v)]), "Global step is required to check staleness"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    opt.apply_gradients([(tf.constant(1.0), v)], tf.train.get_or_create_global_step())
    with pytest.raises(ValueError, match=r"Too few tokens to finish the first step: 2 \(given\) vs 3 \(needed\)"):
        opt.get_init_tokens_op(2)
    assert opt.get_init_tokens_op(3).type == "QueueEnqueueManyV2"


# ---- training -------------------------------------------------------------------------------


@contextmanager
def servers(workers: int) -> Iterator[tuple[Any, list[str]]]:
    """One ps and some workers in this process: (cluster, targets of the workers)."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers + 1)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    cluster = tf.train.ClusterSpec({"ps": addresses[:1], "worker": addresses[1:]})
    started = [tf.train.Server(cluster, job_name="ps", task_index=0)]
    started += [tf.train.Server(cluster, job_name="worker", task_index=i) for i in range(workers)]
    try:
        yield cluster, [s.target for s in started[1:]]
    finally:
        for server in reversed(started):
            server.stop()


@contextmanager
def processes(workers: int) -> Iterator[tuple[Any, list[str]]]:
    """The same, each task a process."""
    with ProcessCluster(ps=1, workers=workers) as cluster:
        yield cluster.spec, [cluster.target("worker", i) for i in range(workers)]


def shards(workers: int) -> tuple[np.ndarray, np.ndarray]:
    """[step, worker, batch, 3] inputs and [step, worker, batch, 1] targets."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, workers, BATCH, 3)).astype(np.float32)
    return x, x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.3


INNER: dict[str, Callable[[], Any]] = {
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf.train.AdamOptimizer(0.05),
}


class Model:
    """A linear model, and the same rows of a table that every batch looks up."""

    def __init__(self) -> None:
        self.x = tf.placeholder(tf.float32, [None, 3])
        self.y = tf.placeholder(tf.float32, [None, 1])
        self.w = tf.Variable(tf.zeros([3, 1]), name="w")
        self.b = tf.Variable(tf.zeros([1]), name="b")
        self.loss = tf.reduce_mean(tf.square(tf.matmul(self.x, self.w) + self.b - self.y))
        self.step = tf.train.get_or_create_global_step()


def large_batch(inner: str, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The parameters after training in one process on the batches of all workers together."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        train = INNER[inner]().minimize(model.loss, global_step=model.step)
        session.run(tf.global_variables_initializer())
        for step in range(STEPS):
            session.run(train, {model.x: x[step].reshape(-1, 3), model.y: y[step].reshape(-1, 1)})
        return session.run([model.w, model.b])


def in_threads(functions: list[Callable[[], None]], barrier: threading.Barrier | None = None) -> None:
    """Runs them at once; raises the first error of any."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)
            if barrier is not None:
                barrier.abort()

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
    if errors:
        raise errors[0]
    assert not any(t.is_alive() for t in threads)


class Worker:
    """One worker's program. ``train`` gets a monitored session and does the steps."""

    def __init__(self, cluster: Any, targets: list[str], task: int, *arguments: Any, tokens: int = -1) -> None:
        self.cluster, self.target, self.task = cluster, targets[task], task
        self.arguments, self.tokens = arguments, tokens
        self.produced = 0
        self.parameters: Any = None
        self.ledger: SyncLedger | None = None

    def run(self, inner: str, train: Callable[[Worker, Any], None]) -> None:
        setter = tf.train.replica_device_setter(cluster=self.cluster, worker_device=f"/job:worker/task:{self.task}")
        with tf.Graph().as_default(), tf.device(setter):
            self.model = Model()
            self.opt = tf.train.SyncReplicasOptimizer(INNER[inner](), *self.arguments)
            self.op = self.opt.minimize(self.model.loss, global_step=self.model.step)
            hook = self.opt.make_session_run_hook(self.task == 0, self.tokens)
            with tf.train.MonitoredTrainingSession(
                self.target, is_chief=self.task == 0, hooks=[hook], save_checkpoint_secs=None,
                save_summaries_steps=None, log_step_count_steps=None,
            ) as session:  # fmt: skip
                train(self, session)

    def send(self, session: Any, x: np.ndarray, y: np.ndarray) -> None:
        """One training step."""
        self.produced += 2  # gradients: one per variable
        session.run(self.op, {self.model.x: x, self.model.y: y})


@pytest.mark.parametrize(
    ("make", "inner", "workers"),
    [(servers, "momentum", n) for n in (1, 2, 3, 4)]
    + [(servers, "adam", n) for n in (1, 2, 3, 4)]
    + [pytest.param(processes, inner, n, marks=pytest.mark.cluster) for inner, n in (("momentum", 2), ("adam", 3))],
)
def test_sync_training_is_large_batch_training(make: Any, inner: str, workers: int) -> None:
    x, y = shards(workers)
    barrier = threading.Barrier(workers, timeout=100)

    def train(worker: Worker, session: Any) -> None:
        for step in range(STEPS):
            barrier.wait()  # a fast worker would otherwise give two gradients for a step, which TensorFlow allows
            worker.send(session, x[step, worker.task], y[step, worker.task])
        barrier.wait()
        if worker.task == 0:
            worker.parameters = session.run([worker.model.w, worker.model.b])
            worker.ledger = worker.opt.ledger(session)
        barrier.wait()

    with make(workers) as (cluster, targets):
        team = [Worker(cluster, targets, i, workers, tokens=0) for i in range(workers)]
        in_threads([lambda w=w: w.run(inner, train) for w in team], barrier)
    for got, wanted in zip(team[0].parameters, large_batch(inner, x, y)):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    ledger = team[0].ledger
    everyone = {f"/job:worker/task:{i}": 2 for i in range(workers)}
    assert [s.step for s in ledger.steps] == list(range(STEPS))
    assert all(ledger.contributors(step) == everyone for step in range(STEPS))
    assert (ledger.applied, ledger.stale, ledger.waiting) == (sum(w.produced for w in team), 0, 0)


def test_backup_worker_makes_up_for_a_slow_one() -> None:
    """Three workers of which two are needed; the slow one computes each gradient while a step passes."""
    x, y = shards(3)
    updates_seen = threading.Semaphore(0)
    steps = 6

    def train(worker: Worker, session: Any) -> None:
        while not session.should_stop():
            if worker.task == 2 and not updates_seen.acquire(timeout=0.5):
                continue  # the others have ended, or will soon
            worker.send(session, x[0, worker.task], y[0, worker.task])
            if worker.task == 0:
                updates_seen.release()
            if session.run(worker.model.step) >= steps:
                break
        if worker.task == 0:
            worker.ledger = worker.opt.ledger(session)

    with servers(3) as (cluster, targets):
        team = [Worker(cluster, targets, i, 2, 3) for i in range(3)]
        in_threads([lambda w=w: w.run("momentum", train) for w in team])
        ledger = ledger_of(cluster, targets)
    produced = sum(w.produced for w in team)
    # The gradients of runs that the end of the run cut off may have arrived or not.
    cut_off = produced - ledger.arrived
    lost = ledger.waiting + cut_off
    assert 0 <= cut_off <= 2 * len(team)
    assert ledger.applied + ledger.stale + lost == produced
    assert ledger.applied >= 2 * 2 * steps
    assert all(sum(s.applied.values()) >= 4 for s in ledger.steps[:steps])
    assert team[0].ledger.applied <= ledger.applied


def ledger_of(cluster: Any, targets: list[str]) -> SyncLedger:
    """What somebody learns who asks after the run."""
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")
    with tf.Graph().as_default(), tf.device(setter):
        model = Model()
        opt = tf.train.SyncReplicasOptimizer(INNER["momentum"](), 1)
        opt.minimize(model.loss, global_step=model.step)
        with tf.Session(targets[0]) as session:
            return opt.ledger(session)


def test_gradients_of_an_earlier_step_are_dropped_and_their_sender_is_named() -> None:
    """Worker 1 reads its step, then worker 0 makes two updates alone before worker 1 sends."""
    x, y = shards(2)
    waiting, go = threading.Event(), threading.Event()

    def train(worker: Worker, session: Any) -> None:
        if worker.task == 1:
            waiting.set()
            assert go.wait(100)
            worker.send(session, x[0, 1], y[0, 1])
            return
        assert waiting.wait(100)
        # Tokens that worker 1 leaves make some of worker 0's own gradients stale.
        while session.run(worker.model.step) < 2:
            worker.send(session, x[0, 0], y[0, 0])
        go.set()
        assert done.wait(100)
        worker.ledger = worker.opt.ledger(session)

    done = threading.Event()

    def slow(worker: Worker) -> None:
        worker.run("momentum", train)
        done.set()

    with servers(2) as (cluster, targets):
        team = [Worker(cluster, targets, i, 1, 2, tokens=0) for i in range(2)]
        in_threads([lambda: team[0].run("momentum", train), lambda: slow(team[1])])
    ledger = team[0].ledger
    assert ledger.dropped()["/job:worker/task:1"] == 2
    assert ledger.stale == sum(ledger.dropped().values())
    assert "/job:worker/task:1" not in {who for s in ledger.steps for who in s.applied}
    assert "/job:worker/task:1 2" in str(ledger).split("stale: ")[1]
    assert set(ledger.by_variable) == {"w", "b"}


@pytest.mark.parametrize("lengths", [(2, 6), (6, 2), (4, 4), (0, 3), (5, 0)])
def test_unequal_data_ends_the_run_for_all(lengths: tuple[int, int]) -> None:
    x, y = shards(2)
    ready = threading.Barrier(2, timeout=100)

    def train(worker: Worker, session: Any) -> None:
        ready.wait()
        for step in range(lengths[worker.task]):
            if session.should_stop():
                break
            worker.send(session, x[step % STEPS, worker.task], y[step % STEPS, worker.task])

    with servers(2) as (cluster, targets):
        team = [Worker(cluster, targets, i, 2) for i in range(2)]
        in_threads([lambda w=w: w.run("momentum", train) for w in team], ready)
        ledger = ledger_of(cluster, targets)
    assert ledger.applied + ledger.stale + ledger.waiting <= sum(w.produced for w in team)
    if lengths[0] > lengths[1]:  # the chief goes on with what the other leaves it
        assert team[0].produced == 2 * lengths[0]


def test_worker_that_comes_after_the_end_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sync_replicas, "REOPEN_WAIT_S", 0.2)
    x, y = shards(2)

    def train(worker: Worker, session: Any) -> None:
        worker.send(session, x[0, worker.task], y[0, worker.task])
        while worker.task:  # its token may be one that was left
            worker.send(session, x[0, worker.task], y[0, worker.task])

    with servers(2) as (cluster, targets):
        for task in range(2):
            Worker(cluster, targets, task, 2).run("momentum", train)
    assert "no chief has started another" in caplog.text


def test_servers_that_outlive_a_run_serve_the_next_one() -> None:
    x, y = shards(1)

    def train(worker: Worker, session: Any) -> None:
        for step in range(2):
            worker.send(session, x[step, 0], y[step, 0])
        worker.parameters = session.run(worker.model.step)

    with servers(1) as (cluster, targets):
        for _ in range(2):
            worker = Worker(cluster, targets, 0, 1)
            worker.run("momentum", train)
            assert worker.produced == 4
            assert worker.parameters > 0


def test_sparse_gradients_and_averages_work_in_a_plain_session() -> None:
    """Without the hook, as scripts with a coordinator do it; sparse gradients are averaged row by row."""
    table = tf.Variable([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], name="table")
    step = tf.train.get_or_create_global_step()
    averages = tf.train.ExponentialMovingAverage(0.5)
    inner = tf.train.GradientDescentOptimizer(1.0)
    opt = tf.train.SyncReplicasOptimizer(inner, 2, 1, averages, [table])
    rows = tf.placeholder(tf.int32, [None])
    train = opt.minimize(tf.reduce_sum(tf.gather(table, rows)), global_step=step)
    tokens = opt.get_init_tokens_op(1)
    coord = tf.train.Coordinator()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(opt.chief_init_op)
        opt.get_chief_queue_runner().create_threads(session, coord, daemon=True, start=True)
        session.run(tokens)
        # One worker brings both gradients of an update: the init token lets it go on after the first.
        session.run(train, {rows: [0, 1]})
        session.run(train, {rows: [1, 2]})
        np.testing.assert_allclose(session.run(table), [[0, 0], [1, 1], [2, 2]])
        ledger = opt.ledger(session)
        assert ledger.applied == 2
        assert [len(s.applied) for s in ledger.steps if s.applied] == [1]  # named by its session
        coord.request_stop()
        coord.join(stop_grace_period_secs=60)
        # The averages are kept after the token is given out; their step ends with the session at the latest.
        assert session.run(averages.average(table)).shape == (3, 2)
