"""Measures what kernels cost on a GPU, and copies between it and its host.

A step assigns what one op computes from variables of the GPU to another of its variables. What it takes longer than
a step that assigns a constant is the time of the op.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini.show.inspection.api import inspect
from tfmini.show.simulation.calibration_kernels import Sample, curves
from tfmini.show.simulation.profile import Gpu, class_of, work_of

SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)  # elements of the arrays that ops read
_SHORTEST_S = 1e-7
_MOST_STEPS, _TURN_S = 50, 0.05  # a turn's steps follow each other without a wait, as those of a training loop do
_TURNS = 5

Kernel = Callable[[Any, int], Any]
"""Adds variables of so many elements to the graph, and an op on them; returns its output."""


def measure_gpu(tf: Any, sizes: Sequence[int] = SIZES) -> Gpu:
    """The costs of this process's first GPU.

    Args:
      tf: the root module.
      sizes: of the arrays, in elements; rising, each a multiple of 64.
    """
    empty_s, small_s, large_s = (_Step(tf, *each).seconds for each in ((_constant, 1), (_fed, 1), (_fed, sizes[-1])))
    steps = [_Step(tf, kernel, size) for kernel in _KERNELS for size in sizes]
    kernels = curves(step.sample(empty_s) for step in steps)
    bytes_per_s = 4 * sizes[-1] / max(_SHORTEST_S, large_s - small_s)
    return Gpu(kernels=kernels, copy_s=max(0.0, small_s - empty_s), copy_bytes_per_s=bytes_per_s)


class _Step:
    """A step that assigns the output of a kernel.

    Attributes:
      seconds: it takes.
    """

    def __init__(self, tf: Any, kernel: Kernel, size: int) -> None:
        with tf.Graph().as_default() as self._graph, tf.device("/gpu:0"):
            self._op, self.seconds = self._measured(tf, kernel(tf, size))

    def _measured(self, tf: Any, output: Any) -> tuple[Any, float]:
        is_update = output.op.inputs and output.op.inputs[0].dtype._is_ref_dtype
        step = output if is_update else tf.assign(_variable(tf, *output.shape.as_list()), output)
        feeds = [output] if output.op.type == "Placeholder" else []
        values = [np.ones(feed.shape.as_list(), np.float32) for feed in feeds]
        last = tf.reshape(tf.global_variables()[-1], [-1])[:1]  # waits for the steps before it
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            run = session.make_callable(step.op, feeds)

            def turn(steps: int) -> float:
                begin = time.perf_counter()
                for _ in range(steps):
                    run(*values)
                session.run(last)
                return (time.perf_counter() - begin) / steps

            turn(1)  # compiles
            steps = max(1, min(_MOST_STEPS, int(_TURN_S / turn(1))))
            return output.op, statistics.median(turn(steps) for _ in range(_TURNS))

    def sample(self, empty_s: float) -> Sample:
        """The op, with the seconds that it takes beside those of an empty step."""
        found = inspect(self._graph, fetches=[self._op.name], gpus=1)
        node = found.nodes[self._op.name]
        kind = class_of(node)
        return node.op, kind, max(1.0, work_of(node, found.shapes, kind)), max(_SHORTEST_S, self.seconds - empty_s)


# ---- One op of each class ------------------------------------------------------------------------------------------


def _constant(tf: Any, size: int) -> Any:
    return tf.constant(0.0, shape=[size])


def _fed(tf: Any, size: int) -> Any:
    with tf.device("/cpu:0"):
        return tf.placeholder(tf.float32, [size])


def _matmul(tf: Any, size: int) -> Any:
    side = math.isqrt(size)
    return tf.matmul(_variable(tf, side, side), _variable(tf, side, side))


def _convolution(tf: Any, size: int) -> Any:
    pixels = max(4, math.isqrt(size // 256))  # four images of 64 channels
    return tf.nn.conv2d(_variable(tf, 4, pixels, pixels, 64), _variable(tf, 3, 3, 64, 64), [1, 1, 1, 1], "SAME")


def _elementwise(tf: Any, size: int) -> Any:
    return tf.multiply(_variable(tf, size), _variable(tf, size))


def _reduction(tf: Any, size: int) -> Any:
    return tf.reduce_sum(_variable(tf, size // 64, 64), axis=1)


def _update(tf: Any, size: int) -> Any:
    return tf.assign_sub(_variable(tf, size), _variable(tf, size))


def _rows(tf: Any, size: int) -> Any:
    ids = tf.constant(np.random.RandomState(0).randint(0, size // 64, size // 64), tf.int32)
    return tf.gather(_variable(tf, size // 64, 64), ids)


def _move(tf: Any, size: int) -> Any:
    return tf.transpose(_variable(tf, size // 64, 64))


def _random(tf: Any, size: int) -> Any:
    return tf.raw_ops.RandomUniform(shape=[size], dtype=tf.float32, seed=1, seed2=0)


_KERNELS: tuple[Kernel, ...] = (_matmul, _convolution, _elementwise, _reduction, _update, _rows, _move, _random)


def _variable(tf: Any, *shape: int) -> Any:
    return tf.get_variable(f"v{len(tf.global_variables())}", shape, initializer=tf.ones_initializer())
