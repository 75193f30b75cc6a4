"""The master's view of a step: pure events and instructions."""

from __future__ import annotations

from tfmini import errors
from tfmini.graph.prune import StepGraph
from tfmini.placement.partition import Partitions
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.master.registration import Part, Plan
from tfmini.runtime.master.step import Abort, Finish, StepState


def _step(parts: int = 3) -> StepState:
    plan = Plan((), tuple(f"t{i}:0" for i in range(parts)), Partitions(StepGraph({}), {}, [], {}, {}), [])
    plan.parts = [Part(f"/job:w/replica:0/task:{i}", TaskGraph({}), fetch_indices=[i]) for i in range(parts)]
    return StepState(plan)


def _error(text: str, derived: bool = False) -> errors.OpError:
    return errors.from_code(errors.INTERNAL, text, derived=derived)


def test_values_are_collected_in_the_order_of_the_fetches() -> None:
    step = _step()
    assert step.part_done(2, ["c"]) == []
    assert step.part_done(0, ["a"]) == []
    assert step.part_done(1, ["b"]) == [Finish(None, ["a", "b", "c"])]


def test_the_first_failure_aborts_the_others_and_waits_for_them() -> None:
    step = _step()
    step.part_done(0, ["a"])
    (abort,) = step.part_failed(1, _error("boom"))
    assert abort == Abort((2,), "The step failed elsewhere: boom")
    (finish,) = step.part_failed(2, _error("cancelled", derived=True))
    assert isinstance(finish, Finish) and finish.error is not None and finish.error.message == "boom"


def test_a_root_cause_wins_over_a_derived_error_that_came_first() -> None:
    step = _step(2)
    step.part_failed(0, _error("consequence", derived=True))
    (finish,) = step.part_failed(1, _error("cause"))
    assert isinstance(finish, Finish) and finish.error is not None and finish.error.message == "cause"


def test_cancelling_is_the_root_cause() -> None:
    step = _step(2)
    abort, finish = step.cancel(_error("closed"))
    assert isinstance(abort, Abort) and abort.parts == (0, 1)
    assert isinstance(finish, Finish) and finish.error is not None and finish.error.message == "closed"
    assert step.part_failed(0, _error("x", derived=True)) == step.part_done(1, ["b"]) == []


def test_a_deadline_ends_a_step_whose_parts_do_not_answer_their_abort() -> None:
    step = _step(2)
    step.part_failed(0, _error("boom"))
    abort, finish = step.cancel(_error("deadline"))
    assert isinstance(abort, Abort) and abort.parts == (1,)
    assert isinstance(finish, Finish) and finish.error is not None and finish.error.message == "boom"


def test_events_after_the_end_are_ignored() -> None:
    step = _step(1)
    assert len(step.part_done(0, ["a"])) == 1
    assert step.part_failed(0, _error("late")) == []
    assert step.cancel(_error("late")) == []
