"""Repeating a step after the loss of a task or a connection, without the updates that the step has made already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfmini import errors
from tfmini.runtime.client.unfinished_step import of_finished, run_without

__all__ = ["PREEMPTION_ERRORS", "Attempts", "of_finished_step", "of_no_step", "run_without"]

# A task was restarted or cannot be reached.
PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)


class Attempts:
    """The failed attempts at one step."""

    def __init__(self) -> None:
        self._made: frozenset[str] = frozenset()
        self._unfinished: Any = None
        self._model = ""

    def failed(self, error: errors.OpError, model: str) -> None:
        """An attempt has failed.

        Args:
          model: the identifier of the model's values, see `SessionManager`.
        """
        # While a session is made, or a task asked, nothing is updated.
        if error.unfinished is not None:
            self._unfinished, self._model = error.unfinished, model

    def updates_made(self, model: str) -> frozenset[str]:
        """The updates that the attempts have made: none where the model has got other values since.

        Raises:
          The errors of `UnfinishedStep.updates_made`.
        """
        if model != self._model:
            self._made = frozenset()
        elif self._unfinished is not None:
            self._made |= self._unfinished.updates_made()
        self._unfinished, self._model = None, model
        return self._made


@contextmanager
def of_no_step() -> Iterator[None]:
    """An error in the block has nothing to do with the step itself."""
    try:
        yield
    except (errors.OpError, RuntimeError) as error:  # closed sessions raise the latter
        _set_unfinished(error, None)
        raise


@contextmanager
def of_finished_step(session: Any, fetches: Any, feed_dict: Any, omitted: frozenset[str]) -> Iterator[None]:
    """An error in the block comes after the step, which has made all its updates."""
    try:
        yield
    except (errors.OpError, RuntimeError) as error:  # closed sessions raise the latter
        # A user's session may be no `tf.Session`.
        is_known = hasattr(session, "_find_call")
        _set_unfinished(error, of_finished(session, fetches, feed_dict, omitted) if is_known else None)
        raise


def _set_unfinished(error: Exception, unfinished: Any) -> None:
    """Sets the ``unfinished`` of any error: a thread's loss of a task closes the session, and other errors follow."""
    error.unfinished = unfinished  # type: ignore[attr-defined]
