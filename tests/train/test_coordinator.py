"""Coordinator and LooperThread."""

from __future__ import annotations

import threading

import pytest

import tfmini as tf


def _thread(target) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def test_join_raises_the_first_exception() -> None:
    coord = tf.train.Coordinator()

    def fail() -> None:
        with coord.stop_on_exception():
            raise ValueError("first")

    threads = [_thread(fail), _thread(coord.wait_for_stop)]
    with pytest.raises(ValueError, match="first"):
        coord.join(threads)
    assert coord.joined and coord.should_stop()
    with pytest.raises(ValueError, match="first"):
        coord.raise_requested_exception()


def test_end_of_input_is_no_error() -> None:
    coord = tf.train.Coordinator()
    with coord.stop_on_exception():
        raise tf.errors.OutOfRangeError.of("the end")
    coord.join([])
    assert coord.should_stop()


def test_clean_stop_exception_types_can_be_given() -> None:
    coord = tf.train.Coordinator(clean_stop_exception_types=(KeyError,))
    with coord.stop_on_exception():
        raise KeyError("x")
    coord.join([])
    coord.clear_stop()
    with coord.stop_on_exception():
        raise tf.errors.OutOfRangeError.of("the end")
    with pytest.raises(tf.errors.OutOfRangeError):
        coord.join([])


def test_stragglers_are_named() -> None:
    coord = tf.train.Coordinator()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(60,), name="slow")
    thread.start()
    coord.request_stop()
    with pytest.raises(RuntimeError, match="Coordinator stopped with threads still running: slow"):
        coord.join([thread], stop_grace_period_secs=0.02)
    coord.join([thread], stop_grace_period_secs=0.02, ignore_live_threads=True)
    release.set()
    thread.join()


def test_an_exception_after_join_is_raised_at_once() -> None:
    coord = tf.train.Coordinator()
    coord.join([])
    with pytest.raises(ValueError, match="late"), coord.stop_on_exception():
        raise ValueError("late")


def test_request_stop_needs_an_exception_that_is_being_handled() -> None:
    coord = tf.train.Coordinator()
    coord.request_stop(ValueError("nobody handles it"))
    with pytest.raises(ValueError, match="ex must be a tuple or sys.exc_info"):
        coord.join([])


def test_a_looper_calls_its_function_until_the_stop() -> None:
    coord = tf.train.Coordinator()
    calls = []

    def work(argument: int) -> None:
        calls.append(argument)
        if len(calls) == 3:
            coord.request_stop()

    looper = tf.train.LooperThread.loop(coord, 0.001, target=work, args=(7,))
    coord.join()
    assert calls == [7, 7, 7] and not looper.is_alive()


def test_wrong_arguments_of_a_looper_are_refused() -> None:
    with pytest.raises(ValueError, match="must be a Coordinator"):
        tf.train.LooperThread("coord", 1)
    with pytest.raises(ValueError, match="require that you also pass 'target'"):
        tf.train.LooperThread(tf.train.Coordinator(), 1, args=(1,))
