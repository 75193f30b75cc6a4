"""Sums of linear operators, whose kinds, names and hints are those of TensorFlow 1.15.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.layers import operator_sums as sums


def _operator(letter: str) -> Any:
    linalg = tf.linalg
    return {
        "I": lambda: linalg.LinearOperatorIdentity(2),
        "S": lambda: linalg.LinearOperatorScaledIdentity(2, 3.0),
        "D": lambda: linalg.LinearOperatorDiag([1.0, 2.0]),
        "T": lambda: linalg.LinearOperatorLowerTriangular([[1.0, 0.0], [2.0, 3.0]]),
        "M": lambda: linalg.LinearOperatorFullMatrix([[1.0, 5.0], [2.0, 3.0]]),
        "Z": lambda: linalg.LinearOperatorZeros(2),
    }[letter]()


@pytest.mark.parametrize(
    ("letters", "kind", "name", "definite"),
    [  # fmt: skip
        ("I", "Identity", "LinearOperatorIdentity", True),
        ("II", "ScaledIdentity", "Add/LinearOperatorIdentity__LinearOperatorIdentity/", True),
        ("ID", "Diag", "Add/LinearOperatorDiag__LinearOperatorIdentity/", None),
        ("DT", "LowerTriangular", "Add/LinearOperatorDiag__LinearOperatorLowerTriangular/", None),
        ("TM", "FullMatrix", "Add/LinearOperatorFullMatrix__LinearOperatorLowerTriangular/", None),
        ("ISD", "Diag", "Add/LinearOperatorDiag__Add/LinearOperatorIdentity__LinearOperatorScaledIdentity//", None),
        ("IDD", "Diag", "Add/Add/LinearOperatorDiag__LinearOperatorDiag/__LinearOperatorIdentity/", None),
    ],
)  # fmt: skip
def test_a_sum_is_of_the_narrowest_kind(letters: str, kind: str, name: str, definite: bool | None) -> None:
    parts = [_operator(letter) for letter in letters]
    (total,) = sums.add_operators(parts)
    assert type(total).__name__ == f"LinearOperator{kind}" and total.name == name
    assert total.is_positive_definite is definite and total.is_non_singular is definite
    with tf.Session() as session:
        dense = session.run([part.to_dense() for part in parts])
        np.testing.assert_allclose(session.run(total.to_dense()), np.sum(dense, axis=0))


def test_tiers_say_what_is_added() -> None:
    parts = [_operator(letter) for letter in "DDMM"]
    left = sums.add_operators(parts, operator_name="both", addition_tiers=[[sums.DiagonalSum()]])
    assert [type(one).__name__.removeprefix("LinearOperator") for one in left] == ["Diag", "FullMatrix", "FullMatrix"]
    assert left[0].name == "both"


def test_what_cannot_be_added_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one operator"):
        sums.add_operators([])
    with pytest.raises(TypeError, match="Operator type unknown"):
        sums.add_operators([_operator("Z"), _operator("D")])
    with pytest.raises(ValueError, match="same domain dimension"):
        sums.add_operators([_operator("D"), tf.linalg.LinearOperatorDiag([1.0, 2.0, 3.0])])


def test_a_subclass_of_a_program_has_the_scopes_and_checks_of_tensorflow() -> None:
    """K-FAC's operators multiply by methods of their own; the names are those of TensorFlow 1.15.5."""

    class Own(tf.linalg.LinearOperatorDiag):  # type: ignore[misc]
        def matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul") -> Any:
            """The product."""
            with self._name_scope(name):
                self._check_input_dtype(x)
                return self._matmul(x)

    with tf.Graph().as_default():
        operator, x = Own([1.0, 2.0], name="own"), tf.ones([2, 1])
        with tf.name_scope("out"):
            names = [operator.matmul(x).name for _ in range(2)] + [operator.to_dense().name]
        assert names == ["out/own/matmul/mul:0", "out/own/matmul_1/mul:0", "out/own/to_dense/diag:0"]
        with pytest.raises(TypeError, match="have dtype"):
            operator.matmul(tf.ones([2, 1], tf.float64))


_LOW_RANK = np.float32([[1.0], [2.0], [0.0]])


@pytest.mark.parametrize("hint", ["is_self_adjoint", "is_positive_definite", "is_non_singular"])
def test_a_hint_that_the_parts_of_an_update_of_low_rank_contradict_is_refused(hint: str) -> None:
    base = tf.linalg.LinearOperatorDiag([1.0, 2.0, 3.0], is_positive_definite=True)
    assert tf.linalg.LinearOperatorLowRankUpdate(base, _LOW_RANK).is_positive_definite
    with pytest.raises(ValueError, match="is False, but L and U D U\\^H are"):
        tf.linalg.LinearOperatorLowRankUpdate(base, _LOW_RANK, **{hint: False})


def test_an_update_of_complex_numbers_by_a_positive_diagonal_is_self_adjoint() -> None:
    base = tf.linalg.LinearOperatorDiag(np.complex64([1, 2, 3]), is_self_adjoint=True, is_positive_definite=True)
    u, diagonal = _LOW_RANK.astype(np.complex64), np.complex64([2])
    known = tf.linalg.LinearOperatorLowRankUpdate(base, u, diagonal, is_diag_update_positive=True)
    unknown = tf.linalg.LinearOperatorLowRankUpdate(base, u, diagonal)
    assert (known.is_self_adjoint, known.is_positive_definite) == (True, True)
    assert (unknown.is_self_adjoint, unknown.is_positive_definite) == (None, None)


def test_an_update_whose_rank_is_unknown_is_solved() -> None:
    base = tf.linalg.LinearOperatorDiag([1.0, 2.0, 3.0])
    u = tf.placeholder_with_default(_LOW_RANK, None)
    answer = tf.linalg.LinearOperatorLowRankUpdate(base, u).solve(np.float32([[1.0], [2.0], [3.0]]))
    expected = np.linalg.solve(np.diag([1.0, 2.0, 3.0]) + _LOW_RANK @ _LOW_RANK.T, [[1.0], [2.0], [3.0]])
    with tf.Session() as sess:
        assert np.allclose(sess.run(answer), expected)


def test_a_diagonal_has_at_least_one_dimension() -> None:
    with pytest.raises(ValueError, match="Argument diag must have at least 1 dimension"):
        tf.linalg.LinearOperatorDiag(3.0)
