"""`Defun`, `symbolic_gradient` and `remote_call`: calls, gradients of three kinds, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import internals
from tfmini.compat.graph_functions import CalledFunction, Defun, remote_call, symbolic_gradient


def test_a_call_adds_the_body_under_the_functions_name() -> None:
    @Defun(tf.float32, tf.float32, func_name="Weighted")
    def weighted(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return x * x * y

    x = tf.constant([1.0, 2.0])
    y = weighted(x, 3)  # a number becomes a tensor of the declared type
    (grad,) = tf.gradients(y, x)
    assert y.op.name.startswith("Weighted/") and weighted(x, 1.0).op.name.startswith("Weighted_1/")
    with tf.Session() as session:
        found = session.run([y, grad])
    np.testing.assert_array_equal(found, [[3, 12], [6, 12]])


def test_a_function_of_any_types_with_several_results_or_none() -> None:
    @Defun()
    def both(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return x, x + x

    @Defun(tf.int32)
    def nothing(x: tf.Tensor) -> None:
        tf.add(x, 1)

    results = both(tf.constant(2))
    assert [r.dtype for r in results] == [tf.int32, tf.int32] and isinstance(nothing(1), tf.Operation)
    with tf.Session() as session:
        assert session.run(results) == (2, 4)


def test_the_gradient_may_be_a_python_function_or_another_defined_one() -> None:
    calls = []

    def of_call(op: CalledFunction, grad: tf.Tensor) -> list[tf.Tensor]:
        calls.append((op.type, len(op.inputs), len(op.outputs)))
        return [grad * 10.0 * op.inputs[0]]

    @Defun(tf.float32, tf.float32)
    def defined(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return dy * 100.0 * x

    x = tf.constant(2.0)
    first = Defun(tf.float32, python_grad_func=of_call)(tf.identity)
    second = Defun(tf.float32, grad_func=defined)(tf.identity)
    grads = [tf.gradients(f(x), x)[0] for f in (first, second)]
    with tf.Session() as session:
        assert session.run(grads) == [20.0, 200.0]
    assert calls == [("identity", 1, 1)] and second.grad_func_name == "defined"


def test_symbolic_gradient_differentiates_a_function() -> None:
    module = internals.module("python.ops.functional_ops")
    assert module is not None and module.symbolic_gradient is symbolic_gradient

    @Defun(tf.float32, tf.float32)
    def first_squared(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return x * x

    grads = symbolic_gradient([3.0, [1.0, 1.0], 2.0], [tf.float32] * 2, first_squared)
    with tf.Session() as session:
        x_grad, y_grad = session.run(grads)
    assert x_grad == 12.0 and y_grad.tolist() == [0.0, 0.0]


def test_wrong_functions_and_arguments() -> None:
    with pytest.raises(ValueError, match="must be callable"):
        Defun(tf.float32)(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fewer arguments"):
        Defun(tf.float32, tf.float32)(lambda x: x)
    with pytest.raises(ValueError, match="keyword"):
        Defun(tf.float32)(lambda *, x: x)
    with pytest.raises(ValueError, match="Gradient defined twice"):
        Defun(tf.float32, grad_func=Defun()(lambda x: x), python_grad_func=lambda op, g: g)
    with pytest.raises(ValueError, match="number of arguments: 1"):
        Defun(tf.float32)(tf.identity)(1.0, 2.0)


def test_a_remote_call_reads_an_iterator_of_another_device() -> None:
    @Defun(tf.string)
    def next_of(handle: Any) -> Any:
        return tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()

    there = "/job:localhost/replica:0/task:0/device:CPU:1"
    with tf.device("/cpu:1"):
        text = tf.data.Dataset.range(3).make_one_shot_iterator().string_handle()
    handle = tf.placeholder(tf.string, [])
    with tf.device("/cpu:0"):
        (element,) = remote_call(args=[handle], Tout=[tf.int64], f=next_of, target=tf.constant(there))
        after = element + 10
    assert element.device == there and after.device == "/device:CPU:0"
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        named = session.run(text)
        assert [session.run(after, {handle: named}) for _ in range(3)] == [10, 11, 12]
    with pytest.raises(NotImplementedError, match="`target` must be a constant"):
        remote_call(tf.placeholder(tf.string, []), [handle], [tf.int64], next_of)


def test_the_gradient_function_gets_what_was_set_on_the_op_of_the_call() -> None:
    seen = []

    def gradient(op: CalledFunction, grad: tf.Tensor) -> tf.Tensor:
        seen.append((op.note, op.type, hasattr(op, "other")))
        return grad * 2.0

    @Defun(tf.float32, func_name="Noted", python_grad_func=gradient)
    def noted(x: tf.Tensor) -> tf.Tensor:
        return x * 3.0

    x = tf.constant([1.0])
    y = noted(x)
    y.op.note = 5  # type: ignore[attr-defined]
    tf.gradients(y, x)
    assert seen == [(5, "Noted", False)]
