"""A process that is told to end leaves its run after a step; the others notice nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfmini as tf
from tests.train.sessions.training_runs import Run, training_cluster
from tests.train.sessions.training_task import RINGS
from tfmini import library_log
from tfmini.exit_codes import ExitCode
from tfmini.launch.supervision import TaskId
from tfmini.runtime.process import current_process
from tfmini.testing import ProcessCluster
from tfmini.train.sessions import readiness

_ALONE = """
import sys
import tfmini as tf
step = tf.train.get_or_create_global_step()
more = tf.assign_add(step, 1)
with tf.train.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], save_checkpoint_secs=3600) as session:
    while not session.should_stop():
        print("step", session.run(more), flush=True)
print("after", flush=True)
"""

_TASK = """
import json, sys
import tfmini as tf
spec, job, index, mode = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
server = tf.train.Server(spec, job_name=job, task_index=index)
if job == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=spec, worker_device=f"/job:worker/task:{index}")):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
    optimizer, hooks = tf.train.GradientDescentOptimizer(0.01), []
    if mode == "sync":
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, 2)
    train = optimizer.minimize(tf.square(weight), global_step=step)
if mode == "sync":
    hooks = [optimizer.make_session_run_hook(index == 0)]
with tf.train.MonitoredTrainingSession(server.target, index == 0, hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
        print("step", session.run(step) if mode == "async" else 0, flush=True)
print("after", flush=True)
"""


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    yield
    current_process().is_leaving = False
    readiness.last_step_is_over()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_process_that_is_told_to_end_saves_what_it_has(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ALONE, str(tmp_path)]
    log = tmp_path / "log"  # of its own: a warning may come in the middle of a line that is printed
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line.strip())
        if printed[-1] == "step 5":
            process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143 and printed[-1] != "after", log.read_text()
    assert "leaves the run" in log.read_text()
    last = int(printed[-1].split()[1])
    saved = int(str(tf.train.latest_checkpoint(str(tmp_path))).rpartition("-")[2])
    assert saved - last in (0, 1)  # the step that the signal met ends, though its result may not reach the program


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_worker_leaves_and_the_others_go_on(mode: str) -> None:
    with ProcessCluster(ps=1, workers=2, program=_TASK, arguments=(mode,)) as cluster:
        chief, other = (cluster.processes[TaskId("worker", i)] for i in range(2))
        assert chief.stdout is not None and other.stdout is not None
        for process in (chief, other):
            assert process.stdout.readline().startswith("step")  # type: ignore[union-attr]
        other.send_signal(signal.SIGTERM)
        assert "after" not in other.stdout.read()
        assert other.wait() == ExitCode.LEFT
        for _ in range(10):
            assert chief.stdout.readline().startswith("step")


def test_a_loop_that_does_not_ask_ends_at_its_next_step() -> None:
    ended = []

    class Hook(tf.train.SessionRunHook):
        def end(self, session: object) -> None:
            ended.append(session)

    with tf.Graph().as_default():
        one = tf.constant(1)
        with (
            pytest.raises(SystemExit) as left,
            tf.train.MonitoredSession(tf.train.ChiefSessionCreator(), [Hook()]) as session,
        ):
            session.run(one)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)  # one request, announced twice
            assert session.should_stop()
            session.run(one)
    assert left.value.code == 143 and len(ended) == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_who_asks_twice_does_not_wait_for_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(1, tf.int32)
        with pytest.raises(SystemExit) as left, tf.train.MonitoredSession() as session:
            os.kill(os.getpid(), signal.SIGTERM)
            monkeypatch.setattr(readiness, "LAST_STEP_S", 0.0)  # so the first time was some time ago
            os.kill(os.getpid(), signal.SIGTERM)
            session.run(queue.dequeue())
    assert left.value.code == 143


def test_a_step_that_takes_too_long_is_given_up_and_the_model_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(readiness, "LAST_STEP_S", 0.1)
    with tf.Graph().as_default():
        more = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        element = tf.FIFOQueue(1, tf.int32).dequeue()
        told = tf.py_func(lambda: os.kill(os.getpid(), signal.SIGTERM) or 0, [], tf.int64)
        with (
            pytest.raises(SystemExit) as left,
            tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_secs=3600) as session,
        ):
            session.run(more)
            session.run([told, element])
    assert left.value.code == 143
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")


def test_a_hook_that_cannot_end_keeps_no_other_from_saving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(tf.train.SessionRunHook):
        def end(self, session: object) -> None:
            raise RuntimeError("Attempted to use a closed Session.")

    with tf.Graph().as_default():
        more = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with (
            pytest.raises(SystemExit),
            tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), chief_only_hooks=[Fails()], save_checkpoint_secs=3600
            ) as session,
        ):
            session.run(more)
            os.kill(os.getpid(), signal.SIGTERM)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
    assert "Fails has not ended in good order: Attempted to use a closed Session." in caplog.text


@pytest.mark.parametrize("handles_it", [True, False])
def test_a_ctrl_c_that_the_launcher_forwards_is_the_last_step_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, handles_it: bool
) -> None:
    read, write = os.pipe()
    monkeypatch.setenv(library_log.REPORT_ENV, library_log.report_variable(write))
    with tf.Graph().as_default(), contextlib.ExitStack() as block:
        block.enter_context(pytest.raises(KeyboardInterrupt))
        more = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        session = block.enter_context(
            tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_secs=3600)
        )
        for _ in range(3):
            session.run(more)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt) if handles_it else contextlib.nullcontext():
            session.run(more)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    os.close(read)
    os.close(write)


def test_ctrl_c_alone_means_what_it_does_in_tensorflow(tmp_path: Path) -> None:
    with tf.Graph().as_default(), pytest.raises(KeyboardInterrupt):
        more = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_secs=3600) as session:
            for _ in range(3):
                session.run(more)
            os.kill(os.getpid(), signal.SIGINT)
            session.run(more)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-0")


def test_a_script_that_handles_sigterm_is_left_alone() -> None:
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    with tf.Graph().as_default(), tf.train.MonitoredSession() as session:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not session.should_stop()
    assert seen == [1]


@pytest.mark.parametrize("is_handler", [True, False])
def test_a_script_with_a_handler_of_its_own_may_come_back(is_handler: bool) -> None:
    """Who exits without a signal has come to the end."""

    def end(*_: object) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    with tf.Graph().as_default(), pytest.raises(SystemExit), tf.train.MonitoredSession():
        if is_handler:
            os.kill(os.getpid(), signal.SIGTERM)
        sys.exit(0)
    assert current_process().is_leaving == is_handler


@pytest.mark.cluster
@pytest.mark.parametrize("api", RINGS)
def test_ranks_wait_for_one_that_its_own_handler_has_ended(tmp_path: Path, api: str) -> None:
    with training_cluster(tmp_path, api, ps=0) as cluster:
        run = Run(cluster)
        run.until_step(0, 10)
        cluster.kill("worker", 0, signal.SIGTERM)
        assert cluster.processes[TaskId("worker", 0)].wait(60) == 0
        run.restart("worker", 0)
        assert len({run.finish(worker)[1] for worker in range(2)}) == 1


@pytest.mark.parametrize("asks", [True, False])
def test_a_supervised_process_that_is_told_to_end_saves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asks: bool
) -> None:
    monkeypatch.setattr(readiness, "LAST_STEP_S", 0.2)
    with tf.Graph().as_default():
        more = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        supervisor = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=3600)
        done = 0
        with pytest.raises(SystemExit) as left, supervisor.managed_session() as session:
            while not asks or not supervisor.should_stop():
                done = int(session.run(more))
                if done == 3:
                    os.kill(os.getpid(), signal.SIGTERM)
    assert left.value.code == 143
    saved = int(str(tf.train.latest_checkpoint(str(tmp_path))).rpartition("-")[2])
    assert saved - done in (0, 1) and done >= 3
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
