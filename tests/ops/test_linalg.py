"""Linear algebra against numpy, and its gradients by projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.expressions import check, outcome

rng = np.random.RandomState(7)
SQUARE = rng.randn(2, 3, 3) + 3 * np.eye(3)
POSITIVE = SQUARE @ SQUARE.transpose(0, 2, 1)
TALL = rng.randn(2, 4, 3)


ONE = "[[[4., 1., 0.], [1., 3., .5], [0., .5, 2.]]]"
CASES = [f"tf.linalg.sqrtm({ONE})", f"tf.linalg.expm({ONE})", "tf.linalg.normalize([[3., 4.]], axis=1)[0]"]


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_values_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, case), theirs[case], rtol=2e-4, atol=2e-5)


def run(value: Any) -> Any:
    with tf.Session() as session:
        return session.run(value)


def check_gradient(function: Any, *arrays: Any) -> None:
    """The derivative along one direction equals the gradient's projection on it."""
    inputs = [tf.constant(a) for a in arrays]
    weights = tf.constant(np.random.RandomState(1).randn(*function(*inputs).shape.as_list()))
    total = tf.reduce_sum(function(*inputs) * weights)
    found = run(tf.gradients(total, inputs))
    directions = [np.random.RandomState(i + 2).randn(*a.shape) for i, a in enumerate(arrays)]

    def at(step: float) -> Any:
        moved = [tf.constant(a + step * d) for a, d in zip(arrays, directions)]
        return run(tf.reduce_sum(function(*moved) * weights))

    numeric = (at(1e-5) - at(-1e-5)) / 2e-5
    assert numeric == pytest.approx(sum((g * d).sum() for g, d in zip(found, directions)), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("ours", "theirs", "value"),
    [
        (tf.matrix_inverse, np.linalg.inv, SQUARE),
        (tf.matrix_determinant, np.linalg.det, SQUARE),
        (tf.cholesky, np.linalg.cholesky, POSITIVE),
        (lambda x: tf.svd(x, compute_uv=False), lambda x: np.linalg.svd(x, compute_uv=False), TALL),
        (tf.self_adjoint_eigvals, np.linalg.eigvalsh, POSITIVE),
        (tf.linalg.pinv, np.linalg.pinv, TALL),
        (tf.trace, lambda x: np.trace(x, axis1=1, axis2=2), SQUARE),
        (tf.linalg.logdet, lambda x: np.linalg.slogdet(x)[1], POSITIVE),
        (lambda x: tf.norm(x, 2, axis=(1, 2)), lambda x: np.linalg.norm(x, 2, (1, 2)), TALL),
        (lambda x: tf.norm(x, np.inf, axis=1), lambda x: np.linalg.norm(x, np.inf, 1), TALL),
    ],
)
def test_values_are_numpys(ours: Any, theirs: Any, value: Any) -> None:
    np.testing.assert_allclose(run(ours(tf.constant(value))), theirs(value), rtol=1e-9)


def test_factors_multiply_to_the_matrix() -> None:
    q, r = run(tf.qr(tf.constant(TALL)))
    np.testing.assert_allclose(q @ r, TALL, atol=1e-12)
    s, u, v = run(tf.svd(tf.constant(TALL)))
    np.testing.assert_allclose(u * s[:, None] @ v.transpose(0, 2, 1), TALL, atol=1e-12)
    lu, order = run(tf.linalg.lu(tf.constant(SQUARE)))
    lower = np.tril(lu, -1) + np.eye(3)
    np.testing.assert_allclose(lower @ np.triu(lu), np.take_along_axis(SQUARE, order[..., None], 1), atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        tf.matrix_inverse,
        tf.matrix_determinant,
        lambda x: tf.linalg.slogdet(x)[1],
        lambda x: tf.svd(x, compute_uv=False),
        lambda x: tf.svd(x)[1] ** 2,
        lambda x: tf.qr(x)[0],
        lambda x: tf.norm(x, axis=-1),
    ],
)
def test_the_gradient_is_the_slope(function: Any) -> None:
    check_gradient(function, SQUARE)


def test_the_gradient_of_a_hermitian_function_is_its_slope() -> None:
    check_gradient(lambda x: tf.cholesky(tf.matmul(x, x, transpose_b=True)), SQUARE)
    check_gradient(lambda x: tf.self_adjoint_eig(tf.matmul(x, x, transpose_b=True))[1] ** 2, SQUARE)


def test_the_gradient_of_a_solution_is_its_slope() -> None:
    rhs = rng.randn(2, 3, 2)
    check_gradient(tf.matrix_solve, SQUARE, rhs)
    check_gradient(lambda a, b: tf.matrix_triangular_solve(a, b, lower=False), SQUARE, rhs)
    check_gradient(lambda a, b: tf.matrix_solve_ls(a, b, 0.3), TALL, rng.randn(2, 4, 2))
    check_gradient(lambda a, b: tf.matrix_solve_ls(a, b, 0.3), TALL.transpose(0, 2, 1).copy(), rhs)


@pytest.mark.parametrize(("lower", "adjoint"), [(True, False), (True, True), (False, False), (False, True)])
def test_a_triangular_system_keeps_exact_zeros(lower: bool, adjoint: bool) -> None:
    matrix = np.array([[[1, 7], [2, 3]], [[4, 9], [5, -6]]], np.float32)
    found = run(tf.matrix_triangular_solve(matrix, np.stack([np.eye(2, dtype=np.float32)] * 2), lower, adjoint))
    triangle = np.tril(matrix) if lower else np.triu(matrix)
    triangle = triangle.transpose(0, 2, 1) if adjoint else triangle
    np.testing.assert_allclose(triangle @ found, [np.eye(2)] * 2, atol=1e-6)
    assert (found[:, 0, 1] == 0).all() if lower != adjoint else (found[:, 1, 0] == 0).all()


def test_singular_matrices_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input is not invertible"):
        run(tf.matrix_inverse(tf.zeros([2, 2])))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cholesky decomposition was not successful"):
        run(tf.cholesky(-tf.eye(2)))
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 2 and 3"):
        tf.matrix_determinant(tf.zeros([2, 3]))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("find", [tf.svd, tf.self_adjoint_eig, lambda m: tf.matrix_solve_ls(m, m, fast=False)],
                         ids=["svd", "eigh", "pinv"])  # fmt: skip
def test_infinite_elements_are_refused_where_lapack_iterates(find: Any, bad: float) -> None:
    """A singular value decomposition with an infinite element did not return."""
    matrix = np.array([[1e-30, 0.881, -2], [-0.791, -1.413, -1.631], [bad, -0.618, -0.413]], np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="elements that are infinite or NaN"):
        run(find(tf.constant(matrix)))


def test_lu_refuses_singular_matrices_and_takes_empty_ones() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        for rows in ([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [2.0, 3.0, 4.0]], [[0.0]]):
            with pytest.raises(tf.errors.InvalidArgumentError, match="Input is not invertible"):
                session.run(tf.linalg.lu(np.array(rows)))
        assert [v.shape for v in session.run(tf.linalg.lu(np.zeros([2, 0, 0])))] == [(2, 0, 0), (2, 0)]
