"""Measures this machine: what kernels cost, and what steps and messages cost between processes of it.

Kernels are measured by traced steps of `calibration_models`, with one BLAS thread, as the tasks of a cluster on one
machine have (`runtime.blas_threads`). Steps and messages are measured by `calibration_cluster`.
"""

from __future__ import annotations

import importlib
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from tfmini.collectives.costs import shared_all_reduce_cost
from tfmini.inspection.api import inspect
from tfmini.progress import work
from tfmini.runtime.blas_threads import limit_threads
from tfmini.simulation.calibration_cluster import StepCosts, measure_steps
from tfmini.simulation.calibration_crowd import beside, crowded_wake_s
from tfmini.simulation.calibration_models import MODELS, Model
from tfmini.simulation.calibration_tasks import REDUCED, measured_s
from tfmini.simulation.calibration_turns import fitted
from tfmini.simulation.kernel_costs import CLASSES, class_of, with_bounds, work_of
from tfmini.simulation.profile import Curve, Link, Machine, Profile

tf: Any = importlib.import_module("tfmini")  # whose public names are looked up when they are used
_RUNS, _WARM_UP = 25, 5
_SHORTEST_S = 50e-9
_RANKS = 2
_TCP = Link("tcp", 1.25e9, 50e-6)  # what cannot be measured on one machine: 10 Gbit/s, a switch between

Sample = tuple[str, str, float, float]
"""Of an op: its type, class, work, and seconds."""


def calibrate(name: str = "here") -> Profile:
    """Measures this machine. It takes two to three minutes, and the machine should do nothing else.

    Args:
      name: of the machine in the profile.

    Raises:
      RuntimeError: the processes of the measured cluster did not start.
    """
    limit_threads(1)
    with work("measuring kernels"):
        kernels = curves([sample for model in MODELS for sample in samples_of(model)])
    with work("measuring processes that share a core"):
        crowded_s = crowded_wake_s()
    with work("measuring processes beside each other"):
        slower = beside()
    with work("measuring steps and messages"):
        steps, local = measure_steps(stream=False)
    with work("measuring tcp"):
        _, tcp = measure_steps(stream=True)
    with work("measuring reductions"):
        local = replace(local, reduce_s_per_byte=_reduce_s_per_byte())
    tcp = replace(tcp, name="tcp", bytes_per_s=_TCP.bytes_per_s, latency_s=_TCP.latency_s)
    machine = replace(_machine(name, kernels, steps), crowded_s=crowded_s, beside=slower)
    profile = Profile({name: machine}, {"local": local, "tcp": tcp})
    with work("measuring more tasks than cores"):
        return replace(profile, machines={name: fitted(profile)})


def _reduce_s_per_byte() -> float:
    medium, large = (measured_s(name, _RANKS) for name in REDUCED)
    bytes_read = [shared_all_reduce_cost(nbytes, _RANKS).nbytes for nbytes in REDUCED.values()]
    return max(0.0, (large - medium) / (bytes_read[1] - bytes_read[0]))


def _machine(name: str, kernels: dict[str, Curve], steps: StepCosts) -> Machine:
    memory = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        name, os.cpu_count() or 1, memory, steps.step_s, steps.part_s, steps.start_s, steps.segment_s,
        wake_s=steps.wake_s, kernels=kernels,
    )  # fmt: skip


def samples_of(model: Model) -> list[Sample]:
    """The ops of a model's training step, with their median times in traced runs.

    Tracing slows the ops down, more so the short ones. So their times are scaled to what the step takes without it.
    """
    with tf.Graph().as_default() as graph:
        train, feeds = model(tf)
        found = inspect(graph, fetches=train)
        shapes = with_bounds(found.nodes, found.shapes)
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            nothing = _step_s(partial(session.run, tf.no_op()))
            runs = _op_times(session, train, feeds)
            whole = _step_s(partial(session.run, train, feeds))
    times = {op: statistics.median(each) for op, each in runs.items() if op in found.nodes}
    scale = min(1.0, max(0.0, whole - nothing) / sum(times.values()))
    samples = []
    for op, seconds in times.items():
        node = found.nodes[op]
        kind = class_of(node)
        amount = work_of(node, shapes, kind)
        # Without shapes nobody knows how much an op has done; as a curve's last point it would cost hours per megabyte.
        if amount or kind == "view":
            samples.append((node.op, kind, max(1.0, amount), max(_SHORTEST_S, scale * seconds)))
    return samples


def _step_s(step: Callable[[], Any]) -> float:
    """Median seconds of a step."""
    times = []
    for _ in range(_WARM_UP + _RUNS):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[_WARM_UP:])


def _op_times(session: Any, train: Any, feeds: Any) -> dict[str, list[float]]:
    """Op -> seconds of its runs, of most of them. Ops without code take no time and are left out."""
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    times: dict[str, list[float]] = defaultdict(list)
    for run in range(_WARM_UP + _RUNS):
        metadata = tf.RunMetadata()
        session.run(train, feeds, options=options, run_metadata=metadata)
        for device in metadata.step_stats.dev_stats if run >= _WARM_UP else ():
            for entry in device.node_stats:
                nanoseconds = entry.op_end_rel_nanos - entry.op_start_rel_nanos
                if nanoseconds > 0:
                    times[entry.node_name].append(nanoseconds * 1e-9)
    return {op: seconds for op, seconds in times.items() if len(seconds) > _RUNS // 2}


def curves(samples: Iterable[Sample]) -> dict[str, Curve]:
    """The curves of classes and of op types: the median time of each octave of work, rising with the work."""
    grouped: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for op, kind, amount, seconds in samples:
        for name in (kind, op):
            grouped[name][round(math.log2(amount))].append((amount, seconds))
    names = [*(kind for kind in CLASSES if kind in grouped), *sorted(set(grouped) - set(CLASSES))]
    return {name: _curve(grouped[name]) for name in names}


def _curve(octaves: dict[int, list[tuple[float, float]]]) -> Curve:
    points = []
    for _, members in sorted(octaves.items()):
        work = statistics.median(each for each, _ in members)
        points.append((work, work * statistics.median(seconds / each for each, seconds in members), len(members)))
    return Curve(tuple(zip((work for work, _, _ in points), rising([(s, count) for _, s, count in points]))))


def rising(values: Iterable[tuple[float, int]]) -> list[float]:
    """Values that never fall: each run of falling ones becomes its geometric mean by weights.

    More work takes no less time; that a sample says otherwise is chance, or a cold cache. (Pool adjacent violators:
    Ayer and others, Annals of Mathematical Statistics 26, 1955.)

    Args:
      values: (value above 0, weight).
    """
    runs: list[tuple[float, int, int]] = []  # logarithm of the value, weight, length
    for value, weight in values:
        runs.append((math.log(value), weight, 1))
        while len(runs) > 1 and runs[-2][0] > runs[-1][0]:
            (first, first_weight, first_length), (second, second_weight, second_length) = runs[-2:]
            both = first_weight + second_weight
            mean = (first * first_weight + second * second_weight) / both
            runs[-2:] = [(mean, both, first_length + second_length)]
    return [math.exp(value) for value, _, length in runs for _ in range(length)]
