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
