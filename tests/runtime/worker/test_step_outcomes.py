"""What a task knows of the steps of sessions that have ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tfmini.runtime.executor.outcome import Outcome
from tfmini.runtime.worker.step_outcomes import StepOutcomes

UPDATED = Outcome(made=frozenset({"w/ApplyGradientDescent"}))


def _run(session: str, step_id: int) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(complete=UPDATED, session_handle=session), step_id=step_id)


def test_an_update_is_known_when_many_other_sessions_have_ended_since() -> None:
    """A link breaks for hundreds of workers: each closes its session, and asks for its step a little later."""
    outcomes = StepOutcomes()
    outcomes.note(_run("mine", 7), None)
    outcomes.end_session("mine")
    for number in range(1000):
        outcomes.end_session(f"other {number}")
    assert outcomes.of("mine", 7) == UPDATED
    assert outcomes.of("mine", 8) == Outcome()


def test_a_step_that_ends_after_its_session_belongs_to_the_ended_ones() -> None:
    outcomes = StepOutcomes()
    outcomes.end_session("mine")
    outcomes.note(_run("mine", 1), None)
    assert outcomes.of("mine", 1) == UPDATED and not outcomes._sessions
