"""The messages of a step that the inspector shows, and that the documents count, are those that tasks send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.rpc import codec, link, messages, peer
from tfmini.show.inspection.api import inspect

STEPS = 3
_OF_CONNECTIONS = (
    *(messages.Hello, messages.HelloReply, messages.Status, messages.Acknowledged, messages.Cancel),
    *(messages.Heartbeat, messages.Goodbye, messages.LaneSwitch),
)


@contextmanager
def servers(ps: int) -> Iterator[tf.train.Server]:
    """A cluster of so many ps and one worker in this process; gives the worker's server."""
    reserved = reserve_cluster([*(TaskId("ps", i) for i in range(ps)), TaskId("worker", 0)])
    reserved.close()
    with ExitStack() as stack:
        for task in reserved.listeners:
            server = tf.train.Server(reserved.spec, job_name=task.job, task_index=task.task)
            stack.callback(server.stop)
        yield server


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all messages that this process has sent, without those of connections (heartbeats, …)."""
    kinds: list[str] = []

    def spied(message: Any, *args: Any) -> Any:
        if not isinstance(message, _OF_CONNECTIONS):
            kinds.append(type(message).__name__)
        return codec.encode(message, *args)

    for module in (peer, link):
        monkeypatch.setattr(module, "encode", spied)
    return kinds


def training_op(ps: int, counts_steps: bool) -> tf.Operation:
    """The training op of a model with four variables; each of up to four ps has at least one."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=ps, worker_device="/job:worker/task:0")):
        hidden = tf.nn.relu(tf.matmul(tf.ones([8, 3]), tf.get_variable("W1", [3, 4])) + tf.get_variable("b1", [4]))
        logits = tf.matmul(hidden, tf.get_variable("W2", [4, 2])) + tf.get_variable("b2", [2])
        global_step = tf.train.get_or_create_global_step() if counts_steps else None
        return tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_mean(tf.square(logits)), global_step=global_step)


@pytest.mark.parametrize("counts_steps", [True, False], ids=["with a global step", "without"])
@pytest.mark.parametrize("ps", [1, 2, 4])
def test_a_training_step_sends_the_messages_that_are_shown(ps: int, counts_steps: bool, sent: list[str]) -> None:
    train = training_op(ps, counts_steps)
    shown = inspect(fetches=train, ps=ps, workers=1).messages()
    with servers(ps) as server, tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        sent.clear()
        for _ in range(STEPS):
            session.run(train)
        kinds = list(sent)  # before the tasks get the end of the session
    between_tasks = [message for message in shown if "client" not in (message.src, message.dst)]
    assert len(kinds) == STEPS * len(between_tasks)
    assert kinds.count("RunGraph") == kinds.count("RunGraphReply") == STEPS * ps
    # As docs/concepts/concepts.md says: four with one ps; with more of them five each, and one that counts the step.
    assert len(between_tasks) == (4 if ps == 1 else 5 * ps + counts_steps)
