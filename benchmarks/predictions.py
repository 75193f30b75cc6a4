"""Predicted step times beside measured ones, for ten workloads on this machine.

    python benchmarks/predictions.py [--profile PROFILE] [--steps N] [--rounds N] [WORKLOAD...]

Each round calibrates this machine (or reads a profile) and runs each workload with all of its processes here. The table
in Markdown has the medians of the rounds, of the predictions as of the measured times. So a machine whose speed changes
from minute to minute, as a virtual one does whose neighbours share its cores, has the same speeds in both. The
calibration knows none of the workloads. The machine should do nothing else: a round takes two and a half minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple, NoReturn

import models
from clusters import free_addresses

HERE = os.path.abspath(__file__)
_WARM_UP = 15
_LIMIT = 0.10  # of the error


class Workload(NamedTuple):
    """A model, its cluster, and how it trains."""

    model: str
    ps: int
    workers: int
    mode: str

    def __str__(self) -> str:
        return f"{self.model}-{self.mode}-{self.ps}ps-{self.workers}w"


WORKLOADS = [
    Workload("mlp", 1, 1, "async"),
    Workload("mlp", 1, 2, "async"),
    Workload("mlp", 2, 4, "async"),
    Workload("mlp", 1, 2, "sync"),
    Workload("cnn", 1, 1, "async"),
    Workload("cnn", 2, 2, "sync"),
    Workload("cnn", 0, 2, "allreduce"),
    Workload("embedding", 2, 2, "async"),
    Workload("lstm", 1, 2, "async"),
    Workload("lstm", 0, 2, "allreduce"),
]


def build(tf: Any, workload: Workload, task: int) -> tuple[Any, dict[Any, Any], list[Any]]:
    """(train op, what it feeds, hooks) in the default graph."""
    hooks: list[Any] = []

    def optimizer(plain: Any) -> Any:
        if workload.mode == "async":
            return plain
        if workload.mode == "sync":
            made = tf.train.SyncReplicasOptimizer(plain, workload.workers, workload.workers)
            hooks.append(lambda: made.make_session_run_hook(task == 0))
        else:
            made = tf.train.AllReduceOptimizer(plain, workload.workers, task)
            hooks.append(made.make_session_run_hook)
        return made

    device = f"/job:worker/task:{task}"
    setter = tf.train.replica_device_setter(ps_tasks=workload.ps, worker_device=device) if workload.ps else device
    with tf.device(setter):
        loss, feeds, plain = _LOSSES[workload.model](tf)
        train = optimizer(plain).minimize(loss, global_step=tf.train.get_or_create_global_step())
    return train, feeds, [make() for make in hooks]


def _mlp(tf: Any) -> Any:
    x, y, loss, _ = models.mlp(_Untrained(tf))
    return loss, dict(zip((x, y), models.batch(100))), tf.train.AdagradOptimizer(0.01)


def _cnn(tf: Any) -> Any:
    kept = _Untrained(tf)
    x, y, _ = models.cnn(kept)
    images, labels = models.batch(32)
    return kept.loss, {x: images.reshape(-1, 28, 28, 1), y: labels}, tf.train.AdamOptimizer(1e-4)


def _embedding(tf: Any) -> Any:
    import numpy as np

    kept = _Untrained(tf)
    ids, _ = models.embedding(kept)
    return kept.loss, {ids: np.random.RandomState(0).randint(0, 50_000, 256)}, tf.train.AdagradOptimizer(0.1)


def _lstm(tf: Any) -> Any:
    kept = _Untrained(tf)
    models.lstm(kept, 10, unrolled=True)
    return kept.loss, {}, tf.train.GradientDescentOptimizer(0.01)


_LOSSES = {"mlp": _mlp, "cnn": _cnn, "embedding": _embedding, "lstm": _lstm}


class _Untrained:
    """The namespace of a target whose optimizers only keep the loss, so that the models can be trained otherwise."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self.loss: Any = None

    def __getattr__(self, name: str) -> Any:
        return self if name == "train" or name.endswith("Optimizer") else getattr(self._tf, name)

    def __call__(self, *args: Any) -> Any:
        return self

    def minimize(self, loss: Any, global_step: Any = None) -> None:
        """Keeps the loss."""
        self.loss = loss

    def get_or_create_global_step(self) -> None:
        """Makes none: `build` does."""


# ---------------------------------------------------------------------------------------------


def predicted(profile: Any, workload: Workload) -> float:
    """Seconds of a step."""
    import tfmini as tf
    from tfmini.simulation.links import Cluster
    from tfmini.simulation.predictor import tasks_of
    from tfmini.simulation.runtime_model import RuntimeModel

    with tf.Graph().as_default() as graph:
        train, feeds, _ = build(tf, workload, 0)
        batch = max((len(value) for value in feeds.values()), default=None)
        found = tf.inspect(graph, ps=workload.ps, workers=workload.workers, fetches=train, batch=batch)
    cluster = Cluster.on_one_machine(tasks_of(found), profile)
    return float(RuntimeModel(found, cluster, profile, workload.workers, steps=60).predict().step_s)


def measured(workload: Workload, steps: int) -> float:
    """Median seconds of a step, over all workers, after a warm-up."""
    addresses = free_addresses(workload.ps + workload.workers)
    cluster = {"worker": addresses[workload.ps :], **({"ps": addresses[: workload.ps]} if workload.ps else {})}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE, "text": True}
    texts = [json.dumps(cluster), json.dumps(workload), str(steps)]
    tasks = [("ps", i) for i in range(workload.ps)] + [("worker", i) for i in range(workload.workers)]
    processes = [subprocess.Popen([sys.executable, HERE, "--task", f"{job}:{i}", *texts], **pipes) for job, i in tasks]
    try:
        trainers = processes[workload.ps :]
        for each in trainers:  # measured is what they do once all of them train
            _read(each)
        for each in trainers:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        return statistics.median(float(_read(each)) for each in trainers)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def run_task(task: str, cluster: dict[str, list[str]], workload: Workload, steps: int) -> NoReturn:
    """The whole of a process: a ps, or a worker that prints that it trains, then its median, and trains on until it is
    killed.
    """
    import tfmini as tf

    job, index = task.split(":")
    server = tf.train.Server(cluster, job_name=job, task_index=int(index))
    if job == "ps":
        server.join()
    train, feeds, hooks = build(tf, workload, int(index))
    with tf.train.MonitoredTrainingSession(
        server.target, index == "0" or workload.mode == "allreduce", hooks=hooks, log_step_count_steps=None
    ) as session:
        for _ in range(_WARM_UP):
            session.run(train, feeds)
        print("trains", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            session.run(train, feeds)
        times: list[float] = []
        while True:
            begin = time.perf_counter()
            session.run(train, feeds)
            times.append(time.perf_counter() - begin)
            if len(times) == steps:
                print(statistics.median(times), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a profile of this machine; default: calibrate")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", metavar="WORKLOAD")
    args = parser.parse_intermixed_args()
    if args.task:
        cluster, workload, steps = args.rest
        run_task(args.task, json.loads(cluster), Workload(*json.loads(workload)), int(steps))
    known = [str(w) for w in WORKLOADS]
    if unknown := set(args.rest) - set(known):
        parser.error(f"unknown workloads {sorted(unknown)}; there are {', '.join(known)}")
    chosen = [w for w in WORKLOADS if not args.rest or str(w) in args.rest]
    _print_table(chosen, args.profile, args.steps, args.rounds)


def _print_table(workloads: list[Workload], profile: str | None, steps: int, rounds: int) -> None:
    guesses: dict[Workload, list[float]] = {workload: [] for workload in workloads}
    truths: dict[Workload, list[float]] = {workload: [] for workload in workloads}
    for _ in range(rounds):
        here = _profile(profile)
        for workload in workloads:
            guesses[workload].append(predicted(here, workload))
            truths[workload].append(measured(workload, steps))
    print("| workload | predicted (rounds) | measured (rounds) | error |\n|---|---:|---:|---:|", flush=True)
    good = 0
    for workload in workloads:
        error = statistics.median(guesses[workload]) / statistics.median(truths[workload]) - 1
        good += abs(error) <= _LIMIT
        print(f"| {workload} | {_text(guesses[workload])} | {_text(truths[workload])} | {error:+.0%} |", flush=True)
    print(f"\n{good} of {len(workloads)} within {_LIMIT:.0%}")


def _profile(path: str | None) -> Any:
    """The profile of that file; without one, a new one of this machine, which is printed as a comment."""
    from tfmini.simulation.calibration import calibrate
    from tfmini.simulation.profile import format_profile, read_profile

    if path:
        return read_profile(path)
    found = calibrate()
    print(format_profile(found), file=sys.stderr)
    return found


def _text(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.3f} ms ({1e3 * min(seconds):.3f} to {1e3 * max(seconds):.3f})"


if __name__ == "__main__":
    main()
