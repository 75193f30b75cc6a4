"""The calls of a parallel map: who makes them, their order and errors, and that they end with the iterator."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.data.elements import drain
from tfmini.data.pipeline import Reading
from tfmini.data.prefetching import MapCall, MapCalls

Dataset = tf.data.Dataset


def _calls(function: Any, may_block: bool = True) -> MapCalls:
    return MapCalls(lambda reading, *element: (function(*element),), Reading(None), 2, may_block)  # type: ignore[arg-type]


def _added(calls: MapCalls, *elements: int) -> list[MapCall]:
    added = [MapCall((element,)) for element in elements]
    for call in added:
        calls.add(call)
    return added


def test_calls_that_wait_for_each_other_meet() -> None:
    meeting = threading.Barrier(2)

    def meet(number: int) -> int:
        meeting.wait(60)
        return number

    mapped = Dataset.range(6).map(lambda x: tf.py_func(meet, [x], tf.int64), num_parallel_calls=2)
    element = mapped.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert drain(session, element) == list(range(6))


def test_the_reader_makes_short_calls_that_cannot_block() -> None:
    makers = []
    calls = _calls(lambda _: makers.append(threading.current_thread()), may_block=False)
    for call in _added(calls, 1, 2, 3):
        calls.finish(call)
    assert makers == [threading.current_thread()] * 3


def test_an_error_is_that_of_its_element() -> None:
    def check(number: int) -> int:
        if number == 2:
            raise tf.errors.DataLossError(None, None, "two")
        return number

    calls = _calls(check)
    first, second, third = _added(calls, 1, 2, 3)
    assert calls.finish(first) == (1,)
    with pytest.raises(tf.errors.DataLossError, match="two"):
        calls.finish(second)
    assert calls.finish(third) == (3,)
    calls.close()


def test_closing_ends_the_wait_for_a_call_that_a_thread_makes() -> None:
    begun, end = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        begun.set()
        end.wait(60)

    calls = _calls(wait)
    (call,) = _added(calls, 1)
    assert begun.wait(60)  # in a thread of the calls
    threading.Timer(0, calls.close).start()
    with pytest.raises(tf.errors.CancelledError, match="closed"):
        calls.finish(call)
    end.set()


def test_elements_of_a_batch_are_stacked_whatever_they_are() -> None:
    data = (
        Dataset.range(4).map(lambda x: (x, tf.as_string(x), tf.fill([2, 0], x), tf.fill([1], tf.as_string(x)))).batch(2)
    )
    element = data.make_one_shot_iterator().get_next()
    with tf.Session() as session:
        numbers, words, empty, vectors = session.run(element)
    assert numbers.tolist() == [0, 1] and numbers.dtype == np.int64
    assert words.tolist() == [b"0", b"1"] and vectors.tolist() == [[b"0"], [b"1"]]
    assert empty.shape == (2, 2, 0)
