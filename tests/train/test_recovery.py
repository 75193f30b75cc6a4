"""A killed task of a MonitoredTrainingSession run is started again: at most one checkpoint interval is lost.

With one worker every step can be accounted for, so the bounds are exact.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.training_runs import EVERY, LAST, Run, training_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]


def newest_checkpoint(directory: Path) -> int:
    """The step of the newest checkpoint."""
    return int(str(tf.train.latest_checkpoint(str(directory))).rpartition("-")[2])


@pytest.mark.parametrize("ps", [1, 2])
def test_a_killed_ps(tmp_path: Path, ps: int) -> None:
    with training_cluster(tmp_path, ps=ps, workers=1) as tasks:
        run = Run(tasks)
        before = run.until_step(0, 95)
        run.restart("ps", ps - 1)
        steps, loss = run.finish(0)
        falls = [a - b for a, b in zip([before, *steps], steps) if b <= a]
        assert len(falls) <= 1 and all(fall <= EVERY for fall in falls)
        assert steps[-1] >= LAST - 1 and loss < 1e-3
    assert newest_checkpoint(tmp_path) >= LAST


def test_a_killed_chief(tmp_path: Path) -> None:
    with training_cluster(tmp_path, workers=1) as tasks:
        run = Run(tasks)
        before = run.until_step(0, 95)
        before = [before, *run.kill("worker", 0)][-1]
        saved = newest_checkpoint(tmp_path)
        assert before - saved <= EVERY
        tasks.start_task("worker", 0)
        steps, loss = run.finish(0)
        # It goes on from the checkpoint: no step before it is made again, none after it is left out.
        assert steps[0] in (saved, saved + 1) and steps == list(range(steps[0], steps[0] + len(steps)))
        assert steps[-1] >= LAST - 1 and loss < 1e-3
    assert newest_checkpoint(tmp_path) >= LAST


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    with training_cluster(tmp_path) as tasks:
        run = Run(tasks)
        before = run.until_step(1, 60)
        before = [before, *run.kill("worker", 1)][-1]
        tasks.start_task("worker", 1)
        chief, loss = run.finish(0)
        assert chief == sorted(chief) and chief[-1] >= LAST - 2 and loss < 1e-3
        again, loss = run.finish(1)
        # Too late for a step of its own it ends well all the same.
        assert all(step >= before for step in again) and (not again or loss < 1e-3)


def test_everything_killed_goes_on_from_the_directory(tmp_path: Path) -> None:
    with training_cluster(tmp_path, workers=1) as tasks:
        run = Run(tasks)
        run.until_step(0, 95)
        run.kill("worker", 0)
        run.kill("ps", 0)
        saved = newest_checkpoint(tmp_path)
        tasks.start_task("ps", 0)
        tasks.start_task("worker", 0)
        steps, loss = run.finish(0)
        assert steps[0] in (saved, saved + 1) and steps[-1] >= LAST - 1 and loss < 1e-3
