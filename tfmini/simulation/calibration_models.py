"""Graphs whose traced steps show what kernels cost: layers of many sizes with their gradients and updates.

They are nobody's workload. Their sizes lie beside those that models have, so a prediction rests on the curve between
two points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

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
