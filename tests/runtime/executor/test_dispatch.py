"""Which thread runs a segment: the client's own one; and Ctrl-C, which ends one step and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini import errors
from tfmini.runtime.executor import dispatch
from tfmini.runtime.executor.dispatch import WaitingThread, this_thread


class _Client:
    """A thread that runs a fetch in a session."""

    def __init__(self, session: tf.Session, fetch: Any) -> None:
        self.thread = threading.Thread(target=self._body, args=(session, fetch), daemon=True)
        self.result: Any = None
        self._self: WaitingThread | None = None
        self.thread.start()
        deadline = time.monotonic() + 60
        while self._self is None or not self._self.sleeps:
            assert time.monotonic() < deadline
            time.sleep(0)

    def _body(self, session: tf.Session, fetch: Any) -> None:
        self._self = this_thread()
        self.result = session.run(fetch)

    def join(self) -> Any:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.result


def _waiting_function(function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A py_func of a queue's element, and the enqueue that it waits for."""
    queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]])
    return tf.py_func(function, [queue.dequeue()], tf.float32), queue.enqueue([1.0])


def test_the_function_of_another_clients_step_does_not_run_in_this_clients_thread() -> None:
    lock = threading.Lock()

    def function(value: Any) -> Any:
        with lock:
            return np.float32(threading.get_ident() == client.thread.ident)

    fetch, enqueue = _waiting_function(function)
    with tf.Session() as session:
        client = _Client(session, fetch)
        with lock:
            session.run(enqueue)  # would wait for the lock that it holds
        assert client.join() == 1


def test_a_client_that_waits_with_a_deadline_runs_its_segments_too() -> None:
    fetch, enqueue = _waiting_function(lambda value: value + 1)
    config = tf.ConfigProto(operation_timeout_in_ms=60_000)
    with tf.Session(config=config) as session:
        client = _Client(session, fetch)
        session.run(enqueue)
        assert client.join() == 2


class _Activation:
    """Runs functions as segments."""

    def __init__(self, *functions: Callable[[], Any]) -> None:
        self._functions = functions
        self.run = SimpleNamespace(
            home=None,
            step_id=7,
            abort=self._abort,
            owner=SimpleNamespace(
                threads=SimpleNamespace(schedule=lambda activation, segment: False), task="/job:ps/replica:0/task:0"
            ),
        )
        self.error: errors.OpError | None = None

    def _abort(self, error: errors.OpError) -> None:
        self.error = error

    def run_segment(self, index: int) -> list[int]:
        self._functions[index]()
        return []


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_ends_the_step_whose_segment_it_hits_and_the_other_ones_go_on() -> None:
    ran = threading.Event()
    other = _Activation(ran.set)
    hit = _Activation(lambda: dispatch.dispatch(other, [0]), _interrupt)
    with pytest.raises(KeyboardInterrupt):
        dispatch.drive(hit, [1, 0])  # the last one runs first
    assert ran.wait(60)
    assert isinstance(hit.error, errors.CancelledError)
    assert "Step 7 was interrupted by KeyboardInterrupt" in str(hit.error)
    assert other.error is None
    again = threading.Event()
    dispatch.dispatch(_Activation(again.set), [0])  # this thread is not taken for one that runs a segment
    assert again.is_set()


def test_a_step_that_the_end_of_its_server_hits_can_be_made_again() -> None:
    """A session that recovers waits for the task's restart; a cancelled step would end the training."""

    def terminate() -> None:
        raise dispatch.Terminated

    hit = _Activation(terminate)
    with pytest.raises(dispatch.Terminated):
        dispatch.drive(hit, [0])
    assert isinstance(hit.error, errors.UnavailableError)
    assert hit.error.message == f"{hit.error.task} is shutting down." == "/job:ps/replica:0/task:0 is shutting down."


def test_ctrl_c_while_a_thread_waits_leaves_no_work_behind() -> None:
    ran = threading.Event()
    waiting = WaitingThread()

    class Gate:
        """A lock in which Ctrl-C arrives just after work for the thread."""

        def acquire(self, blocking: bool, seconds: float) -> bool:
            assert waiting.take(_Activation(ran.set), [0])
            raise KeyboardInterrupt

        def release(self) -> None:
            pass

    with pytest.raises(KeyboardInterrupt):
        waiting.sleep(Gate(), lambda: False, None)
    assert ran.wait(60) and not waiting.sleeps


def test_a_wait_ends_after_its_limit_and_not_when_work_comes() -> None:
    waiting, gate, ran = WaitingThread(), threading.Lock(), threading.Event()
    gate.acquire()
    assert not waiting.sleep(gate, lambda: False, 0.0)
    thread = threading.Thread(target=waiting.sleep, args=(gate, lambda: gate_open, None), daemon=True)
    gate_open = False
    thread.start()
    while not waiting.take(_Activation(ran.set), [0]):
        time.sleep(0)
    assert ran.wait(60)
    while not waiting.sleeps:
        time.sleep(0)
    gate_open = True
    gate.release()
    thread.join(60)
    assert not thread.is_alive()
