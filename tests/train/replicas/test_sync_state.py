"""Synchronous training after a loss: each update has one gradient of each worker, none of them twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.train.replicas import recovery_task, supervised_task
from tests.train.sessions.training_runs import Run
from tfmini.launch.supervision import TaskId
from tfmini.testing import ProcessCluster
from tfmini.train.sessions.wrapped_session import RUN_HAS_ENDED

LAST, EVERY = 150, 10
PROGRAM = Path(recovery_task.__file__).read_text()


@pytest.mark.cluster
@pytest.mark.parametrize("victim", [0, 1])
def test_recovered_training_equals_undisturbed_training(tmp_path: Path, victim: int) -> None:
    moment = random.randint(5, LAST // 2)
    arguments = (str(tmp_path), str(LAST), str(EVERY))
    with ProcessCluster(ps=2, workers=2, program=PROGRAM, arguments=arguments) as tasks:
        run = Run(tasks)
        run.until_step(0, moment)
        run.restart("ps", victim)
        for worker in range(2):
            run.finish(worker)
    wanted = recovery_task.reference(2, LAST)
    found = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
    assert len(found) >= LAST // EVERY
    for path in found:
        reader = tf.train.load_checkpoint(path)
        got = np.append(reader.get_tensor("w"), reader.get_tensor("b"))
        step = int(reader.get_tensor("global_step"))
        np.testing.assert_allclose(got, wanted[step], rtol=1e-3, atol=1e-5, err_msg=f"step {step}, kill at {moment}")
    # Far from any optimum, every gradient that is missing or counted twice shows.
    moves = np.abs(np.diff(wanted, axis=0)).max(1)
    assert moves.min() > 1e-3


@pytest.mark.cluster
def test_a_worker_that_starts_after_the_end_learns_it_without_the_hook() -> None:
    program = Path(supervised_task.__file__).read_text()
    with ProcessCluster(ps=1, workers=2, program=program, arguments=["5"]) as tasks:
        tasks.kill("worker", 1)
        chief = tasks.processes[TaskId("worker", 0)]
        assert chief.wait(60) == 0
        tasks.start_task("worker", 1)
        late = tasks.processes[TaskId("worker", 1)]
        assert late.wait(60) == 0
        assert late.stdout is not None
        said = late.stdout.read()
        assert "over " in said and "'sync_token_q' is closed" in said and said.endswith("done\n")
        assert RUN_HAS_ENDED in said
        tasks.start_task("worker", 0)  # which opens the queue again
        chief = tasks.processes[TaskId("worker", 0)]
        assert chief.wait(60) == 0 and chief.stdout is not None and "over" not in chief.stdout.read()


# ---- one server -----------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Any]:
    with tf.train.Server.create_local_server() as found:
        yield found


class SmallRun:
    """A run of two variables on one server; every gradient is fed."""

    def __init__(self, target: str) -> None:
        self.target = target
        with tf.Graph().as_default() as self.graph, tf.device("/job:local/task:0"):
            self.gradient = tf.placeholder(tf.float32, [])
            self.variables = [tf.get_variable(name, initializer=1.0) for name in "vw"]
            self.step = tf.train.get_or_create_global_step()
            self.opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 2)
            self.train = self.opt.apply_gradients([(self.gradient, v) for v in self.variables], self.step)
            self.tokens = self.opt.get_init_tokens_op(3)
            accumulators = [accumulator for _, accumulator, _ in self.opt._accumulators]
            self.left = [self.opt._sync_token_queue.size(), *(each.num_accumulated() for each in accumulators)]
            self.takes = [accumulator.take_grad(1) for accumulator in accumulators]
            self.later = tf.group(*(v.assign(5.0) for v in self.variables), self.step.assign(3))
            self.init = tf.global_variables_initializer()
            self.saver = tf.train.Saver()

    def chief(self, manager: Any = None, directory: str | None = None) -> tuple[Any, Any]:
        """A manager, by default that of a chief that was restarted, and the session that it prepares."""
        if manager is None:
            with self.graph.as_default():
                manager = tf.train.SessionManager(self.opt.chief_init_op, tf.report_uninitialized_variables())
        session = manager.prepare_session(self.target, self.init, self.saver, directory)
        session.run(self.tokens)
        return manager, session

    def send(self, session: Any, value: float) -> None:
        session.run(self.train, {self.gradient: value})


def test_new_values_leave_neither_gradients_nor_tokens_of_the_old_ones(server: Any) -> None:
    run = SmallRun(server.target)
    _, first = run.chief()
    first.run(run.later)
    with tf.Session(server.target, graph=run.graph) as worker:
        worker.run(run.opt.local_step_init_op)
        run.send(worker, 100.0)
        assert worker.run(run.left) == [2, 1, 1]
        _, chief = run.chief()  # has no checkpoints, so it initialises
        assert chief.run([*run.variables, run.step, *run.left]) == [1.0, 1.0, 0, 3, 0, 0]
        # The worker has not noticed; its local step is newer than the model.
        with pytest.raises(tf.errors.AbortedError, match="the chief has initialised or restored the model since"):
            run.send(worker, 100.0)
    run.send(chief, 2.0)
    assert chief.run(run.takes) == [2.0, 2.0]


def test_a_chief_that_goes_on_adds_no_tokens_and_drops_no_gradients(server: Any) -> None:
    run = SmallRun(server.target)
    manager, first = run.chief()
    run.send(first, 4.0)
    _, chief = run.chief(manager)
    assert chief.run(run.left) == [2, 1, 1]
    run.send(first, 4.0)  # as a worker that has lost nothing


def test_a_chief_does_not_go_on_with_half_an_update(server: Any, tmp_path: Path) -> None:
    run = SmallRun(server.target)
    manager, first = run.chief(directory=str(tmp_path))
    run.saver.save(first, str(tmp_path / "model"))
    first.run(run.later)
    _, chief = run.chief(manager, str(tmp_path))
    assert chief.run(run.variables) == [5.0, 5.0]
    run.send(chief, 4.0)
    chief.run(run.takes[0])
    _, again = run.chief(manager, str(tmp_path))
    assert again.run([*run.variables, *run.left]) == [1.0, 1.0, 3, 0, 0]


def test_a_run_whose_updates_wait_for_averages_of_batches_begins(server: Any) -> None:
    with tf.Graph().as_default():
        y = tf.layers.batch_normalization(tf.constant([[2.0], [4.0]]), momentum=0.5, training=True)
        step, mean = tf.train.get_or_create_global_step(), tf.global_variables("batch_normalization/moving_mean")[0]
        opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            train = opt.minimize(tf.reduce_sum(y), step)
        hooks = [opt.make_session_run_hook(is_chief=True), tf.train.StopAtStepHook(3)]
        with tf.train.MonitoredTrainingSession(server.target, is_chief=True, hooks=hooks) as session:
            while not session.should_stop():
                found = session.run([train, mean])[1]
    assert 2.0 <= found[0] <= 3.0
