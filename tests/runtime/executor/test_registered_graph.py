"""A step of another process has the values that its graph expects, and the graph the types that its ops expect."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.devices import Place
from tfmini.graph.node import RECEIVE, Node
from tfmini.graph.operation import node_of
from tfmini.placement.task_graph import End, TaskGraph
from tfmini.runtime.client.answer import Answer
from tfmini.runtime.client.session import local_master
from tfmini.runtime.executor.registered_graph import RegisteredGraph
from tfmini.runtime.master.master import open_session
from tfmini.runtime.options import SessionOptions


def foreign_session(nodes: list[Node]) -> Any:
    """A session as a client in another process opens it, without that client's checks."""
    options = SessionOptions()
    master, opened = local_master(options), Answer[Any](None)
    open_session(master, [Node.from_wire(node.to_wire()) for node in nodes], options, "", opened.done)
    return opened.result()


@pytest.fixture
def nodes() -> list[Node]:
    with tf.Graph().as_default() as graph:
        x, text = tf.placeholder(tf.float32, name="x"), tf.placeholder(tf.string, name="text")
        tf.add(tf.nn.relu(x), 1.0, name="y")
        tf.strings.length(text, name="length")
        return [node_of(operation) for operation in graph.get_operations()]


@pytest.fixture
def session(nodes: list[Node]) -> Iterator[Any]:
    session = foreign_session(nodes)
    yield session
    session.close()


def step(session: Any, fed: dict[str, Any], *fetches: str, values: list[Any] | None = None) -> Any:
    planned, done = Answer[Any](None), Answer[Any](None)
    session.prepare((tuple(fed), fetches, ()), planned.done)
    step = session.new_step(planned.result(), lambda error, found, trace: done.done(error, found), None)
    step.start(list(fed.values()) if values is None else values)
    return done.result()


def test_fed_values_have_the_types_of_their_tensors(session: Any) -> None:
    assert step(session, {"x:0": np.float32([-1, 2])}, "y:0")[0].tolist() == [1, 3]
    assert step(session, {"text:0": b"abc"}, "length:0")[0] == 3
    wrong = {"x:0": [np.array([1, 2]), np.array([b"a"], object), b"a", 1.0, None], "text:0": [np.float32([1]), 3]}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(tf.errors.InvalidArgumentError, match="was fed where (float32|string) is expected"):
                step(session, {name: value}, "y:0" if name == "x:0" else "length:0")


def test_names_of_tensors_are_names_of_outputs(session: Any) -> None:
    for name in ("y:-1", "y:x", "y:99999999999", "y:1"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not a name of a tensor|index too large"):
            step(session, {"x:0": np.float32([1])}, name)


def test_a_client_sends_no_ends_of_transfers(nodes: list[Node]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="the op _Recv, which only the runtime makes"):
        foreign_session([*nodes, Node("r", "_Recv")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Node name 'x' already exists"):
        foreign_session([*nodes, nodes[0]])


def test_a_loop_without_the_node_that_enters_it_is_refused() -> None:
    with tf.Graph().as_default() as graph:
        result = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
        nodes = [node_of(operation) for operation in graph.get_operations() if operation.type != "Enter"]
    session = foreign_session(nodes)
    with pytest.raises(tf.errors.NotFoundError, match="has an input from 'while/Enter', which is not in the graph"):
        step(session, {}, result.name)
    session.close()


def test_a_graph_has_the_types_that_its_ops_expect(nodes: list[Node]) -> None:
    relu = next(node for node in nodes if node.op == "Relu")
    lie = relu.replace(name="lie", attrs={"T": tf.int32})
    with pytest.raises(tf.errors.InvalidArgumentError, match="float32 from x:0 incompatible with expected int32"):
        foreign_session([*nodes, lie])


def test_no_tensor_stands_for_a_handle() -> None:
    """Not even one of float64, whose numpy type equals None."""
    receive = Node("r", RECEIVE, attrs={"tensor_type": tf.resource})
    ends = {"r": End("edge_1_handle", Place.of("/job:ps/replica:0/task:0/device:CPU:0"), 7)}
    program: Any = SimpleNamespace(segments=[], waits={}, feeds=0)
    task_graph = TaskGraph({"r": receive}, receives=ends)
    resources: Any = SimpleNamespace()
    graph = RegisteredGraph(1, "session", program, resources, task_graph=task_graph)
    for tensor in (np.ones(()), np.float32(1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="where a handle, which cannot be sent, is expected"):
            graph.check_group(7, (tensor,))
