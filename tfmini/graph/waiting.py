"""`Wait`: the object through which an async kernel answers.

An op that cannot always answer at once (a dequeue, a barrier, a collective) has an *async kernel*. The kernel holds no
thread: it stores its `Wait` and returns. The op or message that makes the answer possible, such as an enqueue, calls
`done`. The runtime implements this protocol; ops and their tests know nothing else of the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tfmini import errors


class Wait(Protocol):
    """One pending answer of one node in one step.

    ``done`` or ``fail`` must be called once, from any thread, possibly before the kernel returns. The step then
    continues later or in the caller's thread. The runtime holds no lock meanwhile, and the caller must hold none of its
    own. After the end of the step both calls have no effect and return False, which matters to a kernel whose result
    must not be lost.

    Attributes:
      step: the context of the running step, the same that kernels with a first parameter ``step`` receive.
    """

    step: Any

    def done(self, result: Any = None) -> bool:
        """Answers with the result: the only output, or a tuple of all outputs. Returns whether the step took it."""
        ...

    def fail(self, error: errors.OpError) -> bool:
        """Ends the step with an error, to which the runtime adds the node's name; returns whether it still waited."""
        ...

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        """Registers the cause of the wait and a function that cancels it.

        Args:
          cause: for messages to people, such as ``an element of queue "jobs" (0 of 1)``.
          cancel: called once if the step ends before ``done`` or ``fail``. It must forget the wait, so that it gets
            no element any more.

        Returns:
          False if the step has ended already. ``cancel`` is not called then, and the kernel must not store the wait.
        """
        ...


class PatientWait(Wait, Protocol):
    """A wait whose thread has nothing else to do. It may block in a function of the kernel until the answer comes."""

    def offer_sleep(self, sleep: Callable[[float], bool]) -> None:
        """Offers a function in which the thread may block.

        Args:
          sleep: blocks for at most the given number of seconds; returns False if the answer will come another way.
        """
        ...


def patient(wait: Wait) -> PatientWait | None:
    """Returns the wait as a `PatientWait` if its thread waits for this answer only, else None."""
    return wait if getattr(wait, "is_patient", False) else None  # type: ignore[return-value]
