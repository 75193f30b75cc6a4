"""A reading: one pass over a dataset, with its owner and its cancellation.

A stage that may take long without yielding an element (a filter that finds nothing, a wait for a buffer)
regularly calls `Reading.check`, which raises if the element is no longer wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini import errors
from tfmini.runtime.executor.partition_run import FunctionRun, PartitionRun
from tfmini.runtime.executor.registered_graph import RegisteredGraph

TURN = 64  # a stage that takes many elements for one of its own calls `Reading.check` once for so many


class Reading:
    """One pass over a dataset, by an iterator or by an op that reads the whole dataset.

    Args:
      owner: the worker that runs the dataset's functions.
      step: the step that waits for the pass. An iterator sets it only while a step waits for an element.

    Attributes:
      closed: whether the pass has ended for good.
    """

    __slots__ = ("_own", "closed", "owner", "step")

    def __init__(self, owner: Any, step: Any = None) -> None:
        self.owner = owner
        self.step = step
        self.closed = False
        self._own: dict[Any, Any] = {}

    def own(self, key: Any, make: Callable[[], Any]) -> Any:
        """An object that belongs to this reading alone; ``make`` creates it at the first use."""
        found = self._own.get(key)
        # `setdefault` gives the threads of a parallel map the same object.
        return self._own.setdefault(key, make()) if found is None else found

    @property
    def stopped(self) -> bool:
        """Whether elements are no longer wanted."""
        return self.closed or self.step is not None and bool(self.step.run.stopped)

    def check(self) -> None:
        """Raises if elements are no longer wanted.

        Raises:
          CancelledError: when the iterator is closed or the step is cancelled.
          DeadlineExceededError: when the step's deadline has passed.
        """
        if self.closed:
            raise errors.CancelledError.of("The iterator was closed while it was read.")
        if self.step is not None and self.step.run.stopped:
            self.step.run.raise_stopped("reads a dataset")


class FunctionCall(FunctionRun):
    """The run of a dataset's function, which must end when the reading must."""

    __slots__ = ()

    def __init__(self, reading: Reading, graph: RegisteredGraph, values: Sequence[Any]) -> None:
        super().__init__(reading.owner, graph, 0, values)
        self.stopped = _ReadingStop(reading)


class _ReadingStop:
    """See `partition_run.StopReason`."""

    __slots__ = ("_reading",)

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __bool__(self) -> bool:
        return self._reading.stopped

    def raise_error(self, run: PartitionRun, doing: str) -> None:
        self._reading.check()
