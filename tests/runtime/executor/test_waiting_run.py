"""What comes when the time of a step is up stays for the next step."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.ops.queues.barrier import Barrier
from tfmini.ops.queues.staging import MapStagingArea, StagingArea
from tfmini.runtime.executor.dataflow_run import DataflowRun
from tfmini.runtime.executor.waiting_run import NodeWait, WaitingRun


def queue() -> tuple[Any, Any]:
    made = tf.FIFOQueue(9, [tf.float32], shapes=[[]])
    return made.enqueue(7.0), made.dequeue()


def batch() -> tuple[Any, Any]:
    made = tf.RandomShuffleQueue(9, 0, [tf.float32], shapes=[[]])
    return made.enqueue_many([[7.0, 7.0]]), made.dequeue_many(2)[0]


def stage() -> tuple[Any, Any]:
    made = StagingArea([tf.float32])
    return made.put([7.0]), made.get()[0]


def map_stage() -> tuple[Any, Any]:
    made = MapStagingArea([tf.float32])
    return made.put(1, [7.0], [0]), made.get(1)[1][0]


def barrier() -> tuple[Any, Any]:
    made = Barrier([tf.float32], shapes=[()])
    return made.insert_many(0, ["key"], [7.0]), made.take_many(1)[2][0][0]


def accumulator() -> tuple[Any, Any]:
    made = tf.ConditionalAccumulator(tf.float32, shape=())
    return made.apply_grad(7.0), made.take_grad(1)


def record() -> tuple[Any, Any]:
    units = tf.FIFOQueue(9, [tf.string], shapes=[[]])
    value = tf.IdentityReader().read(units)[1]
    return units.enqueue("7"), tf.string_to_number(value)


@pytest.mark.parametrize("make", [queue, batch, stage, map_stage, barrier, accumulator, record])
def test_what_comes_when_the_time_is_up_goes_to_the_next_step(make: Any) -> None:
    """The answer comes after the deadline and before anybody has noticed that it has passed."""
    put, get = make()
    with tf.Session() as session:
        master = session.master
        clock = [0.0]
        master.session.cluster.worker.now = lambda: clock[0]
        ended: list[Any] = []

        def run() -> None:
            try:
                ended.append(session.run(get, options=tf.RunOptions(timeout_in_ms=100_000)))
            except tf.errors.OpError as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        runs = master.session.cluster.worker.runs
        poll(lambda: [run for run in list(runs.values()) if run.awaited()], "the wait")
        clock[0] = 200.0
        session.run(put)
        thread.join(60)
        (error,) = ended
        assert isinstance(error, tf.errors.DeadlineExceededError)
        assert "did not end within 100 s" in error.message and "waits for" in error.message
        assert session.run(get) == 7.0


def end(run: WaitingRun, error: tf.errors.OpError) -> None:
    run.abort(error)


def refuse(run: WaitingRun, error: tf.errors.OpError) -> None:
    assert run.refuse_answers(error)


@pytest.mark.parametrize(("method", "stop"), [("forget", end), ("forget", refuse), ("complete", end)])
def test_what_comes_while_the_step_ends_goes_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch, method: str, stop: Callable[[WaitingRun, tf.errors.OpError], None]
) -> None:
    """The step ends after the answer has looked whether it has, before it takes the lock or gives the values."""
    put, get = queue()
    with tf.Session() as session:
        session.run(tf.no_op())
        ended: list[Any] = []
        owner: Any = NodeWait if method == "forget" else DataflowRun
        usual = getattr(owner, method)
        runs = session.master.session.cluster.worker.runs

        def run() -> None:
            with pytest.raises(tf.errors.OpError) as raised:
                session.run(get)
            ended.append(raised.value)

        def late(wait: Any, *values: Any) -> Any:
            step = getattr(wait, "step", wait)
            if any("Dequeue" in node.op for node in step.run.program.waits.values()) and not step.run.stopped:
                monkeypatch.setattr(owner, method, usual)
                monkeypatch.setattr(WaitingRun, "release", lambda run: None)
                stop(step.run, tf.errors.CancelledError(None, None, "now"))
            return usual(wait, *values)

        thread = threading.Thread(target=run)
        thread.start()
        poll(lambda: [run for run in list(runs.values()) if run.awaited()], "the wait")
        monkeypatch.setattr(owner, method, late)
        session.run(put)
        thread.join(60)
        assert [error.message for error in ended] == ["now"]
        assert session.run(get) == 7.0


def test_a_deadline_that_has_passed_before_the_run_begins_speaks_of_no_loop() -> None:
    result = tf.constant(1.0) + tf.placeholder_with_default(1.0, [])
    with tf.Session() as session:
        assert session.run(result) == 2.0
        session.master.session.cluster.worker.now = itertools.count().__next__  # a second goes by between two looks
        with pytest.raises(tf.errors.DeadlineExceededError, match="localhost/replica:0/task:0 has not begun"):
            session.run(result, options=tf.RunOptions(timeout_in_ms=1))
