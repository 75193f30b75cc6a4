"""A killed task of a MonitoredTrainingSession run is started again: at most one checkpoint interval is lost.

With one worker every step can be accounted for, so the bounds are exact. Tasks are killed at random moments, well
before the end: a task that goes while the hooks end the run is an error of the run, as in TensorFlow.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.train.sessions import training_task
from tests.train.sessions.training_runs import EVERY, LAST, Run, training_cluster

pytestmark = pytest.mark.cluster


def newest_checkpoint(directory: Path) -> int:
    """The step of the newest checkpoint."""
    return int(str(tf.train.latest_checkpoint(str(directory))).rpartition("-")[2])


def some_moment() -> int:
    """A step at which to kill a task."""
    return random.randint(5, LAST // 2)


@pytest.mark.parametrize("ps", [1, 2])
def test_a_killed_ps_loses_at_most_one_interval(tmp_path: Path, ps: int) -> None:
    with training_cluster(tmp_path, ps=ps, workers=1) as tasks:
        run = Run(tasks)
        before = run.until_step(0, some_moment())
        run.restart("ps", ps - 1)
        steps, loss = run.finish(0)
        falls = [a - b for a, b in zip([before, *steps], steps) if b <= a]
        assert len(falls) <= 1 and all(fall <= EVERY for fall in falls)
        assert steps[-1] >= LAST - 1 and loss < 1e-3
    assert newest_checkpoint(tmp_path) >= LAST


def test_a_killed_chief_loses_at_most_one_interval(tmp_path: Path) -> None:
    with training_cluster(tmp_path, workers=1) as tasks:
        run = Run(tasks)
        before = run.until_step(0, some_moment())
        before = [before, *run.kill("worker", 0)][-1]
        assert before - newest_checkpoint(tmp_path) <= EVERY
        tasks.start_task("worker", 0)
        steps, loss = run.finish(0)
        # No ps lost anything, so no step is made again; the last one may have been applied before the kill.
        assert steps[0] - before in (1, 2) and steps == list(range(steps[0], steps[0] + len(steps)))
        assert steps[-1] >= LAST - 1 and loss < 1e-3
    assert newest_checkpoint(tmp_path) >= LAST


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    with training_cluster(tmp_path) as tasks:
        run = Run(tasks)
        before = run.until_step(1, some_moment())
        before = [before, *run.kill("worker", 1)][-1]
        tasks.start_task("worker", 1)
        chief, loss = run.finish(0)
        assert chief == sorted(chief) and chief[-1] >= LAST - 2 and loss < 1e-3
        again, loss = run.finish(1)
        # Too late for a step of its own it ends well all the same.
        assert all(step >= before for step in again) and (not again or loss < 1e-3)


def test_a_run_whose_tasks_were_all_killed_continues_from_its_checkpoint(tmp_path: Path) -> None:
    with training_cluster(tmp_path, workers=1) as tasks:
        run = Run(tasks)
        run.until_step(0, some_moment())
        run.kill("worker", 0)
        run.kill("ps", 0)
        saved = newest_checkpoint(tmp_path)
        tasks.start_task("ps", 0)
        tasks.start_task("worker", 0)
        steps, loss = run.finish(0)
        assert steps[0] in (saved, saved + 1) and steps[-1] >= LAST - 1 and loss < 1e-3


def alone(steps: int) -> np.ndarray:
    """The parameters after as many steps of one process that nobody disturbs."""
    with tf.Graph().as_default(), tf.Session() as session:
        _, _, train, _ = training_task.model(None, 0, is_sync=False)
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train)
        return np.concatenate([np.ravel(value) for value in session.run(tf.trainable_variables())])


def all_to_the_end(run: Run, workers: int) -> list[tuple[list[int], float]]:
    """What `Run.finish` gives for each worker; they are read at once, so that none waits for a full pipe."""
    found: dict[int, tuple[list[int], float]] = {}

    def read(worker: int) -> None:
        found[worker] = run.finish(worker)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == workers, "a worker ended without a result"
    return [found[i] for i in range(workers)]


@pytest.mark.parametrize("victim", [("ps", 1), ("worker", 0), ("worker", 1)], ids=lambda v: f"{v[0]}{v[1]}")
def test_synchronous_training_continues_after_a_kill(tmp_path: Path, victim: tuple[str, int]) -> None:
    moment = some_moment()
    with training_cluster(tmp_path, "sync", ps=2) as tasks:
        run = Run(tasks)
        before = run.until_step(0, moment)
        run.restart(*victim)
        results = all_to_the_end(run, 2)
    for steps, _ in results:
        # Two steps more than an interval: the chief saves after its step, and the other may be one ahead.
        falls = [a - b for a, b in zip(steps, steps[1:]) if b < a]
        assert all(fall <= EVERY + 2 for fall in falls), (moment, before, falls)
    assert max(steps[-1] for steps, _ in results if steps) >= LAST - 1
    reached = newest_checkpoint(tmp_path)
    assert reached >= LAST
    reader = tf.train.load_checkpoint(str(tmp_path))
    parameters = np.concatenate([np.ravel(reader.get_tensor(name)) for name in ("w", "b")])
    np.testing.assert_allclose(parameters, alone(reached), rtol=1e-4, atol=1e-5)
    assert all(loss < 1e-3 for _, loss in results)
