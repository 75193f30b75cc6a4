"""The wait of a worker for a model that somebody else, the chief, initialises.

The model is looked at in a thread of its own, because a look itself can block while a task is not
up. The waiting thread keeps the time: it logs what it waits for and on whom, and gives up at the
deadline, at a cancellation, or when the chief's server has gone for good.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.graph.graph import Graph
from tfmini.runtime.reachability import Reachability, chief_of, reach, unreachable
from tfmini.train.session_readiness import with_places

_log = logging.getLogger("tfmini")
# How soon the first looks follow each other, and how far the pause between them grows.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 0.25
_TICK_S = 0.1
_SAY_AGAIN_S = 30.0
_FAREWELL_S = 1.0

# session -> (local init done, reason why it is not ready for it).
LocalInit = Callable[[Any], tuple[bool, str | None]]
# session -> (ready, reason why not).
Ready = Callable[[Any], tuple[bool, str | None]]


class Looks(threading.Thread):
    """Looks at the model until it is ready, in one session as long as that works, else in a new one.

    Attributes:
      session: the session, once the model is ready.
      error: instead of it, what went wrong.
      local_reason, reason: why it was not ready for local init, and not ready, at the last look.
      failing_since: since when every look has failed because a task is gone; None: the last one did not.
      failure: that error.
    """

    def __init__(self, connect: Callable[[], Any], local_init: LocalInit, ready: Ready, retried: Any) -> None:
        super().__init__(name="wait_for_session", daemon=True)
        self._connect, self._local_init, self._ready, self._retried = connect, local_init, ready, retried
        self._given_up = threading.Event()
        self._current: Any = None
        self.over = threading.Event()
        self.session: Any = None
        self.error: BaseException | None = None
        self.looks = 0
        self.local_reason: str | None = None
        self.reason: str | None = None
        self.failing_since: float | None = None
        self.failure: errors.OpError | None = None

    def run(self) -> None:
        try:
            while self.session is None and not self._given_up.is_set():
                self._look_in_new_session()
        except BaseException as error:  # whatever it is, the thread that waits is to raise it
            self.error = error
        finally:
            self.over.set()

    def _look_in_new_session(self) -> None:
        session = self._current = self._connect()
        try:
            if self._look_until_ready(session):
                self.session = session
        except self._retried as error:
            self.failure = error
            self.failing_since = self.failing_since or time.monotonic()
            _log.debug("Looking at the model failed: %s", error)
        finally:
            if self.session is not session:
                close_quietly(session)
        if self.session is None:
            self._given_up.wait(_LAST_PAUSE_S)

    def _look_until_ready(self, session: Any) -> bool:
        local_done, pause_s = False, _FIRST_PAUSE_S
        while not self._given_up.is_set():
            is_ready = False
            self.reason = None
            if not local_done:
                local_done, self.local_reason = self._local_init(session)
            if local_done:
                is_ready, self.reason = self._ready(session)
            self.failing_since = self.failure = None
            self.looks += 1
            if is_ready:
                return True
            self._given_up.wait(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        return False

    def give_up(self) -> None:
        """Ends the looking; a look that hangs is cancelled by closing its session."""
        self._given_up.set()
        self.join(_FAREWELL_S)
        if self.is_alive():
            close_quietly(self._current)
        elif self.session is not None:
            close_quietly(self.session)


def close_quietly(session: Any) -> None:
    """Closes a session that is not needed any more."""
    try:
        session.close()
    except Exception as error:  # nobody can do anything about it, and what led here matters more
        _log.debug("Closing a session failed: %s", error)


class ReadinessWait:
    """One wait for a ready model.

    Args:
      looks: not started yet.
      target: the session's target, which tells whom to ask about the chief.
      graph: tells the devices of the variables.
      recovery_wait_s: how long a chief or a task that was there may be gone.
      max_wait_s: how long to wait at all.
      cancelled: asked ten times a second.
    """

    def __init__(
        self,
        looks: Looks,
        target: str,
        graph: Graph,
        recovery_wait_s: float,
        max_wait_s: float,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._looks = looks
        self._target = target
        self._graph = graph
        self._recovery_wait_s = recovery_wait_s
        self._max_wait_s = max_wait_s
        self._cancelled = cancelled
        self._begin = time.monotonic()
        self._chief = chief_of(target)
        self._chief_gone_since: float | None = None
        self._said, self._said_at = "", float("-inf")

    def result(self) -> Any:
        """Waits, and returns the session.

        Raises:
          DeadlineExceededError: after ``max_wait_s``.
          UnavailableError: when the chief, or a task that has variables, was there and is gone.
          CancelledError: when ``cancelled`` says so.
        """
        looks = self._looks
        looks.start()
        try:
            while not looks.over.wait(min(_TICK_S, self._left_s())):
                self._check()
        except BaseException:  # even Ctrl-C: nobody would close the session that it may still find
            looks.give_up()
            raise
        if looks.error is not None:
            raise looks.error
        return looks.session

    def _left_s(self) -> float:
        return max(0.0, self._begin + self._max_wait_s - time.monotonic())

    def _check(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise errors.CancelledError(None, None, f"A stop was requested while {self._waiting_for()}.")
        if self._left_s() <= 0:
            raise errors.DeadlineExceededError(
                None,
                None,
                f"Session was not ready after waiting {self._max_wait_s:g} secs. It was {self._waiting_for()}.",
            )
        self._check_tasks()
        if self._looks.looks or time.monotonic() - self._begin > 1.0:
            self._say()

    def _check_tasks(self) -> None:
        now = time.monotonic()
        chief = self._chief_state()
        gone = chief is not None and chief.was_connected and not chief.connected
        self._chief_gone_since = (self._chief_gone_since or now) if gone else None
        if self._chief_gone_since is not None and now - self._chief_gone_since >= self._recovery_wait_s:
            raise errors.UnavailableError(
                None,
                None,
                f"The chief, {chief}, is gone ({chief.why if chief else ''}) and has not come back in"
                f" {self._recovery_wait_s:g} s, {self._waiting_for()}. Start it again, then this task.",
            )
        failing_since, failure = self._looks.failing_since, self._looks.failure
        # A DeadlineExceededError is of a task that has never been up, which may take its time.
        is_lost = failing_since is not None and now - failing_since >= self._recovery_wait_s
        if is_lost and isinstance(failure, errors.UnavailableError):
            raise failure

    def _chief_state(self) -> Reachability | None:
        return reach(self._target, self._chief) if self._chief is not None else None

    def _say(self) -> None:
        text = self._waiting_for()
        now = time.monotonic()
        if text != self._said or now - self._said_at >= _SAY_AGAIN_S:
            self._said, self._said_at = text, now
            _log.info(
                "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s. %s.",
                self._looks.local_reason, self._looks.reason, text[0].upper() + text[1:],
            )  # fmt: skip

    def _waiting_for(self) -> str:
        looks = self._looks
        away = [f"{each} ({each.why})" for each in unreachable(self._target) if each.task != self._chief]
        chief = self._chief_state()
        whom = "the chief" if chief is None else f"the chief, {chief},"
        if chief is not None and not chief.connected:
            whom = f"the chief, {chief} (not connected: {chief.why}),"
        if looks.failure is not None:
            text = f"waiting for a task to come back ({looks.failure.message})"
        elif looks.local_reason is not None or looks.reason is not None:
            what = with_places(looks.local_reason or looks.reason, self._graph)
            text = f"waiting for {whom} to initialise {what}"
        else:
            text = f"waiting for an answer about the model's variables, which {whom} initialises"
        return f"{text}; no connection to {', '.join(away)}" if away else text
