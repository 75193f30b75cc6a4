"""Training in clusters of real processes whose tasks are killed and started again: it goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.sessions.readiness import last_warning, said_after_a_wait
from tests.train.sessions.training_runs import EVERY, LAST, Run, training_cluster
from tfmini.launch.supervision import TaskId
from tfmini.testing import ProcessCluster
from tfmini.train.sessions import readiness

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("api", ["monitored", "supervisor"])
def test_a_killed_ps_is_restored_from_the_last_checkpoint(tmp_path: Path, api: str) -> None:
    with training_cluster(tmp_path, api) as tasks:
        run = Run(tasks)
        before = run.until_step(0, 120)
        run.restart("ps", 0)
        steps, loss = run.finish(0)
        # What was in the pipe when the ps died comes first; then the step falls back to the checkpoint's, once.
        falls = [a - b for a, b in zip([before, *steps], steps) if b < a]
        assert len(falls) <= 1
        if api == "monitored":  # its checkpoints are counted in steps
            assert all(fall <= 2 * EVERY for fall in falls)
        # The other worker may have made the last steps while the chief started its services.
        assert (not steps or steps[-1] >= LAST - 2) and loss < 1e-3
        assert run.finish(1)[1] < 1e-3


@pytest.mark.parametrize("api", ["monitored", "supervisor"])
def test_a_killed_chief_rolls_nobody_back(tmp_path: Path, api: str) -> None:
    with training_cluster(tmp_path, api) as tasks:
        run = Run(tasks)
        before = run.until_step(0, 120)
        run.restart("worker", 0)
        steps, loss = run.finish(0)
        assert steps == [] or steps[0] >= before
        others, other_loss = run.finish(1)
        assert others == sorted(others)
        assert loss < 1e-3 and other_loss < 1e-3
    assert int(str(tf.train.latest_checkpoint(str(tmp_path))).rpartition("-")[2]) >= LAST


def test_a_chief_that_is_told_to_end_ends_its_own_part_only(tmp_path: Path) -> None:
    """The script's handler of SIGTERM calls sys.exit: its process ends without an error, the run goes on."""
    with training_cluster(tmp_path, "sync") as tasks:
        run = Run(tasks)
        run.until_step(1, 30)
        chief = tasks.processes[TaskId("worker", 0)]
        chief.terminate()
        assert chief.wait(60.0) == 0
        run.restart("worker", 0)
        assert run.finish(0)[1] < 1e-3
        assert run.finish(1)[1] < 1e-3


def test_a_killed_worker_joins_again(tmp_path: Path) -> None:
    with training_cluster(tmp_path) as tasks:
        run = Run(tasks)
        run.until_step(1, 60)
        run.restart("worker", 1)
        assert run.finish(0)[1] < 1e-3 and run.finish(1)[1] < 1e-3


def test_a_wait_ends_when_the_chief_has_gone_and_names_it() -> None:
    with ProcessCluster(ps=1, workers=2, local=("worker", 1)) as tasks, tf.Graph().as_default():
        tasks.wait_ready("worker", 0)
        with tf.device("/job:ps/task:0"):
            tf.get_variable("w", initializer=1.0)
        manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=1)
        said = said_after_a_wait(manager, tasks.server.target, ", to initialise ")
        assert "waiting for the chief, /job:worker/replica:0/task:0 at " in said and ", to initialise w" in said
        tasks.kill("worker", 0)
        # The wait itself would go on for longer than the test may take.
        with pytest.raises(tf.errors.UnavailableError, match="The chief, /job:worker/replica:0/task:0.* is gone"):
            manager.wait_for_session(tasks.server.target, max_wait_secs=1000)


def test_a_worker_whose_chief_does_not_start_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(readiness, "FIRST_S", 0.1)
    tasks = ProcessCluster(ps=1, workers=2, local=("worker", 1))
    tasks.start_task("ps", 0)
    tasks.refuse("worker", 0)
    tasks.start_local()
    try:
        tasks.wait_ready("ps", 0)  # or the wait for its answer would be told
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            tf.get_variable("w", initializer=1.0)
            manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
            said_after_a_wait(manager, tasks.server.target, "to initialise w", lambda: last_warning(caplog))
    finally:
        tasks.stop()
    last = last_warning(caplog)
    assert "waiting for the chief, /job:worker/replica:0/task:0 at" in last and "(not connected: " in last
    assert "to initialise w (/job:ps/task:0). Start the chief, or look at its output" in last


def test_a_ps_that_is_not_up_yet_is_waited_for_and_named() -> None:
    tasks = ProcessCluster(ps=1, workers=2, local=("worker", 1))
    tasks.refuse("ps", 0)
    tasks.refuse("worker", 0)
    tasks.start_local()
    try:
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            tf.get_variable("w", initializer=1.0)
            manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
            part = "no connection to /job:ps/replica:0/task:0"
            assert part in said_after_a_wait(manager, tasks.server.target, part)
    finally:
        tasks.stop()


def test_a_chief_that_takes_itself_for_another_worker_is_told() -> None:
    with tf.LocalCluster(ps=1, workers=2) as cluster, tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        tf.get_variable("w", initializer=1.0)
        manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
        said = said_after_a_wait(manager, cluster.target, "to initialise w")
        assert (
            "This task, /job:worker/replica:0/task:0, is the chief by convention: make its session with is_chief"
            in said
        )
        assert "by convention" not in said_after_a_wait(manager, cluster.tasks[1].target, "to initialise w")
