"""Servers register the graphs that the inspector shows, for random graphs (for examples: test_inspection_examples)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

import tfmini as tf
from tests.show.inspection.spy import rows
from tfmini.devices import device_name, task_of_device
from tfmini.graph.op_types import OPS, op_names
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.placement.task_graph import Route
from tfmini.runtime.compiler import whole
from tfmini.runtime.worker.worker import Worker
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.study import signatures

TASKS = ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"]


def network(rng: random.Random, flow: bool) -> list[tf.Tensor]:
    """A random graph over random tasks: arithmetic, control edges, variables of both kinds; conditionals and loops."""
    values = [tf.constant(float(i), name=f"c{i}") for i in range(2)]
    with tf.device(rng.choice(TASKS)):
        values.append(tf.placeholder(tf.float32, [], name="x"))
    for i in range(rng.randrange(4, 25)):
        with tf.device(rng.choice(TASKS)):
            after = [rng.choice(values).op] if rng.random() < 0.3 else []
            with tf.control_dependencies(after):
                values.append(part(rng, i, flow, rng.choice(values), rng.choice(values)))
    return rng.sample(values[3:], 2)


def part(rng: random.Random, number: int, flow: bool, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    kind = rng.random()
    if kind < 0.2:
        variable = tf.get_variable(f"v{number}", [], use_resource=rng.random() < 0.5)
        with tf.device(rng.choice(TASKS)):
            return tf.identity(tf.assign_add(variable, a))
    if kind < 0.4 and flow:
        elsewhere = rng.choice(TASKS)
        if rng.random() < 0.5:
            return tf.cond(a < b, lambda: placed(elsewhere, a), lambda: b * 2.0)
        return tf.while_loop(lambda i: i < 3.0, lambda i: placed(elsewhere, i) + b, [a])
    return tf.add(a, b)


def placed(task: str, value: tf.Tensor) -> tf.Tensor:
    with tf.device(task):
        return value + 1.0


@pytest.fixture(scope="module")
def servers() -> Iterator[list[tf.train.Server]]:
    reserved = reserve_cluster([TaskId("ps", 0), TaskId("ps", 1), TaskId("worker", 0)])
    reserved.close()
    started = [tf.train.Server(reserved.spec, job_name=task.job, task_index=task.task) for task in reserved.listeners]
    yield started
    for server in started:
        server.stop()


@pytest.fixture
def registered(monkeypatch) -> dict[str, list]:
    """Per task the rows of the nodes that its server was given last."""
    noted: dict[str, list] = {}
    register = Worker.register_graph

    def spied(self, session_handle, graph, *options):
        noted[self.task] = rows(graph)
        return register(self, session_handle, graph, *options)

    monkeypatch.setattr(Worker, "register_graph", spied)
    return noted


@pytest.mark.parametrize("flow", [False, True], ids=["straight", "with control flow"])
@pytest.mark.parametrize("seed", range(12))
def test_inspection_equals_registration_on_random_graphs(servers, registered, seed: int, flow: bool) -> None:
    fetched = network(random.Random(seed), flow)
    found = inspect(cluster=servers[0].server_def.cluster, fetches=fetched, feeds=["x:0"])
    with tf.Session(servers[-1].target) as session:
        session.master.extend(list(found.nodes.values()))
        session.master.prepare((("x:0",), tuple(t.name for t in fetched), ()))
    shown = {task: rows(graph) for task, graph in found.partitions.tasks.items()}
    assert json.dumps(shown, sort_keys=True) == json.dumps(registered, sort_keys=True)
    sends = {n[0] for nodes in registered.values() for n in nodes if n[1] == "_Send"}
    assert sends == {t.send for t in found.transfers if t.route is Route.SENT}


def test_a_live_session_is_inspected_on_its_own_devices(registered) -> None:
    weights = tf.Variable(tf.zeros([3]), name="W")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(weights))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        found = inspect(session, fetches=train)
    shown = {task: set(graph.nodes) for task, graph in found.partitions.tasks.items()}
    assert shown == {task: {n[0] for n in nodes} for task, nodes in registered.items()}
    assert found.transfers == [] and found.devices[0].variables == ("W",)


def test_a_live_session_of_a_cluster_shows_its_placement(servers, registered) -> None:
    with tf.device("/job:ps/task:1"):
        weights = tf.get_variable("W", [3], initializer=tf.zeros_initializer())
    with tf.device("/job:worker/task:0"):
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(weights * 2.0))
    with tf.Session(servers[-1].target) as session:
        session.run(weights.initializer)
        session.run(train)
        found = inspect(session, fetches=train)
    assert {d.device for d in found.devices} == {device_name("ps", 0), device_name("ps", 1), device_name("worker", 0)}
    tasks = found.partitions.tasks
    assert {task: {n.op for n in graph.nodes.values()} for task, graph in tasks.items()} == {
        task: {n[1] for n in nodes} for task, nodes in registered.items() if task in tasks
    }
    assert ("gradient of W", device_name("ps", 1)) in {(t.role, t.dst) for t in found.transfers}


def test_a_constant_is_no_transfer_and_feeds_travel_in_the_request() -> None:
    ps = device_name("ps", 0)
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        rate = tf.constant(0.5, name="rate")
        with tf.device("/job:ps/task:0"):
            y = tf.multiply(x, rate, name="y")
        found = inspect(graph, ps=1, workers=1, fetches="y:0")
    assert [(t.tensor, t.role, t.dst) for t in found.transfers if t.route is Route.FED] == [("x:0", "fed value", ps)]
    assert [t.tensor for t in found.transfers if t.route is Route.FETCHED] == [y.name]
    assert not any(t.tensor == "rate:0" for t in found.transfers)
    texts = [m.text for m in found.messages()]
    assert texts[1:3] == ["RunGraph with x:0", "done with y:0"]
    assert task_of_device(found.master) == "/job:worker/replica:0/task:0"


def test_the_table_of_ops_that_tfmini_lacks_has_none_that_it_has() -> None:
    assert whole.while_op.name in OPS  # those of the compiler of devices are declared with their module only
    assert not signatures().keys() & set(op_names())
