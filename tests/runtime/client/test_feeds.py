"""Fed values become arrays of numpy's own class, or are refused."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf


class Odd(np.ndarray):
    """An array that multiplies by a rule of its own."""

    def __mul__(self, other: Any) -> Any:
        return "wrong"


def _on_disk(array: Any) -> Any:
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, array.dtype, "w+", shape=array.shape)
    mapped[:] = array
    return mapped


ARRAY = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
SUBCLASSES: dict[str, Callable[[Any], Any]] = {
    "matrix": lambda array: array.view(np.matrix),
    "masked": lambda array: np.ma.masked_array(array, mask=[[0, 1], [0, 0]]),
    "memmap": _on_disk,
    "recarray": lambda array: array.view(np.recarray),
    "own": lambda array: array.view(Odd),
}


def _partial(value: Any, session: tf.Session) -> Any:
    x = tf.placeholder(tf.float32)
    squared = x * x
    handle = session.partial_run_setup([squared], [x])
    return session.partial_run(handle, squared, {x: value})


def _callable(value: Any, session: tf.Session) -> Any:
    x = tf.placeholder(tf.float32)
    return session.make_callable(x * x, [x])(value)


def _loaded(value: Any, session: tf.Session) -> Any:
    variable = tf.Variable(np.zeros([2, 2], np.float32), use_resource=True)
    session.run(variable.initializer)
    variable.load(value, session)
    return session.run(variable * variable)


def _run(tensor: Callable[[Any], Any]) -> Callable[[Any, tf.Session], Any]:
    def squared(value: Any, session: tf.Session) -> Any:
        made = tensor(value)
        fetch = made * made
        session.run(tf.global_variables_initializer())
        return session.run(fetch)

    return squared


def _element(dataset: Any) -> Any:
    return dataset.make_one_shot_iterator().get_next()


def _fed_by(value: Any, session: tf.Session) -> Any:
    x = tf.placeholder(tf.float32)
    return session.run(x * x, {x: value})


ENTRIES: dict[str, Callable[[Any, tf.Session], Any]] = {
    "feed": _fed_by,
    "partial run": _partial,
    "callable": _callable,
    "load": _loaded,
    "constant": _run(tf.constant),
    "operand": _run(lambda value: tf.identity(value)),
    "list": _run(lambda value: tf.constant([value])[0]),
    "initial value": _run(lambda value: tf.Variable(value)),
    "initializer": _run(lambda value: tf.get_variable("v", initializer=tf.constant_initializer(value), shape=[2, 2])),
    "default": _run(lambda value: tf.placeholder_with_default(value, [2, 2])),
    "py_func": _run(lambda value: tf.py_func(lambda: value, [], tf.float32)),
    "py_func of a list": _run(lambda value: tf.py_func(lambda: [value], [], [tf.float32])[0]),
    "numpy_function": _run(lambda value: tf.numpy_function(lambda: value, [], tf.float32)),
    "from_tensors": _run(lambda value: _element(tf.data.Dataset.from_tensors(value))),
    "from_tensor_slices": _run(lambda value: _element(tf.data.Dataset.from_tensor_slices(value).batch(2))),
    "from_generator": _run(lambda value: _element(tf.data.Dataset.from_generator(lambda: iter([value]), tf.float32))),
    "attr": _run(lambda value: tf.raw_ops.Const(value=value, dtype=tf.float32)),
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", SUBCLASSES)
def test_a_subclass_of_arrays_enters_as_an_array(entry: str, kind: str) -> None:
    with tf.Session() as session:
        squared = ENTRIES[entry](SUBCLASSES[kind](ARRAY), session)
    assert type(squared) is np.ndarray
    np.testing.assert_array_equal(squared, np.asarray(ARRAY) ** 2)


@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.int32])
def test_a_fetched_feed_is_an_array(kind: str, dtype: tf.DType) -> None:
    x = tf.placeholder(dtype, [2, 2])
    with tf.Session() as session:
        value = SUBCLASSES[kind](ARRAY)
        found = session.run(x, {x: value})
        assert type(found) is np.ndarray and found.dtype == dtype.numpy
        found[:] = 0
        np.testing.assert_array_equal(np.asarray(value), ARRAY)


UNSUPPORTED: dict[str, tuple[Any, str]] = {
    "none": (None, "NoneType"),
    "missing": (["a", None], "NoneType"),
    "nan": (["a", float("nan")], "float"),
    "number": (["a", 1], "int"),
    "numbers": (np.array([1, 2]), "int"),
    "objects": (np.array(["a", 1.5], object), "float"),
    "bools": (np.array([True]), "bool"),
    "float": (1.5, "float"),
    "ragged": ([["a"], ["b", "c"]], "list"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_only_text_is_fed_as_strings(case: str) -> None:
    value, kind = UNSUPPORTED[case]
    x = tf.placeholder(tf.string, name="x")
    refused = pytest.raises(tf.errors.InternalError, match=f"Unsupported object type {kind}: .* fed for 'x:0'")
    with tf.Session() as session, refused:
        session.run(tf.identity(x), {x: value})


@pytest.mark.filterwarnings("ignore:The chararray class is deprecated:DeprecationWarning")  # since numpy 2.5
def test_all_kinds_of_text_are_fed_as_strings() -> None:
    x = tf.placeholder(tf.string)
    texts: list[Any] = [
        ["a", b"\xff"], np.array(["a", "b"]), np.array([b"a"]), np.char.array(["a"]), np.ma.masked_array(["a"], [True]),
        np.array(["a", b"b"], object), [np.str_("a")], [np.bytes_(b"a")],
    ]  # fmt: skip
    with tf.Session() as session:
        for text in texts:
            found = session.run(tf.identity(x), {x: text})
            assert type(found) is np.ndarray and {type(item) for item in found} == {bytes}
        assert session.run(tf.identity(x), {x: "a"}) == b"a" and session.run(x, {x: []}).shape == (0,)


def test_a_value_that_does_not_fit_names_its_feed() -> None:
    x, b, f = tf.placeholder(tf.int32, name="x"), tf.placeholder(tf.bool), tf.placeholder(tf.float32, name="f")
    with tf.Session() as session:
        with pytest.raises(OverflowError, match="fed for 'x:0'"):
            session.run(x + 1, {x: [2**40]})
        with pytest.raises(ValueError, match="fed for 'f:0'"):
            session.run(f + 1, {f: np.array([b"\xff"])})
        with pytest.raises(TypeError, match="not compatible with Tensor type"):
            session.run(tf.identity(b), {b: 2})
        assert session.run(tf.identity(b), {b: 1})


def test_a_fed_text_that_is_fetched_stays_text() -> None:
    fed, pair = tf.placeholder(tf.string), tf.placeholder(tf.string)
    computed = tf.identity(fed)
    with tf.Session() as session:
        assert session.run([fed, computed], {fed: "train"}) == ["train", b"train"]
        assert session.run([fed, computed], {fed: b"train"}) == [b"train", b"train"]
        values = session.run([fed, pair], {(fed, pair): (["a", b"b"], np.array("c"))})
        assert values[0].tolist() == ["a", b"b"] and values[1] == "c"
        given = np.array(["mine"], dtype=object)
        got = session.run(fed, {fed: given})
        assert got.tolist() == ["mine"] and got is not given
