"""The interface of hooks, which a monitored session calls before and after every run (``tf.train.SessionRunHook``).

A session calls the methods of a hook in this order::

    begin                  the graph may still be changed
    after_create_session   after a session was created, also after each recovery
    before_run, after_run  before and after every run; `before_run` may add fetches, feeds and options
    end                    before the session is closed, unless an error ended it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tfmini.export import export
from tfmini.runtime.process import current_process
from tfmini.train.coordinator import Coordinator


@export("tf.estimator.SessionRunArgs", "tf.train.SessionRunArgs")
class SessionRunArgs(NamedTuple):
    """A hook's additions to a run (``tf.train.SessionRunArgs``): fetches in any structure, feeds, RunOptions."""

    fetches: Any
    feed_dict: Any = None
    options: Any = None


@export("tf.estimator.SessionRunValues", "tf.train.SessionRunValues")
class SessionRunValues(NamedTuple):
    """The results of a run (``tf.train.SessionRunValues``): ``results`` has the structure of the hook's fetches."""

    results: Any
    options: Any
    run_metadata: Any


@export("tf.estimator.SessionRunContext", "tf.train.SessionRunContext")
class SessionRunContext:
    """The run for which a hook is called (``tf.train.SessionRunContext``)."""

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """The fetches and feeds of the caller of ``run``."""
        return self._original_args

    @property
    def session(self) -> Any:
        """The session without hooks."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether a hook requested the end of the loop."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Makes the monitored session's ``should_stop`` return True from now on."""
        self._stop_requested = True


@export("tf.estimator.SessionRunHook", "tf.train.SessionRunHook")
class SessionRunHook:
    """Base class of hooks, whose methods do nothing (``tf.train.SessionRunHook``)."""

    def begin(self) -> None:
        """Called once, before the graph is finalized."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Called with each new session, also after a recovery, and its coordinator."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; returns additions to the run, or None."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each successful run."""

    def end(self, session: Any) -> None:
        """Called before the session is closed, unless an error other than the end of the input ended it."""


# ---- Timers of hooks, which trigger every given number of seconds or steps -----------------------------------------


class HookTimer:
    """Base class of timers; a hook asks a timer whether to act."""

    def reset(self) -> None:
        """Forgets the last trigger."""

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether to act at this step."""
        raise NotImplementedError

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Records a trigger; returns seconds and steps since the previous one, (None, None) for the first."""
        raise NotImplementedError

    def last_triggered_step(self) -> int | None:
        """The step of the last trigger, or None."""
        raise NotImplementedError


@export("tf.estimator.SecondOrStepTimer", "tf.train.SecondOrStepTimer")
class SecondOrStepTimer(HookTimer):
    """Triggers at first, then every ``every_secs`` seconds or ``every_steps`` steps (``tf.train.SecondOrStepTimer``).

    Args:
      every_secs: seconds between two triggers.
      every_steps: steps between two triggers.

    Raises:
      ValueError: unless exactly one is given.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        self._now = current_process().wall_time
        self.reset()

    def reset(self) -> None:
        self._last_triggered_step: int | None = None
        self._last_triggered_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        last_step, last_time = self._last_triggered_step, self._last_triggered_time
        if last_step is None or last_time is None:
            return True
        if step == last_step:
            return False
        if self._every_secs is not None:
            return self._now() >= last_time + self._every_secs
        assert self._every_steps is not None
        return step >= last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        now = self._now()
        since: tuple[float | None, int | None] = (None, None)
        if self._last_triggered_time is not None and self._last_triggered_step is not None:
            since = (now - self._last_triggered_time, step - self._last_triggered_step)
        self._last_triggered_time = now
        self._last_triggered_step = step
        return since

    def last_triggered_step(self) -> int | None:
        return self._last_triggered_step


class NeverTriggerTimer(HookTimer):
    """A timer that never triggers."""

    def should_trigger_for_step(self, step: int) -> bool:
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        return None, None

    def last_triggered_step(self) -> int | None:
        return None


def list_of_hooks(hooks: Iterable[Any] | None) -> list[Any]:
    """The argument ``hooks`` of a session or an estimator as a list.

    Raises:
      TypeError: it is one hook in place of a list, or has a class in place of a hook.
    """
    if isinstance(hooks, SessionRunHook):
        raise TypeError(f"hooks must be a list of hooks, but got one: write hooks=[{type(hooks).__name__}(…)].")
    if isinstance(hooks, type):
        raise TypeError(f"hooks must be a list of hooks, but got a class: write hooks=[{hooks.__name__}(…)].")
    found = list(hooks or ())
    for hook in found:
        if isinstance(hook, type):
            raise TypeError(f"Hooks must be a SessionRunHook, given: the class itself. Write {hook.__name__}(…).")
    return found
