"""Gradient tapes in graphs; the figures are those of TensorFlow 1.15.5."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tests.ops.session_run import run

ZERO = tf.UnconnectedGradients.ZERO


def value(tensor: Any) -> Any:
    return None if tensor is None else run(tensor).tolist()


def test_a_source_may_be_computed_from_what_is_watched() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        z = y * y
    assert value(tape.gradient(z, y)) == 18


def test_what_is_not_watched_has_no_gradient_or_zeros() -> None:
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        z = x * 2
    assert tape.gradient(z, x) is None and tape.jacobian(z, x) is None
    assert value(tape.gradient(z, x, unconnected_gradients=ZERO)) == [0, 0]
    assert value(tape.jacobian(z, x, unconnected_gradients=ZERO)) == [[0, 0], [0, 0]]
    rows = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        squares = rows * rows
    assert value(tape.batch_jacobian(squares, rows, unconnected_gradients=ZERO)) == [[[0, 0], [0, 0]]]


@pytest.mark.parametrize(("factor", "expected"), [(lambda x: 1.0, None), (lambda x: x, 6.0)])
def test_what_is_not_recorded_is_constant(factor: Any, expected: float | None) -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tape.stop_recording():
            y = x * 2
        z = y * factor(x)
    assert value(tape.gradient(z, x)) == expected


def test_jacobians_are_those_of_what_is_watched() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        z = x * x
    assert value(tape.batch_jacobian(z, x)) == [[[2, 0], [0, 4]], [[6, 0], [0, 8]]]
    assert value(tape.jacobian(z[0], x)) == [[[2, 0], [0, 0]], [[0, 4], [0, 0]]]
