"""Tridiagonal systems and products in all forms of their diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf

WHOLE = np.array([[2.0, -1, 0, 0], [1, 0, 4, 0], [0, 2, 1, 3], [0, 0, 1, 2]])
ABOVE, MAIN, BELOW = np.array([-1.0, 4, 3]), np.diag(WHOLE), np.array([1.0, 2, 1])
COMPACT = np.stack([[*ABOVE, 9.0], MAIN, [9.0, *BELOW]])
RIGHT = np.array([[1.0, 2], [3, 4], [5, 6], [7, 9]])


@pytest.mark.parametrize(
    ("diagonals", "form"), [(WHOLE, "matrix"), (COMPACT, "compact"), ((ABOVE, MAIN, BELOW), "sequence")]
)
def test_all_forms_are_the_same_matrix(diagonals: Any, form: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        found = tf.linalg.tridiagonal_solve(diagonals, RIGHT, form)
        turned = tf.linalg.tridiagonal_solve(diagonals, RIGHT.T, form, transpose_rhs=True)
        vector = tf.linalg.tridiagonal_solve(diagonals, RIGHT[:, 0], form)
        product = tf.linalg.tridiagonal_matmul(diagonals, RIGHT, form)
        found, turned, vector, product = session.run([found, turned, vector, product])
    exact = np.linalg.solve(WHOLE, RIGHT)
    np.testing.assert_allclose(found, exact)
    np.testing.assert_allclose(turned, exact.T)
    np.testing.assert_allclose(vector, exact[:, 0])
    np.testing.assert_allclose(product, WHOLE @ RIGHT)


def test_singular_matrices_and_zero_pivots_are_refused() -> None:
    singular = [[3.0, 0], [1, 3], [0, 1]]
    with tf.Graph().as_default(), tf.Session() as session:
        for diagonals, pivoting in ((singular, True), ([[1.0, 0], [0, 0], [0, 1]], False), ([[0.0], [0], [0]], True)):
            right = np.ones(len(diagonals[0]))
            solved = tf.linalg.tridiagonal_solve(np.array(diagonals), right, partial_pivoting=pivoting)
            with pytest.raises(tf.errors.InvalidArgumentError, match="not invertible"):
                session.run(solved)


@pytest.mark.parametrize(
    ("diagonals", "right", "form"),
    [(COMPACT, np.ones(3), "compact"), (COMPACT[:2], RIGHT, "compact"), (WHOLE[:3], RIGHT, "matrix"),
     ((ABOVE, MAIN), RIGHT, "sequence"), ((ABOVE[:1], MAIN, BELOW), RIGHT, "sequence"), (COMPACT, RIGHT, "dense")],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(diagonals: Any, right: Any, form: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError):
        tf.linalg.tridiagonal_solve(diagonals, right, form)
