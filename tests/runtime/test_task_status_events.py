"""What a task tells of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.runtime.task_status import JOINED, LOST, RESTARTED, TaskEvents

PS = "/job:ps/replica:0/task:0"


class FakePeer:
    def __init__(self, task: str, incarnation: int) -> None:
        self.task, self.incarnation = task, incarnation
        self.lost: Callable[[Any, str], None]

    def on_lost(self, callback: Callable[[Any, str], None]) -> None:
        self.lost = callback


class FakeEndpoint:
    def on_peer_ready(self, callback: Callable[[Any], None]) -> None:
        self.ready = callback


def test_a_task_joins_is_lost_and_comes_back() -> None:
    endpoint = FakeEndpoint()
    events = TaskEvents(endpoint, lambda: 5.0)  # type: ignore[arg-type]
    dialled, accepted, later, client = FakePeer(PS, 1), FakePeer(PS, 1), FakePeer(PS, 2), FakePeer("", 5)
    for peer in (dialled, accepted, client):
        endpoint.ready(peer)
    accepted.lost(accepted, "end of file")  # the other connection is up
    dialled.lost(dialled, "end of file")
    endpoint.ready(later)
    assert {event.time_s for event in events.all()} == {5.0}
    found = [(event.kind, event.subject, event.text) for event in events.all()]
    assert found == [(JOINED, PS, ""), (LOST, PS, "end of file"), (RESTARTED, PS, "it has another incarnation")]
