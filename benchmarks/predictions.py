"""Predicted step times beside measured ones, for ten workloads on this machine.

    python benchmarks/predictions.py [--profile PROFILE] [--rounds N] [--turns N] [WORKLOAD...]

In each round, the calibration of this machine (unless a profile is given) and the workloads take turns. So a machine
whose speed changes, as a virtual one does whose neighbours share its cores, has about the same speeds in both. The
table in Markdown has the medians of the rounds' times and of their errors. The calibration knows none of the workloads.
The machine should do nothing else: a round of five turns takes seven minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import models

import tfmini as tf
from tfmini.show.simulation.calibration import Calibration
from tfmini.show.simulation.calibration_tasks import TRAIN, Running, Workload, run_task
from tfmini.show.simulation.prediction import Topology
from tfmini.show.simulation.predictor import StepModel, tasks_of
from tfmini.show.simulation.profile import format_profile, read_profile

HERE = os.path.abspath(__file__)
_LIMIT = 0.10  # of the error


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


def _trained(losses: Callable[[Any], Any]) -> Any:
    """The model of a workload."""

    def model(tf: Any, replicated: Callable[[Any], Any]) -> tuple[Any, dict[Any, Any]]:
        loss, feeds, plain = losses(tf)
        return replicated(plain).minimize(loss, global_step=tf.train.get_or_create_global_step()), feeds

    return model


_LOSSES = {"mlp": _mlp, "cnn": _cnn, "embedding": _embedding, "lstm": _lstm}
_CLUSTERS = [  # model, ps, workers, and how they train
    ("mlp", 1, 1, "async"), ("mlp", 1, 2, "async"), ("mlp", 2, 4, "async"), ("mlp", 1, 2, "sync"),
    ("cnn", 1, 1, "async"), ("cnn", 2, 2, "sync"), ("cnn", 0, 2, "allreduce"), ("embedding", 2, 2, "async"),
    ("lstm", 1, 2, "async"), ("lstm", 0, 2, "allreduce"),
]  # fmt: skip
WORKLOADS = {
    f"{name}-{mode}-{ps}ps-{workers}w": Workload(_trained(_LOSSES[name]), workers, ps, mode, cores="all")
    for name, ps, workers, mode in _CLUSTERS
}


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
    with tf.Graph().as_default() as graph:
        steps, _ = workload.build(tf, 0)
        train, feeds = steps[TRAIN]
        batch = max((len(value) for value in feeds.values()), default=None)
        found = tf.inspect(graph, ps=workload.ps, workers=workload.workers, fetches=train, batch=batch)
    cluster = Topology.on_one_machine(tasks_of(found), profile)
    return float(StepModel(found, cluster, profile, workload.workers, steps=60).predict().step_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", help="a profile of this machine; default: calibrate")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=5, help="of calibration and workloads, in each round")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", metavar="WORKLOAD")
    args = parser.parse_intermixed_args()
    if args.task:
        run_task(tf, WORKLOADS[args.task], *args.rest)
    if unknown := set(args.rest) - set(WORKLOADS):
        parser.error(f"unknown workloads {sorted(unknown)}; there are {', '.join(WORKLOADS)}")
    _print_table({name: w for name, w in WORKLOADS.items() if not args.rest or name in args.rest}, args)


def _print_table(workloads: dict[str, Workload], args: argparse.Namespace) -> None:
    guesses, truths = zip(*(_round(workloads, args.profile, args.turns) for _ in range(args.rounds)))
    print("| workload | predicted (rounds) | measured (rounds) | error (rounds) |\n|---|---:|---:|---:|", flush=True)
    good = 0
    for workload, guess, truth in zip(workloads, zip(*guesses), zip(*truths)):
        errors = [of_round / measured - 1 for of_round, measured in zip(guess, truth)]
        error = statistics.median(errors)
        good += abs(error) <= _LIMIT
        spread = f"{min(errors):+.0%} to {max(errors):+.0%}"
        print(f"| {workload} | {_text(guess)} | {_text(truth)} | {error:+.0%} ({spread}) |", flush=True)
    print(f"\n{good} of {len(workloads)} within {_LIMIT:.0%}")


def _round(workloads: dict[str, Workload], path: str | None, turns: int) -> tuple[list[float], list[float]]:
    """The predicted and the measured seconds of the workloads."""
    with ExitStack() as stack:
        calibration = None if path else Calibration(tf, stack)
        command = [sys.executable, HERE, "--task"]
        trainings = [stack.enter_context(Running(name, each, command)) for name, each in workloads.items()]
        for _ in range(turns):
            if calibration is not None:
                calibration.take_turn()
            for training in trainings:
                training.take_turn()
    here = calibration.profile() if calibration is not None else read_profile(path or "")
    _show(here)
    return [predicted(here, workload) for workload in workloads.values()], [training.median_s for training in trainings]


def _show(profile: Any) -> None:
    """Prints a profile to stderr, without kernels."""
    machines = {name: replace(machine, kernels={}) for name, machine in profile.machines.items()}
    print(format_profile(replace(profile, machines=machines)), file=sys.stderr, flush=True)


def _text(seconds: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.3f} ms ({1e3 * min(seconds):.3f} to {1e3 * max(seconds):.3f})"


if __name__ == "__main__":
    main()
