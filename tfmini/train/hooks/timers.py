"""When a hook acts: every so many seconds or steps."""

from __future__ import annotations

import time


class HookTimer:
    """What a hook asks before it acts."""

    def reset(self) -> None:
        """Forgets the last time."""

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether to act at this step."""
        raise NotImplementedError

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes an act; returns the seconds and the steps since the one before (None, None the first time)."""
        raise NotImplementedError

    def last_triggered_step(self) -> int | None:
        """The step of the last act, or None."""
        raise NotImplementedError


class SecondOrStepTimer(HookTimer):
    """Acts at first, then every so many seconds or every so many steps (``tf.train.SecondOrStepTimer``).

    Args:
      every_secs: seconds between two acts.
      every_steps: steps between two acts.

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
            return time.time() >= last_time + self._every_secs
        assert self._every_steps is not None
        return step >= last_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        now = time.time()
        since: tuple[float | None, int | None] = (None, None)
        if self._last_triggered_time is not None and self._last_triggered_step is not None:
            since = (now - self._last_triggered_time, step - self._last_triggered_step)
        self._last_triggered_time = now
        self._last_triggered_step = step
        return since

    def last_triggered_step(self) -> int | None:
        return self._last_triggered_step


class NeverTriggerTimer(HookTimer):
    """Never acts."""

    def should_trigger_for_step(self, step: int) -> bool:
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        return None, None

    def last_triggered_step(self) -> int | None:
        return None
