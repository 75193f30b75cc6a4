"""Calls whose answers are awaited together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tfmini import errors
from tfmini.rpc.fan_out import FanOut, fan_out, first_error
from tfmini.testing import SimulatedNetwork


class Calls:
    """Calls whose answers the test gives."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.answer: dict[str, Callable[[Any], None]] = {}
        self.ends: list[dict[str, Any]] = []
        self.late: list[tuple[str, Any]] = []
        calls = {name: lambda answered, name=name: self.answer.__setitem__(name, answered) for name in names}
        self.wait: FanOut[str, Any] = FanOut(
            calls, self.ends.append, late=lambda name, outcome: self.late.append((name, outcome)), **options
        )


def test_it_ends_with_the_last_answer() -> None:
    calls, error = Calls("a", "b"), errors.UnavailableError.of("gone")
    calls.wait.begin()
    calls.answer["b"](error)
    assert calls.wait.waiting == ["a"] and calls.ends == []
    calls.answer["a"](1)
    assert calls.ends == [{"b": error, "a": 1}] and list(calls.ends[0]) == ["b", "a"]
    assert first_error(calls.ends[0]) is error and calls.wait.is_over and calls.wait.waiting == []


def test_without_calls_it_ends_at_once() -> None:
    ends: list[Any] = []
    fan_out({}, ends.append)
    assert ends == [{}]


def test_it_may_end_with_the_first_error_and_later_answers_are_told() -> None:
    calls = Calls("a", "b", "c", until_error=True)
    calls.wait.begin()
    error = errors.UnavailableError.of("gone")
    calls.answer["b"](error)
    calls.answer["a"](1)
    calls.wait.cancel(errors.CancelledError.of("no more"))
    assert calls.ends == [{"b": error, "a": error, "c": error}] and calls.late == [("a", 1)]


def test_no_call_begins_after_the_end() -> None:
    begun: list[str] = []

    def fail(answered: Any) -> None:
        begun.append("a")
        raise errors.InvalidArgumentError.of("no such task")

    ends: list[Any] = []
    FanOut({"a": fail, "b": lambda answered: begun.append("b")}, ends.append, until_error=True).begin()
    assert begun == ["a"] and str(first_error(ends[0])) == "no such task"


def test_an_interruption_ends_it_and_is_raised() -> None:
    def interrupt(answered: Any) -> None:
        raise KeyboardInterrupt

    ends: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        fan_out({"a": interrupt}, ends.append)
    assert isinstance(ends[0]["a"], errors.InternalError)


def test_a_deadline_ends_it() -> None:
    network, calls = SimulatedNetwork(), Calls("a", "b")
    clock = network.host("m")
    calls.wait.limit(clock, 5.0, lambda: errors.DeadlineExceededError.of(f"no answer of {calls.wait.waiting}"))
    calls.wait.begin()
    calls.answer["a"](1)
    network.run(until=10.0)
    calls.answer["b"](2)
    assert calls.ends[0]["a"] == 1 and str(calls.ends[0]["b"]) == "no answer of ['b']" and calls.late == [("b", 2)]


def test_an_answer_in_time_ends_the_deadline() -> None:
    network, calls = SimulatedNetwork(), Calls("a")
    calls.wait.limit(network.host("m"), 5.0, lambda: errors.DeadlineExceededError.of("late"))
    calls.wait.begin()
    calls.answer["a"](1)
    network.run(until=10.0)
    assert calls.ends == [{"a": 1}]


def test_a_deadline_that_comes_before_its_timer_is_noted_ends_the_wait() -> None:
    """The clock makes the call before `call_later` returns: as if the thread stopped there for long."""
    cancelled: list[bool] = []

    def hasty(delay: float, call: Any, *args: Any) -> Any:
        call(*args)
        return SimpleNamespace(cancel=lambda: cancelled.append(True))

    calls = Calls("a")
    calls.wait.limit(SimpleNamespace(call_later=hasty), 0.001, lambda: errors.DeadlineExceededError.of("late"))  # type: ignore[arg-type]
    calls.wait.begin()
    assert [type(end["a"]) for end in calls.ends] == [errors.DeadlineExceededError]
    assert cancelled == [True] and calls.answer == {}


def test_threads_that_answer_at_once_end_it_once() -> None:
    names = [str(i) for i in range(8)]
    for _ in range(50):
        calls, barrier = Calls(*names), threading.Barrier(len(names))
        calls.wait.begin()

        def answer(name: str, calls: Calls = calls, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            calls.answer[name](name)

        threads = [threading.Thread(target=answer, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [sorted(end) for end in calls.ends] == [names]
