"""Scopes of a graph that several threads use, and where its device and colocation scopes begin."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

import tfmini as tf
from tfmini.data.function_graph import FunctionGraph


def test_each_thread_has_its_own_name_scope() -> None:
    graph, names = tf.Graph(), dict[int, list[str]]()
    inside, leave = [threading.Event() for _ in range(3)], threading.Event()

    def build(index: int) -> None:
        with graph.as_default(), tf.name_scope("tower"):
            first = tf.no_op()
            inside[index].set()
            assert leave.wait(60)
            names[index] = [first.name, tf.no_op().name]

    threads = [threading.Thread(target=build, args=(i,)) for i in range(3)]
    for thread, event in zip(threads, inside):
        thread.start()
        assert event.wait(60)
    assert graph.get_name_scope() == ""
    leave.set()
    for thread in threads:
        thread.join()
    assert names == {i: [f"tower{suffix}/NoOp", f"tower{suffix}/NoOp_1"] for i, suffix in enumerate(["", "_1", "_2"])}


def _line() -> int:
    frame: Any = inspect.currentframe()
    return int(frame.f_back.f_lineno)


def test_an_op_knows_where_its_device_scopes_begin() -> None:
    def choose(op: tf.Operation) -> str:
        return "/cpu:*"

    with tf.device("/cpu"), tf.get_default_graph().device(tf.DeviceSpec(job="ps")):
        line = _line() - 1
        inner, outer = tf.no_op()._device_assignments
    assert (inner.obj, inner.filename, inner.lineno) == ("/job:ps", __file__, line)
    assert (outer.obj, outer.filename, outer.lineno) == ("/cpu", __file__, line)
    with tf.device(choose):
        (site,) = tf.no_op()._device_assignments
    assert site.obj == f"choose<{__file__}, {choose.__code__.co_firstlineno}>"
    assert tf.no_op()._device_assignments == []


def test_an_op_knows_where_its_colocation_scopes_begin() -> None:
    anchor, other = tf.no_op(name="anchor"), tf.no_op(name="other")
    with tf.device("/cpu"), tf.colocate_with(anchor):
        line = _line() - 1
        with tf.colocate_with(other):
            both = tf.no_op()
        with tf.colocate_with(other, ignore_existing=True):
            one = tf.no_op()
    assert list(both._colocation_dict) == ["anchor", "other"] and list(one._colocation_dict) == ["other"]
    site = both._colocation_dict["anchor"]
    assert (site.obj, site.filename, site.lineno) == (None, __file__, line)
    assert both._device_assignments == [] and tf.no_op()._colocation_dict == {}


def test_init_scope_leaves_the_functions_around_with_their_names_and_devices() -> None:
    program, function = tf.Graph(), FunctionGraph(tf.Graph())
    with program.as_default(), tf.device("/cpu:0"), function.as_default():
        with tf.init_scope():
            outer = tf.no_op()
        with tf.device("/gpu:0"), tf.name_scope("tower"), tf.control_dependencies([tf.no_op()]), tf.init_scope():
            inner = tf.no_op()
        assert tf.get_default_graph() is function
    assert (inner.graph, inner.name, inner.device) == (program, "tower/NoOp", "/device:GPU:0")
    assert (outer.graph, outer.device, inner.control_inputs) == (program, "/device:CPU:0", [])


def test_init_scope_stays_in_the_innermost_graph_that_is_no_function() -> None:
    functions = [FunctionGraph(tf.Graph()) for _ in range(2)]
    program = tf.Graph()
    with functions[0].as_default(), program.as_default(), functions[1].as_default(), tf.init_scope():
        assert tf.get_default_graph() is program


def test_a_variable_that_a_function_of_a_dataset_makes_is_one_of_the_program() -> None:
    def scaled(x: tf.Tensor) -> tf.Tensor:
        made.append(tf.get_variable("w", initializer=3.0))
        return x * made[0]

    made: list[Any] = []
    iterator = tf.data.Dataset.from_tensors(2.0).map(scaled).make_initializable_iterator()
    assert made[0].op.graph is tf.get_default_graph() and tf.global_variables() == made
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(iterator.initializer)
        assert session.run(iterator.get_next()) == 6.0


def test_a_name_scope_of_version_2_can_be_entered_inside_itself() -> None:
    scope = tf.compat.v2.name_scope("layer")
    with scope as first, scope as second:
        assert (first, second) == ("layer/", "layer/layer/")
    with scope as third:
        assert third == "layer_1/" and tf.get_default_graph().get_name_scope() == "layer_1"
    with pytest.raises(ValueError, match="must be a string"):
        tf.compat.v2.name_scope(None)
