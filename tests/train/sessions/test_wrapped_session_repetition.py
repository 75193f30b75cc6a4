"""A step whose connection broke is repeated without what it has done: every update is made once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.runtime.executor.registered_graph import StepOutcome

STEPS, CUT_AT = 6, 3


@contextmanager
def servers(ps: int, workers: int = 1) -> Iterator[tuple[Any, list[Any], Any]]:
    """(cluster, the servers of the ps tasks, the server of the last worker), all in this process."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(ps + workers)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    cluster = tf.train.ClusterSpec({"ps": addresses[:ps], "worker": addresses[ps:]})
    started = [tf.train.Server(cluster, job_name="ps", task_index=i) for i in range(ps)]
    started += [tf.train.Server(cluster, job_name="worker", task_index=i) for i in range(workers)]
    try:
        yield cluster, started[:ps], started[-1]
    finally:
        for server in reversed(started):
            server.stop()


class Cut:
    """Breaks the connections of a server with the last worker at a moment of one step.

    Attributes:
      is_due: whether the next such moment is the one.
    """

    def __init__(self, server: Any, moment: str, client: str = "/job:worker/replica:0/task:0") -> None:
        self.is_due = False
        self._server, self._client = server, client
        worker = server.worker
        if moment == "done":  # the answer is not sent yet
            worker.run_over = self._after(worker.run_over)
        else:  # it waits for tensors, which cannot come any more
            worker.run_graph = self._after(worker.run_graph)

    def _after(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            found = function(*args)
            if self.is_due:
                self.now()
            return found

        return call

    def now(self) -> None:
        self.is_due = False
        for link in self._server.endpoint.links():
            if link.peer.task == self._client:
                link.end("cut by a test")


def train(target: str, op: Any, cut: Cut, **arguments: Any) -> list[Any]:
    """Runs the op so many times; returns the values of all global variables."""
    options: dict[str, Any] = {"save_checkpoint_secs": None, "save_summaries_steps": None}
    with tf.train.MonitoredTrainingSession(target, log_step_count_steps=None, **(options | arguments)) as session:
        for step in range(STEPS):
            cut.is_due = step == CUT_AT
            session.run(op)
        assert not cut.is_due
        return session.run(tf.global_variables())


@pytest.mark.parametrize("moment", ["begun", "done"])
@pytest.mark.parametrize(("ps", "victim"), [(1, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("resource", [False, True])
def test_no_update_is_made_twice(ps: int, victim: int, moment: str, resource: bool) -> None:
    with servers(ps) as (cluster, tasks, worker):
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            v, w = (tf.get_variable(name, initializer=0.0, use_resource=resource) for name in "vw")
            loss = -(v + w) * tf.exp(tf.constant(0.0))
            op = tf.train.GradientDescentOptimizer(1.0).minimize(loss, global_step=step)
        assert train(worker.target, op, Cut(tasks[victim], moment)) == [STEPS, STEPS, STEPS]


class Replica:
    """A worker of a synchronous run; its k-th gradient is ``2**k`` times its factor."""

    def __init__(self, cluster: Any, task: int, factor: float) -> None:
        self.is_chief, self.factor = task == 0, factor
        setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")
        with tf.Graph().as_default() as self.graph, tf.device(setter):
            self.step = tf.train.get_or_create_global_step()
            self.variables = [tf.get_variable(name, initializer=0.0) for name in "vw"]
            self.gradient = tf.placeholder(tf.float32, [])
            opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(-1.0), 2)
            self.train = opt.apply_gradients([(self.gradient, v) for v in self.variables], self.step)
            self.hook = opt.make_session_run_hook(self.is_chief, num_tokens=0)

    def run(self, target: str, before: Callable[[int], None], after: Callable[[], Any]) -> list[float]:
        with self.graph.as_default(), tf.train.MonitoredTrainingSession(
            target, self.is_chief, hooks=[self.hook], save_checkpoint_secs=None, save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:  # fmt: skip
            for step in range(STEPS):
                before(step)
                session.run(self.train, {self.gradient: self.factor * 2**step})
            after()
            found = session.run([*self.variables, self.step])
            after()
            return found


@pytest.mark.parametrize("moment", ["begun", "done"])
@pytest.mark.parametrize("victim", [0, 1])
def test_no_synchronous_gradient_counts_twice_and_no_token_gets_lost(victim: int, moment: str) -> None:
    """The connection of a worker breaks while it waits for its token, or when it has got it."""
    together = threading.Barrier(2, timeout=60)
    with servers(2, workers=2) as (cluster, tasks, worker):
        cut = Cut(tasks[victim], moment, "/job:worker/replica:0/task:1")
        chief, other = Replica(cluster, 0, 1.0), Replica(cluster, 1, 100.0)
        found: list[Any] = []

        def before(step: int) -> None:
            together.wait()  # else the chief might take the token that the other has not got yet

        def before_with_cut(step: int) -> None:
            cut.is_due = step == CUT_AT
            before(step)

        target = f"grpc://{cluster.task_address('worker', 0)}"
        thread = threading.Thread(target=lambda: found.append(chief.run(target, before, together.wait)), daemon=True)
        thread.start()
        other.run(worker.target, before_with_cut, together.wait)
        thread.join(60)
        assert not cut.is_due
    wanted = sum(101 * 2**step / 2 for step in range(STEPS))
    assert found == [[wanted, wanted, STEPS]]


class FailingOnce(tf.train.SessionRunHook):
    """Runs a step of its own after the step, and breaks the connection in it."""

    def __init__(self, op: Any, cut: Cut) -> None:
        self.op, self.cut, self.is_due = op, cut, True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.is_due:
            self.is_due, self.cut.is_due = False, True
            run_context.session.run(self.op)


def test_a_step_is_not_repeated_because_a_hook_failed_after_it() -> None:
    with servers(1) as (cluster, tasks, worker):
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
            v = tf.get_variable("v", initializer=0.0)
            op = v.assign_add(tf.exp(tf.constant(0.0)))
            other = tf.get_variable("other", initializer=0.0, collections=[]).initializer
        cut = Cut(tasks[0], "done")
        assert train(worker.target, op, cut, hooks=[FailingOnce(other, cut)]) == [STEPS]


def test_an_update_of_which_a_ps_is_not_sure_is_an_error_that_names_both() -> None:
    with servers(1) as (cluster, tasks, worker):
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
            op = tf.get_variable("v", initializer=0.0).assign_add(tf.exp(tf.constant(0.0)), name="add")
        cut = Cut(tasks[0], "done")
        tasks[0].worker.outcome_of = lambda session, step_id: StepOutcome(uncertain=frozenset({"add"}))
        with pytest.raises(tf.errors.UnknownError, match="while /job:ps/replica:0/task:0 made its updates .add"):
            train(worker.target, op, cut)


class CutWhileComputing(Cut):
    """Breaks the connections while a segment with updates computes, which then goes on when ``then`` has returned."""

    def __init__(self, server: Any, then: Callable[[Any], None]) -> None:
        super().__init__(server, "done")
        del server.worker.run_over
        self._then = then
        register = server.worker.register_graph

        def registered(*args: Any, **kwargs: Any) -> Any:
            graph = register(*args, **kwargs)
            for segment in graph.program.segments:
                if segment.updates:
                    segment.run = self._interrupted(segment.run)
                    segment.is_open_ended = True  # so that it leaves the thread that polls, however short it was before
            return graph

        server.worker.register_graph = registered

    def _interrupted(self, run: Callable[..., None]) -> Callable[..., None]:
        def call(step: Any, slots: list[Any]) -> None:
            if self.is_due:
                self.now()
                self._then(step)
            run(step, slots)

        return call


def test_a_task_that_computes_on_says_afterwards_what_it_has_done() -> None:
    """It is asked while the segment still runs: neither "made" nor "not made" would be true."""
    with servers(1) as (cluster, tasks, worker):
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            v = tf.get_variable("v", initializer=0.0)
            op = tf.group(v.assign_add(tf.exp(tf.constant(0.0))), tf.assign_add(step, 1))
        asked, in_time = threading.Event(), list[bool]()
        cut = CutWhileComputing(tasks[0], lambda step: in_time.append(asked.wait(60)))
        find = tasks[0].worker.outcome_of

        def of(*args: Any) -> Any:
            found = find(*args)
            asked.set()
            return found

        tasks[0].worker.outcome_of = of
        assert train(worker.target, op, cut) == [STEPS, STEPS]
        assert in_time == [True]


def test_a_loop_that_was_told_to_end_leaves_no_doubt_about_the_updates_around_it() -> None:
    with servers(1) as (cluster, tasks, worker):
        with tf.device("/job:ps/task:0"):
            v, w = (tf.get_variable(name, initializer=0.0) for name in "vw")
            with tf.control_dependencies([v.assign_add(1.0)]):
                loop = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.placeholder_with_default(0, []) + 0])
            with tf.control_dependencies([loop]):
                op = w.assign_add(1.0).op
        stopped = threading.Event()

        def wait(step: Any) -> None:
            while not step.run.stopped:
                stopped.wait(0.01)

        assert train(worker.target, op, CutWhileComputing(tasks[0], wait)) == [STEPS, STEPS]


class CutBeforeTensors(Cut):
    """Breaks the connection of the second ps when tensors come to it, which it does not get; the first has ended."""

    def __init__(self, tasks: list[Any]) -> None:
        super().__init__(tasks[1], "begun")
        first, second = (task.worker for task in tasks)
        del second.run_graph
        ended = threading.Event()
        note, receive = first.run_over, second.receive

        def noted(*args: Any) -> None:
            note(*args)
            if self.is_due:
                ended.set()

        def received(*args: Any, **kwargs: Any) -> None:
            if self.is_due:
                assert ended.wait(60)
                self.now()
            else:
                receive(*args, **kwargs)

        first.run_over, second.receive = noted, received


def _after(update: Any, value: Any) -> Any:
    with tf.control_dependencies([update]):
        return tf.identity(value)


DECISIONS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "condition": lambda number, add: tf.cond(tf.equal(number, 1), lambda: add(1).op, tf.no_op),
    "trip count": lambda number, add: tf.while_loop(
        lambda i: i < number, lambda i: _after(add(1), i + 1), [0], parallel_iterations=1
    ),
    "value": lambda number, add: add(tf.cast(tf.equal(number, 1), tf.int32)),
}


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("resource", [False, True])
def test_a_repeated_step_decides_as_before_its_own_count(resource: bool, decision: str) -> None:
    """The first ps has counted the step; what the second one does depends on the number before."""
    with servers(2) as (cluster, tasks, worker):
        with tf.device("/job:ps/task:0"):
            step = tf.get_variable("step", initializer=0, use_resource=resource)
            odd = step.read_value() % 2
            with tf.control_dependencies([odd]):
                count = step.assign_add(1)
        with tf.device("/job:ps/task:1"):
            target = tf.get_variable("target", initializer=0, use_resource=resource)
            update = DECISIONS[decision](odd, target.assign_add)
        op = tf.group(count, update)
        assert train(worker.target, op, CutBeforeTensors(tasks)) == [STEPS, STEPS // 2]


@pytest.mark.parametrize("decision", ["condition", "trip count"])
def test_a_step_that_would_decide_otherwise_is_not_repeated(decision: str) -> None:
    with servers(2) as (cluster, tasks, worker):
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=0.0)
            odd = tf.cast(v.read_value(), tf.int32) % 2
            with tf.control_dependencies([odd]):
                count = v.assign_add(1.0, name="count")
        with tf.device("/job:ps/task:1"):
            target = tf.get_variable("target", initializer=0)
            update = DECISIONS[decision](odd, lambda by: target.assign_add(by, name="add"))
        message = r"after count on /job:ps/replica:0/task:0\S*\. It still has to make \S*add on /job:ps/\S*/task:1"
        with pytest.raises(tf.errors.UnknownError, match=message):
            train(worker.target, tf.group(count, update), CutBeforeTensors(tasks))


@pytest.mark.parametrize("resource", [False, True])
def test_updates_inside_a_loop_are_not_made_twice(resource: bool) -> None:
    """The loop has come to its end on the ps, which cannot answer any more."""
    with servers(1) as (cluster, tasks, worker):
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
            v = tf.get_variable("v", initializer=0.0, use_resource=resource)

            def body(i: Any) -> Any:
                with tf.control_dependencies([v.assign_add(1.0)]):
                    return i + 1

            with tf.device("/job:ps/task:0"):
                op = tf.while_loop(lambda i: i < 3, body, [0], parallel_iterations=1)
        assert train(worker.target, op, Cut(tasks[0], "done")) == [3.0 * STEPS]


def test_a_loop_that_was_cut_off_on_its_way_is_an_error_that_names_the_ps() -> None:
    """Nobody knows how many of its updates have been made."""
    with servers(1) as (cluster, tasks, worker):
        cut = Cut(tasks[0], "done")

        def here(i: Any) -> Any:
            if i == 1 and cut.is_due:
                cut.now()
            return i + np.int32(1)

        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
            v = tf.get_variable("v", initializer=0.0)

            def body(i: Any) -> Any:
                with tf.device("/job:ps/task:0"), tf.control_dependencies([v.assign_add(1.0, name="add")]):
                    there = tf.identity(i)
                after = tf.py_func(here, [there], tf.int32)
                after.set_shape(())
                return after

            op = tf.while_loop(lambda i: i < 3, body, [0], parallel_iterations=1)
        with pytest.raises(tf.errors.UnknownError, match=r"while /job:ps/replica:0/task:0 made its updates .*add"):
            train(worker.target, op, cut)


@pytest.mark.parametrize("updates", [True, False])
def test_a_step_of_a_master_elsewhere_is_repeated_only_if_it_updates_nothing(
    updates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master does not tell what the step has done."""
    monkeypatch.setattr("tfmini.runtime.process.server_at", lambda address: None)
    with servers(1) as (cluster, tasks, worker):
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
            v = tf.get_variable("v", initializer=0.0)
            op = v.assign_add(tf.exp(tf.constant(0.0)), name="add") if updates else v * tf.exp(tf.constant(0.0))
        cut = Cut(tasks[0], "done")
        if not updates:
            tasks[0].worker.run_graph = cut._after(tasks[0].worker.run_graph)  # its steps have no outcome to note
            assert train(worker.target, op, cut) == [0.0]
            return
        with pytest.raises(tf.errors.UnknownError, match=r"made on /job:ps/task:0: add. Its master is in"):
            train(worker.target, op, cut)
