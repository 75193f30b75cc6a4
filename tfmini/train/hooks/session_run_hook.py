"""The interface of hooks, which a monitored session calls before and after every run (``tf.train.SessionRunHook``).

A session calls the methods of a hook in this order::

    begin                  the graph may still be changed
    after_create_session   after a session was created, also after each recovery
    before_run, after_run  before and after every run; `before_run` may add fetches, feeds and options
    end                    before the session is closed, unless an error ended it
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tfmini.export import export


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

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called with each new session, also after a recovery, and its coordinator."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; returns additions to the run, or None."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each successful run."""

    def end(self, session: Any) -> None:
        """Called before the session is closed, unless an error other than the end of the input ended it."""
