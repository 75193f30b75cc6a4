"""The sessions that use a shared object, and those that began before its latest renewal.

The chief of a synchronous run renews the token queue and the accumulators when it gives the model other values. The
gradients that older sessions have sent, and those that they still send, belong to a model that is gone.
"""

from __future__ import annotations

import weakref
from typing import Any

from tfmini import errors


class Users:
    """The sessions of one object, each represented by its view of the task's resources; the object's lock guards them.

    Attributes:
      are_outdated: whether a renewal has happened, so that `check` may refuse a session.
    """

    __slots__ = ("_current", "_outdated", "are_outdated")

    def __init__(self) -> None:
        # Weak: a session that ends is forgotten.
        self._current: weakref.WeakSet[Any] = weakref.WeakSet()
        self._outdated: weakref.WeakSet[Any] = weakref.WeakSet()
        self.are_outdated = False

    def add(self, session: Any) -> None:
        """Notes a session whose program is bound to the object."""
        if session not in self._outdated:
            self._current.add(session)

    def renew(self) -> None:
        """From now on `check` refuses the sessions that have used the object so far."""
        self._outdated |= self._current
        self._current = weakref.WeakSet()
        self.are_outdated = True

    def check(self, session: Any, name: str) -> None:
        """Refuses a session that used the object before its latest renewal.

        Raises:
          AbortedError: which lets a monitored session make a new session.
        """
        if self.are_outdated and session in self._outdated:
            raise outdated_error(name)


def outdated_error(name: str) -> errors.OpError:
    """The error of a session that used an object before its latest renewal."""
    return errors.AbortedError.of(
        f"'{name}' was emptied: the chief has initialised or restored the model since this session began, so its"
        " gradients belong to a model that is gone. Make a new session; a MonitoredSession does so by itself."
    )
