"""A model of one variable, and its training by slim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tfmini as tf

slim = tf.contrib.slim


def square() -> tuple[Any, Any]:
    """(a variable that is 2, its square)."""
    x = slim.model_variable("x", [], initializer=tf.constant_initializer(2.0))
    return x, x * x


def trained(directory: Path, steps: int = 4) -> float:
    _, loss = square()
    train_op = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1))
    return float(slim.learning.train(train_op, str(directory), number_of_steps=steps, trace_every_n_steps=2))
