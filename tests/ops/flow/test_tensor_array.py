"""Tensor arrays and stacks: semantics and error texts, static shapes, colocation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf

raw = tf.raw_ops


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def array(size: Any = 3, **options: Any) -> Any:
    return tf.TensorArray(tf.float32, size, tensor_array_name="foo", **options)


def loose(size: int = 3, **options: Any) -> Any:
    return array(size, infer_shape=False, **options)


def unknown(value: Any) -> Any:
    return tf.placeholder_with_default(np.array(value, np.float32), None)


def after(first: Any, then: Callable[[], Any]) -> Any:
    with tf.control_dependencies([first]):
        return then()


INVALID, UNIMPLEMENTED = tf.errors.InvalidArgumentError, tf.errors.UnimplementedError
FAILURES: dict[str, tuple[type, str, Callable[[], Any]]] = {
    "write beyond": (
        INVALID,
        "Tried to write to index 5 but array is not resizeable and size is: 3",
        lambda: array().write(5, 1.0).flow,
    ),
    "write negative": (
        INVALID,
        "Tried to write to index -1 but array",
        lambda: loose(dynamic_size=True).write(-1, 1.0).flow,
    ),
    "write twice": (
        INVALID,
        "Could not write to TensorArray index 0 because it has already been written to.",
        lambda: array().write(0, 1.0).write(0, 2.0).flow,
    ),
    "write after read": (
        INVALID,
        "Could not write to TensorArray index 0 because it has already been read.",
        lambda: _write_after_read(),
    ),
    "write shape": (
        INVALID,
        "Could not write to TensorArray index 0 because the value shape is [3] which is incompatible"
        " with the TensorArray's inferred element shape: [2] (consider setting infer_shape=False).",
        lambda: array(element_shape=[2]).write(0, unknown([1, 2, 3])).flow,
    ),
    "write other shape": (
        INVALID,
        "index 1 because the value shape is [2] which is incompatible with the TensorArray's"
        " inferred element shape: [3]",
        lambda: array().write(0, unknown([1, 2, 3])).write(1, unknown([1, 2])).flow,
    ),
    "write type": (
        INVALID,
        "TensorArray dtype is float but Op is trying to write dtype int32.",
        lambda: array().write(0, tf.constant(1)).flow,
    ),
    "read beyond": (INVALID, "Tried to read from index 5 but array size is: 3", lambda: array().read(5)),
    "read unwritten": (
        INVALID,
        "Could not read from TensorArray index 1.  Furthermore, the element shape is not fully"
        " defined: <unknown>.  It is possible you are working with a resizeable TensorArray",
        lambda: array().read(1),
    ),
    "read twice": (
        INVALID,
        "Could not read index 0 twice because it was cleared after a previous read (perhaps try setting"
        " clear_after_read = false?).",
        lambda: _read_twice(),
    ),
    "read type": (INVALID, "TensorArray dtype is float but Op requested dtype int32.", lambda: _read_as_int()),
    "gather shapes": (
        INVALID,
        "TensorArray has inconsistent shapes.  Index 0 has shape: [1] but index 1 has shape: [2]",
        lambda: loose().write(0, [1.0]).write(1, [1.0, 2.0]).gather([0, 1]),
    ),
    "gather nothing": (
        UNIMPLEMENTED,
        "TensorArray has size zero, but element shape <unknown> is not fully defined.",
        lambda: array(0).stack(),
    ),
    "concat scalars": (
        INVALID,
        "Concat saw a scalar shape at index 0 but requires at least vectors.  Did you mean to call pack?",
        lambda: loose(1).write(0, 1.0).concat(),
    ),
    "concat shapes": (
        INVALID,
        "Index 0 has (excepting dimension 0) shape: [] but index 1 has (excepting dimension 0) shape: [2]",
        lambda: loose(2).write(0, [1.0]).write(1, [[1.0, 2.0]]).concat(),
    ),
    "concat nothing": (
        UNIMPLEMENTED,
        "element_shape_except0 <unknown> is not fully defined",
        lambda: _concat_nothing(),
    ),
    "scatter beyond": (
        INVALID,
        "Max scatter index must be < array size (7 vs. 3)",
        lambda: loose().scatter([0, 7], [1.0, 2.0]).flow,
    ),
    "split sum": (
        INVALID,
        "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is 5 and value's shape is: [4]",
        lambda: loose().split([1.0, 2.0, 3.0, 4.0], [1, 1, 3]).flow,
    ),
    "split count": (
        INVALID,
        "TensorArray's size is not equal to the size of lengths (3 vs. 2), and the TensorArray is not"
        " marked as dynamically resizeable",
        lambda: loose().split([1.0, 2.0, 3.0, 4.0], [1, 3]).flow,
    ),
    "split scalar": (
        INVALID,
        "Expected value to be at least a vector, but received shape: []",
        lambda: loose().split(unknown(1.0), [1, 1, 1]).flow,
    ),
    "closed": (INVALID, "has already been closed.", lambda: _write_after_close()),
    "size": (INVALID, "Size should be >= 0, but is: -1", lambda: array(tf.constant(-1)).size()),
    "gradient does not grow": (
        INVALID,
        "@g: Tried to write to index 5 but array is not resizeable and size is: 2",
        lambda: array(2, dynamic_size=True).grad("g").write(5, 1.0).flow,
    ),
    "gradient shapes": (
        INVALID,
        "Could not aggregate to TensorArray index 0 because the existing shape is [2] but the new input shape is [3].",
        lambda: loose().grad("g").write(0, [1.0, 2.0]).write(0, [1.0, 2.0, 3.0]).flow,
    ),
    "pop nothing": (
        INVALID,
        "is empty when calling Pop().",
        lambda: raw.StackPopV2(handle=raw.StackV2(max_size=-1, elem_type=tf.float32), elem_type=tf.float32),
    ),
    "zeros of strings": (
        INVALID,
        "tensor_array::TensorSetZero type not supported: string",
        lambda: tf.TensorArray(tf.string, 2, element_shape=[]).read(0),
    ),
}


def _read_twice() -> Any:
    filled = array().write(0, 1.0)
    return after(filled.read(0), lambda: filled.read(0))


def _write_after_read() -> Any:
    empty = array(element_shape=[])
    return after(empty.read(0), lambda: empty.write(0, 1.0).flow)


def _read_as_int() -> Any:
    filled = array().write(0, 1.0)
    return raw.TensorArrayReadV3(handle=filled.handle, index=0, flow_in=filled.flow, dtype=tf.int32)


def _concat_nothing() -> Any:
    empty = array(0)
    return raw.TensorArrayConcatV3(handle=empty.handle, flow_in=empty.flow, dtype=tf.float32)[0]


def _write_after_close() -> Any:
    closed = array()
    return after(closed.close(), lambda: closed.write(0, 1.0).flow)


@pytest.mark.parametrize("what", FAILURES)
def test_wrong_uses_fail_in_the_step(what: str) -> None:
    kind, text, build = FAILURES[what]
    with pytest.raises(kind) as caught:
        run(build())
    assert text in caught.value.message


def test_wrong_uses_are_refused_when_the_graph_is_built() -> None:
    filled = array().write(0, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"Inconsistent shapes: saw \(\) but expected \(2,\)"):
        filled.write(1, 1.0)
    with pytest.raises(ValueError, match="must be rank 0 but is rank 1"):
        filled.write([1], [1.0, 2.0])
    with pytest.raises(ValueError, match="Size must be provided if handle is not provided"):
        tf.TensorArray(tf.float32)
    with pytest.raises(ValueError, match="flow must not be None if handle is not None"):
        tf.TensorArray(tf.float32, handle=filled.handle)
    with pytest.raises(ValueError, match="Cannot provide both a handle and size at the same time"):
        tf.TensorArray(tf.float32, 3, handle=filled.handle, flow=filled.flow)
    with pytest.raises(ValueError, match="both handle and tensor_array_name"):
        tf.TensorArray(tf.float32, handle=filled.handle, tensor_array_name="x")
    with pytest.raises(TypeError, match="Handle must be a Tensor"):
        tf.TensorArray(tf.float32, handle=3, flow=filled.flow)


def test_unwritten_elements_are_zeros_if_the_shape_is_known() -> None:
    assert run(array(element_shape=[2]).stack()).tolist() == [[0.0, 0.0]] * 3
    assert run(array(0, element_shape=[2]).stack()).shape == (0, 2)
    grown = array(2, dynamic_size=True).write(5, 1.0)
    assert run([grown.stack(), grown.size()])[0].tolist() == [0.0] * 5 + [1.0]


def test_an_element_can_be_read_twice_without_clear_after_read() -> None:
    filled = array(clear_after_read=False).unstack([1.0, 2.0, 3.0])
    assert run([filled.read(1), after(filled.read(1), lambda: filled.read(1)), filled.gather([2, 0])])[2].tolist() == [
        3.0,
        1.0,
    ]


def test_writes_to_a_gradient_are_summed() -> None:
    grad = array().write(0, [1.0, 2.0]).grad("g").write(0, [1.0, 2.0]).write(0, [3.0, 4.0])
    assert run(grad.read(0)).tolist() == [4.0, 6.0]
    handle, _ = raw.TensorArrayGradWithShape(
        handle=(a := array(2, element_shape=[])).handle, flow_in=a.flow, shape_to_prepend=[2], source="s"
    )
    assert run(raw.TensorArrayReadV3(handle=handle, index=0, flow_in=a.flow, dtype=tf.float32)).tolist() == [0.0, 0.0]


def test_elements_may_be_strings_and_integers() -> None:
    words = tf.TensorArray(tf.string, 2).unstack(["a", "bc"])
    assert run(words.stack()).tolist() == [b"a", b"bc"]
    assert run(tf.TensorArray(tf.int64, 2).unstack(tf.constant([1, 2], tf.int64)).stack()).dtype == np.int64


def test_each_step_and_each_iteration_has_its_own_array() -> None:
    x = tf.placeholder(tf.float32, [])

    def body(i: Any, total: Any) -> Any:
        return i + 1, total + tf.reduce_sum(array(2).write(0, x).write(1, total).stack())

    _, total = tf.while_loop(lambda i, t: i < 3, body, [0, tf.constant(1.0)])
    with tf.Session() as session:
        assert [session.run(total, {x: value}) for value in (1.0, 1.0, 2.0)] == [15.0, 15.0, 22.0]


def test_static_shapes_follow_from_element_shapes() -> None:
    assert array(element_shape=[None, 2]).stack().shape.as_list() == [None, None, 2]
    assert array(element_shape=[4, 2]).concat().shape.as_list() == [None, 2]
    filled = array().write(0, [1.0, 2.0])
    assert filled.read(0).shape == [2] and filled.element_shape == [2] and filled.dtype == tf.float32
    assert not filled.dynamic_size and array(dynamic_size=True).dynamic_size
    assert filled.grad("g").element_shape == [2]
    assert array().split([1.0, 2.0, 3.0], [1, 1, 1]).element_shape == [1]


def test_the_array_is_colocated_with_the_first_value_written() -> None:
    with tf.device("/device:CPU:1"):
        value = tf.constant([1.0])
    with tf.device("/job:worker"):
        written = array().write(0, value)
        elsewhere = array(colocate_with_first_write_call=False)
    assert written.flow.op.colocation_groups() == value.op.colocation_groups() and written.handle.device == ""
    assert elsewhere.handle.device == "/job:worker"


def test_identity_waits_for_control_dependencies() -> None:
    filled = array(1).write(0, 1.0)
    gate = tf.Assert(tf.constant(False), [tf.constant(1)])
    with tf.control_dependencies([gate]):
        gated = filled.identity()
    with pytest.raises(INVALID, match="assertion failed"):
        run(gated.read(0))


def test_gradients_in_a_scope_of_another_name_are_refused() -> None:
    x = tf.constant([1.0])
    y = array(1).unstack(x).stack()
    with pytest.raises(ValueError, match="Expected op/tensor name to start with gradients"):
        tf.gradients(y, x, name="other")


def test_stacks_pop_in_reverse_order_and_have_a_limit() -> None:
    handle = raw.StackV2(max_size=-1, elem_type=tf.float32)
    first = raw.StackPushV2(handle=handle, elem=1.0)
    second = after(first, lambda: raw.StackPushV2(handle=handle, elem=2.0))
    popped = after(second, lambda: raw.StackPopV2(handle=handle, elem_type=tf.float32))
    assert run([popped, after(popped, lambda: raw.StackPopV2(handle=handle, elem_type=tf.float32))]) == [2.0, 1.0]
    full = raw.StackV2(max_size=1, elem_type=tf.float32, stack_name="small")
    push = raw.StackPushV2(handle=full, elem=1.0)
    for value in (2.0, 3.0):
        push = after(push, lambda value=value: raw.StackPushV2(handle=full, elem=value))
    with pytest.raises(INVALID, match=r"Stack\[small_\d+\] overflowed its max_size \(1\)"):
        run(push)
    closed = raw.StackCloseV2(handle=handle)
    with pytest.raises(INVALID, match="has already been closed."):
        run(after(closed, lambda: raw.StackPopV2(handle=handle, elem_type=tf.float32)))
