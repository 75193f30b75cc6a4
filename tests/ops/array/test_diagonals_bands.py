"""Diagonals of matrices."""

from __future__ import annotations

import tfmini as tf
from tests.ops.session_run import run


def test_a_matrix_of_diagonals_gives_the_diagonals_back() -> None:
    diagonals = tf.constant([[1.0, 2.0, 0.0], [4.0, 5.0, 6.0]])
    matrix = tf.linalg.diag(diagonals, k=(-1, 0), padding_value=9)
    both = tf.linalg.diag_part(matrix, k=(-1, 0))
    found, back, slope = run([matrix, both, tf.gradients(both, diagonals)[0]])
    assert found.tolist() == [[1, 9, 9], [4, 2, 9], [9, 5, 0]]
    assert back.tolist() == [[1, 2, 0], [4, 5, 0]] and slope.tolist() == [[1, 1, 1], [1, 1, 0]]
