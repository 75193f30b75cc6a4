"""Timers of hooks, which trigger every given number of seconds or steps."""

from __future__ import annotations

from tfmini.export import export
from tfmini.runtime.process import current_process


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
        self._now = current_process().now
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
