"""A step that waits for its plan ends at its deadline; the plan is for later steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tfmini as tf
from tfmini import errors
from tfmini.runtime.master.plan_wait import PlanWait
from tfmini.testing.process_cluster import ProcessCluster
from tfmini.testing.simulated import SimulatedNetwork


class Wait:
    """A wait of 5 s, and what it passes on: (time, error, plan)."""

    def __init__(self, describe: str = "") -> None:
        self.network = SimulatedNetwork()
        self.found: list[Any] = []
        self.wait = PlanWait(self._on_plan, 5.0, self.network.host("m"), lambda: describe)

    def _on_plan(self, error: Any, plan: Any) -> None:
        self.found.append((self.network.now(), error, plan))


def test_a_plan_in_time_is_passed_on_once() -> None:
    made = Wait()
    made.network.run(until=4.0)
    made.wait.done(None, "a plan")  # type: ignore[arg-type]
    made.network.run(until=10.0)
    assert made.found == [(4.0, None, "a plan")]


def test_a_late_plan_is_the_deadline_which_names_what_is_missing() -> None:
    made = Wait("the session waits for /job:ps/task:0")
    made.network.run(until=10.0)
    made.wait.done(None, "a plan")  # type: ignore[arg-type]
    ((when, error, plan),) = made.found
    assert (when, plan) == (5.0, None)
    assert isinstance(error, errors.DeadlineExceededError)
    assert "did not begin within 5 s, since the session waits for /job:ps/task:0. If the tasks" in error.message


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_step_whose_task_is_not_up_ends_at_its_deadline(is_remote: bool) -> None:
    """From the master's own process, and from another one."""
    cluster = ProcessCluster(ps=1, workers=2, local=("worker", 0))
    try:
        cluster.start_task("worker", 1)
        cluster._start_local()
        with tf.device("/job:ps/task:0"):  # which is never started
            result = tf.constant(1.0) + tf.placeholder_with_default(1.0, [])
        target = cluster.target("worker", 1) if is_remote else cluster.server.target
        with tf.Session(target) as session, pytest.raises(tf.errors.DeadlineExceededError) as info:
            session.run(result, options=tf.RunOptions(timeout_in_ms=700))
        for part in ("did not begin within 0.7 s", "/job:ps/replica:0/task:0", cluster.spec.task_address("ps", 0)):
            assert part in str(info.value)
    finally:
        cluster.stop()


class HastyClock:
    """Makes each call before `call_later` returns: as if the thread stopped there for longer than the delay."""

    def __init__(self) -> None:
        self.calls = 0

    def call_later(self, delay: float, call: Any, *args: Any) -> Any:
        self.calls += 1
        call(*args)
        return SimpleNamespace(cancel=lambda: None)


def test_a_deadline_that_comes_before_its_timer_is_noted_ends_the_wait() -> None:
    found: list[Any] = []
    wait = PlanWait(lambda error, plan: found.append(error), 0.001, HastyClock(), lambda: "")
    wait.done(None, "a late plan")  # type: ignore[arg-type]
    assert [type(error) for error in found] == [errors.DeadlineExceededError]
