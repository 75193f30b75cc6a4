"""Which repetitions of a step are refused, and what the others read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import errors
from tfmini.graph.node import Nodes
from tfmini.graph.omission import omit
from tfmini.graph.operation import nodes_of
from tfmini.graph.prune import prune
from tfmini.ops.array.constant_value import constant_value


def omitted(made: Collection[Any], wanted: Any, feeds: Collection[Any] = ()) -> Nodes:
    """The nodes of the default graph without updates that have been made, for a step that wants an operation."""
    nodes = {node.name: node for node in nodes_of(tf.get_default_graph().get_operations())}
    needed = prune(nodes, [], [wanted.name], [(tensor.op.name, 0) for tensor in feeds])
    placement = {name: f"/job:ps/replica:0/task:{int('b' in name)}/device:CPU:0" for name in nodes}
    return omit(nodes, [op.name for op in made], needed, placement)[0]


def variables(dtype: Any = tf.int32) -> list[Any]:
    return [tf.get_variable(name, [], dtype, tf.zeros_initializer()) for name in "ab"]


def test_a_read_before_a_count_gets_the_value_without_it() -> None:
    a, b = variables()
    before = a.read_value() * 2
    with tf.control_dependencies([before]):
        count = a.assign_sub(3)
    with tf.control_dependencies([count]):
        after = a.read_value()
    nodes = omitted([count.op], tf.group(b.assign_add(before), b.assign_add(after)))
    (source, index), _ = nodes[before.op.name].inputs
    assert nodes[source].op == "Add" and index == 0
    assert nodes[nodes[source].inputs[0][0]].op == "Identity"
    by = tf.get_default_graph().get_operation_by_name(count.op.inputs[1].op.name)
    assert constant_value(by.outputs[0]) == 3 and nodes[nodes[source].inputs[1][0]].attrs["value"] is by.attrs["value"]
    assert nodes[after.op.name].inputs == ((a.op.name, 0),)


def test_a_read_before_a_count_by_a_fed_value_gets_the_value_without_it() -> None:
    a, b = variables()
    by = tf.placeholder(tf.int32, [])
    before = a.read_value() * 2
    count = a.assign_add(by)
    nodes = omitted([count.op], tf.group(b.assign_add(before), count), [by])
    (source, _), _ = nodes[before.op.name].inputs
    assert nodes[source].op == "Sub" and nodes[source].inputs[1] == (by.op.name, 0)


@pytest.mark.parametrize("kind", ["assign", "two counts", "conditional count", "computed count"])
def test_a_count_of_which_nobody_knows_the_value_before_is_refused_where_it_matters(kind: str) -> None:
    a, b = variables()
    before = a.read_value()
    with tf.control_dependencies([before]):
        if kind == "assign":
            made = [a.assign(5).op]
        elif kind == "two counts":
            made = [a.assign_add(1).op, a.assign_add(2).op]
        elif kind == "computed count":
            made = [a.assign_add(b.read_value() + 1).op]
        else:
            tf.cond(tf.less(before, 3), lambda: a.assign_add(1), lambda: tf.constant(0))
            made = [op for op in tf.get_default_graph().get_operations() if op.type == "AssignAdd"]
    update = b.assign_add(before * 2, name="b_add")
    with pytest.raises(errors.UnknownError, match="make b_add on /job:ps/.*/task:1.*, about which read decides"):
        omitted(made, tf.group(update, *made))
    omitted(made, tf.group(b.assign_add(1, name="b_one"), *made))  # it does not matter to this one


def test_what_is_read_after_an_update_decides_as_in_the_first_attempt() -> None:
    a, b = variables(tf.float32)
    with tf.control_dependencies([a.assign(1.0)]):
        decides = a.read_value() > 0.5
    update = tf.cond(decides, lambda: b.assign_add(1.0).op, tf.no_op)
    made = [
        op for op in tf.get_default_graph().get_operations() if op.type == "Assign" and op.inputs[0] is a.op.outputs[0]
    ]
    omitted(made[-1:], update.op)


def test_gradients_may_be_of_newer_values_as_in_all_asynchronous_training() -> None:
    a, b = variables(tf.float32)
    made = [a.assign_add(1.0).op]
    step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(a.read_value() * b - 1.0), var_list=[b])
    omitted(made, tf.group(step, *made))


def test_the_updates_of_one_decision_are_made_by_one_attempt() -> None:
    """Another run would draw another number."""
    a, b = variables(tf.float32)
    draw = tf.random_uniform([]) < 0.5

    def both() -> Any:
        return tf.group(a.assign_add(1.0, name="one"), b.assign_add(1.0, name="other"))

    step = tf.cond(draw, both, tf.no_op)
    made = [tf.get_default_graph().get_operation_by_name("cond/one")]
    with pytest.raises(errors.UnknownError, match="still has to make cond/other on"):
        omitted(made, step.op)


def test_a_decision_by_constants_is_the_same_in_every_attempt() -> None:
    a, b = variables(tf.float32)
    decides = tf.placeholder_with_default(np.bool_(True), [])
    step = tf.cond(decides, lambda: tf.group(a.assign_add(1.0, name="one"), b.assign_add(1.0)), tf.no_op)
    omitted([tf.get_default_graph().get_operation_by_name("cond/one")], step.op)


def test_an_update_after_a_loop_is_not_decided_by_the_loop() -> None:
    a, b = variables(tf.float32)
    before = a.read_value()
    with tf.control_dependencies([before]):
        made = a.assign_add(1.0).op
    rounds = tf.while_loop(lambda i: i < before, lambda i: i + 1.0, [tf.constant(0.0)])
    omitted([made], tf.group(made, b.assign(rounds)))
