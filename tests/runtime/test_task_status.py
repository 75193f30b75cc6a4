"""The snapshot that a task makes of itself."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.polling import poll
from tfmini.graph.device_types import FAKE_ENV
from tfmini.journal import Journal
from tfmini.rpc.endpoint import Endpoint
from tfmini.runtime import snapshot as s
from tfmini.runtime import task_status
from tfmini.runtime.task_status import LIST_LIMIT, limited
from tfmini.show.status.explanation import wait_text
from tfmini.show.status.gather import gather
from tfmini.tools.status import status_tables

TASK = "/job:local/replica:0/task:0"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tf.train.Server]:
    monkeypatch.setattr(task_status, "FRESH_S", 0.0)
    with tf.Graph().as_default(), tf.train.Server.create_local_server() as made:
        yield made


def task_of(server: tf.train.Server) -> s.TaskSnapshot:
    cluster = gather(server.target, rates=False, timeout_s=30)
    assert [task.task for task in cluster.tasks] == [TASK]
    return cluster.tasks[0]


@contextlib.contextmanager
def waiting(server: tf.train.Server, session: tf.Session, fetch: Any, kind: str) -> Iterator[s.TaskSnapshot]:
    """Runs a step that waits, and yields the first snapshot with a wait of that kind; the block must end the wait."""
    thread = threading.Thread(target=session.run, args=(fetch,))
    thread.start()

    def found() -> s.TaskSnapshot | None:
        task = task_of(server)
        return task if any(wait.kind == kind for wait in task.waits) else None

    yield poll(found, f"a wait for {kind}")
    thread.join(60)
    assert not thread.is_alive()


def test_a_task_tells_its_identity_its_state_and_its_counters(server: tf.train.Server) -> None:
    tf.Variable(tf.zeros([10, 10]), name="W")
    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run("W:0")
        task = task_of(server)
    assert (task.state, task.incarnation) == (s.OK, f"{server.worker.incarnation:016x}")
    assert task.address == server.target.removeprefix("grpc://")
    assert task.pid > 0 and task.memory_bytes > 1 << 20 and task.cpu_s > 0 and task.threads > 0
    assert task.variables == (s.VariableSnapshot("W", "float32", (10, 10), 400),)
    assert (task.variable_bytes, task.steps, task.steps_in_flight) == (400, 4, 0)
    (opened,) = task.sessions
    assert (opened.owner, opened.steps, len(opened.handle)) == (TASK, 4, 8)


def test_a_task_tells_the_memory_of_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv(FAKE_ENV, "2")
    monkeypatch.setattr(task_status, "FRESH_S", 0.0)
    with tf.train.Server.create_local_server() as server, tf.Graph().as_default(), tf.device("/gpu:1"):
        kept = tf.get_variable("kept", [1 << 18], initializer=tf.zeros_initializer())
        with tf.Session(server.target) as session:
            session.run(kept.initializer)
            task = task_of(server)
    first, second = task.devices
    assert (first.name, second.name) == ("GPU:0", "GPU:1") and first.limit_bytes == second.limit_bytes > 0
    assert second.used_bytes >= 1 << 20
    table = next(t for t in status_tables(s.ClusterSnapshot("", 0.0, 0.0, (task,))) if t.title == "devices")
    assert table.row_count == 2


def counted(task: s.TaskSnapshot) -> tuple[int, int]:
    """Training steps, and steps of any kind."""
    (opened,) = task.sessions
    assert (opened.steps, opened.runs) == (task.steps, task.runs)
    return task.steps, task.runs


def test_steps_are_training_steps_and_those_of_queue_runners_are_none(server: tf.train.Server) -> None:
    queue = tf.FIFOQueue(9, tf.float32, shapes=())
    put, w = queue.enqueue(1.0), tf.Variable(2.0)
    evaluate = w + tf.placeholder_with_default(1.0, ())
    with tf.Session(server.target) as session:
        session.run(w.initializer)
        session.run(put)
        session.run(evaluate)
        assert counted(task_of(server)) == (2, 3)  # nothing trains yet
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(w) * queue.dequeue())
        session.run(train)
        assert counted(task_of(server)) == (1, 4)
        session.run(put)
        session.run(train)
        session.run(evaluate)
        assert counted(task_of(server)) == (2, 7)
    assert task_of(server).steps == 2  # the session is closed


def test_a_session_that_only_assigns_has_no_training_steps_beside_one_that_trains(server: tf.train.Server) -> None:
    w = tf.Variable(2.0)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(w))
    with tf.Session(server.target) as session, tf.Graph().as_default(), tf.Session(server.target) as other:
        session.run(w.initializer)
        other.run(tf.constant(1.0) + 1.0)
        session.run(train)
        task = task_of(server)
    assert sorted((each.steps, each.runs) for each in task.sessions) == [(0, 1), (1, 2)]
    assert (task.steps, task.runs) == (1, 3)


def test_the_steps_of_queue_runners_are_in_flight_but_no_training_steps(server: tf.train.Server) -> None:
    queue = tf.FIFOQueue(1, tf.float32, shapes=())
    element, put = queue.dequeue(), queue.enqueue(1.0)
    with tf.Session(server.target) as session:
        session.run(put)
        with waiting(server, session, put, s.ROOM) as task:
            session.run(element)
    assert (task.steps_in_flight, task.runs_in_flight, task.sessions[0].in_flight) == (0, 1, 1)
    assert [(step.trains, step.fills) for step in task.running] == [(False, True)]


def test_a_step_that_puts_what_the_client_feeds_into_a_queue_is_one_of_the_client(server: tf.train.Server) -> None:
    queue, fed = tf.FIFOQueue(9, tf.float32, shapes=()), tf.placeholder(tf.float32, ())
    put = queue.enqueue(fed)
    with tf.Session(server.target) as session:
        session.run(put, {fed: 1.0})
        assert counted(task_of(server)) == (1, 1)


def test_a_step_that_the_thread_of_its_client_runs_alone_is_running(server: tf.train.Server) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow_function() -> np.float32:
        begun.set()
        assert go_on.wait(60)
        return np.float32(1.0)

    slow = tf.py_func(slow_function, [], tf.float32, name="slow")
    with tf.Session(server.target) as session:
        thread = threading.Thread(target=session.run, args=(slow,))
        thread.start()
        assert begun.wait(60)
        task = task_of(server)
        go_on.set()
        thread.join(60)
    assert [(step.fetches, step.trains) for step in task.running] == [(("slow:0",), True)]
    assert (task.steps_in_flight, task.runs_in_flight, task.sessions[0].in_flight) == (1, 1, 1)


def test_a_step_that_waits_for_a_queue_is_told_with_all_that_concerns_it(server: tf.train.Server) -> None:
    queue = tf.FIFOQueue(3, tf.float32, shapes=(), name="jobs", shared_name="jobs")
    element, put = queue.dequeue(name="take"), queue.enqueue(1.0, name="put")
    with tf.Session(server.target) as session:
        session.run(put)
        session.run(element)
        with waiting(server, session, element, s.ELEMENT) as task:
            session.run(put)
    (wait,) = task.waits
    assert (wait.kind, wait.on, wait.node, wait.holder) == (s.ELEMENT, "jobs", "take", TASK)
    assert wait.text == 'an element of FIFOQueue "jobs" (0 of 3 elements)'
    assert wait.from_tasks == (TASK,)  # its session has a graph that enqueues
    (step,) = task.running
    assert (step.step_id, step.fetches) == (wait.step_id, ("take:0",))
    assert task.pending == (s.PendingSnapshot(wait.step_id, s.TAKE, "jobs", "take"),)
    assert task.queues == (s.QueueSnapshot("jobs", "FIFOQueue", 0, 3, waiting_to_take=1),)


def test_a_step_that_cannot_begin_since_variables_move_is_told_with_the_task_that_gives_them_away(
    server: tf.train.Server,
) -> None:
    source, told = "/job:ps/replica:0/task:3", list[str]()
    value = tf.constant(1.0, name="value") * 2.0
    with tf.Session(server.target) as session:
        session.run(value)
        (held,) = server.master.sessions.values()
        held.hold(lambda plan: True, source)
        with waiting(server, session, value, s.OTHER) as task:
            held.describe_wait(((), (value.name,), ()), told.append)
            held.release(False)
        assert told == [f"It has not begun: variables that it uses move away from {source}."]
    (wait,), (step,) = task.waits, task.running
    assert (wait.step_id, wait.text) == (step.step_id, f"variables that move away from {source}")
    assert wait_text(replace(wait, since_s=3.0)) == "waits for variables that move away from ps/3 for 3.0 s"
    assert step.fetches == (value.name,) and not step.awaits


def test_what_a_step_has_done_is_not_pending(server: tf.train.Server) -> None:
    queue = tf.FIFOQueue(3, tf.float32, shapes=(), shared_name="jobs")
    other = tf.FIFOQueue(3, tf.float32, shapes=(), shared_name="other")
    put = queue.enqueue(1.0)
    with tf.control_dependencies([put]):
        element = other.dequeue(name="take")
    with tf.Session(server.target) as session, waiting(server, session, element, s.ELEMENT) as task:
        session.run(other.enqueue(1.0))
    assert [(each.action, each.on) for each in task.pending] == [(s.TAKE, "other")]


def test_the_ledger_of_a_synchronous_accumulator(server: tf.train.Server) -> None:
    accumulator = tf.ConditionalAccumulator(tf.float32, shape=(), shared_name="W/grad")
    apply = accumulator.apply_grad(tf.constant(1.0), local_step=0)
    apply._set_attr("_contributor", b"/job:worker/task:2")
    take = accumulator.take_grad(2)
    with tf.Session(server.target) as session:
        session.run(apply)
        with waiting(server, session, take, s.GRADIENT) as task:
            session.run(apply)
        session.run(apply)  # of a step that is over
        later = task_of(server)
    (found,) = task.accumulators
    worker = "/job:worker/replica:0/task:2"
    assert (found.name, found.count, found.required, found.contributed) == ("W/grad", 1, 2, (worker,))
    assert later.accumulators[0].contributions == (s.ContributionSnapshot(worker, 2, 1),)
    assert later.accumulators[0].contributed == ()


def test_a_kernel_that_computes_is_no_wait_and_its_stack_is_shown_on_request(server: tf.train.Server) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow_function() -> np.ndarray:
        begun.set()
        go_on.wait(60)
        return np.float32(1)

    value = tf.py_func(slow_function, [], tf.float32, name="slow")
    with tf.Session(server.target) as session:
        thread = threading.Thread(target=session.run, args=(value,))
        thread.start()
        assert begun.wait(60)
        task = gather(server.target, rates=False, stacks=True, timeout_s=30).tasks[0]
        go_on.set()
        thread.join(60)
    assert [wait.kind for wait in task.waits] == [s.COMPUTES]
    assert any("slow_function" in frame for stack in task.stacks for frame in stack.frames)


def test_scalars_and_checkpoints_are_told(server: tf.train.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_status, "journal", journal := Journal())
    journal.note("saved", "/tmp/model-3")
    journal.note_summary([tf.Summary.Value(tag="loss", simple_value=0.5)], 3, 17.0)
    task = task_of(server)
    assert [(event.kind, event.subject) for event in task.events] == [("saved", "/tmp/model-3")]
    assert task.scalars == (s.ScalarSnapshot("loss", 3, 0.5, 17.0),)


def test_long_lists_are_cut_and_say_so() -> None:
    many = tuple(s.VariableSnapshot(str(i), "float32", (), 4) for i in range(LIST_LIMIT + 5))
    found = limited(s.TaskSnapshot("t", "a", variables=many))
    assert (len(found.variables), found.omitted) == (LIST_LIMIT, {"variables": 5})


@pytest.mark.parametrize(("late_s", "state"), [(0.9, s.OK), (2.5, s.STUCK)])
def test_a_loop_that_is_late_on_a_busy_machine_is_not_stuck(
    server: tf.train.Server, monkeypatch: pytest.MonkeyPatch, late_s: float, state: str
) -> None:
    monkeypatch.setattr(Endpoint, "stuck_s", property(lambda endpoint: late_s))
    found = task_of(server)
    assert found.state == state and ("for 2.5 s" in found.why) == (state == s.STUCK)
