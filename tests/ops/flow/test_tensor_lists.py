"""Lists of tensors: static shapes, gradients and errors as in TensorFlow 1.15.5, and lists in tables."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import ops_names as lists

raw = tf.raw_ops
X = np.arange(6, dtype=np.float32).reshape(3, 2)


def of(tensor: Any, shape: Any = (2,)) -> Any:
    return lists.tensor_list_from_tensor(tensor, element_shape=shape)


def stack(value: Any, shape: Any = None) -> Any:
    return lists.tensor_list_stack(value, tf.float32, element_shape=shape)


def item(value: Any, index: Any) -> Any:
    return lists.tensor_list_get_item(value, index, tf.float32, [2])


def push(value: Any, tensor: Any) -> Any:
    return raw.TensorListPushBack(input_handle=value, tensor=tensor)


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def test_static_shapes_are_those_of_the_elements_as_far_as_the_graph_tells_them() -> None:
    known = of(tf.zeros([3, 2]))
    both = tf.stack([known, known])
    popped, last = lists.tensor_list_pop_back(known, tf.float32)
    for value in (known, tf.identity(known), popped, raw.TensorListResize(input_handle=known, size=2), both[0]):
        assert stack(value).shape.as_list() == [None, 2]
    assert last.shape == [2] and stack(tf.gather(both, 0)).shape.ndims is None
    _, changed = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x), [0, known])
    assert stack(changed).shape.ndims is None  # as in TensorFlow, where a Merge forgets it
    assert stack(changed, [2]).shape.as_list() == [None, 2]
    assert lists.tensor_list_gather(known, [0, 1], tf.float32).shape == [2, 2]
    assert raw.TensorListElementShape(input_handle=known, shape_type=tf.int32).shape == [1]
    for call in (
        lambda: raw.TensorListPushBack(input_handle=known, tensor=np.int32([1, 2])),
        lambda: lists.tensor_list_stack(known, tf.int32),
        lambda: lists.tensor_list_set_item(known, 0, tf.zeros([3])),
        lambda: stack(known, [3]),
    ):
        with pytest.raises(ValueError, match="list with element dtype|must be equal"):
            call()


def _popped(x: Any) -> Any:
    rest, last = lists.tensor_list_pop_back(of(x), tf.float32)
    return stack(rest, [2]) * 3 + last


def _squares(x: Any) -> Any:
    def body(i: Any, value: Any) -> Any:
        return i + 1, lists.tensor_list_set_item(value, i, item(value, i) ** 2)

    return stack(tf.while_loop(lambda i, _: i < 3, body, [0, of(x)])[1], [2])


def _grown(x: Any) -> Any:
    empty = lists.empty_tensor_list([2], tf.float32)
    return stack(tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, push(v, x[i] ** 2)), [0, empty])[1], [2])


def _items(x: Any) -> Any:
    value = of(x)
    return item(value, 1) + 2 * item(value, 2)


def _split(x: Any) -> Any:
    parts = push(lists.tensor_list_split(x, [-1, 2], [1, 2]), 2 * x)
    return lists.tensor_list_concat(parts, tf.float32)


# How often each row of x counts in the sum of the result.
GRADIENTS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "items": (_items, [0, 1, 2]),
    "set": (lambda x: stack(lists.tensor_list_set_item(of(x), 1, 5 * x[0])), [6, 0, 1]),
    "push": (lambda x: stack(push(of(x), 5 * x[0])), [6, 1, 1]),
    "pop": (_popped, [3, 3, 2]),
    "gather": (lambda x: lists.tensor_list_gather(of(x), [2, 0], tf.float32), [1, 0, 1]),
    "scatter": (lambda x: stack(lists.tensor_list_scatter(x, [2, 0, 4], [2])), [1, 1, 1]),
    "scatter into": (
        lambda x: stack(lists.tensor_list_scatter(x[:2], [2, 0], input_handle=of(2 * x))),
        [1, 3, 0],
    ),
    "resize": (lambda x: stack(raw.TensorListResize(input_handle=of(x), size=2)), [1, 1, 0]),
    "concat": (_split, [3, 3, 3]),
}
LOOPS = {"squares": _squares, "grown": _grown}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    function, expected = GRADIENTS[name]
    x = tf.placeholder(tf.float32, [3, 2])
    (found,) = tf.gradients(function(x) * [1.0, 10.0], x)
    assert found.shape == [3, 2]
    np.testing.assert_array_equal(run(found, {x: X}), np.outer(expected, [1, 10]))


@pytest.mark.parametrize("name", LOOPS)
def test_gradients_in_loops(name: str) -> None:
    x = tf.placeholder(tf.float32, [3, 2])
    (found,) = tf.gradients(LOOPS[name](x) * [1.0, 10.0], x)
    np.testing.assert_array_equal(run(found, {x: X}), 2 * X * [1, 10])


def _unknown(value: Any) -> Any:
    return tf.placeholder_with_default(np.float32(value), None)


# In TensorFlow's words, where it has such a message.
FAILURES: dict[str, tuple[str, Callable[[], Any]]] = {
    "get": ("Trying to access element 7 in a list with 3 elements.", lambda: item(of(X), 7)),
    "get before": ("Trying to access element -1 in a list", lambda: item(of(X), -1)),
    "set": ("Trying to modify element 7 in a list", lambda: stack(lists.tensor_list_set_item(of(X), 7, [1.0, 2]))),
    "gather": ("gather element 7 in a list", lambda: lists.tensor_list_gather(of(X), [7], tf.float32)),
    "pop": (
        "Trying to pop from an empty list.",
        lambda: lists.tensor_list_pop_back(lists.empty_tensor_list([2], tf.float32), tf.float32)[1],
    ),
    "push": (
        r"Tried to append a tensor with incompatible shape to a list. Op element shape: \[3\] list shape: \[2\]",
        lambda: stack(push(of(X), _unknown([1, 2, 3]))),
    ),
    "full": (
        "Tried to push item into a full list list size: 0 max_num_elements: 0",
        lambda: stack(push(lists.empty_tensor_list([], tf.float32, max_num_elements=0), 1.0)),
    ),
    "from tensor": (
        r"Specified a list with shape \[2\] from a tensor with shape \[\]",
        lambda: stack(of(_unknown([1, 2]))),
    ),
    "empty": ("no elements of a list", lambda: stack(lists.empty_tensor_list([None], tf.float32))),
    "unset": ("were not set", lambda: stack(lists.tensor_list_reserve(None, 3, tf.float32))),
    "reserve": ("must be a non negative number", lambda: stack(lists.tensor_list_reserve([2], -1, tf.float32))),
    "resize": ("size to be non-negative. Got: -1", lambda: stack(raw.TensorListResize(input_handle=of(X), size=-1))),
    "count": (
        "Operation expected a list with 5 elements but got a list with 3 elements.",
        lambda: lists.tensor_list_stack(of(X), tf.float32, num_elements=5),
    ),
    "scatter": (
        "Indices in TensorListScatter must all be non-negative.",
        lambda: stack(lists.tensor_list_scatter(tf.ones([2]), [0, -3], [])),
    ),
    "split": (
        "Unused values in tensor. Length of tensor: 3 Values used: 2",
        lambda: lists.tensor_list_concat(lists.tensor_list_split(X, [-1, 2], [1, 1]), tf.float32),
    ),
    "concat": (
        "List contains uninitialized tensor at index 0 but leading_dims has only 0 elements.",
        lambda: lists.tensor_list_concat(lists.tensor_list_reserve([None, 2], 2, tf.float32), tf.float32),
    ),
    "sum": (
        "two lists of tensors with different lengths. One is 3 and the other is 2",
        lambda: stack(tf.add_n([of(X), of(X[:2])])),
    ),
    "vector": (
        r"Input list must be a scalar saw: \[2\]",
        lambda: raw.TensorListLength(input_handle=tf.stack([of(X), of(X)])),
    ),
    "data set": (
        "Input handle is not a list. Saw:",
        lambda: raw.TensorListLength(input_handle=operator.attrgetter("_variant_tensor")(tf.data.Dataset.range(3))),
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name: str) -> None:
    text, make = FAILURES[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run(make())


def test_elements_that_were_not_set_are_zeros() -> None:
    grown = lists.tensor_list_set_item(of(X), 4, [1.0, 2], resize_if_index_out_of_bounds=True)
    texts = raw.TensorListResize(input_handle=of(tf.constant(["a"]), []), size=2)
    parts = lists.tensor_list_set_item(lists.tensor_list_reserve([None, 2], 2, tf.float32), 1, tf.ones([3, 2]))
    found = run([stack(grown), lists.tensor_list_stack(texts, tf.string), lists.tensor_list_concat(parts, tf.float32)])
    np.testing.assert_array_equal(found[0], [*X, [0, 0], [1, 2]])
    assert found[1].tolist() == [b"a", b""]
    np.testing.assert_array_equal(found[2], [[0, 0]] * 3 + [[1, 1]] * 3)


def test_a_table_keeps_lists() -> None:
    empty = lists.empty_tensor_list([2], tf.float32)
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.variant, default_value=empty, empty_key=-1, deleted_key=-2
    )
    rows = tf.constant([3, 5], tf.int64)
    longer = raw.TensorListPushBackBatch(input_handles=table.lookup(rows), tensor=[[1.0, 2], [3, 4]])
    add, clear = table.insert(rows, longer), table.insert(rows, tf.fill([2], empty))
    last = stack(table.lookup(tf.constant(5, tf.int64)))
    with tf.Session() as session:
        for _ in range(2):
            session.run(add)
        np.testing.assert_array_equal(session.run(last), [[3, 4], [3, 4]])
        session.run(clear)
        assert session.run(last).shape == (0, 2)
