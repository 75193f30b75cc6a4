"""What a task does with graphs while its variables move."""

from __future__ import annotations

import pytest

from tfmini.errors import AbortedError
from tfmini.runtime.resources import ResourceManager
from tfmini.runtime.worker.moved import Departures


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


def test_late_copies_of_a_move_that_has_ended_are_refused() -> None:
    resources = ResourceManager("localhost")
    resources.staged(1, "localhost", "v", object)
    resources.unstage(1, False)
    with pytest.raises(AbortedError, match="The move has ended"):
        resources.staged(1, "localhost", "v", object)
    resources.staged(2, "localhost", "v", object)
