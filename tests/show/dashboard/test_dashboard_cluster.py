"""The page and `tfmini stacks` of real processes, the page in a real browser: hangs are explained, losses are shown."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import tfmini as tf  # noqa: E402
from tests.show.dashboard.serving import TOKEN, serving_source  # noqa: E402
from tests.show.dashboard.test_server import ask, messages  # noqa: E402
from tests.show.dashboard.test_server_page_html import text, until  # noqa: E402
from tests.show.inspection.browser import Browser  # noqa: E402
from tests.show.status.test_explanation_metrics import PROMTOOL  # noqa: E402
from tfmini.show.dashboard import picture  # noqa: E402
from tfmini.show.dashboard.server import ClusterReader  # noqa: E402
from tfmini.show.status.explanation import to_prometheus  # noqa: E402
from tfmini.show.status.gather import Gatherer  # noqa: E402
from tfmini.testing import ProcessCluster  # noqa: E402
from tfmini.tools.cli import main  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WORKERS = 3


class Watched(NamedTuple):
    """A cluster, and the address of its page."""

    cluster: ProcessCluster
    address: str


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """2 ps and 3 workers for all tests of this file. The last one kills some of them."""
    with contextlib.ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setenv("TFMINI_LOST_AFTER", "60")  # a busy machine is no loss; the end of a process is told at once
        cluster = stack.enter_context(ProcessCluster(ps=2, workers=WORKERS))
        gatherer = stack.enter_context(Gatherer(cluster.target("ps", 0)))
        source = ClusterReader(partial(gatherer.gather, timeout_s=20.0), to_prometheus)
        address = stack.enter_context(serving_source(source, interval_s=0.2))
        messages(address, 1)  # the thread that asks the cluster belongs to the fixture
        yield Watched(cluster, address)


class Clients:
    """Sessions of the workers, and threads that use them."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.sessions = [tf.Session(cluster.target("worker", i)) for i in range(WORKERS)]
        self._threads: list[threading.Thread] = []

    def start(self, call: Callable[[], Any]) -> None:
        """Calls in a thread; an error of the cluster ends it."""

        def run() -> None:
            with contextlib.suppress(tf.errors.OpError):
                call()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def close(self) -> None:
        for session in self.sessions:
            with contextlib.suppress(tf.errors.OpError):
                session.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@contextlib.contextmanager
def blocked_file(path: Path) -> Iterator[str]:
    """The name of a file whose readers hang until the end of the context: a disk that does not answer."""
    os.mkfifo(path)
    try:
        yield str(path)
    finally:
        with contextlib.suppress(OSError):  # there was no reader
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@pytest.fixture
def opened(browser: Browser, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """The page, which tells of waits of one second; the graph is a new one."""
    monkeypatch.setattr(picture, "LONG_S", 1.0)
    browser.go(f"{watched.address}/?token={TOKEN}")
    until(browser, "lastMessage && document.querySelectorAll('[data-id].ok, [data-id].waits').length === 5")
    yield browser


def stacks(watched: Watched) -> str:
    """What `tfmini stacks` prints."""
    result = CliRunner().invoke(main, ["stacks", "--least", "0.5", watched.cluster.target("ps", 1)])
    assert result.exit_code == 0, result.output
    return result.output


def label(page: Browser, box: str) -> str:
    return " ".join(page.run(f"boxOf({box!r}).ariaLabel").split())


def marked(page: Browser) -> list[str]:
    return sorted(page.run("boxNames('.culprit')"))


def test_a_deadlock_between_two_queues(opened: Browser, watched: Watched) -> None:
    with tf.device("/job:ps/task:0"):
        queues = [tf.FIFOQueue(1, tf.float32, shapes=(), shared_name=name) for name in ("left", "right")]
        steps = [theirs.enqueue(mine.dequeue() + 1.0) for mine, theirs in (queues, queues[::-1])]
    clients = Clients(watched.cluster)
    try:
        for session, step in zip(clients.sessions, steps):
            clients.start(partial(session.run, step))
        until(opened, "boxNames('.culprit').length === 2 && /^deadlock/.test($('headline').innerText)")
        ring = text(opened, "#headline").removeprefix("deadlock: ")
        assert ring in ("worker/0 ← worker/1 ← worker/0", "worker/1 ← worker/0 ← worker/1")
        assert marked(opened) == ["worker/0", "worker/1"]
        assert "deadlock with worker/1" in label(opened, "worker/0")
        shown, printed = text(opened, "#why"), stacks(watched)
        assert f"Deadlock: {ring}" in shown and "DEADLOCK of 2 waits" in printed
        for hop in ('worker/0 waits for an element of FIFOQueue "left"', 'for an element of FIFOQueue "right"'):
            assert hop in shown and hop in printed
    finally:
        clients.close()


def test_the_stuck_worker_of_a_synchronous_run(opened: Browser, watched: Watched, tmp_path: Path) -> None:
    """Worker 2 reads a file that does not answer; the others have sent their gradients and wait for tokens."""
    with blocked_file(tmp_path / "file") as name:
        with tf.device("/job:ps/task:0"):
            step = tf.train.get_or_create_global_step()
            weight = tf.get_variable("W", initializer=2.0)
        optimizers, train_ops = [], []
        for index in range(WORKERS):
            with tf.device(f"/job:worker/task:{index}"):
                data = tf.constant(1.0) if index < 2 else tf.strings.to_number(tf.read_file(name, name="images"))
                optimizers.append(tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), WORKERS))
                train_ops.append(optimizers[-1].minimize(data * weight, global_step=step))
        clients = Clients(watched.cluster)
        try:
            clients.sessions[0].run(tf.global_variables_initializer())
            clients.sessions[0].run(optimizers[0].chief_init_op)
            for session, optimizer in zip(clients.sessions, optimizers):
                session.run(optimizer.local_step_init_op)
            clients.start(partial(clients.sessions[0].run, optimizers[0].get_chief_queue_runner().enqueue_ops[0]))
            for session, op in zip(clients.sessions, train_ops):
                clients.start(partial(session.run, op))
            until(opened, "boxNames('.culprit').join() === 'worker/2'")
            # At first it may wait, and nobody knows yet for whom.
            until(opened, "/waits for worker.2/.test(boxOf('worker/1').ariaLabel)")
            until(opened, "/computes/.test(boxOf('worker/2').ariaLabel)")
            assert marked(opened) == ["worker/2"] and text(opened, "#headline").startswith("worker/2 computes")
            shown, printed = text(opened, "#why"), stacks(watched)
            assert "images" in shown and "images" in printed
            for part in ("worker/2 computes", "sync_token_q", "waits for 3 gradients in accumulator"):
                assert part in shown and part in printed
        finally:
            clients.close()


def test_a_slow_ps(opened: Browser, watched: Watched, tmp_path: Path) -> None:
    """The steps of all workers need what ps/1 reads from a slow disk."""
    with blocked_file(tmp_path / "file") as name:
        with tf.device("/job:ps/task:1"):
            table = tf.read_file(name, name="table")
        lengths = []
        for index in range(WORKERS):
            with tf.device(f"/job:worker/task:{index}"):
                lengths.append(tf.strings.length(table))
        clients = Clients(watched.cluster)
        try:
            for session, length in zip(clients.sessions, lengths):
                clients.start(partial(session.run, length))
            until(opened, "boxNames('.bottleneck').join() === 'ps/1' || boxNames('.culprit').length")
            until(opened, "boxNames('.culprit').length && /3 steps wait/.test($('why').innerText)")
            assert marked(opened) == ["ps/1"] and text(opened, "#headline").startswith("ps/1 computes")
            assert all("waits for ps/1" in label(opened, f"worker/{i}") for i in range(WORKERS))
            printed = stacks(watched)
            assert "ps/1 computes" in printed and "table" in printed and "3 steps wait for it" in printed
        finally:
            clients.close()


def test_the_metrics_have_the_names_of_the_board_and_promtool_accepts_them(watched: Watched) -> None:
    """Names that only exist while a job uses a queue, writes summaries and so on are tested in tests/show/status."""
    with tf.device("/job:ps/task:0"):
        counter = tf.Variable(0.0)
    clients = Clients(watched.cluster)
    try:
        clients.sessions[0].run(counter.initializer)
        for session in clients.sessions:
            session.run(counter.assign_add(1.0))
        messages(watched.address, 2)
        status, metrics, _ = ask(watched.address, "/metrics")
    finally:
        clients.close()
    assert status == 200
    names = set(re.findall(r"^# TYPE (tfmini_\w+)", metrics, re.MULTILINE))
    board = (Path(__file__).parents[3] / "docs" / "reference" / "grafana.json").read_text()
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\btfmini_\w+", board)}
    used = ("tfmini_queue_", "tfmini_scalar", "tfmini_gradients_", "tfmini_waits", "tfmini_update_staleness")
    assert {name for name in shown - names if not name.startswith(used)} == set()
    assert 'tfmini_up{task="/job:ps/replica:0/task:0"} 1\n' in metrics
    if PROMTOOL is None:
        pytest.skip("the names are right; promtool is not there to read them (apt install prometheus)")
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_running_job_and_the_kill_of_a_worker_and_of_a_ps(opened: Browser, watched: Watched) -> None:
    """It ends two tasks of the cluster, so it is the last test."""
    with tf.device(tf.train.replica_device_setter(cluster=watched.cluster.spec)):
        w = tf.Variable(tf.zeros([100, 100]), name="w")
        b = tf.Variable(tf.zeros([100]), name="b")
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.ones([1, 100]), w) + b - 1.0))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf.global_variables_initializer()
    clients, ended = Clients(watched.cluster), threading.Event()

    def work(session: tf.Session) -> None:
        while not ended.is_set():
            session.run(train)

    try:
        clients.sessions[0].run(init)
        for session in clients.sessions:
            clients.start(partial(work, session))
        until(opened, "document.querySelectorAll('#graph .wire[data-from]').length >= 12")
        until(opened, "boxNames('.box').filter((n) => /[1-9].* steps.s/.test(boxOf(n).ariaLabel)).length === 3")
        until(opened, "drawnCharts.has('steps') && drawnCharts.get('steps').labels.length === 3")
        assert all(f"joined ps/{i}" in text(opened, "#events") for i in range(2))
        watched.cluster.kill("worker", 2)
        watched.cluster.kill("ps", 0)  # the server that was asked first
        until(opened, "['ps/0', 'worker/2'].every((id) => boxOf(id).classList.contains('silent'))")
        until(opened, "/lost ps.0/.test($('events').innerText) && /lost worker.2/.test($('events').innerText)")
        assert "lost ps/1" not in text(opened, "#events")
        until(opened, "/no answer: ps.0, worker.2$/.test($('headline').innerText)")
        assert not opened.run("boxOf('worker/0').classList.contains('silent')")
    finally:
        ended.set()
        clients.close()
