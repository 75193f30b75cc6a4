"""A step that somebody traces from outside while a script runs it."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tfmini as tf
from tests.polling import poll
from tfmini import errors, protos
from tfmini.runtime.master.step import TraceRequest
from tfmini.show.inspection.trace import OP, StepTrace
from tfmini.show.status.gather import Gatherer
from tfmini.testing import ProcessCluster

TASK = "/job:local/replica:0/task:0"


def test_a_plan_that_leaves_out_updates_is_not_traced_in_their_place() -> None:
    plan: Any = types.SimpleNamespace(feeds=(), fetches=("x:0",), targets=(), trains=True)
    request = TraceRequest(lambda error, trace: None)
    other: Any = types.SimpleNamespace(find_plan=lambda signature: None)
    assert not request.wants(other, plan)
    session: Any = types.SimpleNamespace(find_plan=lambda signature: plan)
    assert request.wants(session, plan) and not request.wants(session, plan)


def test_the_timer_of_a_request_ends_with_it() -> None:
    cancelled: list[bool] = []
    request = TraceRequest(lambda error, trace: None)
    request.timer = types.SimpleNamespace(cancel=lambda: cancelled.append(True))
    assert request.done(errors.CancelledError.of("")) and cancelled == [True]


class Training:
    """A thread that runs two steps in turns: one that trains and a larger one that does not."""

    def __init__(self, session: tf.Session, train: Any, other: Any) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(session, train, other))
        self._thread.start()

    def _work(self, session: tf.Session, train: Any, other: Any) -> None:
        while not self._stop.is_set():
            session.run(other)
            session.run(train)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def model() -> tuple[Any, Any]:
    w = tf.Variable(tf.ones([4, 4]), name="w")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w * w), name="train")
    x = tf.identity(w)
    for _ in range(30):
        x = tf.tanh(x)
    return train, x


@pytest.fixture
def server() -> Iterator[tf.train.Server]:
    with tf.Graph().as_default(), tf.train.Server.create_local_server() as made:
        yield made


def ops_of(stats: bytes) -> set[str]:
    trace = StepTrace.of(protos.StepStats.FromString(stats))
    return {span.op for span in trace.spans if span.kind == OP}


def test_a_training_step_of_a_running_script_is_traced(server: tf.train.Server) -> None:
    train, other = model()
    with tf.Session(server.target) as session, Gatherer(server.target) as gatherer:
        session.run(tf.global_variables_initializer())
        gatherer.gather()
        training = Training(session, train, other)
        try:
            for _ in range(2):
                found = ops_of(gatherer.trace(TASK))
                assert "ApplyGradientDescent" in found and "Tanh" not in found
        finally:
            training.stop()
        assert server.master.trace_request is None


def test_a_second_request_is_refused_and_one_that_no_step_answers_ends(server: tf.train.Server) -> None:
    with Gatherer(server.target) as gatherer, Gatherer(server.target) as other:
        gatherer.gather()
        other.gather()
        traced: list[bytes] = []
        thread = threading.Thread(target=lambda: traced.append(gatherer.trace(TASK)))
        thread.start()
        poll(lambda: server.master.trace_request, "the first request")
        assert "Another step" in str(failure(lambda: other.trace(TASK)))
        train, _ = model()
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
        thread.join(60)
        assert "ApplyGradientDescent" in ops_of(traced[0])
        error = failure(lambda: other.trace(TASK, 0.1))
        assert "No training step of /job:local/replica:0/task:0 began" in str(error)
        assert server.master.trace_request is None
        assert isinstance(failure(lambda: gatherer.trace("/job:no/replica:0/task:0")), errors.NotFoundError)


def failure(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(errors.OpError) as caught:
        call()
    return caught.value


def test_the_error_of_the_step_is_the_answer_and_the_script_gets_it_too(server: tf.train.Server) -> None:
    bad = tf.Print(tf.constant(1.0), [tf.check_numerics(tf.log(tf.placeholder(tf.float32, name="x")), "bad")])
    with tf.Session(server.target) as session, Gatherer(server.target) as gatherer:
        assert session.run(bad, {"x:0": 1.0}) == 1.0
        gatherer.gather()
        failures: list[BaseException] = []
        thread = threading.Thread(target=lambda: failures.append(failure(lambda: gatherer.trace(TASK))))
        thread.start()
        poll(lambda: server.master.trace_request, "the request")
        with pytest.raises(errors.InvalidArgumentError, match="bad"):
            session.run(bad, {"x:0": -1.0})
        thread.join(60)
        assert isinstance(failures[0], errors.InvalidArgumentError) and "bad" in str(failures[0])


@pytest.mark.cluster
def test_a_step_of_a_remote_client_is_traced_on_all_tasks() -> None:
    with ProcessCluster(ps=1, workers=1) as cluster, tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=cluster.spec)):
            train, other = model()
            init = tf.global_variables_initializer()
        target = cluster.target("worker", 0)
        with tf.Session(target) as session, Gatherer(target) as gatherer:
            session.run(init)
            gatherer.gather(timeout_s=10.0)
            training = Training(session, train, other)
            try:
                stats = gatherer.trace("/job:worker/replica:0/task:0")
            finally:
                training.stop()
        assert "ApplyGradientDescent" in ops_of(stats)
        assert len(StepTrace.of(protos.StepStats.FromString(stats)).tasks) == 2
