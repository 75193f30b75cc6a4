"""What an op that has to wait is given: the `Wait` through which it answers later.

An op that cannot always answer at once (a dequeue from an empty queue, a barrier, a collective)
has an *async kernel*. It holds no thread: it keeps its `Wait`, returns, and whoever makes the
answer possible calls `done`. The runtime supplies the object; ops and their tests know only this
protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tfmini import errors


class Wait(Protocol):
    """One pending answer of one node in one step.

    ``done`` or ``fail`` is called once, from any thread and possibly before the kernel returns.
    What follows from it runs later or in the caller's thread, never inside a lock of the runtime;
    the caller must not hold a lock of its own either. A wait whose step has ended swallows both.

    Attributes:
      step: the running step, as kernels with a first parameter ``step`` receive it.
    """

    step: Any

    def done(self, result: Any = None) -> None:
        """Gives what the kernel would have returned: the only output, or a tuple of all outputs."""
        ...

    def fail(self, error: errors.OpError) -> None:
        """Ends the step with an error; the runtime adds the node's name."""
        ...

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        """Names what is waited for and how to stop waiting.

        Args:
          cause: for people, like ``an element of queue "jobs" (0 of 1)``.
          cancel: called once if the step ends before ``done`` or ``fail``: the waiter must be
            forgotten, so that nothing is delivered to it.

        Returns:
          False when the step has ended already: ``cancel`` is not called and nothing may be kept.
        """
        ...


class PatientWait(Wait, Protocol):
    """A wait for which a thread does nothing else, so that it may as well wait where the answer comes from."""

    def offer_sleep(self, sleep: Callable[[float], bool]) -> None:
        """Tells the thread where.

        Args:
          sleep: takes the seconds after which it returns in any case; returns False when the answer will come
            from elsewhere.
        """
        ...


def patient(wait: Wait) -> PatientWait | None:
    """The wait, if a thread waits for just this answer."""
    return wait if getattr(wait, "is_patient", False) else None  # type: ignore[return-value]
