"""Resource variables: static checks of assignments, control edges to assignments, zero gradients of known shape."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_an_assignment_of_another_type_or_shape_is_refused() -> None:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[])
    with pytest.raises(ValueError, match="wrong dtype"):
        tf.raw_ops.AssignVariableOp(resource=handle, value=0.0)
    with pytest.raises(ValueError):
        tf.raw_ops.AssignVariableOp(resource=handle, value=[0])
    tf.raw_ops.AssignVariableOp(resource=handle, value=0)


def test_who_waits_for_an_assignment_does_not_read_its_result() -> None:
    variable = tf.get_variable("v", initializer=1.0, use_resource=True)
    group = tf.group([variable.assign_add(1.0)])
    assert [op.type for op in group.control_inputs] == ["AssignAddVariableOp"]


def test_zeros_for_an_unconnected_variable_have_its_shape() -> None:
    variable = tf.get_variable("v", initializer=[[3.0, 4.0]], use_resource=True)
    (zeros,) = tf.gradients(tf.constant(0.0), [variable], unconnected_gradients="zero")
    assert zeros.shape.as_list() == [1, 2]
    with tf.Session() as session:
        assert session.run(zeros).tolist() == [[0.0, 0.0]]
