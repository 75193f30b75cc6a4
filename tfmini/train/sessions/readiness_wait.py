"""The wait of a worker until the chief has initialized the model.

A thread probes the model, because a probe can block while a task is not running. The waiting thread logs the
missing variables and tasks. It gives up at the deadline, at a cancellation, or when the chief stays lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.graph.graph import Graph
from tfmini.runtime.client.reachability import Reachability, chief_of, reach, task_of, unreachable
from tfmini.runtime.process import current_process
from tfmini.train.sessions.readiness import advice, with_places

_log = logging.getLogger("tensorflow")
# The pause between two probes, which doubles from the first to the last value.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 0.25
_TICK_S = 0.1
_LOG_AGAIN_S = 30.0
_JOIN_S = 1.0

# session -> (whether local init is done, reason if not).
LocalInit = Callable[[Any], tuple[bool, str | None]]
# session -> (whether the model is ready, reason if not).
Ready = Callable[[Any], tuple[bool, str | None]]


class ReadinessProbe:
    """Probes the model, in a thread, until it is ready; after an error of the session it uses a new one.

    Attributes:
      session: the session with the ready model, or None.
      error: the error that ended the thread, or None.
      local_reason, reason: the reasons of the last probe: not ready for local init, not ready.
      failing_since: time since when every probe failed because a task is lost; None if the last one succeeded.
      failure: the error of the last probe, or None.
    """

    def __init__(self, connect: Callable[[], Any], local_init: LocalInit, ready: Ready, retried: Any) -> None:
        self._process = current_process()
        self._thread = self._process.thread(self._run, name="wait_for_session", daemon=True)
        self._connect, self._local_init, self._ready, self._retried = connect, local_init, ready, retried
        self._given_up = self._process.event()
        self._current: Any = None
        self.over = self._process.event()
        self.session: Any = None
        self.error: BaseException | None = None
        self.probes = 0
        self.local_reason: str | None = None
        self.reason: str | None = None
        self.failing_since: float | None = None
        self.failure: errors.OpError | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while self.session is None and not self._given_up.is_set():
                self._probe_in_new_session()
        except BaseException as error:  # the waiting thread raises it
            self.error = error
        finally:
            self.over.set()

    def _probe_in_new_session(self) -> None:
        session = self._current = self._connect()
        try:
            if self._probe_until_ready(session):
                self.session = session
        except self._retried as error:
            self.failure = error
            self.failing_since = self.failing_since or self._process.now()
            _log.debug("A readiness probe failed: %s", error)
        finally:
            if self.session is not session:
                close_quietly(session)
        if self.session is None:
            self._given_up.wait(_LAST_PAUSE_S)

    def _probe_until_ready(self, session: Any) -> bool:
        local_done, pause_s = False, _FIRST_PAUSE_S
        while not self._given_up.is_set():
            is_ready = False
            self.reason = None
            if not local_done:
                local_done, self.local_reason = self._local_init(session)
            if local_done:
                is_ready, self.reason = self._ready(session)
            self.failing_since = self.failure = None
            self.probes += 1
            if is_ready:
                return True
            self._given_up.wait(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        return False

    def give_up(self) -> None:
        """Ends the thread; closes the session of a probe that hangs, which cancels it."""
        self._given_up.set()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            close_quietly(self._current)
        elif self.session is not None:
            close_quietly(self.session)


def close_quietly(session: Any) -> None:
    """Closes a session; an error is only logged."""
    try:
        session.close()
    except Exception as error:  # the error that led here, if any, is more important
        _log.debug("Closing a session failed: %s", error)


class ReadinessWait:
    """One wait for a ready model.

    Args:
      probe: the probe, not started.
      target: the session's target.
      graph: the graph, for the devices of the variables.
      recovery_wait_s: seconds that a connected chief or task may be lost before the wait fails.
      max_wait_s: seconds to wait for the model.
      cancelled: a function that cancels the wait by returning True; it is called ten times per second.
    """

    def __init__(
        self,
        probe: ReadinessProbe,
        target: str,
        graph: Graph,
        recovery_wait_s: float,
        max_wait_s: float,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._probe = probe
        self._target = target
        self._graph = graph
        self._recovery_wait_s = recovery_wait_s
        self._max_wait_s = max_wait_s
        self._cancelled = cancelled
        self._now = current_process().now
        self._begin = self._now()
        self._chief = chief_of(target)
        self._chief_gone_since: float | None = None
        self._logged, self._logged_at = "", float("-inf")

    def result(self) -> Any:
        """Waits for the model and returns the session.

        Raises:
          DeadlineExceededError: after ``max_wait_s``.
          UnavailableError: when the chief, or a task with variables, was connected and is lost.
          CancelledError: when ``cancelled`` returns True.
        """
        probe = self._probe
        probe.start()
        try:
            while not probe.over.wait(min(_TICK_S, self._left_s())):
                self._check()
        except BaseException:  # even Ctrl-C, since only the probe has a reference to close its session
            probe.give_up()
            raise
        if probe.error is not None:
            raise probe.error
        return probe.session

    def _left_s(self) -> float:
        return max(0.0, self._begin + self._max_wait_s - self._now())

    def _check(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise errors.CancelledError.of(f"A stop was requested while {self._waiting_for()}.")
        if self._left_s() <= 0:
            raise errors.DeadlineExceededError.of(
                f"Session was not ready after waiting {self._max_wait_s:g} secs. It was {self._waiting_for()}.",
            )
        self._check_tasks()
        if self._probe.probes or self._now() - self._begin > 1.0:
            self._log_if_new()

    def _check_tasks(self) -> None:
        now = self._now()
        chief = self._chief_state()
        gone = chief is not None and chief.was_connected and not chief.connected
        self._chief_gone_since = (self._chief_gone_since or now) if gone else None
        if self._chief_gone_since is not None and now - self._chief_gone_since >= self._recovery_wait_s:
            raise errors.UnavailableError.of(
                f"The chief, {chief}, is gone ({chief.why if chief else ''}) and has not come back in"
                f" {self._recovery_wait_s:g} s, {self._waiting_for()}. Start it again, then this task."
            )
        failing_since, failure = self._probe.failing_since, self._probe.failure
        # A DeadlineExceededError comes from a task that has never started; the wait for it continues.
        is_lost = failing_since is not None and now - failing_since >= self._recovery_wait_s
        if is_lost and isinstance(failure, errors.UnavailableError):
            raise failure

    def _chief_state(self) -> Reachability | None:
        return reach(self._target, self._chief) if self._chief is not None else None

    def _log_if_new(self) -> None:
        text = self._waiting_for()
        now = self._now()
        if text != self._logged or now - self._logged_at >= _LOG_AGAIN_S:
            self._logged, self._logged_at = text, now
            _log.info(
                "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s. %s.",
                self._probe.local_reason, self._probe.reason, text[0].upper() + text[1:],
            )  # fmt: skip

    def _waiting_for(self) -> str:
        probe = self._probe
        away = [f"{each} ({each.why})" for each in unreachable(self._target) if each.task != self._chief]
        chief = self._chief_state()
        whom = "the chief" if chief is None else f"the chief, {chief},"
        if chief is not None and not chief.connected:
            whom = f"the chief, {chief} (not connected: {chief.why}),"
        if probe.failure is not None:
            text = f"waiting for a task to come back ({probe.failure.message})"
        elif probe.local_reason is not None or probe.reason is not None:
            reason = probe.local_reason or probe.reason
            text = f"waiting for {whom} to initialise {with_places(reason, self._graph)}"
            if self._chief is not None:
                text += advice(reason, self._graph, task_of(self._target))
        else:
            text = f"waiting for an answer about the model's variables, which {whom} initialises"
        return f"{text}; no connection to {', '.join(away)}" if away else text
