"""What an optimizer says that lacks a method, or got a hyper-parameter that is none."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf


class Unwritten(tf.train.Optimizer):
    def __init__(self) -> None:
        super().__init__(False, "Unwritten")


@pytest.mark.parametrize(
    ("use_resource", "sparse", "text"),
    [
        (False, False, "the variable 'w' by a dense gradient: write its method _apply_dense(self, grad, var)."),
        (False, True, "the variable 'w' by a sparse gradient: write its method _apply_sparse(self, grad, var)."),
        (True, False, "the resource variable 'w' by a dense gradient: write its method _resource_apply_dense("),
        (True, True, "by a sparse gradient: write its method _resource_apply_sparse(self, grad, handle, indices)."),
    ],
)
def test_a_missing_update_names_class_variable_and_method(use_resource: bool, sparse: bool, text: str) -> None:
    w = tf.get_variable("w", [5, 2], use_resource=use_resource)
    loss = tf.reduce_sum(tf.gather(w, [1, 2]) if sparse else w)
    with pytest.raises(NotImplementedError, match="^Unwritten cannot update ") as caught:
        Unwritten().minimize(loss)
    assert text in str(caught.value)


@pytest.mark.parametrize("make", [tf.train.GradientDescentOptimizer, tf.train.AdamOptimizer])
@pytest.mark.parametrize("value", ["0.1", True, lambda: "0.1"])
def test_a_hyper_parameter_that_is_no_number_is_told_when_the_step_is_built(make: Any, value: Any) -> None:
    w = tf.get_variable("w", [2])
    with pytest.raises(TypeError, match=rf"^{make.__name__}: learning_rate must be a number, or a tensor of one"):
        make(value).minimize(tf.reduce_sum(w))
