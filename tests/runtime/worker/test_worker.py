"""What a worker does where the process can give it nothing more."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tfmini.runtime.resources import ResourceManager
from tfmini.runtime.worker.task_state import TaskState, WorkerSession


def test_a_step_runs_also_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfmini.runtime.process.server_at", lambda address: None)  # the step begins in a handler
    queue = tf.FIFOQueue(1, [tf.int32], shapes=[[]])

    def turn(i: Any, total: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(i)]):
            return i + 1, total + queue.dequeue()

    total = tf.while_loop(lambda i, _: i < 200, turn, [0, 0])[1]

    def refuse(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        monkeypatch.setattr(server.worker.threads.spare, "submit", refuse)
        assert session.run(total) == 199 * 100


def test_an_open_session_learns_more_addresses() -> None:
    state = TaskState("/job:ps/replica:0/task:0")
    for told in ({"a": "1", "b": "2"}, {"b": "3", "c": "4"}):
        state.open_session(WorkerSession("s", ResourceManager(""), told))
    assert state.sessions["s"].addresses == {"a": "1", "b": "3", "c": "4"}
