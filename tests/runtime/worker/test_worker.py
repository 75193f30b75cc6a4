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


def test_sessions_with_equal_addresses_share_one_table() -> None:
    """A ps has a session of each worker, and each names all tasks: with a thousand workers a million addresses."""
    state = TaskState("/job:ps/replica:0/task:0")
    tables: list[dict[str, str]] = [{"a": "1", "b": "2"}, {"a": "1", "b": "2"}, {"a": "1", "b": "3"}]
    for i, table in enumerate(tables):
        state.open_session(WorkerSession(f"s{i}", ResourceManager(""), table))
    found = [state.sessions[f"s{i}"].addresses for i in range(3)]
    assert found == tables
    assert found[0] is found[1] is not found[2]
    state.open_session(WorkerSession("s0", ResourceManager(""), dict(tables[2])))  # again, with what is known now
    assert state.sessions["s0"].addresses is found[2]
