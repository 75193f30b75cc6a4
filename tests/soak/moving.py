"""Counters that are exact: workers add to them, and meanwhile they move from ps to ps the whole time.

``python -m tests.soak.moving --additions 100000`` runs it and prints the figures. It fails where a counter has another
number than that of the steps, or a worker has failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import tfmini as tf
from tfmini.devices import parse
from tfmini.launch.supervision import TaskId
from tfmini.runtime.client.variable_mover import VariableMover
from tfmini.testing import ProcessCluster

PS, WORKERS = 3, 3
SIZES = {"scalar": 1, "row": 8192, "large": 1 << 18, "staying": 1}
"""The numbers of each counter. Each step adds one to all of them; of the large one, to one number."""
_SILENCE_S = 120.0  # without progress
_TASK = f"""
import json, sys
import tfmini as tf
cluster, job, index, steps = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
server = tf.train.Server(cluster, job_name=job, task_index=index)
print("ready", flush=True)
if job == "ps":
    server.join()
with tf.device("/job:ps/task:0"):
    scalar, row, large, staying = (
        tf.get_variable(name, [size], tf.int64, tf.zeros_initializer(), use_resource=name == "row")
        for name, size in {list(SIZES.items())}
    )
    one = tf.constant([1], tf.int64)
    adds = [tf.assign_add(scalar, one), row.assign_add(tf.ones_like(row)), tf.scatter_add(large, [9], one)]
    add = tf.group(*(each.op for each in adds), tf.assign_add(staying, one).op)
manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=1)
# One session for all steps: a monitored one would make another when it ends, and nobody would know.
with (
    manager.prepare_session(server.target, init_op=tf.global_variables_initializer())
    if index == 0
    else manager.wait_for_session(server.target)
) as session:
    for done in range(1, steps + 1):
        session.run(add)
        if done % 50 == 0 or done == steps:
            print("step", done, flush=True)
print("end", flush=True)
server.join()
"""


@dataclass
class MovingFigures:
    """What a run has done.

    Attributes:
      additions: steps of all workers; each counter must have as many.
      counters: what they have in the end: the numbers of each that was added to.
      moves: how many moves of a variable were made while steps ran.
      held_s: how long steps could not begin, of each of them.
      seconds: the whole.
    """

    additions: int = 0
    counters: dict[str, list[int]] = field(default_factory=dict)
    moves: int = 0
    held_s: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether no addition was lost or made twice."""
        return all(set(found) == {self.additions} for found in self.counters.values())

    def __str__(self) -> str:
        held = sorted(self.held_s)
        counters = {name: sorted(set(numbers)) for name, numbers in self.counters.items()}
        return (
            f"{self.additions} additions by {WORKERS} workers in {self.seconds:.0f} s, {self.moves} moves between {PS}"
            f" ps; steps were held for {held[len(held) // 2]:.3f} s (median), {held[-1]:.3f} s (most); the counters"
            f" have {counters}"
        )


class _Worker(threading.Thread):
    """Reads what a worker prints.

    Attributes:
      steps: how many it has made; ``has_ended``: whether it has said so.
    """

    def __init__(self, cluster: ProcessCluster, index: int) -> None:
        super().__init__(daemon=True)
        self._process = cluster.processes[TaskId("worker", index)]
        self.steps, self.has_ended = 0, False
        self.start()

    def run(self) -> None:
        assert self._process.stdout is not None
        while True:
            silence = threading.Timer(_SILENCE_S, self._process.kill)
            silence.start()
            line = self._process.stdout.readline()
            silence.cancel()
            if line.startswith("step"):
                self.steps = int(line.split()[1])
            self.has_ended = line == "end\n"
            if self.has_ended or not line:
                return


def move_under_load(additions: int, seed: int = 0, pause_s: float = 0.0) -> MovingFigures:
    """Runs it.

    Args:
      pause_s: between two moves.

    Raises:
      RuntimeError: a worker failed, or made no progress.
    """
    each = -(-additions // WORKERS)
    found, rng = MovingFigures(each * WORKERS), random.Random(seed)
    with ProcessCluster(ps=PS, workers=WORKERS, program=_TASK, arguments=(str(each),)) as cluster:
        for index in range(WORKERS):
            cluster.wait_ready("worker", index)
        workers = [_Worker(cluster, index) for index in range(WORKERS)]
        begun = time.monotonic()
        while all(worker.is_alive() or worker.has_ended for worker in workers) and any(w.is_alive() for w in workers):
            if all(worker.steps for worker in workers):
                _move_one(cluster, rng, found)
                workers[0].join(pause_s)
            else:
                workers[0].join(0.05)
        if not all(worker.has_ended for worker in workers):
            raise RuntimeError(f"workers have failed; they have made {[worker.steps for worker in workers]} steps")
        found.seconds = time.monotonic() - begun
        found.counters = _read(cluster)
    return found


def _move_one(cluster: ProcessCluster, rng: random.Random, found: MovingFigures) -> None:
    """Moves a counter to another ps."""
    mover = VariableMover.at(cluster.target("worker", 0))
    tasks = [task for task in mover.tasks() if parse(task).job == "ps"]
    here = [(task, key) for task, there in mover.variables(tasks).items() for key in there.sizes if key[1] in SIZES]
    task, key = rng.choice([each for each in here if each[1][1] != "staying"])
    moved = mover.move({task: {key: rng.choice([other for other in tasks if other != task])}})
    found.moves += len(moved.places)
    found.held_s += moved.held_s.values()


def _read(cluster: ProcessCluster) -> dict[str, list[int]]:
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        counters = {
            name: tf.get_variable(name, [size], tf.int64, use_resource=name == "row") for name, size in SIZES.items()
        }
        with tf.Session(cluster.target("worker", 0)) as session:
            values = session.run(counters)
    return {name: [int(n) for n in (value[9:10] if name == "large" else value)] for name, value in values.items()}


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--additions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=0.2, help="between two moves")
    found = move_under_load(**vars(parser.parse_args(words)))
    print(found)
    return 0 if found.is_exact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
