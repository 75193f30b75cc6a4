"""Measures what kernels cost: traced steps of models, and curves through their ops' times.

The models take turns, so that a machine whose speed changes from second to second has the same speed in all of them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np

from tfmini.show.inspection.api import inspect
from tfmini.show.simulation.profile import CLASSES, Curve, class_of, with_bounds, work_of

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
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
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


# ---- Graphs whose traced steps show what kernels cost: layers of many sizes with their gradients and updates -------
# They are nobody's workload. Their sizes lie beside those that models have, so a prediction rests on the curve between
# two points.

Replicated = Callable[[Any], Any]
"""Makes of an optimizer the one that a replica uses."""


def alone(optimizer: Any) -> Any:
    """The optimizer itself, for a model without replicas, or with asynchronous ones."""
    return optimizer


class Model(Protocol):
    """Adds a model to the default graph; returns its training op and what it feeds."""

    def __call__(self, tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]: ...


class Steps(Protocol):
    """A `Model`, or what returns several steps by name, each with what it feeds."""

    def __call__(
        self, tf: Any, replicated: Replicated = alone
    ) -> tuple[Any, dict[Any, Any]] | dict[str, tuple[Any, dict[Any, Any]]]: ...


_OPTIMIZERS = ("GradientDescentOptimizer", "AdagradOptimizer", "MomentumOptimizer", "AdamOptimizer")


def dense(batch: int, width: int, optimizer: int, inputs: int = 0) -> Model:
    """Three layers of ``width`` units with different activations, and a softmax.

    Args:
      inputs: of each example; 0: as many as a layer has units.
    """

    def model(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
        x = h = tf.placeholder(tf.float32, [batch, inputs or width])
        y = tf.placeholder(tf.float32, [batch, 10])
        for i, activation in enumerate((tf.nn.relu, tf.nn.sigmoid, tf.nn.tanh)):
            shape = [int(h.shape[1]), width]
            w = tf.get_variable(f"w{i}", shape, initializer=tf.random_uniform_initializer(-0.1, 0.1, seed=i))
            h = activation(tf.nn.bias_add(tf.matmul(h, w), tf.get_variable(f"b{i}", [width])) + 0.5)
        logits = tf.matmul(h, tf.get_variable("out", [width, 10]))
        cost = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
        feeds = {x: _random(*x.shape.as_list()), y: np.eye(10, dtype=np.float32)[[1] * batch]}
        return _trained(tf, cost, optimizer, replicated), feeds

    return model


def convolutions(batch: int, size: int, channels: int, window: int) -> Model:
    """Two convolutions with pooling, and a dense layer."""

    def model(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
        x = h = tf.placeholder(tf.float32, [batch, size, size, 3])
        for i, (inner, outer) in enumerate(((3, channels), (channels, 2 * channels))):
            filters = tf.get_variable(f"f{i}", [window, window, inner, outer])
            h = tf.nn.conv2d(h, filters, [1, 1, 1, 1], "SAME")
            h = tf.nn.relu(tf.nn.bias_add(h, tf.get_variable(f"b{i}", [outer])))
            h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        flat = tf.reshape(h, [batch, -1])
        logits = tf.matmul(flat, tf.get_variable("out", [int(flat.shape[1]), 10]))
        return _trained(tf, tf.reduce_mean(tf.square(logits)), 3, replicated), {x: _random(batch, size, size, 3)}

    return model


def table(rows: int, width: int, batch: int, optimizer: int) -> Model:
    """A table of which a step reads and updates some rows."""

    def model(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
        ids = tf.placeholder(tf.int64, [batch])
        found = tf.nn.embedding_lookup(tf.get_variable("table", [rows, width]), ids)
        return _trained(tf, tf.reduce_mean(tf.square(found)), optimizer, replicated), {
            ids: np.random.RandomState(0).randint(0, rows, batch)
        }

    return model


def recurrent(batch: int, width: int, steps: int) -> Model:
    """An unrolled LSTM, written by hand."""

    def model(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
        x = tf.placeholder(tf.float32, [batch, steps, width])
        weights = tf.get_variable("w", [2 * width, 4 * width])
        bias = tf.get_variable("b", [4 * width])
        c = h = tf.zeros([batch, width])
        for value in tf.unstack(x, axis=1):
            i, j, f, o = tf.split(tf.matmul(tf.concat([value, h], 1), weights) + bias, 4, 1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            h = tf.tanh(c) * tf.sigmoid(o)
        return _trained(tf, tf.reduce_mean(tf.square(h)), 1, replicated), {x: _random(batch, steps, width)}

    return model


def updates(optimizer: int) -> Model:
    """Updates of variables of 8 KB to 12 MB: from within the caches to beyond them."""

    def model(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
        variables = [tf.get_variable(f"v{size}", [size]) for size in (2_000, 25_000, 300_000, 3_000_000)]
        gradients = [tf.get_variable(f"g{i}", v.shape, trainable=False) for i, v in enumerate(variables)]
        return replicated(_made(tf, optimizer)).apply_gradients(zip([g.value() for g in gradients], variables)), {}

    return model


def fused(count: int, size: int, optimizer: int) -> Model:
    """Gradients that become one array and come back from it, as around an all-reduce."""

    def model(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
        variables = [tf.get_variable(f"v{i}", [size, size]) for i in range(count)]
        gradients = [tf.get_variable(f"g{i}", [size, size], trainable=False).value() for i in range(count)]
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        back = [tf.reshape(part, [size, size]) for part in tf.split(flat, [size * size] * count, 0)]
        return replicated(_made(tf, optimizer)).apply_gradients(zip(back, variables)), {}

    return model


def accumulated(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
    """The means of two gradients each, of 8 KB to 12 MB, as a ps takes them for synchronous replicas."""
    means = []
    for size in (2_000, 25_000, 300_000, 3_000_000):
        gradient = tf.get_variable(f"g{size}", [size], trainable=False).value()
        sums = tf.ConditionalAccumulator(tf.float32, [size], shared_name=f"sums{size}")
        with tf.control_dependencies([sums.apply_grad(gradient, local_step=1 << 40)]):
            second = sums.apply_grad(gradient, local_step=1 << 40)
        with tf.control_dependencies([second]):
            means.append(sums.take_grad(2))
    return tf.group(*means), {}


TRIPS = 16
MEDIUM, LARGE = 256_000, 16_000_000  # bytes of tensors: both in shared memory, where there is any


def trips(tf: Any, replicated: Replicated = alone) -> dict[str, tuple[Any, dict[Any, Any]]]:
    """Steps of worker 0: parts that do nothing, round trips of a scalar and of large tensors to ps 0, and a model."""
    with tf.device("/job:ps/task:0"):
        one_part = tf.no_op()
        scalar = tf.get_variable("scalar", initializer=1.0)
        medium, large = (tf.get_variable(f"v{size}", [size // 4]) for size in (MEDIUM, LARGE))
    with tf.device("/job:ps/task:1"):
        two_parts = tf.group(one_part, tf.no_op())
    steps = {
        "one part": one_part, "two parts": two_parts, "monitored": one_part, "one trip": _trips(tf, scalar, 1),
        "trips": _trips(tf, scalar, TRIPS), "medium": _trips(tf, medium, 1), "large": _trips(tf, large, 1),
    }  # fmt: skip
    found: dict[str, tuple[Any, dict[Any, Any]]] = {name: (op, {}) for name, op in steps.items()}
    with tf.device("/job:worker/task:0"):
        found["model"] = dense(64, 200, 1)(tf)
    return found


def _trips(tf: Any, value: Any, count: int) -> Any:
    """Sends a value of ps 0 to worker 0 and back, as often."""
    for _ in range(count):
        with tf.device("/job:worker/task:0"):
            value = tf.slice(tf.reshape(value, [-1]), [0], [1])
        with tf.device("/job:ps/task:0"):
            value = tf.negative(value)
    return value.op


def reduction(nbytes: int, ranks: int) -> Model:
    """An all-reduce of a variable."""

    def model(tf: Any, replicated: Replicated = alone) -> tuple[Any, dict[Any, Any]]:
        value = tf.get_variable("value", [nbytes // 4])
        return tf.collective_ops.all_reduce(value.value(), ranks, 1, 1, "Add", "Id").op, {}

    return model


MODELS: tuple[Model, ...] = (
    *(dense(batch, width, i % 4) for i, (batch, width) in enumerate(
        [(8, 16), (24, 48), (96, 160), (48, 320), (160, 640), (24, 1400), (16, 96), (80, 112), (64, 420), (128, 520),
         (200, 240), (112, 900), (40, 700)]
    )),
    *(dense(*shape) for shape in [(72, 90, 1, 640), (140, 130, 0, 1000), (32, 60, 2, 300), (56, 220, 3, 2000)]),
    *(convolutions(*shape) for shape in [
        (4, 12, 6, 3), (16, 20, 12, 3), (24, 20, 16, 3), (24, 24, 24, 5), (48, 26, 24, 3), (56, 24, 32, 3),
        (40, 18, 40, 5),
    ]),
    *(table(rows, width, batch, optimizer) for rows, width, batch, optimizer in [
        (500, 12, 24, 0), (20_000, 48, 80, 1), (80_000, 24, 400, 0), (8_000, 96, 1500, 1), (1_000, 48, 200, 3),
        (60_000, 80, 320, 1), (100_000, 32, 600, 3), (30_000, 48, 150, 1), (5_000, 160, 100, 0),
    ]),
    *(updates(optimizer) for optimizer in range(4)),
    *(fused(*shape) for shape in [(6, 40, 0), (16, 100, 1), (10, 160, 2)]),
    *(recurrent(*shape) for shape in [(12, 24, 5), (48, 80, 6), (24, 160, 4)]),
    accumulated,
)  # fmt: skip


def _trained(tf: Any, cost: Any, optimizer: int, replicated: Replicated) -> Any:
    return replicated(_made(tf, optimizer)).minimize(cost, global_step=tf.train.get_or_create_global_step())


def _made(tf: Any, optimizer: int) -> Any:
    name = _OPTIMIZERS[optimizer]
    return tf.train.MomentumOptimizer(0.01, 0.9) if name.startswith("Momentum") else getattr(tf.train, name)(0.01)


def _random(*shape: int) -> Any:
    return np.random.RandomState(0).rand(*shape).astype(np.float32)
