"""What the inspector shows is what servers register."""

from __future__ import annotations

import random

import pytest

import tfmini as tf
from tfmini.devices import device_name, task_of_device
from tfmini.inspection.api import inspect
from tfmini.placement.layout import Route
from tfmini.testing.process_cluster import ProcessCluster


def network(rng: random.Random, tasks: list[str]) -> list[tf.Tensor]:
    """A graph of random arithmetic over random tasks, with control edges and constants that cross."""
    values = [tf.constant(float(i), name=f"c{i}") for i in range(2)]
    with tf.device(rng.choice(tasks)):
        values.append(tf.placeholder(tf.float32, [], name="x"))
    for _ in range(rng.randrange(4, 25)):
        with tf.device(rng.choice(tasks)):
            after = [rng.choice(values).op] if rng.random() < 0.3 else []
            with tf.control_dependencies(after):
                values.append(tf.add(rng.choice(values), rng.choice(values)))
    return rng.sample(values[3:], 2)


def registered(plan) -> dict[str, dict[str, tuple]]:
    """Per task the nodes of a session's plan, as `Registration` sends them, without generated numbers."""
    return {part.task: {n.name: (n.op, n.device, n.inputs, n.controls) for n in part.nodes} for part in plan.parts}


def shown(found) -> dict[str, dict[str, tuple]]:
    return {
        task: {n.name: (n.op, n.device, n.inputs, n.controls) for n in nodes.values()}
        for task, nodes in found.layout.tasks.items()
    }


@pytest.mark.cluster
def test_inspection_equals_registration_on_random_graphs() -> None:
    with ProcessCluster(ps=2, workers=1, local=("worker", 0)) as cluster:
        tasks = ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"]
        for seed in range(12):
            with tf.Graph().as_default() as graph:
                fetched = network(random.Random(seed), tasks)
                with tf.Session(cluster.server.target) as session:
                    feeds = {"x:0": 1.0}
                    session.run(fetched, feeds)
                    call, _ = session._find_call(fetched, feeds)
                    worker = cluster.server.master.worker
                    here = {n.name for part in call.plan.parts if part.graph is not None for n in part.nodes}
                    found = inspect(graph, cluster=cluster.spec, fetches=fetched, feeds=["x:0"])
                    assert shown(found) == registered(call.plan), seed
                    assert here == set(found.layout.tasks.get(worker.task, {}))
                    sends = {
                        (task, n.attrs["tensor_name"])
                        for task, nodes in found.layout.tasks.items()
                        for n in nodes.values()
                        if n.op == "_Send" and not n.attrs["client_terminated"]
                    }
                    listed = [t for t in found.transfers if t.route is Route.SENT]
                    assert len(sends) == len(listed)


def test_a_live_session_is_inspected_on_its_own_devices() -> None:
    with tf.Graph().as_default():
        weights = tf.Variable(tf.zeros([3]), name="W")
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(weights))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
            call, _ = session._find_call(train, None)
            found = inspect(session, fetches=train)
            assert {t: set(n) for t, n in shown(found).items()} == {t: set(n) for t, n in registered(call.plan).items()}
            assert found.transfers == [] and found.devices[0].variables == ("W",)


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
