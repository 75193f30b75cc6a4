"""One reading of a dataset: for whom it is read, and when to end.

Whatever may take long without giving an element (a filter that finds nothing, a wait for a buffer) asks
the reading now and then whether somebody still wants the element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.runtime.local_step import LocalStep


class Reading:
    """A reading of a dataset by an iterator, or by an op that reads it to its end.

    Args:
      owner: the worker in which functions run.
      step: the step that waits, for a reading that does not outlive it; else None, or set while one waits.

    Attributes:
      closed: nobody will read on.
    """

    __slots__ = ("_own", "closed", "owner", "step")

    def __init__(self, owner: Any, step: Any = None) -> None:
        self.owner = owner
        self.step = step
        self.closed = False
        self._own: dict[Any, Any] = {}

    def own(self, key: Any, make: Callable[[], Any]) -> Any:
        """What a stage wants to keep for this reading alone; made when it is first asked for."""
        found = self._own.get(key)
        # Threads of a parallel map may ask at once: they get the same.
        return self._own.setdefault(key, make()) if found is None else found

    @property
    def task(self) -> str:
        """The name of the owner's task."""
        return getattr(self.owner, "task", "")

    @property
    def stopped(self) -> bool:
        """Whether nobody wants an element any more."""
        return self.closed or self.step is not None and self.step.run.stopped

    def check(self) -> None:
        """Ends the search for an element that nobody wants.

        Raises:
          CancelledError: when the iterator was closed or the step cancelled.
          DeadlineExceededError: when the step's time is up.
        """
        if self.closed:
            raise errors.CancelledError(None, None, "The iterator was closed while it was read.")
        if self.step is not None and self.step.run.stopped:
            self.step.run.raise_stopped()


class CallStep(LocalStep):
    """The step in which a dataset's function runs: its loops end with the reading.

    Args:
      reading: for which the function is called.
    """

    __slots__ = ("_reading",)

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        super().__init__(0, reading.owner)

    @property
    def stopped(self) -> bool:
        return self._reading.stopped

    @stopped.setter
    def stopped(self, value: bool) -> None:
        """Nobody stops a call by itself."""

    def raise_stopped(self) -> None:
        """As the reading's `check`."""
        self._reading.check()
