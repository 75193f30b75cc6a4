"""Loops and conditionals that are compiled as a whole give the CPU's values; the host drives those that cannot be."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.flow import flow_cases
from tfmini.graph.device_types import FAKE_ENV

pytest.importorskip("jax")
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices to a dense Tensor:UserWarning")

WHOLE = (
    *("cond_false", "cond_nested", "cond_structure", "case", "while", "while_never", "while_matmul"),
    *("while_unknown_shape", "while_maximum_iterations", "while_forgets", "while_nested", "cond_in_while"),
    *("tensor_array_split", "tensor_array_gather", "tensor_array_in_cond", "map_fn_unknown", "scan", "foldr"),
)
DRIVEN = {
    "while_shape_invariant": r"the shape of 'while/Merge_1' changes from \(1, 2\) to \(2, 2\)",
    "while_nested_varying": "its gradient needs a number of iterations that is known before it runs",
    "while_slices": "the shape of '.*' changes",
    "tensor_array_dynamic": "the TensorArray 'TensorArray' may grow",
    "while_dependencies_inside": r"'while/Assert/AssertGuard/Assert' \(Assert\) has no lowering",
    "gated_gradients": "is used by several parts of the step",
}


@pytest.fixture(autouse=True)
def _fake_gpu(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(FAKE_ENV, "1")
    caplog.set_level(logging.INFO, "tensorflow")


def values(source: str, device: str) -> list[Any]:
    with tf.Graph().as_default(), tf.device(device):
        fetches, feeds = flow_cases.build(source, tf, np)
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            session.run(tf.global_variables_initializer())
            return session.run([fetch for fetch in fetches if fetch is not None], feeds)


def compare(source: str) -> None:
    for mine, theirs in zip(values(source, "/gpu:0"), values(source, "/cpu:0"), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", WHOLE)
def test_values_of_what_is_compiled_as_a_whole(name: str, caplog: pytest.LogCaptureFixture) -> None:
    compare(flow_cases.CASES[name])
    assert "as a whole" not in caplog.text


@pytest.mark.parametrize("name", DRIVEN)
def test_what_cannot_be_compiled_as_a_whole_is_driven(name: str, caplog: pytest.LogCaptureFixture) -> None:
    compare(flow_cases.CASES[name])
    assert [t for t in caplog.messages if "as a whole" in t and re.search(DRIVEN[name], t)]


RNN = """
x = tf.constant(np.random.RandomState(1).rand(5, 6, 3), tf.float32)
cell = tf.nn.rnn_cell.LSTMCell(6, initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=1))
outputs, state = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, sequence_length={lengths})
fetches = [outputs, state.h] + tf.gradients(tf.reduce_sum(outputs * outputs), [x, *tf.trainable_variables()])
"""


@pytest.mark.parametrize("lengths", ["None", "[6, 3, 2, 1, 4]"])
def test_a_recurrent_network_and_its_gradient_are_one_program(lengths: str, caplog: pytest.LogCaptureFixture) -> None:
    compare(RNN.format(lengths=lengths))
    assert "as a whole" not in caplog.text
    assert sum(text.startswith("Compiled") for text in caplog.messages) == 2  # the initializers, and the step


def test_a_loop_until_its_values_are_near_enough(caplog: pytest.LogCaptureFixture) -> None:
    """The number of its iterations depends on what the device computes, and no gradient asks for it."""
    compare("""
a = tf.placeholder(tf.float32, []); root = tf.while_loop(
    lambda x: tf.abs(x * x - a) > 1e-3, lambda x: (x + a / x) / 2., [a])
fetches = [root]; feeds = {a: 200.}
""")
    assert "as a whole" not in caplog.text


@pytest.mark.parametrize(
    "body, reason",
    [
        ("x + tf.random_uniform([2], seed=3)", "draws random numbers"),
        ("x + tf.assign_add(v, [1., 2.])", "changes a variable|passes a variable on"),
        ("x + tf.cast(tf.py_func(lambda y: 2 * y, [x], tf.float32), tf.float32)", "is no part that can be compiled"),
    ],
)
def test_a_loop_with_effects_is_driven(body: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    compare(f"""
v = tf.get_variable('v', [2], initializer=tf.zeros_initializer())
fetches = [tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.reshape({body}, [2])), [0, tf.zeros([2])])[1]]
""")
    assert [t for t in caplog.messages if "as a whole" in t and re.search(reason, t)]


@pytest.mark.parametrize(
    "whole",
    [
        "tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + f(n)), [0, 0.])[1]",
        "tf.cond(x[0] > 0, lambda: f(n), lambda: f(2 * n))",
        "tf.cond(x[0] > 0, lambda: tf.while_loop(lambda y: y < 9, lambda y: y + f(n + 1), [1.]), lambda: f(2 * n))",
    ],
)
def test_a_shape_inside_that_depends_on_a_number_from_outside(whole: str, caplog: pytest.LogCaptureFixture) -> None:
    compare(f"""
x, n = tf.placeholder(tf.float32, [6]), tf.placeholder(tf.int32, [])
f = lambda k: tf.reduce_max(tf.reduce_sum(tf.fill([k, 2], x[1]), 0))
fetches, feeds = [{whole}], {{x: [3., 1., 4., 1., 5., 9.], n: 3}}
""")
    assert "as a whole" not in caplog.text


def test_a_loop_whose_condition_fills_an_array_is_driven(caplog: pytest.LogCaptureFixture) -> None:
    """The condition runs once more than the body, and leaves the array filled even if the body never runs."""
    compare("""
array = tf.TensorArray(tf.float32, 2, clear_after_read=False)
filled = lambda: array.scatter([0, 1], [3., 4.]).flow
end = tf.while_loop(lambda i: tf.logical_and(i < 0, filled() < 1.), lambda i: i + 1, [0])
with tf.control_dependencies([end]):
    fetches = [end, array.gather([1, 0])]
""")
    assert "(TensorArrayScatterV3) runs once more than the body" in caplog.text


def test_a_variable_that_a_loop_reads() -> None:
    compare("""
v = tf.get_variable('v', [2], initializer=tf.ones_initializer(), use_resource=True)
out = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * v + 1.), [0, tf.ones([2])])[1]
fetches = [out] + tf.gradients(out, v)
""")


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_that_a_driven_loop_reads(resource: bool, caplog: pytest.LogCaptureFixture) -> None:
    compare(f"""
v = tf.get_variable('v', [1, 2], initializer=tf.ones_initializer(), use_resource={resource})
shapes = [tf.TensorShape([]), tf.TensorShape([None, 2])]
longer = lambda i, x: (i + 1, tf.concat([x, v + tf.cast(i, tf.float32)], 0))
fetches = [tf.while_loop(lambda i, x: i < 3, longer, [0, v * 1.], shape_invariants=shapes)[1]]
""")
    assert "the shape of 'while/Merge_1' changes" in caplog.text


def test_a_variable_without_a_value_that_only_the_other_branch_reads(caplog: pytest.LogCaptureFixture) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        v, x = tf.get_variable("v", [], initializer=tf.ones_initializer()), tf.placeholder(tf.float32, [])
        y = tf.cond(x > 0, lambda: x + v, lambda: x * 2)
        assert session.run(y, {x: -1}) == -2
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value v"):
            session.run(y, {x: 1})
        session.run(v.initializer)
        caplog.clear()
        assert session.run([y, y], {x: 1}) == [2, 2] and session.run(y, {x: -1}) == -2
    compiled = [text for text in caplog.messages if text.startswith("Compiled")]
    assert len(compiled) == 1  # as a whole, now that it has one


def test_an_error_in_a_loop_names_its_op() -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x = tf.placeholder(tf.float32)
        y = tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, tf.matmul(y, x, name="product")), [0, x])[1]
        assert session.run(y, {x: np.eye(2)}).tolist() == np.eye(2).tolist()
        with pytest.raises(tf.errors.InvalidArgumentError, match="while/product"):
            session.run(y, {x: np.ones([2, 3])})
