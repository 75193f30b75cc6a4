"""What a task knows of the steps of sessions that have ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfmini import errors
from tfmini.runtime.executor.registered_graph import StepOutcome
from tfmini.runtime.worker.task_state import StepOutcomes
from tfmini.runtime.worker.worker import Worker

UPDATED = StepOutcome(made=frozenset({"w/ApplyGradientDescent"}))


def _run(session: str, step_id: int) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(complete=UPDATED, session_handle=session), step_id=step_id)


def test_an_update_is_known_when_many_other_sessions_have_ended_since() -> None:
    """A link breaks for hundreds of workers: each closes its session, and asks for its step a little later."""
    outcomes = StepOutcomes()
    outcomes.note(_run("mine", 7), UPDATED)
    outcomes.end_session("mine")
    for number in range(1000):
        outcomes.end_session(f"other {number}")
    assert outcomes.of("mine", 7, False) == UPDATED
    assert outcomes.of("mine", 8, False) == StepOutcome()


def test_a_step_that_ends_after_its_session_belongs_to_the_ended_ones() -> None:
    outcomes = StepOutcomes()
    outcomes.end_session("mine")
    outcomes.note(_run("mine", 1), UPDATED)
    assert outcomes.of("mine", 1, False) == UPDATED and not outcomes._sessions


def test_a_session_that_is_closed_twice_keeps_its_outcomes() -> None:
    """Its master asks again when the connection breaks before the answer."""
    outcomes = StepOutcomes()
    outcomes.note(_run("mine", 1), UPDATED)
    outcomes.end_session("mine")
    outcomes.end_session("mine")
    assert outcomes.of("mine", 1, False) == UPDATED


def test_a_forgotten_session_has_no_known_outcome() -> None:
    """To say that its steps have done nothing would repeat their updates."""
    outcomes = StepOutcomes()
    outcomes.note(_run("mine", 1), UPDATED)
    outcomes.end_session("mine")
    for number in range(2000):
        outcomes.end_session(f"other {number}")
    with pytest.raises(errors.UnknownError, match="does not know which updates the step has made"):
        outcomes.of("mine", 1, False)
    assert outcomes.of("opened just now", 1, True) == StepOutcome()


def test_a_session_that_is_being_closed_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any moment it is open or among those that have ended."""
    worker = Worker("/job:ps/task:0", [])
    worker.create_session("mine", False, {})
    was_open: list[bool] = []
    monkeypatch.setattr(worker.outcomes, "end_session", lambda handle: was_open.append(handle in worker.sessions))
    worker.delete_session("mine")
    assert was_open == [True]
