"""Tensors that come before their step: kept, bounded, and never lost in silence."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.runtime.task_graphs import F, receive, task_graph
from tfmini import errors
from tfmini.graph.node import Node
from tfmini.runtime.client import session as session_module
from tfmini.runtime.client.call import Call
from tfmini.runtime.executor.registered_graph import RegisteredGraph
from tfmini.runtime.worker.task_state import ENTRY_BYTES, KEEP_S, ORPHAN_S, EarlyTensors
from tfmini.runtime.worker.worker import Worker

TASK = "/job:ps/replica:0/task:0"
WORKER = "/job:worker/replica:0/task:0"
ENTRY = 1024 + ENTRY_BYTES  # of a kilobyte


def kilobyte() -> tuple[Any, ...]:
    return (np.zeros(1024, np.uint8),)


def test_a_step_takes_the_tensors_that_arrived_for_it() -> None:
    early = EarlyTensors(TASK)
    early.add(1, "first", kilobyte())
    early.add(1, "second", kilobyte())
    early.add(2, "other", kilobyte())
    assert early.bytes == 3 * ENTRY
    assert list(early.take(1)) == ["first", "second"]
    assert early.bytes == ENTRY
    assert list(early.take(1)) == []
    assert early.loss(1) is None


def test_memory_is_bounded_and_the_oldest_step_fails() -> None:
    early = EarlyTensors(TASK, byte_limit=2 * ENTRY)
    for step in (1, 2, 3):
        early.add(step, step, kilobyte())
    assert early.bytes == 2 * ENTRY
    early.add(1, "late", kilobyte())  # useless without the one that was dropped
    assert early.bytes == 2 * ENTRY
    loss = early.loss(1)
    assert isinstance(loss, errors.ResourceExhaustedError)
    assert TASK in loss.message
    assert "step 1 " in loss.message
    assert early.loss(2) is None
    assert list(early.take(3)) == [3]


def test_one_step_may_exceed_the_bound() -> None:
    early = EarlyTensors(TASK, byte_limit=100)
    early.add(1, "large", kilobyte())
    early.add(1, "larger", kilobyte())
    assert list(early.take(1)) == ["large", "larger"]


def test_the_number_of_steps_is_bounded() -> None:
    early = EarlyTensors(TASK, step_limit=10)
    for step in range(1000):
        early.add(step, step, ())
    assert len(early) == 10
    assert early.loss(0) is None  # forgotten, too
    assert early.loss(985) is not None


def test_strings_count_as_long_as_they_are() -> None:
    early = EarlyTensors(TASK, byte_limit=10 << 20)
    for step in range(20):
        early.add(step, step, (np.array([b"x" * (1 << 20)], object),))
    assert len(early) == 9
    assert early.loss(0) is not None and early.loss(11) is None


def test_messages_of_nothing_count_too() -> None:
    early = EarlyTensors(TASK, byte_limit=1 << 20)
    for step in (1, 2):
        for _ in range(10_000):
            early.add(step, step, ())
    assert len(early) == 1 and early.loss(1) is not None


def test_a_greedy_sender_loses_its_own_tensors() -> None:
    early = EarlyTensors(TASK, byte_limit=10 * ENTRY)
    early.add(1, "modest", kilobyte(), "modest")
    for step in range(2, 100):
        early.add(step, step, kilobyte(), "greedy")
    assert early.loss(1) is None and list(early.take(1)) == ["modest"]
    assert early.loss(2) is not None


def test_a_step_that_does_not_start_is_dropped_after_a_while() -> None:
    early = EarlyTensors(TASK)
    early.add(1, 1, kilobyte())
    assert early.sweep()
    early.add(2, 2, kilobyte())
    assert early.sweep()
    loss = early.loss(1)
    assert isinstance(loss, errors.ResourceExhaustedError) and "more than 300 s before" in loss.message
    assert list(early.take(2)) == [2]
    assert not early.sweep() and early.bytes == 0


def test_the_steps_of_a_sender_that_is_gone_are_dropped() -> None:
    early = EarlyTensors(TASK)
    early.add(1, 1, kilobyte(), "dead")
    early.add(1, 2, kilobyte(), "alive")
    early.add(2, 3, kilobyte(), "alive")
    early.drop_from("dead", WORKER, "it was killed")
    assert early.bytes == ENTRY
    loss = early.loss(1)
    assert isinstance(loss, errors.UnavailableError) and loss.task == WORKER and "it was killed" in loss.message
    assert early.loss(2) is None


class Timers:
    """A reactor whose timers the test fires."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Any, tuple[Any, ...]]] = []

    def call_later(self, delay: float, call: Any, *args: Any) -> Any:
        self.calls.append((delay, call, args))
        return self

    def runs_here(self) -> bool:
        return False

    def cancel(self) -> None:
        """For timers that a worker cancels when it is closed."""

    def fire(self, delay: float) -> None:
        """Makes the calls with that delay, once."""
        due = [call for call in self.calls if call[0] == delay]
        self.calls = [call for call in self.calls if call[0] != delay]
        for _, call, args in due:
            call(*args)


def test_a_worker_keeps_no_tensors_of_steps_that_never_start() -> None:
    """One timer, and only while there are such tensors."""
    timers = Timers()
    worker = Worker(TASK, [], reactor=timers)
    for step in (7, 8):
        worker.receive(step, 0, kilobyte())
    assert len(timers.calls) == 1
    timers.fire(KEEP_S)
    assert worker.early.bytes == 2 * ENTRY
    timers.fire(KEEP_S)
    assert worker.early.bytes == 0 and timers.calls == []
    worker.receive(9, 0, kilobyte())
    assert len(timers.calls) == 1
    worker.close()


class Sender:
    """A peer to which nothing has to be reported."""

    incarnation = 5


def test_a_worker_keeps_no_tensors_of_a_task_that_is_gone() -> None:
    timers, gone, other = Timers(), Sender(), object()
    worker = Worker(TASK, [], reactor=timers)
    worker.receive(7, 0, kilobyte(), sender=gone)
    worker.receive(8, 0, kilobyte(), sender=other)
    worker.peer_lost(WORKER, "it was killed", gone)
    assert worker.early.bytes == 2 * ENTRY  # the task may have done its part
    timers.fire(ORPHAN_S)
    assert worker.early.bytes == ENTRY
    worker.close()


def test_a_step_that_cannot_start_leaves_nothing_behind() -> None:
    worker = Worker(TASK, [])
    worker.receive(7, 0, kilobyte())
    assert worker.early.bytes == ENTRY
    worker.forget_step(7)
    worker.receive(7, 1, kilobyte())  # came even later
    assert worker.early.bytes == 0


def receiving_graph(worker: Worker) -> RegisteredGraph:
    """A graph that receives one tensor, in group 0, from the task WORKER."""
    device, sender = f"{TASK}/device:CPU:0", f"{WORKER}/device:CPU:0"
    received = receive("r", 0, device, sender, tensor="edge_0_x", incarnation=5)
    worker.create_session("h", False, {})
    return worker.register_graph("h", task_graph([received, Node("n", "Neg", device, [("r", 0)], (), {"T": F})]))


def test_a_step_that_refuses_its_tensors_leaves_nothing_behind() -> None:
    worker = Worker(TASK, [], peer_for=lambda task, address: None, reactor=Timers())
    graph = receiving_graph(worker)
    worker.receive(7, 0, kilobyte() * 2)  # the group has one tensor
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 tensors came where 1 are expected: x from"):
        worker.run_graph(graph, 7, [], lambda error, values: None)
    assert worker.runs == {}
    worker.receive(7, 0, kilobyte())
    assert worker.early.bytes == 0
    worker.close()


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("value", [np.ones(3), np.array([b"a"], object)])
def test_tensors_have_the_types_of_their_receivers(is_early: bool, value: Any) -> None:
    worker = Worker(TASK, [], peer_for=lambda task, address: None, reactor=Timers())
    graph = receiving_graph(worker)
    with pytest.raises(tf.errors.InvalidArgumentError, match="came where float32 is expected: x from /job:worker"):
        if is_early:
            worker.receive(7, 0, (value,))
        worker.run_graph(graph, 7, [], lambda error, values: None)
        worker.receive(7, 0, (value,))
    worker.abort_step(7, errors.CancelledError.of("the service does so"))
    assert worker.runs == {}
    worker.close()


def test_a_fed_value_that_is_fetched_is_a_copy() -> None:
    x = tf.placeholder(tf.float32, [None])
    y = x * 2.0
    fed = np.ones(3, np.float32)
    with tf.Session() as session:
        for fetched in (session.run(x, {x: fed}), session.run([x, y], {x: fed})[0]):
            assert not np.shares_memory(fetched, fed)
            fetched[0] = 5
            assert fed[0] == 1


def test_a_loop_of_ever_new_fetches_keeps_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CALL_LIMIT", 5)
    kept: weakref.WeakSet[Any] = weakref.WeakSet()

    class NotedCall(Call):
        __slots__ = ("__weakref__",)

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            kept.add(self)

    monkeypatch.setattr(session_module, "Call", NotedCall)
    values = [tf.constant(i) for i in range(20)]
    with tf.Session() as session:
        for i, value in enumerate(values):
            assert session.run(value) == i
        gc.collect()
        assert len(kept) == 5
        assert session.run(values[0]) == 0


def test_the_tensors_of_a_step_are_freed_at_its_end() -> None:
    """Without waiting for a garbage collection: a variable that somebody holds is copied when it is updated."""
    x = tf.placeholder(tf.float32, [None])
    with tf.device("/job:local/task:0"):
        y = tf.identity(x) + 1.0
    gc.collect()
    gc.disable()
    try:
        with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
            fed = np.ones(10, np.float32)
            held = weakref.ref(fed)
            ended = threading.Event()
            worker = server.worker
            session.run(y, {x: fed})
            plan = session.master.prepare(((x.name,), (y.name,), ()))
            worker.run_graph(plan.parts[0].graph, 123, [fed], lambda error, values: ended.set())
            del fed
            assert ended.wait(60)
            limit = time.monotonic() + 60
            while held() is not None:  # where the step was long it has run in another thread, which may not be done
                assert time.monotonic() < limit
                time.sleep(0.001)
    finally:
        gc.enable()
