"""Runs of `training_task.py` in clusters of real processes, read by the output of their workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tfmini.launch.supervision import TaskId
from tfmini.testing import ProcessCluster

PROGRAM = Path(__file__).with_name("training_task.py").read_text()
LAST, EVERY = 300, 20
"""The step at which training ends, and the steps between checkpoints."""


class Run:
    """ps tasks and workers that train until step `LAST`; the first worker is the chief.

    They do not come to the end before a task has been killed.
    """

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self._go = Path(cluster.arguments[0]) / "go"

    def until_step(self, worker: int, step: int) -> int:
        """Reads a worker's output until it is there, and returns where it is."""
        for line in self._lines(worker):
            if line.startswith("step") and int(line.split()[1]) >= step:
                return int(line.split()[1])
        raise AssertionError(f"worker {worker} ended before step {step}")

    def finish(self, worker: int) -> tuple[list[int], float]:
        """The steps that a worker still makes, and its last loss."""
        steps = []
        for line in self._lines(worker):
            if line.startswith("step"):
                steps.append(int(line.split()[1]))
            elif line.startswith("done"):
                return steps, float(line.split()[1])
        raise AssertionError(f"worker {worker} ended without a result, after {steps[-5:]}")

    def kill(self, job: str, task: int) -> list[int]:
        """Kills a task, and returns the steps that its output still holds."""
        self.cluster.kill(job, task)
        self._go.touch()
        left = [] if job == "ps" else list(self._lines(task))
        # The last line may have been cut by the kill.
        return [int(line.split()[1]) for line in left if line.startswith("step") and line.endswith("\n")]

    def restart(self, job: str, task: int) -> None:
        """Kills a task and starts it again."""
        self.kill(job, task)
        self.cluster.start_task(job, task)

    def _lines(self, worker: int) -> Iterator[str]:
        stdout = self.cluster.processes[TaskId("worker", worker)].stdout
        assert stdout is not None
        return iter(stdout.readline, "")


def training_cluster(directory: Path, api: str = "monitored", ps: int = 1, workers: int = 2) -> ProcessCluster:
    """A cluster whose checkpoints go to `directory`; `api` is that of the program."""
    arguments = (str(directory), api, str(LAST), str(EVERY))
    return ProcessCluster(ps=ps, workers=workers, program=PROGRAM, arguments=arguments)
