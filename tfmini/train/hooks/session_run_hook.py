"""Hooks: what runs beside every step of a monitored session (``tf.train.SessionRunHook``).

The life of a hook::

    begin                  the graph may still grow
    after_create_session   a session exists; again after each recovery
    before_run, after_run  around every run; `before_run` may add fetches, feeds and options to it
    end                    before the session is closed, unless an error ended it
"""

from __future__ import annotations

from typing import Any, NamedTuple


class SessionRunArgs(NamedTuple):
    """What a hook adds to a run (``tf.train.SessionRunArgs``): fetches in any structure, feeds, RunOptions."""

    fetches: Any
    feed_dict: Any = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """What came of it (``tf.train.SessionRunValues``): ``results`` has the structure of the hook's fetches."""

    results: Any
    options: Any
    run_metadata: Any


class SessionRunContext:
    """The run that a hook is called for (``tf.train.SessionRunContext``)."""

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """The caller's own fetches and feeds."""
        return self._original_args

    @property
    def session(self) -> Any:
        """The session, without hooks."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether a hook has asked for the loop's end."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Makes the monitored session's ``should_stop`` true from now on."""
        self._stop_requested = True


class SessionRunHook:
    """Base of hooks (``tf.train.SessionRunHook``); every method does nothing here."""

    def begin(self) -> None:
        """Called once, before the graph is finalized."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called with each new session, also after a recovery, and with its coordinator."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; returns what to add to it."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that did not fail."""

    def end(self, session: Any) -> None:
        """Called before the session is closed; not after an error other than the end of the input."""
