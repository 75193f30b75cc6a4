"""Waiting ops in sessions: each wait, each way in which a session ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf
from tfmini.ops.queues.barrier import Barrier
from tfmini.ops.queues.staging import MapStagingArea, StagingArea


def _full_queue() -> Any:
    queue = tf.FIFOQueue(1, tf.int32, shapes=[()])
    return queue, queue.enqueue(1)


def _dequeue() -> Any:
    return tf.FIFOQueue(1, tf.int32).dequeue()


def _dequeue_many() -> Any:
    return tf.RandomShuffleQueue(5, 0, tf.int32, shapes=[()]).dequeue_many(2)


def _padded() -> Any:
    return tf.PaddingFIFOQueue(5, [tf.int32], shapes=[[None]]).dequeue_many(2)


def _priority() -> Any:
    return tf.PriorityQueue(5, [tf.int32], shapes=[()]).dequeue_up_to(2)


def _enqueue() -> Any:
    queue, fill = _full_queue()
    with tf.control_dependencies([fill]):
        return queue.enqueue(2)


def _close() -> Any:
    queue, fill = _full_queue()
    with tf.control_dependencies([fill]):
        more = queue.enqueue_many([[2, 3]])
    return more


def _take_gradient() -> Any:
    return tf.ConditionalAccumulator(tf.float32, shape=()).take_grad(1)


def _take_sparse_gradient() -> Any:
    return tf.SparseConditionalAccumulator(tf.float32).take_grad(1)[0]


def _barrier() -> Any:
    return Barrier(tf.int32, shapes=[()]).take_many(1)[0]


def _unstage() -> Any:
    return StagingArea([tf.int32]).get()[0]


def _map_unstage() -> Any:
    return MapStagingArea([tf.int32]).get(1)[1][0]


def _read() -> Any:
    return tf.TextLineReader().read(tf.FIFOQueue(1, tf.string))[0]


def _locked_twice() -> Any:
    mutex = tf.raw_ops.MutexV2(shared_name="m")
    first = tf.raw_ops.MutexLock(mutex=mutex)
    with tf.control_dependencies([first]):
        second = tf.raw_ops.MutexLock(mutex=mutex)
    with tf.control_dependencies([second]):
        return tf.raw_ops.ConsumeMutexLock(mutex_lock=first)


WAITS: dict[str, Callable[[], Any]] = {
    "dequeue": _dequeue,
    "dequeue_many": _dequeue_many,
    "dequeue_many_padded": _padded,
    "dequeue_up_to": _priority,
    "enqueue": _enqueue,
    "enqueue_many": _close,
    "take_gradient": _take_gradient,
    "take_sparse_gradient": _take_sparse_gradient,
    "barrier": _barrier,
    "unstage": _unstage,
    "map_unstage": _map_unstage,
    "read": _read,
    "mutex": _locked_twice,
}


class _InThread:
    """Runs a step that will wait; `result` is its value or its error. The step has begun when this returns."""

    def __init__(self, session: Any, fetch: Any) -> None:
        self.result: Any = None
        began = threading.Event()
        with session.graph.as_default():
            signal = tf.py_func(lambda: began.set() or 0, [], tf.int64)
        fetch = (fetch, signal)
        self._thread = threading.Thread(target=self._run, args=(session, fetch))
        self._thread.start()
        assert began.wait(60)

    def _run(self, session: Any, fetch: Any) -> None:
        try:
            self.result = session.run(fetch)
        except tf.errors.OpError as error:
            self.result = error

    def join(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.result


def _check_wait_ends_in_time(run: Callable[[int], Any]) -> None:
    """Runs with longer and longer limits (ms): a loaded machine may need more than 60 ms to come to the wait."""
    for limit in (60, 600, 6_000, 60_000):
        with pytest.raises(tf.errors.DeadlineExceededError) as info:
            run(limit)
        if "waits for" in str(info.value):
            return
    pytest.fail(f"The step never waited: {info.value}")


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_ends_at_the_timeout_of_run_options(name: str) -> None:
    fetch = WAITS[name]()
    with tf.Session() as session:
        _check_wait_ends_in_time(lambda ms: session.run(fetch, options=tf.RunOptions(timeout_in_ms=ms)))


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_ends_at_the_operation_timeout(name: str) -> None:
    fetch = WAITS[name]()

    def run(ms: int) -> None:
        with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=ms)) as session:
            session.run(fetch)

    _check_wait_ends_in_time(run)


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_ends_when_its_session_is_closed(name: str) -> None:
    fetch = WAITS[name]()
    session = tf.Session()
    waiting = _InThread(session, fetch)
    session.close()
    assert isinstance(waiting.join(), (tf.errors.CancelledError, RuntimeError))


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_ends_when_another_op_of_the_step_fails(name: str) -> None:
    fetch = WAITS[name]()
    bad = tf.check_numerics(tf.placeholder_with_default(float("nan"), ()), "bad number")
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="bad number"):
        session.run([fetch, bad])


def test_a_session_after_a_timeout_still_works() -> None:
    queue = tf.FIFOQueue(5, tf.int32, shapes=[()])
    batch, add = queue.dequeue_many(3), queue.enqueue_many([[1, 2]])
    with tf.Session() as session:
        session.run(add)
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(batch, options=tf.RunOptions(timeout_in_ms=50))
        assert session.run(queue.size()) == 2  # the batch gave its elements back
        session.run(add)
        assert session.run(batch).tolist() == [1, 2, 1]


def test_closing_the_queue_ends_a_waiting_step_with_its_node() -> None:
    queue = tf.FIFOQueue(5, tf.int32, name="jobs")
    with tf.Session() as session:
        waiting = _InThread(session, queue.dequeue())
        session.run(queue.close())
        error = waiting.join()
    assert isinstance(error, tf.errors.OutOfRangeError)
    assert "FIFOQueue '_" in error.message and "_jobs' is closed and has insufficient elements" in error.message
    assert error.op.name == "jobs_Dequeue"


def test_named_components_are_dictionaries_and_shared_queues_must_agree() -> None:
    first = tf.FIFOQueue(5, [tf.int32, tf.string], shapes=[(), ()], names=["a", "b"], shared_name="shared")
    second = tf.FIFOQueue(5, [tf.int32, tf.string], shapes=[(), ()], shared_name="shared")
    other = tf.FIFOQueue(6, [tf.int32, tf.string], shapes=[(), ()], shared_name="shared")
    with tf.Session() as session:
        session.run(first.enqueue({"a": 3, "b": "x"}))
        assert session.run(second.dequeue()) == [3, b"x"]
        text = "Shared queue 'shared' has capacity 5 but requested capacity was 6"
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.run(other.size())


def test_wrong_components_are_refused() -> None:
    queue = tf.FIFOQueue(5, tf.float32, shapes=[(2,)])
    fed = tf.placeholder(tf.float32)
    add = queue.enqueue(fed)
    with tf.Session() as session:
        text = r"Shape mismatch in tuple component 0. Expected \[2\], got \[3\]"
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.run(add, {fed: [1, 2, 3]})
    with pytest.raises((TypeError, ValueError)):
        queue.enqueue("text")


def test_queues_by_reference_run() -> None:
    queue = tf.raw_ops.FIFOQueue(component_types=[tf.int32], shapes=[()], capacity=3)
    add = tf.raw_ops.QueueEnqueue(handle=queue, components=[tf.constant(4)])
    (value,) = tf.raw_ops.QueueDequeue(handle=queue, component_types=[tf.int32])
    with tf.Session() as session:
        session.run(add)
        assert session.run(tf.raw_ops.QueueSize(handle=queue)) == 1
        assert session.run(value) == 4
