"""Measures what kernels cost: traced steps of models, and curves through their ops' times.

The models take turns, so that a machine whose speed changes from second to second has the same speed in all of them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from tfmini.inspection.api import inspect
from tfmini.simulation.calibration_models import Model
from tfmini.simulation.kernel_costs import CLASSES, class_of, with_bounds, work_of
from tfmini.simulation.profile import Curve

_WARM_UP, _RUNS = 2, 5  # of each turn
_SHORTEST_S = 50e-9

Sample = tuple[str, str, float, float]
"""Of an op: its type, class, work, and seconds."""


class Kernels:
    """Models whose training steps are traced in turns.

    Times are medians, as those of the clusters to which the profile is fitted. Tracing slows ops down, more so the
    short ones. So their times are scaled to what the step takes without it.

    Args:
      tf: the root module.
      stack: closes the sessions.
    """

    def __init__(self, tf: Any, models: Sequence[Model], stack: ExitStack) -> None:
        self._traced = [_Traced(tf, model, stack) for model in models]

    def take_turn(self) -> None:
        """Makes steps of all models."""
        for each in self._traced:
            each.take_turn()

    def samples(self) -> list[Sample]:
        """All ops, with their times in the turns so far."""
        return [sample for each in self._traced for sample in each.samples()]


class _Traced:
    """A model in a session, which makes steps when it is its turn."""

    def __init__(self, tf: Any, model: Model, stack: ExitStack) -> None:
        self._tf = tf
        with tf.Graph().as_default() as graph:
            self._train, self._feeds = model(tf)
            self._nothing = tf.no_op()
            self._found = inspect(graph, fetches=self._train)
            self._session = stack.enter_context(tf.Session(graph=graph))
            self._session.run(tf.global_variables_initializer())
        self._times: dict[str, list[float]] = defaultdict(list)
        self._steps_s: list[float] = []
        self._nothing_s: list[float] = []

    def take_turn(self) -> None:
        """Makes steps: of nothing, without a trace, and with one."""
        for run in range(_WARM_UP + _RUNS):
            nothing, step = self._seconds(self._nothing), self._seconds(self._train)
            times = dict(self._traced_times())
            if run >= _WARM_UP:
                self._nothing_s.append(nothing)
                self._steps_s.append(step)
                for op, seconds in times.items():
                    self._times[op].append(seconds)

    def _seconds(self, op: Any) -> float:
        begin = time.perf_counter()
        self._session.run(op, self._feeds)
        return time.perf_counter() - begin

    def _traced_times(self) -> Iterator[tuple[str, float]]:
        """The ops that took time, and their seconds. Ops without code take none."""
        tf = self._tf
        options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
        self._session.run(self._train, self._feeds, options=options, run_metadata=metadata)
        for device in metadata.step_stats.dev_stats:
            for entry in device.node_stats:
                nanoseconds = entry.op_end_rel_nanos - entry.op_start_rel_nanos
                if nanoseconds > 0:
                    yield entry.node_name, nanoseconds * 1e-9

    def samples(self) -> Iterator[Sample]:
        """The ops that took time in most steps."""
        nodes, most = self._found.nodes, len(self._steps_s) // 2
        shapes = with_bounds(nodes, self._found.shapes)
        times = {op: statistics.median(each) for op, each in self._times.items() if op in nodes and len(each) > most}
        untraced_s = max(0.0, statistics.median(self._steps_s) - statistics.median(self._nothing_s))
        scale = min(1.0, untraced_s / sum(times.values()))
        for op, seconds in times.items():
            node = nodes[op]
            kind = class_of(node)
            amount = work_of(node, shapes, kind)
            # Without shapes nobody knows how much an op has done: as a curve's last point it would cost hours per MB.
            if amount or kind == "view":
                yield node.op, kind, max(1.0, amount), max(_SHORTEST_S, scale * seconds)


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
