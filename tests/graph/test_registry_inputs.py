"""Ops take inputs of their own graph only, whatever kind of object brings them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.data.function_graph import FunctionGraph


def variable(**options: Any) -> Any:
    return tf.get_variable("w", [2], initializer=tf.ones_initializer(), **options)


STRANGERS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: tf.constant([1.0, 2.0]),
    "reference": lambda: variable(use_resource=False),
    "resource": lambda: variable(use_resource=True),
    "partitioned": lambda: variable(partitioner=tf.fixed_size_partitioner(2)),
    "slices": lambda: tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]), tf.constant([2])),
    "list": lambda: [variable(), [3.0, 4.0]],
    "operation": lambda: tf.no_op(),
}  # fmt: skip
USES: dict[str, Callable[[Any, Any], Any]] = {
    "input": lambda here, there: tf.squared_difference(here, there),
    "operator": lambda here, there: here * there,
    "list": lambda here, there: tf.stack([here, there]),
    "list of lists": lambda here, there: tf.add(here, [[1.0, 1.0], there]),
    "update": lambda here, there: tf.assign(here, there),
    "value": lambda here, there: tf.cond(tf.constant(True), lambda: here + 1.0, lambda: there + here),
    "loop": lambda here, there: tf.while_loop(lambda x: x[0] < 9.0, lambda x: x + there, [here + 0.0]),
    "gradient": lambda here, there: tf.gradients(here * 2.0, here, there),
    "function": lambda here, there: tf.data.Dataset.range(2).map(lambda i: tf.maximum(here, there)),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", [kind for kind in STRANGERS if kind != "operation"])
@pytest.mark.parametrize("use_resource", [False, True])
def test_a_value_of_another_graph_is_refused(kind: str, use: str, use_resource: bool) -> None:
    """The other graph has ops of the same names, to which an edge by name would lead."""
    with tf.Graph().as_default():
        there = STRANGERS[kind]()
    with tf.Graph().as_default():
        here = variable(use_resource=use_resource)
        with pytest.raises(ValueError, match="must be from the same graph as|must be a dense tensor"):
            USES[use](here, there)


@pytest.mark.parametrize("kind", [kind for kind in STRANGERS if kind not in ("partitioned", "list")])
def test_an_op_does_not_wait_for_one_of_another_graph(kind: str) -> None:
    with tf.Graph().as_default():
        there = STRANGERS[kind]()
    with tf.Graph().as_default() as graph:
        with pytest.raises(ValueError, match="is not an element of this graph"):
            graph.control_dependencies([there])
        with pytest.raises(ValueError, match="is not an element of this graph"):
            FunctionGraph(graph).control_dependencies([there])
        with pytest.raises(ValueError, match="must be from the same graph as"):
            tf.no_op()._add_control_input(getattr(there, "op", there))


def test_an_op_is_not_colocated_with_one_of_another_graph() -> None:
    with tf.Graph().as_default():
        there = variable()
    with tf.Graph().as_default() as graph:
        for anchor in (there, there.op, there.value()):
            refused = pytest.raises(ValueError, match="Cannot colocate 'Const.*' with .*'w.*' .* the same graph")
            with tf.colocate_with(anchor), refused:
                tf.constant(1.0)
        assert not graph.get_operations()


def test_an_op_that_has_inputs_of_another_graph_only_is_built_there() -> None:
    with tf.Graph().as_default() as graph:
        there = variable()
    with tf.Graph().as_default() as other:
        for made in (tf.square(there), tf.gather(there, [0]), tf.concat([there, [1.0]], 0), tf.add(there, 1.0)):
            assert made.graph is graph
        assert not other.get_operations()


def test_create_op_takes_inputs_of_its_graph_only() -> None:
    there = tf.constant(1.0)
    with tf.Graph().as_default() as graph:
        here = tf.constant(1.0)
        with pytest.raises(ValueError, match="must be from the same graph as"):
            graph.create_op("Add", [here, there])


def test_a_function_uses_what_the_graphs_around_it_have() -> None:
    """In functions of functions, loops and conditionals, and colocated with an op outside."""
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer(), use_resource=False)
    r = tf.get_variable("r", [2], initializer=tf.ones_initializer(), use_resource=True)

    def inner(x: tf.Tensor) -> tf.Tensor:
        with tf.colocate_with(v), tf.control_dependencies([v]):
            looped = tf.while_loop(lambda k: k < 3.0, lambda k: k + v[0] + r[1], [0.0])
            return tf.cond(x > 0, lambda: tf.square(v) + looped, lambda: tf.maximum(r, looped))

    nested = tf.data.Dataset.range(2).flat_map(lambda i: tf.data.Dataset.from_tensors(i).map(inner))
    iterator = nested.make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(iterator.initializer)
        np.testing.assert_array_equal([session.run(element), session.run(element)], [[4, 4], [5, 5]])


def test_a_finalized_graph_names_what_is_added_and_where_it_was_finalized() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.constant(1.0, name="x")
        graph.finalize()
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        where = rf"^Graph is finalized and cannot be modified\. It was finalized \(at {re.escape(__file__)}:{line}\)"
        where += r" by `graph\.finalize\(\)`"
        with pytest.raises(RuntimeError, match=f"{where}, and now gets the op 'Square' of type Square"):
            tf.square(x)
        with pytest.raises(RuntimeError, match=f"{where}, and now gets an item of the collection 'c'"):
            tf.add_to_collection("c", x)
