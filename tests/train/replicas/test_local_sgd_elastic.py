"""Workers that meet once in some steps, of which some are killed and come back."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.polling import poll
from tfmini.launch.supervision import TaskId
from tfmini.testing import ProcessCluster

pytestmark = pytest.mark.cluster
WORKERS, PERIOD, COMMIT = 3, 4, 5
# Each worker pulls its variable towards its own rank, by half of the way in each step, until a step that a file names.
_PROGRAM = """
import json, os, sys, time
import tfmini as tf

spec, rank, settings = json.loads(sys.argv[1]), int(sys.argv[3]), json.loads(sys.argv[4])
server = tf.train.Server(spec, job_name="worker", task_index=rank)
print("ready", flush=True)
w = tf.get_variable("w", initializer=[0.0, 0.0])
loss = tf.reduce_sum(tf.square(w - float(rank)))
kind, more = getattr(tf.train, settings["kind"]), {}
if settings["kind"] == "DiLoCoOptimizer":
    more = {"outer": tf.train.GradientDescentOptimizer(1.0)}  # so that it is local SGD
inner, size = tf.train.GradientDescentOptimizer(0.25), len(spec["worker"])
optimizer = kind(inner, size, rank, settings["period"], least_workers=2, **more)
step = tf.train.get_or_create_global_step()
update = optimizer.minimize(loss, step)
hook = optimizer.make_session_run_hook(commit_every_steps=settings["commit"])

def last():
    return int(open(settings["go"]).read()) if os.path.exists(settings["go"]) else 1 << 60

with tf.train.MonitoredTrainingSession(server.target, hooks=[hook], log_step_count_steps=None) as session:
    at = 0
    while at < last():
        session.run(update)
        at, now = session.run([step, w])
        print(json.dumps([int(at), list(hook.members), now.tolist()]), flush=True)
        time.sleep(0.005)  # so that the lines are few
print("done", flush=True)
"""


class Line(NamedTuple):
    """What a worker says after a step."""

    step: int
    members: list[int]
    w: list[float]


class Worker(threading.Thread):
    """Collects what one process of a worker says."""

    def __init__(self, cluster: ProcessCluster, rank: int) -> None:
        super().__init__(daemon=True)
        self.rank, self.lines, self.is_done = rank, list[Line](), False
        self.process = cluster.processes[TaskId("worker", rank)]
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for text in iter(self.process.stdout.readline, ""):
            if text.startswith("["):
                self.lines.append(Line(*json.loads(text)))
            self.is_done = self.is_done or text == "done\n"

    def until(self, members: list[int], steps: int, after: int = 0) -> int:
        """Waits until it has made so many steps in a row with these members, behind so many lines; returns its step."""

        def reached() -> bool:
            if not self.is_alive():
                raise AssertionError(f"worker {self.rank} has ended: {self.lines[-3:]}")
            return len(self.lines) >= after + steps and all(line.members == members for line in self.lines[-steps:])

        poll(reached, f"{steps} steps of worker {self.rank} with {members}; {self.lines[-3:]}")
        return self.lines[-1].step


def check_steps(workers: list[Worker]) -> None:
    """Each step is one of the worker alone, and each meeting takes the mean of those that are there."""
    alone: dict[tuple[int, tuple[int, ...]], dict[int, np.ndarray]] = {}
    met: dict[tuple[int, tuple[int, ...]], list[tuple[int, list[float]]]] = {}
    for worker in workers:
        for before, line in zip(worker.lines, worker.lines[1:]):
            if line.members != before.members or line.step != before.step + 1:
                continue
            expected = np.float64(before.w) + (worker.rank - np.float64(before.w)) / 2
            if line.step % PERIOD:
                np.testing.assert_allclose(line.w, expected, atol=1e-6)
            else:
                key = line.step, tuple(line.members)
                alone.setdefault(key, {})[worker.rank] = expected
                met.setdefault(key, []).append((worker.rank, line.w))
    whole = [key for key, found in alone.items() if sorted(found) == list(key[1])]
    assert len(whole) > 5
    for key in whole:
        for rank, w in met[key]:
            np.testing.assert_allclose(w, np.mean(list(alone[key].values()), 0), atol=1e-6, err_msg=f"{key} {rank}")


@pytest.mark.parametrize("kind", ["LocalSGDOptimizer", "DiLoCoOptimizer"])
def test_workers_that_meet_go_on_as_two_and_again_as_three(kind: str, tmp_path: Path) -> None:
    settings = {"kind": kind, "period": PERIOD, "commit": COMMIT, "go": str(tmp_path / "go")}
    with ProcessCluster(ps=0, workers=WORKERS, program=_PROGRAM, arguments=(json.dumps(settings),)) as cluster:
        workers = [Worker(cluster, rank) for rank in range(WORKERS)]
        at = [worker.until([0, 1, 2], 12) for worker in workers]
        cluster.kill("worker", 2)
        smaller = [worker.until([0, 1], 1) for worker in workers[:2]]
        assert min(smaller) > max(at) - COMMIT - PERIOD - 1  # they go on from their last commit
        for worker in workers[:2]:
            worker.until([0, 1], 12)
        cluster.start_task("worker", 2)
        workers.append(Worker(cluster, 2))
        later = [worker.until([0, 1, 2], 8) for worker in (workers[0], workers[1], workers[3])]
        assert min(later) > min(smaller)
        lines = {rank: len(workers[index].lines) for rank, index in ((1, 1), (2, 3))}
        cluster.kill("worker", 0, signal.SIGTERM)  # the leader leaves, and comes back without a commit
        workers[0].process.wait(60)
        cluster.start_task("worker", 0)
        workers.append(Worker(cluster, 0))
        ends = [workers[index] for index in (4, 1, 3)]
        again = [worker.until([0, 1, 2], 2 * PERIOD, lines.get(worker.rank, 0)) for worker in ends]
        assert min(again) > min(later)
        last = (max(again) // PERIOD + 100) * PERIOD
        (tmp_path / "new").write_text(str(last))
        (tmp_path / "new").rename(tmp_path / "go")
        for worker in ends:
            worker.join(120)
        assert all(worker.is_done and worker.lines[-1].step == last for worker in ends)
        assert len({tuple(worker.lines[-1].w) for worker in ends}) == 1
    check_steps(workers)
