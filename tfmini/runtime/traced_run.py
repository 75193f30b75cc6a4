"""Steps that record what they do: the traced variants of `StepRun` and `LocalStep`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import errors
from tfmini.runtime.local_step import TimedStep
from tfmini.runtime.step_run import Activation, Done, Iteration, Path, StepOwner, StepRun
from tfmini.runtime.trace import Trace, clock


class _Recorded(Activation):
    """An activation that tells its step's trace what it begins and what comes."""

    __slots__ = ()

    @property
    def _trace(self) -> Trace:
        run = self.run
        assert isinstance(run, TracedRun)
        return run.trace

    def begin(self, key: int, kernel: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._trace.begun(key, self.path)
        super().begin(key, kernel, arguments)

    def begin_loop(self, key: int, arguments: tuple[Any, ...]) -> None:
        self._trace.begun(key, self.path)
        super().begin_loop(key, arguments)

    def complete(self, key: int, values: Sequence[Any] | None) -> None:
        self._trace.completed(key, self.path, values)
        super().complete(key, values)


class _TracedIteration(_Recorded, Iteration):
    __slots__ = ()


class TracedRun(_Recorded, StepRun):
    """A `StepRun` with a trace."""

    __slots__ = ("trace",)
    iteration = _TracedIteration

    def __init__(self, owner: StepOwner, graph: Any, step_id: int) -> None:
        super().__init__(owner, graph, step_id)
        self.trace = Trace()

    def start(self, feeds: Sequence[Any], on_done: Done) -> None:
        def finished(error: errors.OpError | None, values: list[Any]) -> None:
            self.trace.finished = clock()
            on_done(error, values)

        super().start(feeds, finished)

    def deliver(self, group: int, values: Sequence[Any], path: Path = (), arrived_ns: int = 0) -> None:
        self.trace.arrived(group, path, arrived_ns or clock())
        super().deliver(group, values, path)


class TracedLocalStep(TimedStep):
    """The step context of a traced step that is one function call."""

    __slots__ = ("trace",)

    def __init__(self, step_id: int, owner: Any, timeout_s: float | None) -> None:
        super().__init__(step_id, owner, math.inf if timeout_s is None else timeout_s)
        self.trace = Trace()
