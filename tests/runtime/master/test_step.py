"""The deadline of a step that has all that it needs: what it has taken from a queue is not lost with it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.runtime.master.step import Step

MINUTES = tf.RunOptions(timeout_in_ms=300_000)


class Running:
    """A run of a fetch in a thread."""

    def __init__(self, session: Any, fetch: Any) -> None:
        self.found: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(session, fetch))
        self._thread.start()

    def _run(self, session: Any, fetch: Any) -> None:
        try:
            self.found.append(session.run(fetch, options=MINUTES))
        except tf.errors.OpError as error:
            self.found.append(error)

    def result(self) -> Any:
        self._thread.join(60)
        return self.found[0]


def the_step(session: Any) -> Any:
    return poll(lambda: session.master.session.steps(), "a step")[0]


def test_a_local_step_that_has_its_element_comes_to_its_end() -> None:
    queue = tf.FIFOQueue(9, [tf.float32], shapes=[[]])
    put, get = queue.enqueue(7.0), queue.dequeue() + 1.0
    with tf.Session() as session:
        session.run(put)
        assert session.run(get) == 8.0
        (graph,) = [g for g in session.master.master.worker.graphs.values() if g.program.waits and g.program.fetches]
        segment = graph.program.segments[-1]
        compute = segment.run

        def slowly(*args: Any) -> None:
            the_step(session).expire()  # by now it has taken the element
            compute(*args)

        segment.run = slowly
        running = Running(session, get)
        the_step(session)
        session.run(put)
        assert running.result() == 8.0


def test_a_step_that_waits_for_an_element_ends_at_once() -> None:
    get = tf.FIFOQueue(9, [tf.float32], shapes=[[]]).dequeue() + 1.0
    with tf.Session() as session:
        running = Running(session, get)
        step = the_step(session)
        poll(lambda: session.master.master.worker.runs[step.step_id].awaited(), "the wait")
        step.expire()
        assert isinstance(running.result(), tf.errors.DeadlineExceededError)


@pytest.mark.parametrize("is_there", [True, False])
def test_an_element_on_its_way_from_another_task_arrives_with_its_step(is_there: bool) -> None:
    tasks = [TaskId("ps", 0), TaskId("worker", 0)]
    reserved = reserve_cluster(tasks)
    reserved.close()
    with tf.train.Server(reserved.spec, "ps", 0), tf.train.Server(reserved.spec, "worker", 0) as worker:
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(9, [tf.float32], shapes=[[]])
            put, element, size = queue.enqueue(7.0), queue.dequeue(), queue.size()
        with tf.device("/job:worker/task:0"):
            get = element + 1.0
        with tf.Session(worker.target) as session:
            session.run(put)
            assert session.run(get) == 8.0
            receive = worker.worker.receive

            def late(*args: Any, **kwargs: Any) -> None:
                for step in session.master.session.steps():
                    step.expire()
                receive(*args, **kwargs)

            if is_there:
                session.run(put)
                worker.worker.receive = late  # type: ignore[method-assign]
                assert Running(session, get).result() == 8.0
            else:
                running = Running(session, get)
                the_step(session).expire()
                error = running.result()
                assert isinstance(error, tf.errors.DeadlineExceededError)
                assert "task:0 waits for an element of FIFOQueue" in error.message  # as the ps has answered
                session.run(put)
            worker.worker.receive = receive  # type: ignore[method-assign]
            assert session.run(size) == (0 if is_there else 1)


def test_a_step_that_is_cancelled_before_its_timer_is_noted_leaves_none() -> None:
    """A timer of minutes would keep its values."""
    cancelled: list[bool] = []

    def call_later(seconds: float, call: Any) -> Any:
        step.cancel(tf.errors.CancelledError.of("closed"))
        return SimpleNamespace(cancel=lambda: cancelled.append(True))

    worker = SimpleNamespace(new_step_id=lambda: 1, now=lambda: 0.0)
    cluster = SimpleNamespace(worker=worker, reactor=SimpleNamespace(call_later=call_later))
    session: Any = SimpleNamespace(cluster=cluster, add_step=lambda step: True, remove_step=lambda step, failed: None)
    plan: Any = SimpleNamespace(fetches=(), parts=[])
    step = Step(session, plan, lambda *outcome: None, 300.0)
    step.start(())
    assert cancelled == [True]


def test_a_step_that_is_cancelled_while_it_is_noted_is_not_kept() -> None:
    """Another thread cancels it after the look at its state; the note would stay in its session for ever."""
    noted, outcomes = dict[int, Step](), list[Any]()

    def add_step(step: Step) -> bool:
        step.cancel(tf.errors.CancelledError.of("by its client"))
        noted[step.step_id] = step
        return True

    worker = SimpleNamespace(new_step_id=lambda: 1, now=lambda: 0.0)
    session: Any = SimpleNamespace(
        cluster=SimpleNamespace(worker=worker, reactor=None), add_step=add_step,
        remove_step=lambda step, failed: noted.pop(step.step_id, None),
        drop_step=lambda step: noted.pop(step.step_id, None),
    )  # fmt: skip
    plan: Any = SimpleNamespace(fetches=(), parts=[])
    Step(session, plan, lambda *outcome: outcomes.append(outcome), None).start(())
    assert noted == {} and len(outcomes) == 1
