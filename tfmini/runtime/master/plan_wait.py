"""The wait of one step for its plan, which ends at the step's deadline. The plan is registered on for later steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini import errors

if TYPE_CHECKING:
    from tfmini.runtime.master.plan import Plan


class PlanWait:
    """Passes the first outcome on: the plan, an error, or DeadlineExceededError when the time is up.

    Args:
      on_plan: gets (error, plan), once.
      timeout_s: seconds from now; None: no limit.
      reactor: the clock; None: a master without a network, which waits for nobody.
      describe: a text about the tasks that are waited for, or "".
    """

    def __init__(
        self,
        on_plan: Callable[[errors.OpError | None, Plan | None], None],
        timeout_s: float | None,
        reactor: Any,
        describe: Callable[[], str],
    ) -> None:
        self._on_plan: Callable[[errors.OpError | None, Plan | None], None] | None = on_plan
        self._timeout_s = timeout_s
        self._describe = describe
        self._lock = threading.Lock()
        self._timer: Any = None
        if timeout_s is not None and reactor is not None:  # last: another thread may make the call before it returns
            self._timer = reactor.call_later(timeout_s, self._expire)

    def done(self, error: errors.OpError | None, plan: Plan | None) -> None:
        """The plan is ready or has failed."""
        with self._lock:
            on_plan, self._on_plan = self._on_plan, None
        if on_plan is None:  # the time is up
            return
        if self._timer is not None:
            self._timer.cancel()
        on_plan(error, plan)

    def _expire(self) -> None:
        cause = self._describe() or "its plan is being made"
        text = (
            f"Timed out waiting for notification: the step did not begin within {self._timeout_s:g} s, since {cause}."
            " If the tasks need longer to start, raise timeout_in_ms of its RunOptions."
        )
        self.done(errors.DeadlineExceededError.of(text), None)
