"""Ports that a run keeps for its tasks."""

from __future__ import annotations

from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId

PS = TaskId("ps", 0)


def test_a_task_that_could_not_be_started_may_get_its_port_again() -> None:
    reserved = reserve_cluster([PS], until_close=True)
    try:
        first = reserved.listeners[PS]
        address = first.getsockname()
        assert reserved.listen_again(PS).getsockname() == address
        assert first.fileno() == -1
    finally:
        reserved.close()
