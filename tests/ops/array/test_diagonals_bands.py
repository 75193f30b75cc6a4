"""Diagonals of matrices."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_a_matrix_of_diagonals_gives_the_diagonals_back() -> None:
    diagonals = tf.constant([[1.0, 2.0, 0.0], [4.0, 5.0, 6.0]])
    matrix = tf.linalg.diag(diagonals, k=(-1, 0), padding_value=9)
    both = tf.linalg.diag_part(matrix, k=(-1, 0))
    found, back, slope = run([matrix, both, tf.gradients(both, diagonals)[0]])
    assert found.tolist() == [[1, 9, 9], [4, 2, 9], [9, 5, 0]]
    assert back.tolist() == [[1, 2, 0], [4, 5, 0]] and slope.tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    ("arguments", "types"),
    [
        ((3,), "Const MatrixDiag"),
        ((2, 2), "Const MatrixDiag"),
        ((2, 3), "Const Const MatrixSetDiag"),
        ((2, 3, [2]), "Const Const MatrixSetDiag"),
    ],
)
def test_an_identity_matrix_has_the_ops_of_tensorflow_from_which_seeds_follow(arguments: tuple, types: str) -> None:
    with tf.Graph().as_default() as graph:
        matrix = tf.eye(*arguments)
        found = graph.get_operations()
    assert [op.type for op in found] == types.split()
    assert [op.name for op in found] == ["eye/ones", *["eye/zeros"] * (len(found) - 2), matrix.op.name]
    assert matrix.op.name == ("eye/diag" if len(found) == 2 else "eye/set_diag")


def test_an_identity_matrix_takes_sizes_that_a_step_decides() -> None:
    with tf.Graph().as_default():
        size, batch = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [1])
        found = [tf.eye(size), tf.eye(size, 3), tf.eye(2, batch_shape=batch), tf.eye(2, 3, batch)]
        assert [matrix.shape.as_list() for matrix in found] == [[None] * 2, [None, 3], [None, 2, 2], [None, 2, 3]]
        values = tf.Session().run(found, {size: 2, batch: [1]})
    assert values[0].tolist() == [[1, 0], [0, 1]] and values[1].tolist() == [[1, 0, 0], [0, 1, 0]]
    assert values[2].tolist() == [[[1, 0], [0, 1]]] and values[3].tolist() == [[[1, 0, 0], [0, 1, 0]]]
