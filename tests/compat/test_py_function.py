"""`tf.py_function`: functions of tensors with values, beside TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.compat import oracle_py_function as programs
from tests.oracle import Oracle
from tfmini.compat.py_function import EagerFunction


@pytest.mark.parametrize("name", ["values", "gradients", "errors"])
def test_functions_do_as_tensorflows(oracle: Oracle, name: str) -> None:
    function = getattr(programs, name)
    found, wanted = function(tf), oracle.call(function)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted):
        assert ours == (pytest.approx(theirs) if name == "gradients" else theirs)


def test_effects_run_once_and_in_their_order() -> None:
    told: list[float] = []

    def function() -> tf.Tensor:
        variable = tf.Variable(1.0, use_resource=True)
        tf.py_func(lambda: told.append(1.0), [], [])
        variable.assign(10.0)
        first = variable.read_value()
        told.append(float(first))
        variable.assign_add(5.0)
        return first + variable.read_value()

    with tf.Session() as session:
        assert session.run(tf.py_function(function, [], tf.float32)) == 25.0
    assert told == [1.0, 10.0]


def test_a_value_is_that_of_the_time_when_its_op_was_made() -> None:
    def function() -> tf.Tensor:
        variable = tf.get_variable("v", initializer=3.0)
        before = variable * 2.0
        variable.assign(5.0)
        return before + variable

    with tf.Session() as session:
        assert session.run(tf.py_function(function, [], tf.float32)) == 11.0


def test_an_op_that_fails_in_the_function_is_named_and_is_not_the_steps() -> None:
    x, index = tf.constant([1.0, 2.0]), tf.constant(7, name="GatherV2")
    y = tf.py_function(lambda x, i: tf.gather(x, i), [x, index], tf.float32, name="looks_up")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="is not in") as info:
        session.run(y)
    assert info.value.op is y.op and "node GatherV2 (defined at" in info.value.message


def test_a_session_of_a_server_runs_it() -> None:
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        y = tf.py_function(lambda x: x + 1.0, [tf.constant(2.0)], tf.float32)
        assert session.run(y) == 3.0


def test_wrong_numbers_of_results_and_no_functions_are_refused() -> None:
    with pytest.raises(ValueError, match="to be callable"):
        tf.py_function(3, [], tf.float32)
    with tf.Session() as session:
        for function in (lambda: None, lambda: [1.0, 2.0]):
            with pytest.raises(tf.errors.InvalidArgumentError, match="values, but expects to see 1 values"):
                session.run(tf.py_function(function, [], tf.float32))


def test_values_are_copies_and_tell_what_they_are() -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        array = x.numpy()
        array[:] = 7.0
        assert repr(x) == f"<tf.Tensor: shape=(2,), dtype=float32, numpy={np.ones(2, np.float32)!r}>"
        assert str(x) == f"{x}" == "tf.Tensor([1. 1.], shape=(2,), dtype=float32)"
        assert x.eval().tolist() == np.asarray(x).tolist() == [1.0, 1.0]
        return x

    with tf.Session() as session:
        assert session.run(tf.py_function(function, [tf.ones([2])], tf.float32)).tolist() == [1.0, 1.0]
    assert not tf.executing_eagerly() and not hasattr(tf.constant(1.0), "numpy")


def test_an_integer_argument_has_no_gradient() -> None:
    """TensorFlow fails in the step where another argument has one."""
    x, n = tf.constant(2.0), tf.constant(3)
    y = tf.py_function(lambda x, n: x * tf.cast(n, tf.float32), [x, n], tf.float32)
    slope, none = tf.gradients(y, [x, n])
    with tf.Session() as session:
        assert none is None and session.run(slope) == 3.0


def test_gradients_can_be_computed_once_after_a_call() -> None:
    function = EagerFunction(lambda x: x * x, [tf.float32], [tf.float32])
    for upstream in (1.0, 2.0):
        assert function(np.float32(3.0)) == [9.0]
        assert function.backward(np.float32(upstream)) == [6.0 * upstream]
    with pytest.raises(RuntimeError, match="once after each call"):
        function.backward(np.float32(1.0))
