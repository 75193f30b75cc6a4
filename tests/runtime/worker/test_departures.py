"""What a task does with graphs while its variables move."""

from __future__ import annotations

import pytest

from tfmini.errors import AbortedError
from tfmini.runtime.resources import ResourceManager
from tfmini.runtime.worker.departures import Departures, Forwarding


def test_graphs_wait_at_the_gate_only_while_it_is_shut() -> None:
    departures = Departures("/job:ps/task:0", 1, ResourceManager("localhost"))
    admitted: list[str] = []
    assert departures.begin_move() and not departures.begin_move()
    departures.admit_or_wait(lambda: admitted.append("while values are copied for the first time"))
    departures.shut_gate()
    departures.admit_or_wait(lambda: admitted.append("while steps wait"))
    assert len(admitted) == 1
    departures.open_gate()
    departures.admit_or_wait(lambda: admitted.append("later"))
    assert len(admitted) == 3 and departures.begin_move()


@pytest.mark.parametrize(
    "wire",
    [
        [[["c", "v"]], [], []], [[], [["c"]], []], [[], 1, []], [[], [], ["task"]], [[], []],
        [[["c", "v", "task", "address", "1", 2]], [], []], [[], [], ["task", 2222, 1, 2]],
    ],
)  # fmt: skip
def test_a_forwarding_that_is_none_is_refused(wire: list[object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Forwarding.from_wire(wire)


def staged(resources: ResourceManager, move: int, incarnation: int = 1) -> None:
    resources.staged(move, ("/job:ps/replica:0/task:0", incarnation, b"key"), "localhost", f"v{move}", object)


def names(resources: ResourceManager) -> list[str]:
    return [name for _, _, name, _ in resources.contents()]


def test_late_copies_of_a_move_that_has_ended_are_refused() -> None:
    resources = ResourceManager("localhost")
    staged(resources, 1)
    resources.unstage(1, False)
    with pytest.raises(AbortedError, match="The move has ended"):
        staged(resources, 1)
    staged(resources, 2)


def test_copies_are_dropped_when_their_sender_was_restarted() -> None:
    resources = ResourceManager("localhost")
    for move in (1, 2, 3):
        staged(resources, move, incarnation=5)
    resources.unstage(1, True)  # the sender had told, or a master
    resources.sender_returned(("/job:ps/replica:0/task:1", 6, b"key"))
    resources.sender_returned(("/job:ps/replica:0/task:0", 6, b"another cluster's"))
    resources.sender_returned(("/job:ps/replica:0/task:0", 5, b"key"))  # the same one
    resources.unstage(2, True)
    resources.sender_returned(("/job:ps/replica:0/task:0", 6, b"key"))
    with pytest.raises(AbortedError, match="The move has ended without the variables"):
        resources.unstage(3, True)  # a master that was told before begins anew: the values are lost
    resources.unstage(1, True)
    assert names(resources) == ["v1", "v2"]
